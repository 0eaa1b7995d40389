"""The variants of causal_softmax."""

from codegen.triton.rows import row_operator

OPERATOR = row_operator("causal_softmax", ("input", "out"))
