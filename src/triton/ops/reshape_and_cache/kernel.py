"""Tokens, copied into the slots of a cache."""

import triton
import triton.language as tl


@triton.jit
def copy_tokens(
    tokens,
    cache,
    slots,
    count,  # elements of a token
    size0,  # of its dimensions in the cache, innermost first
    size1,
    slots_size,  # bytes of a slot's number
    block_size,
    slot_count,  # of the cache
    slots_stride,
    tokens_token,
    tokens_stride0,
    tokens_stride1,
    tokens_stride2,
    cache_block,
    cache_slot,
    cache_stride0,
    cache_stride1,
    cache_stride2,
    BLOCK: tl.constexpr,
    ONE_ROW: tl.constexpr,  # the elements of a token have no gaps
):
    """Copy BLOCK elements of a token per program; others than those of the cache are skipped."""
    blocks = tl.cdiv(count, BLOCK)
    token = (tl.program_id(0) // blocks).to(tl.int64)
    element = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    if slots_size == 8:
        slot = tl.load(slots.to(tl.pointer_type(tl.int64)) + token * slots_stride)
    else:
        slot = tl.load(slots + token * slots_stride).to(tl.int64)
    mask = element < tl.where((slot >= 0) & (slot < slot_count), count, 0)
    tokens += token * tokens_token
    slot = slot.to(tl.int32)  # divisions of 64 bits would be half of the code
    cache += (slot // block_size).to(tl.int64) * cache_block
    cache += (slot % block_size).to(tl.int64) * cache_slot
    if ONE_ROW:
        tl.store(cache + element, tl.load(tokens + element, mask), mask)
    else:
        place0 = (element % size0).to(tl.int64)
        place1 = (element // size0 % size1).to(tl.int64)
        place2 = (element // size0 // size1).to(tl.int64)
        tokens += place0 * tokens_stride0 + place1 * tokens_stride1 + place2 * tokens_stride2
        cache += place0 * cache_stride0 + place1 * cache_stride1 + place2 * cache_stride2
        tl.store(cache, tl.load(tokens, mask), mask)
