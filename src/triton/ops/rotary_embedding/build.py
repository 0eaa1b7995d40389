"""The variants of rotary_embedding.

The glue code launches one for `query` and one for `key`. Types of positions differ in one load only
and are no variants. Block sizes are starting values, not measured: a head of 128 elements has 64
pairs.
"""

from collections.abc import Iterator

from codegen.triton.spec import TRITON_TYPES, FieldKind, Operator, Variant

POINTERS = ("positions", "heads", "cache")
STRIDES = (
    *("positions_batch", "positions_token"),
    *("heads_batch", "heads_token", "heads_head", "heads_element"),
    *("cache_row", "cache_element", "pair_step", "partner"),
)
SIZES = ("tokens", "head_count", "pairs", "positions_size")
TYPES = {
    **dict.fromkeys(SIZES, "i32"),
    "sign": "fp32",
    **dict.fromkeys((*STRIDES, "cache_rows"), "i64"),
}
FIELDS = {
    **dict.fromkeys(("data_type", "cache_type"), FieldKind.DATA_TYPE),
    **dict.fromkeys(POINTERS, FieldKind.POINTER),
    **dict.fromkeys((*SIZES, *STRIDES, "cache_rows", "batches"), FieldKind.INTEGER),
    "sign": FieldKind.FLOAT,
}
BLOCKS = {"HEADS": 8, "PAIRS": 64}
# Halves of heads without gaps: a thread reads several elements at a time.
HALVES = dict.fromkeys(("heads_element", "cache_element", "pair_step"), 1)
ALIGNED = ("heads", "cache", "heads_batch", "heads_token", "heads_head", "cache_row", "partner")


def variants(target: int) -> list[Variant]:  # noqa: ARG001 - the same for all
    types = ("kFloat16", "kBFloat16", "kFloat32")
    pairs = [(type_, cache) for type_ in types for cache in dict.fromkeys((type_, "kFloat32"))]
    return [variant for type_, cache in pairs for variant in of_types(type_, cache)]


def of_types(type_: str, cache: str) -> Iterator[Variant]:
    prefix = type_.removeprefix("k").lower() + ("" if cache == type_ else "_float32")
    pointers = {
        "positions": "*i32",  # or 64 bits
        "heads": f"*{TRITON_TYPES[type_]}",
        "cache": f"*{TRITON_TYPES[cache]}",
    }
    for name, constants in (("aligned_halves", HALVES), ("strided", {})):
        passed = {k: v for k, v in {**pointers, **TYPES}.items() if k not in constants}
        yield Variant(
            name=f"{prefix}_{name}",
            kernel="rotary_embedding",
            types=passed,
            constants={**constants, **BLOCKS},
            data_types={"data_type": [type_], "cache_type": [cache]},
            divisible=(*ALIGNED, "pairs") if constants else (),
            grid=("cdiv(head_count, HEADS) * tokens * batches",),
        )


OPERATOR = Operator(fields=FIELDS, variants=variants)
