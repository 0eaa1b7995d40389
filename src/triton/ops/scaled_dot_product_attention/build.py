"""The variants of scaled_dot_product_attention, of at most 128 columns.

For each type there is one for rows without gaps and without a mask, and one for all other calls.
The glue code passes two dimensions of batches, and the heads that share keys. Tiles are starting
values from public practice (Triton's tutorial on attention), not measured. They fit into 99 KiB of
shared memory, because sm_86 and sm_89 have no more.
"""

from collections.abc import Iterator

from codegen.triton.spec import TRITON_TYPES, FieldKind, Operator, Variant

TENSORS = ("out", "query", "key", "value")
DIMENSIONS = ("outer", "inner", "head", "row", "column")
SHARED = ("key_head", "value_head")  # by all heads
STRIDES = tuple(
    stride
    for name in (*TENSORS, "mask")
    for stride in (f"{name}_{dimension}" for dimension in DIMENSIONS)
    if stride not in SHARED
)
SIZES = ("queries", "keys", "key_size", "value_size", "heads", "inner_batches")
INTEGERS = (*SIZES, "is_causal", "shift", "mask_kind")
TYPES = {
    **dict.fromkeys(INTEGERS, "i32"),
    "scale": "fp32",
    **dict.fromkeys(STRIDES, "i64"),
}
FIELDS = {
    "data_type": FieldKind.DATA_TYPE,
    **dict.fromkeys((*TENSORS, "mask"), FieldKind.POINTER),
    **dict.fromkeys((*INTEGERS, "batches"), FieldKind.INTEGER),
    "scale": FieldKind.FLOAT,
    **dict.fromkeys(STRIDES, FieldKind.INTEGER),
}
# Queries and keys of a program. Small ones keep code small where all elements of a tile are
# addressed one by one, and where products are unrolled: 64 x 64 would take 330 KB.
LARGE, SMALL = (64, 64), (16, 32)
TILES = {"kFloat16": LARGE, "kBFloat16": LARGE, "kFloat32": SMALL}
WITHOUT_GAPS = dict.fromkeys((f"{name}_column" for name in TENSORS), 1)
ALIGNED = (
    *(stride for stride in STRIDES if stride not in WITHOUT_GAPS and not stride.startswith("mask")),
    *(*TENSORS, "key_size", "value_size"),
)


def variants(target: int) -> list[Variant]:  # noqa: ARG001 - the same for all
    return [variant for data_type in TILES for variant in of_type(data_type)]


def of_type(data_type: str) -> Iterator[Variant]:
    prefix = data_type.removeprefix("k").lower()
    pointers = dict.fromkeys((*TENSORS, "mask"), f"*{TRITON_TYPES[data_type]}")
    without_mask = {**WITHOUT_GAPS, "mask_kind": 0, "HAS_MASK": False}
    for name, constants, divisible, (queries, keys), stages in (
        ("aligned", without_mask, ALIGNED, TILES[data_type], 2),
        ("strided", {"HAS_MASK": True}, (), SMALL, 1),
    ):
        yield Variant(
            name=f"{prefix}_{name}",
            kernel="attention",
            types={k: v for k, v in {**pointers, **TYPES}.items() if k not in constants},
            constants={**constants, "QUERIES": queries, "KEYS": keys, "SIZE": 128},
            data_types={"data_type": [data_type]},
            divisible=divisible,
            grid=("cdiv(queries, QUERIES) * heads * batches",),
            num_stages=stages,
        )


OPERATOR = Operator(fields=FIELDS, variants=variants)
