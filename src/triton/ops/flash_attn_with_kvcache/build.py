"""The variants of flash_attn_with_kvcache."""

from codegen.triton.flash import flash_operator

OPERATOR = flash_operator()
