"""Operators that multiply a tensor by an activated one: the shared part of their ``build.py``.

The kernels are those of swiglu. The glue code merges dimensions that have no gap between them in
all three tensors. It splits tensors that have more than two dimensions after that, or more than
2 GiB. Block sizes are starting values from public practice, not measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen.triton.spec import TRITON_TYPES, FieldKind, Operator, Variant

TENSORS = ("input", "gate", "out")
ROW_STRIDES = tuple(f"{name}_row" for name in TENSORS)
COLUMN_STRIDES = tuple(f"{name}_column" for name in TENSORS)
INTEGERS = ("count", "columns", *ROW_STRIDES, *COLUMN_STRIDES)

FIELDS = {
    "data_type": FieldKind.DATA_TYPE,
    **dict.fromkeys(TENSORS, FieldKind.POINTER),
    **dict.fromkeys(INTEGERS, FieldKind.INTEGER),
}

WITHOUT_GAPS = tuple(f"{stride} == 1" for stride in COLUMN_STRIDES)


def gated_operator(activation: str) -> Operator:
    """Define ``out = input * activation(gate)``."""
    return Operator(
        fields=FIELDS,
        variants=lambda target: [  # noqa: ARG005 - the same for all
            variant
            for data_type in ("kFloat16", "kBFloat16", "kFloat32")
            for variant in _of_type(data_type, activation)
        ],
        kernels_of="swiglu",
    )


def _of_type(data_type: str, activation: str) -> Iterator[Variant]:
    prefix = data_type.removeprefix("k").lower()
    pointers = dict.fromkeys(TENSORS, f"*{TRITON_TYPES[data_type]}")
    of_rows = dict.fromkeys(("columns", *ROW_STRIDES), "i32")
    yield Variant(
        name=f"{prefix}_aligned_rows",
        kernel="gated_rows",
        types={**pointers, **of_rows},
        constants={"ACTIVATION": activation, "BLOCK": 1024},
        data_types={"data_type": [data_type]},
        divisible=(*TENSORS, *ROW_STRIDES),
        when=(*WITHOUT_GAPS, "columns >= BLOCK / 2", "columns <= INT32_MAX - BLOCK"),
        grid=("cdiv(columns, BLOCK) * (count / columns)",),
    )
    yield Variant(
        name=f"{prefix}_elements",
        kernel="gated_elements",
        types={**pointers, **dict.fromkeys(INTEGERS, "i32")},
        constants={"ACTIVATION": activation, "BLOCK": 512},
        data_types={"data_type": [data_type]},
        when=("count <= INT32_MAX - BLOCK",),
        grid=("cdiv(count, BLOCK)",),
    )
