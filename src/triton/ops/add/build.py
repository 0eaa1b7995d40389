"""The variants of add.

The glue merges dimensions that lie without a gap in all three tensors, so contiguous tensors of any
shape arrive as one row. Sizes and strides of dimensions that are not there are 1 and 0.
"""

from collections.abc import Iterator

from codegen.triton.spec import TRITON_TYPES, FieldKind, Operator, Variant

RANK = 5
TENSORS = ("input", "other", "out")
SIZES = tuple(f"size{i}" for i in range(RANK))
STRIDES = tuple(f"{name}_stride{i}" for name in TENSORS for i in range(RANK))
INNER_STRIDES = tuple(stride for stride in STRIDES if stride.endswith("0"))
OUTER_STRIDES = tuple(stride for stride in STRIDES if not stride.endswith("0"))

FIELDS = {
    "data_type": FieldKind.DATA_TYPE,
    **dict.fromkeys(TENSORS, FieldKind.POINTER),
    "alpha": FieldKind.FLOAT,  # for floats
    "integer_alpha": FieldKind.INTEGER,  # for integers
    "count": FieldKind.INTEGER,
    **dict.fromkeys((*SIZES, *STRIDES), FieldKind.INTEGER),
}

# The types in memory, and as what alpha is passed. Sums of integers wrap around, signed or not.
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
    row_sizes = {"size0": "i64", **dict.fromkeys(SIZES[1:-1], "i32")}

    yield Variant(
        name=f"{prefix}_contiguous",
        kernel="add_contiguous",
        types={**fixed, "count": "i64"},
        constants={"BLOCK": 1024},
        data_types=data_type,
        divisible=TENSORS,
        when=("count == size0", *(f"{stride} == 1" for stride in INNER_STRIDES)),
        arguments=arguments,
        grid=("cdiv(count, BLOCK)",),
    )
    yield Variant(
        name=f"{prefix}_aligned_rows",
        kernel="add_rows",
        types={**fixed, **row_sizes, **dict.fromkeys(OUTER_STRIDES, "i64")},
        constants={**dict.fromkeys(INNER_STRIDES, 1), "BLOCK": 1024},
        data_types=data_type,
        divisible=(*TENSORS, *OUTER_STRIDES),
        when=("size0 >= BLOCK / 2",),
        arguments=arguments,
        grid=row_grid,
    )
    yield Variant(
        name=f"{prefix}_rows",
        kernel="add_rows",
        types={**fixed, **row_sizes, **dict.fromkeys(STRIDES, "i64")},
        constants={"BLOCK": 512},
        data_types=data_type,
        when=("size0 >= BLOCK / 2",),
        arguments=arguments,
        grid=row_grid,
    )
    # An element per thread: more of them find their places no faster, in three times the code.
    for name, index in (("elements", "i32"), ("many_elements", "i64")):
        yield Variant(
            name=f"{prefix}_{name}",
            kernel="add_elements",
            types={
                **fixed,
                **dict.fromkeys(("count", *SIZES[:-1]), index),
                **dict.fromkeys(STRIDES, "i64"),
            },
            constants={"BLOCK": 256},
            num_warps=8,
            data_types=data_type,
            # The last block's indices must not overflow.
            when=("count <= INT32_MAX - BLOCK",) if index == "i32" else (),
            arguments=arguments,
            grid=("cdiv(count, BLOCK)",),
        )


OPERATOR = Operator(fields=FIELDS, variants=variants)
