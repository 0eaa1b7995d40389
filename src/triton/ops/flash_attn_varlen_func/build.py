"""The variants of flash_attn_varlen_func."""

from codegen.triton.flash import flash_operator

OPERATOR = flash_operator()
