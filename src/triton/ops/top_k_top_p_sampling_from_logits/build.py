"""The variants of top_k_top_p_sampling_from_logits.

Types of indices differ in one load or store only and are no variants. The block is a starting
value, not measured.
"""

from collections.abc import Iterator

from codegen.triton.spec import TRITON_TYPES, FieldKind, Operator, Variant

POINTERS = {"top_ks": "*i32", "top_ps": "*fp32", "seeds": "*i32", "out": "*i32"}  # or 64 bits
SIZES = ("columns", "is_joint", "top_ks_size", "has_top_ps", "seeds_size", "out_size")
NUMBERS = ("top_k", "seed", "offset")
STRIDES = ("logits_row", "logits_column", "top_ks_row", "top_ps_row", "seeds_row", "out_row")
TYPES = {
    **POINTERS,
    **dict.fromkeys(SIZES, "i32"),
    **dict.fromkeys((*NUMBERS, *STRIDES), "i64"),
    "top_p": "fp32",
}
FIELDS = {
    "data_type": FieldKind.DATA_TYPE,
    **dict.fromkeys(("logits", *POINTERS), FieldKind.POINTER),
    **dict.fromkeys((*SIZES, *NUMBERS, *STRIDES, "rows"), FieldKind.INTEGER),
    "top_p": FieldKind.FLOAT,
}


def variants(target: int) -> list[Variant]:  # noqa: ARG001 - the same for all
    return [each for type_ in ("kFloat16", "kBFloat16", "kFloat32") for each in of_type(type_)]


def of_type(type_: str) -> Iterator[Variant]:
    for name, constants, divisible in (
        ("aligned", {"logits_column": 1}, ("logits", "columns", "logits_row")),
        ("strided", {}, ()),
    ):
        types = {"logits": f"*{TRITON_TYPES[type_]}", **TYPES}
        yield Variant(
            name=f"{type_.removeprefix('k').lower()}_{name}",
            kernel="sample",
            types={k: v for k, v in types.items() if k not in constants},
            constants={**constants, "BLOCK": 4096},
            data_types={"data_type": [type_]},
            divisible=divisible,
            grid=("rows",),
            num_warps=8,
        )


OPERATOR = Operator(fields=FIELDS, variants=variants)
