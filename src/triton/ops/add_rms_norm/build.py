"""The variants of add_rms_norm."""

from codegen.triton.rows import added_norm

OPERATOR = added_norm()
