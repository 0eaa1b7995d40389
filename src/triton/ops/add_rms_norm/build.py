"""The variants of add_rms_norm."""

from codegen.triton.rows import row_operator

OPERATOR = row_operator(
    "add_rms_norm",
    ("input", "residual", "weight", "out", "residual_out"),
    floats=("eps",),
    with_rows=("input", "residual", "out", "residual_out"),
)
