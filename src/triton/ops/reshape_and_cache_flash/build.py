"""The variants of reshape_and_cache_flash."""

from codegen.triton.caches import cache_operator

OPERATOR = cache_operator(has_rows=True)
