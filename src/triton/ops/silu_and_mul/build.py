"""The variants of silu_and_mul."""

from codegen.triton.gated import gated_operator

OPERATOR = gated_operator("silu")
