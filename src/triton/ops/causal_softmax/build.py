"""The variants of causal_softmax."""

from codegen.triton.rows import row_operator

OPERATOR = row_operator("softmax", ("input", "out"), fixed={"sign": 1, "scale": 1, "CAUSAL": True})
