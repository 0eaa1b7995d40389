"""The variants of gelu_and_mul."""

from codegen.triton.gated import gated_operator

OPERATOR = gated_operator("gelu")
