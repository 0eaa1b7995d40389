"""Pairs of elements of each head, rotated in place by the angle of their token."""

import triton
import triton.language as tl


@triton.jit
def rotary_embedding(
    positions,
    heads,  # from the first rotated element on
    cache,
    tokens,  # of a batch
    head_count,
    pairs,
    positions_size,  # bytes of a position
    sign,  # of the sines
    positions_batch,
    positions_token,
    heads_batch,
    heads_token,
    heads_head,
    heads_element,
    cache_rows,
    cache_row,
    cache_element,
    pair_step,  # elements between the first ones of two pairs
    partner,  # elements between those of a pair
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Rotate HEADS heads of a token per program."""
    blocks = tl.cdiv(head_count, HEADS)
    batch = (tl.program_id(0) // blocks // tokens).to(tl.int64)
    token = (tl.program_id(0) // blocks % tokens).to(tl.int64)
    place = batch * positions_batch + token * positions_token
    if positions_size == 8:
        position = tl.load(positions.to(tl.pointer_type(tl.int64)) + place)
    else:
        position = tl.load(positions + place).to(tl.int64)
    pairs = tl.where((position >= 0) & (position < cache_rows), pairs, 0)
    cache += position * cache_row
    head = tl.program_id(0) % blocks * HEADS + tl.arange(0, HEADS)
    heads += batch * heads_batch + token * heads_token
    head_start = heads + head.to(tl.int64)[:, None] * heads_head
    for start in range(0, pairs, PAIRS):
        pair = start + tl.arange(0, PAIRS)
        is_pair = pair < pairs
        element = pair.to(tl.int64)
        cosine = tl.load(cache + element * cache_element, mask=is_pair)
        sine = tl.load(cache + (pairs + element) * cache_element, mask=is_pair)
        cosine = cosine.to(tl.float32)[None, :]
        sine = (sine.to(tl.float32) * sign)[None, :]
        mask = is_pair[None, :] & (head < head_count)[:, None]
        first = head_start + element[None, :] * (pair_step * heads_element)
        second = first + partner * heads_element
        x = tl.load(first, mask=mask).to(tl.float32)
        y = tl.load(second, mask=mask).to(tl.float32)
        tl.store(first, (x * cosine - y * sine).to(heads.dtype.element_ty), mask=mask)
        tl.store(second, (y * cosine + x * sine).to(heads.dtype.element_ty), mask=mask)
