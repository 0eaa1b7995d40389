"""Operators whose kernels process a tensor row by row: the shared part of their ``build.py``.

Row r of a tensor is [r // inner_rows, r % inner_rows], so that the dimensions before the last one
can come from a transposed view. A program processes BLOCK columns of ROWS rows at a time. With
LOOP, it loops over the blocks of a row that is longer than one block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from codegen.triton.spec import TRITON_TYPES, FieldKind, Operator, Variant

DATA_TYPES = ("kFloat16", "kBFloat16", "kFloat32")
SIZES = ("rows", "inner_rows", "columns")

# Columns in one block -> rows and warps of a program; several narrow rows share a program. At most
# 32 elements per thread, as in Triton's own examples of a fused softmax and a layer norm. These are
# starting values from public practice, not measured.
BLOCKS = {128: (16, 4), 1024: (2, 4), 4096: (1, 8), 16384: (1, 16)}
LOOP_BLOCK = 4096
STRIDED_BLOCK = 1024


def row_operator(
    kernel: str,
    tensors: Sequence[str],
    floats: Sequence[str] = (),
    with_rows: Sequence[str] = ("input", "out"),
    kernels_of: str | None = None,
    fixed: Mapping[str, int] | None = None,
) -> Operator:
    """Define an operator of ``tensors``, of which those of ``with_rows`` are split into rows.

    ``fixed`` are more constants of all variants.

    For each type, the variants for rows without gaps come first, and one for any strides comes
    last.
    """
    columns = tuple(f"{name}_column" for name in tensors)
    rows_apart = tuple(f"{name}_{which}" for name in with_rows for which in ("outer", "inner"))
    types = {
        **dict.fromkeys(SIZES, "i32"),
        **dict.fromkeys(floats, "fp32"),
        **dict.fromkeys((*rows_apart, *columns), "i64"),
    }
    kinds = {"fp32": FieldKind.FLOAT, "i32": FieldKind.INTEGER, "i64": FieldKind.INTEGER}
    fields = {
        "data_type": FieldKind.DATA_TYPE,
        **dict.fromkeys(tensors, FieldKind.POINTER),
        **{name: kinds[type_] for name, type_ in types.items()},
    }

    def of_type(data_type: str) -> Iterator[Variant]:
        pointers = dict.fromkeys(tensors, f"*{TRITON_TYPES[data_type]}")

        def make(name: str, constants: Mapping[str, int], warps: int, *when: str) -> Variant:
            passed = {k: v for k, v in {**pointers, **types}.items() if k not in constants}
            aligned = set(columns) <= constants.keys()
            return Variant(
                name=f"{data_type.removeprefix('k').lower()}_{name}",
                kernel=kernel,
                types=passed,
                constants={**constants, **(fixed or {})},
                data_types={"data_type": [data_type]},
                divisible=(*tensors, "columns", *rows_apart) if aligned else (),
                when=when,
                grid=("cdiv(rows, ROWS)",),
                num_warps=warps,
            )

        without_gaps = dict.fromkeys(columns, 1)
        for block, (rows, warps) in BLOCKS.items():
            constants = {**without_gaps, "BLOCK": block, "ROWS": rows, "LOOP": False}
            yield make(f"row{block}", constants, warps, "columns <= BLOCK")
        loop = {"BLOCK": LOOP_BLOCK, "ROWS": 1, "LOOP": True}
        yield make("loop", {**without_gaps, **loop}, 8)
        yield make("strided", {**loop, "BLOCK": STRIDED_BLOCK}, 4)

    return Operator(
        fields=fields,
        variants=lambda target: [  # noqa: ARG005 - the same for all
            variant for data_type in DATA_TYPES for variant in of_type(data_type)
        ],
        kernels_of=kernels_of,
    )


def added_norm() -> Operator:
    """Define the normalized sum of two tensors, with the kernel of add_rms_norm."""
    tensors = ("input", "residual", "weight", "out", "residual_out")
    return row_operator(
        "add_rms_norm",
        tensors,
        floats=("eps",),
        with_rows=[name for name in tensors if name != "weight"],
        kernels_of="add_rms_norm",
    )
