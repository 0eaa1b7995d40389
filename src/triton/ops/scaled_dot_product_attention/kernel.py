"""Attention: softmax(scale * query @ key^T + mask) @ value."""

import triton
import triton.language as tl


@triton.jit
def attention(
    out,
    query,
    key,
    value,
    mask,
    queries,
    keys,
    key_size,
    value_size,
    heads,  # of the queries that share a head of the keys and values
    inner_batches,  # batch i of a tensor is [i // inner_batches, i % inner_batches]
    is_causal,
    shift,  # query i sees the keys before i + shift if it is causal
    mask_kind,  # 0: none, 1: bool, 2: of the type of the others, 3: float32
    scale,
    out_outer,
    out_inner,
    out_head,
    out_row,
    out_column,
    query_outer,
    query_inner,
    query_head,
    query_row,
    query_column,
    key_outer,
    key_inner,
    key_row,
    key_column,
    value_outer,
    value_inner,
    value_row,
    value_column,
    mask_outer,
    mask_inner,
    mask_head,
    mask_row,
    mask_column,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    SIZE: tl.constexpr,  # columns of all tensors at most
    HAS_MASK: tl.constexpr,
):
    """Process QUERIES queries of one head per program, and KEYS keys at a time."""
    blocks = tl.cdiv(queries, QUERIES)
    batch = tl.program_id(0) // blocks // heads
    outer = (batch // inner_batches).to(tl.int64)
    inner = (batch % inner_batches).to(tl.int64)
    head = (tl.program_id(0) // blocks % heads).to(tl.int64)
    row = tl.program_id(0) % blocks * QUERIES + tl.arange(0, QUERIES)
    rows = row.to(tl.int64)[:, None]
    is_row = (row < queries)[:, None]
    size = tl.arange(0, SIZE)
    columns = size.to(tl.int64)

    query += outer * query_outer + inner * query_inner + head * query_head
    place = query + rows * query_row + columns[None, :] * query_column
    q = tl.load(place, mask=is_row & (size < key_size)[None, :], other=0.0)

    near = tl.arange(0, KEYS)
    key += outer * key_outer + inner * key_inner
    value += outer * value_outer + inner * value_inner
    key_tile = key + columns[:, None] * key_column + near.to(tl.int64)[None, :] * key_row
    value_tile = value + near.to(tl.int64)[:, None] * value_row + columns[None, :] * value_column
    # Not added to the pointer, whose type is not always that of the mask.
    mask_start = outer * mask_outer + inner * mask_inner + head * mask_head

    end = keys
    visible = tl.full((QUERIES,), 0, tl.int32) + keys
    if is_causal != 0:
        visible = tl.minimum(row + shift, keys)
        end = tl.minimum(tl.program_id(0) % blocks * QUERIES + QUERIES - 1 + shift, keys)
    minus_infinity = float("-inf")
    peak = tl.full((QUERIES,), minus_infinity, tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    result = tl.zeros((QUERIES, SIZE), tl.float32)
    for start in range(0, end, KEYS):
        column = start + near
        k = tl.load(key_tile, mask=(size < key_size)[:, None] & (column < keys)[None, :], other=0.0)
        # float32 as in torch by default, without TF32.
        score = tl.dot(q, k, input_precision="ieee") * scale
        if HAS_MASK:
            offset = mask_start + rows * mask_row + column.to(tl.int64)[None, :] * mask_column
            is_place = is_row & (column < keys)[None, :]
            if mask_kind == 1:
                bools = mask.to(tl.pointer_type(tl.int8))
                seen = tl.load(bools + offset, mask=is_place, other=0)
                score = tl.where(seen != 0, score, minus_infinity)
            elif mask_kind == 2:
                score += tl.load(mask + offset, mask=is_place, other=0.0).to(tl.float32)
            elif mask_kind == 3:
                floats = mask.to(tl.pointer_type(tl.float32))
                score += tl.load(floats + offset, mask=is_place, other=0.0)
        score = tl.where(column[None, :] < visible[:, None], score, minus_infinity)
        new_peak = tl.maximum(peak, tl.max(score, 1))
        # Avoid -inf - -inf, which is NaN, for queries that have seen no key.
        base = tl.where(new_peak == minus_infinity, 0.0, new_peak)
        power = tl.exp(score - base[:, None])
        decay = tl.exp(peak - base)
        total = total * decay + tl.sum(power, 1)
        result *= decay[:, None]
        v = tl.load(
            value_tile, mask=(column < keys)[:, None] & (size < value_size)[None, :], other=0.0
        )
        # Two parts of 16 bits have nearly the precision of float32.
        part = power.to(v.dtype)
        result = tl.dot(part, v, result, input_precision="ieee")
        if v.dtype != tl.float32:
            rest = (power - part.to(tl.float32)).to(v.dtype)
            result = tl.dot(rest, v, result)
        peak = new_peak
        key_tile += KEYS * key_row
        value_tile += KEYS * value_row

    result = result / tl.where(total == 0.0, 1.0, total)[:, None]
    out += outer * out_outer + inner * out_inner + head * out_head
    place = out + rows * out_row + columns[None, :] * out_column
    tl.store(place, result.to(out.dtype.element_ty), mask=is_row & (size < value_size)[None, :])
