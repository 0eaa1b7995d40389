"""The variants of add.

The glue code merges dimensions that have no gap between them in all three tensors. Contiguous
tensors of any shape therefore arrive as one row. It splits tensors that have more than five
dimensions after that, or more than 2 GiB. Absent dimensions have size 1 and stride 0.
"""

from collections.abc import Iterator

from codegen.triton.spec import TRITON_TYPES, FieldKind, Operator, Variant

RANK = 5
TENSORS = ("input", "other", "out")
SIZES = tuple(f"size{i}" for i in range(RANK - 1))  # the outermost size is not needed
STRIDES = tuple(f"{name}_stride{i}" for name in TENSORS for i in range(RANK))
INNER_STRIDES = tuple(stride for stride in STRIDES if stride.endswith("0"))
OUTER_STRIDES = tuple(stride for stride in STRIDES if not stride.endswith("0"))

# Offsets also have 32 bits.
LAST_BLOCK = ("count <= INT32_MAX - BLOCK",)

FIELDS = {
    "data_type": FieldKind.DATA_TYPE,
    **dict.fromkeys(TENSORS, FieldKind.POINTER),
    "alpha": FieldKind.FLOAT,  # for float types
    "integer_alpha": FieldKind.INTEGER,  # for integer types
    "count": FieldKind.INTEGER,
    **dict.fromkeys((*SIZES, *STRIDES), FieldKind.INTEGER),
}

# Element types -> the type of alpha. Sums of integers wrap around, so signs do not matter.
TYPES = {
    ("kFloat16",): "fp32",
    ("kBFloat16",): "fp32",
    ("kFloat32",): "fp32",
    ("kInt8", "kUInt8"): "i32",
    ("kInt16",): "i32",
    ("kInt32",): "i32",
    ("kInt64",): "i64",
}


def variants(target: int) -> list[Variant]:  # noqa: ARG001 - the same for all
    return [variant for data_types in TYPES for variant in of_type(data_types)]


def of_type(data_types: tuple[str, ...]) -> Iterator[Variant]:
    prefix = data_types[0].removeprefix("k").lower()
    alpha = TYPES[data_types]
    fixed = {**dict.fromkeys(TENSORS, f"*{TRITON_TYPES[data_types[0]]}"), "alpha": alpha}
    data_type = {"data_type": data_types}
    arguments = {"alpha": "alpha" if alpha == "fp32" else "integer_alpha"}
    row_grid = ("cdiv(size0, BLOCK) * (count / size0)",)

    yield Variant(
        name=f"{prefix}_contiguous",
        kernel="add_contiguous",
        types={**fixed, "count": "i32"},
        constants={"BLOCK": 1024},
        data_types=data_type,
        divisible=TENSORS,
        when=(*LAST_BLOCK, "count == size0", *(f"{stride} == 1" for stride in INNER_STRIDES)),
        arguments=arguments,
        grid=("cdiv(count, BLOCK)",),
    )
    yield Variant(
        name=f"{prefix}_aligned_rows",
        kernel="add_rows",
        types={**fixed, **dict.fromkeys((*SIZES, *OUTER_STRIDES), "i32")},
        constants={**dict.fromkeys(INNER_STRIDES, 1), "BLOCK": 1024},
        data_types=data_type,
        divisible=(*TENSORS, *OUTER_STRIDES),
        when=(*LAST_BLOCK, "size0 >= BLOCK / 2"),
        arguments=arguments,
        grid=row_grid,
    )
    yield Variant(
        name=f"{prefix}_rows",
        kernel="add_rows",
        types={**fixed, **dict.fromkeys((*SIZES, *STRIDES), "i32")},
        constants={"BLOCK": 512},
        data_types=data_type,
        when=(*LAST_BLOCK, "size0 >= BLOCK / 2"),
        arguments=arguments,
        grid=row_grid,
    )
    yield Variant(
        name=f"{prefix}_elements",
        kernel="add_elements",
        types={**fixed, **dict.fromkeys(("count", *SIZES, *STRIDES), "i32")},
        # One element per thread: with more, finding them is not faster, and the code three times as
        # large.
        constants={"BLOCK": 256},
        num_warps=8,
        data_types=data_type,
        when=LAST_BLOCK,
        arguments=arguments,
        grid=("cdiv(count, BLOCK)",),
    )


OPERATOR = Operator(fields=FIELDS, variants=variants)
