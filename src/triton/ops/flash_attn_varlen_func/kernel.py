"""Attention of sequences of different lengths, whose keys and values can lie in pages."""

import triton
import triton.language as tl


@triton.jit
def load_index(data, size, offset, place=0, end=1):
    """An integer of ``size`` bytes; 0 from place ``end`` on, and without a tensor (size 0)."""
    # Two masked loads, because a branch would keep the loop from loading ahead.
    narrow = tl.load(data + offset, mask=place < tl.where(size == 4, end, 0), other=0)
    wide = data.to(tl.pointer_type(tl.int64)) + offset
    return narrow + tl.load(wide, mask=place < tl.where(size == 8, end, 0), other=0)


@triton.jit
def load_range(ends, size, offset, stride, limit):
    """Begin and end of a sequence, between 0 and ``limit``; all of it without a tensor."""
    begin = load_index(ends, size, offset)
    end = tl.where(size == 0, limit, load_index(ends, size, offset + stride))
    begin = tl.minimum(tl.maximum(begin, 0), limit)
    return begin, tl.maximum(tl.minimum(end, limit), begin)


@triton.jit
def cap_scores(score, cap):
    """cap * tanh(score / cap)."""
    x = score / cap
    size = tl.abs(x)
    power = tl.exp(-2 * size)
    large = (1 - power) / (1 + power)
    # Where the difference cancels: the Taylor polynomial, whose error is below 2^-25 of the sum.
    square = x * x
    sum = square * (-1382.0 / 155925) + 62.0 / 2835
    sum = sum * square - 17.0 / 315
    sum = sum * square + 2.0 / 15
    sum = sum * square - 1.0 / 3
    sum = sum * square + 1
    return cap * tl.where(size < 0.35, x * sum, tl.where(x < 0, -large, large))


@triton.jit
def flash_attention(
    out,
    query,
    key,
    value,
    slopes,
    lse,
    query_ends,
    key_ends,
    key_counts,
    pages,
    most_queries,  # of a sequence
    query_rows,
    key_rows,  # with pages, those that a sequence can have
    heads,  # of the queries that share a head of the keys
    key_heads,
    key_size,
    value_size,
    page_size,  # without pages there is one for all rows
    page_count,
    left,  # how many keys before its own a query sees
    right,
    query_ends_size,  # bytes of an index; 0: there is no such tensor
    key_ends_size,
    key_counts_size,
    pages_size,
    has_slopes,  # 0 or 1
    has_lse,
    scale,
    softcap,
    key_limit,  # of `key_ends`
    out_sequence,
    out_head,
    out_row,
    out_column,
    query_sequence,
    query_head,
    query_row,
    query_column,
    key_sequence,
    key_head,
    key_page,
    key_row,
    key_column,
    value_sequence,
    value_head,
    value_page,
    value_row,
    value_column,
    slopes_sequence,
    slopes_head,
    lse_sequence,
    lse_head,
    lse_row,
    query_ends_stride,
    key_ends_stride,
    key_counts_stride,
    pages_sequence,
    pages_stride,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    SIZE: tl.constexpr,  # columns of all tensors at most
):
    """Process ROWS rows of one head of the keys per program, and KEYS keys at a time.

    A row is a query of one of the heads that share the keys, so that few queries fill a tile, too.
    Lengths and pages beyond the tensors are cut off: no error can be raised on a device.
    """
    blocks = tl.cdiv(most_queries * heads, ROWS)
    first_row = tl.program_id(0) % blocks * ROWS
    shared = (tl.program_id(0) // blocks % key_heads).to(tl.int64)
    sequence = (tl.program_id(0) // blocks // key_heads).to(tl.int64)

    offset = sequence * query_ends_stride
    first_query, end = load_range(
        query_ends, query_ends_size, offset, query_ends_stride, query_rows.to(tl.int64)
    )
    queries = tl.minimum(end - first_query, most_queries).to(tl.int32)
    offset = sequence * key_ends_stride
    first_key, end = load_range(key_ends, key_ends_size, offset, key_ends_stride, key_limit)
    keys = tl.minimum(end - first_key, key_rows)
    count = load_index(key_counts, key_counts_size, sequence * key_counts_stride)
    # With pages, a count can exceed the range.
    count = tl.minimum(tl.maximum(count, 0), tl.where(pages_size == 0, keys, key_rows))
    keys = tl.where(key_counts_size == 0, keys, count)
    keys = keys.to(tl.int32)
    first_key = tl.where(pages_size == 0, first_key, 0)

    row = first_row + tl.arange(0, ROWS)
    is_row = row < queries * heads
    own_query = first_query + row // heads
    head = shared * heads + row % heads
    # Of the key at the place of the query.
    place = row // heads + keys - queries
    size = tl.arange(0, SIZE)
    columns = size.to(tl.int64)
    query += sequence * query_sequence + own_query[:, None] * query_row + head[:, None] * query_head
    q = tl.load(
        query + columns[None, :] * query_column,
        mask=is_row[:, None] & (size < key_size)[None, :],
        other=0.0,
    )
    slopes += sequence * slopes_sequence + head * slopes_head
    slope = tl.load(slopes, mask=row < queries * heads * has_slopes, other=0.0)

    key += sequence * key_sequence + shared * key_head + first_key * key_row
    value += sequence * value_sequence + shared * value_head + first_key * value_row
    pages_of_sequence = sequence * pages_sequence
    last_query = tl.minimum((first_row + ROWS - 1) // heads, queries - 1)
    begin = tl.maximum(first_row // heads + keys - queries - left, 0) // KEYS * KEYS
    # No sum is beyond 32 bits, also with 2^30 of each.
    end = tl.minimum(last_query + keys - queries + tl.minimum(right, queries - 1) + 1, keys)
    end = tl.where(first_row < queries * heads, end, 0)
    minus_infinity = float("-inf")
    peak = tl.full((ROWS,), minus_infinity, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    result = tl.zeros((ROWS, SIZE), tl.float32)
    for start in range(begin, end, KEYS):
        near = start + tl.arange(0, KEYS)
        entry = pages_of_sequence + (near // page_size).to(tl.int64) * pages_stride
        page = load_index(pages, pages_size, entry, near, keys)
        is_key = (near < keys) & (page >= 0) & (page < page_count)
        row_in_page = (near % page_size).to(tl.int64)
        key_tile = key + page * key_page + row_in_page * key_row
        k = tl.load(
            key_tile[None, :] + columns[:, None] * key_column,
            mask=is_key[None, :] & (size < key_size)[:, None],
            other=0.0,
        )
        # float32 as in torch by default, without TF32.
        score = tl.dot(q, k, input_precision="ieee") * scale
        if softcap != 0:
            score = cap_scores(score, softcap)
        ahead = near[None, :] - place[:, None]
        score -= slope[:, None] * tl.abs(ahead).to(tl.float32)
        is_seen = is_key[None, :] & (ahead >= -left) & (ahead <= right)
        score = tl.where(is_seen, score, minus_infinity)
        new_peak = tl.maximum(peak, tl.max(score, 1))
        # Avoid -inf - -inf, which is NaN, for queries that have seen no key.
        base = tl.where(new_peak == minus_infinity, 0.0, new_peak)
        power = tl.exp(score - base[:, None])
        decay = tl.exp(peak - base)
        total = total * decay + tl.sum(power, 1)
        result *= decay[:, None]
        value_tile = value + page * value_page + row_in_page * value_row
        v = tl.load(
            value_tile[:, None] + columns[None, :] * value_column,
            mask=is_key[:, None] & (size < value_size)[None, :],
            other=0.0,
        )
        # Two parts of 16 bits have nearly the precision of float32.
        part = power.to(v.dtype)
        result = tl.dot(part, v, result, input_precision="ieee")
        if v.dtype != tl.float32:
            rest = (power - part.to(tl.float32)).to(v.dtype)
            result = tl.dot(rest, v, result)
        peak = new_peak

    result = result / tl.where(total == 0.0, 1.0, total)[:, None]
    out += sequence * out_sequence + own_query[:, None] * out_row + head[:, None] * out_head
    tl.store(
        out + columns[None, :] * out_column,
        result.to(out.dtype.element_ty),
        mask=is_row[:, None] & (size < value_size)[None, :],
    )
    lse += sequence * lse_sequence + head * lse_head + own_query * lse_row
    tl.store(lse, peak + tl.log(total), mask=row < queries * heads * has_lse)
