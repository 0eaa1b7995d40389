"""The variants of scaled_softmax."""

from codegen.triton.rows import row_operator

OPERATOR = row_operator(
    "softmax",
    ("input", "out"),
    floats=("sign", "scale"),
    kernels_of="causal_softmax",
    fixed={"CAUSAL": False},
)
