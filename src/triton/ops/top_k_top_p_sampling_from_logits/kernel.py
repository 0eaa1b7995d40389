"""A token for each row of logits, drawn by its probability among those that two filters keep.

Weights are whole numbers, so that the order of their sums does not matter.
"""

import triton
import triton.language as tl

MINUS_INFINITY: tl.constexpr = tl.constexpr(float("-inf"))
LOWEST_KEY: tl.constexpr = tl.constexpr(-0x7F800001)  # of -infinity
ONE: tl.constexpr = tl.constexpr(2**40)  # the weight of the largest logit


@triton.jit
def index_at(pointer, place, size):
    if size == 8:
        index = tl.load(pointer.to(tl.pointer_type(tl.int64)) + place)
    else:
        index = tl.load(pointer + place).to(tl.int64)
    return index


@triton.jit
def key_of(value):
    """Return a whole number in the order of the floats."""
    bits = tl.where(value == 0, 0.0, value).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def load_block(logits, place, columns, step):
    value = tl.load(logits + place.to(tl.int64) * step, mask=place < columns, other=MINUS_INFINITY)
    value = value.to(tl.float32)
    return tl.where(value > MINUS_INFINITY, value, MINUS_INFINITY)  # also for NaN


@triton.jit
def weigh(value, peak, least_key, least_weight):
    """Return the weights of a block, and 0 for those that are not kept."""
    power = tl.where(value == peak, 1.0, tl.exp(value - peak))
    weight = (power * ONE).to(tl.int64)
    return tl.where((key_of(value) >= least_key) & (weight >= least_weight), weight, 0)


@triton.jit
def count_from(logits, columns, step, key, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, columns, BLOCK):
        place = start + tl.arange(0, BLOCK)
        value = load_block(logits, place, columns, step)
        total += ((key_of(value) >= key) & (place < columns)).to(tl.int32)
    return tl.sum(total).to(tl.int64)


@triton.jit
def weigh_all(logits, columns, step, peak, least_key, least_weight, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.int64)
    for start in range(0, columns, BLOCK):
        value = load_block(logits, start + tl.arange(0, BLOCK), columns, step)
        total += weigh(value, peak, least_key, least_weight)
    return tl.sum(total)


@triton.jit
def sample(
    logits,
    top_ks,
    top_ps,
    seeds,
    out,
    columns,
    is_joint,
    top_ks_size,  # bytes of an index, 0: absent
    has_top_ps,
    seeds_size,
    out_size,
    top_k,
    seed,
    offset,
    logits_row,
    logits_column,
    top_ks_row,
    top_ps_row,
    seeds_row,
    out_row,
    top_p,
    BLOCK: tl.constexpr,
):
    """Draw the token of one row per program."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * logits_row
    counter = row
    if top_ks_size != 0:
        top_k = index_at(top_ks, row * top_ks_row, top_ks_size)
    if has_top_ps != 0:
        top_p = tl.load(top_ps + row * top_ps_row)
    if seeds_size != 0:
        seed = index_at(seeds, row * seeds_row, seeds_size)
        counter = row * 0

    largest = tl.full((BLOCK,), MINUS_INFINITY, tl.float32)
    for start in range(0, columns, BLOCK):
        place = start + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, load_block(logits, place, columns, logits_column))
    peak = tl.max(largest)
    highest = key_of(peak).to(tl.int64)

    # The largest key that at least `top_k` logits reach.
    least_key = row * 0 + LOWEST_KEY
    if (top_k > 0) & (top_k < columns):
        last = highest
        while least_key < last:
            middle = least_key + (last - least_key + 1) // 2
            count = count_from(logits, columns, logits_column, middle, BLOCK)
            least_key = tl.where(count >= top_k, middle, least_key)
            last = tl.where(count >= top_k, last, middle - 1)
            last = tl.where(count == top_k, middle, last)  # a larger key keeps the same ones

    # The largest weight from which on all sum to at least `top_p` of the total.
    least_weight = row * 0
    if top_p < 1:
        first = tl.where(is_joint != 0, LOWEST_KEY, least_key)
        total = weigh_all(logits, columns, logits_column, peak, first, 0, BLOCK)
        share = tl.maximum(top_p, 0.0).to(tl.float64)
        needed = tl.ceil(share * total.to(tl.float64)).to(tl.int64)
        last = row * 0 + ONE
        while least_weight < last:
            middle = least_weight + (last - least_weight + 1) // 2
            kept = weigh_all(logits, columns, logits_column, peak, least_key, middle, BLOCK)
            is_reached = kept >= needed
            least_weight = tl.where(is_reached, middle, least_weight)
            last = tl.where(is_reached, last, middle - 1)

    # The token at a random place in the weights that are kept.
    low, high, _, _ = tl.philox(
        seed,
        offset.to(tl.uint32),
        (offset >> 32).to(tl.uint32),
        counter.to(tl.uint32),
        (counter >> 32).to(tl.uint32),
    )
    random = low.to(tl.uint64) | (high.to(tl.uint64) << 32)
    kept = weigh_all(logits, columns, logits_column, peak, least_key, least_weight, BLOCK)
    target = tl.umulhi(random, kept.to(tl.uint64)).to(tl.int64)
    token = columns
    before = row * 0
    for start in range(0, columns, BLOCK):
        place = start + tl.arange(0, BLOCK)
        value = load_block(logits, place, columns, logits_column)
        weights = weigh(value, peak, least_key, least_weight)
        is_reached = before + tl.cumsum(weights, 0) > target
        token = tl.minimum(token, tl.min(tl.where(is_reached, place, columns)))
        before += tl.sum(weights)
    token = tl.where(peak == MINUS_INFINITY, -1, token)
    if out_size == 8:
        tl.store(out.to(tl.pointer_type(tl.int64)) + row * out_row, token.to(tl.int64))
    else:
        tl.store(out + row * out_row, token)
