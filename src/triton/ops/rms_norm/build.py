"""The variants of rms_norm."""

from codegen.triton.rows import row_operator

OPERATOR = row_operator("rms_norm", ("input", "weight", "out"), floats=("eps",))
