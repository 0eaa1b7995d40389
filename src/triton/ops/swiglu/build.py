"""The variants of swiglu."""

from codegen.triton.gated import gated_operator

OPERATOR = gated_operator("silu")
