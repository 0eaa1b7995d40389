"""Softmax of rows times a number, each over its visible columns."""

import triton
import triton.language as tl


@triton.jit
def softmax(
    input,
    out,
    rows,
    inner_rows,  # rows per matrix: row r is [r // inner_rows, r % inner_rows]
    columns,
    input_outer,
    input_inner,
    input_column,
    out_outer,
    out_inner,
    out_column,
    sign,  # -1, 0 or 1
    scale,  # positive
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    CAUSAL: tl.constexpr,  # the rows of a matrix see more columns from one to the next, at last all
    LOOP: tl.constexpr,  # loop over the blocks of a row that is longer than one block
):
    tl.static_assert(ROWS == 1 or not LOOP)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    outer = (row // inner_rows).to(tl.int64)[:, None]
    inner = (row % inner_rows)[:, None]
    input += outer * input_outer + inner.to(tl.int64) * input_inner
    out += outer * out_outer + inner.to(tl.int64) * out_inner
    is_row = (row < rows)[:, None]
    end = columns
    visible = columns
    loaded = columns
    if CAUSAL:
        end = columns - inner_rows + tl.program_id(0) % inner_rows + 1
        visible = columns - inner_rows + inner + 1
        # A mask that changes within 16 columns would prevent vector loads.
        loaded = tl.minimum(tl.cdiv(visible, 16) * 16, columns)
    column = tl.arange(0, BLOCK)[None, :]
    minus_infinity = float("-inf")
    if LOOP:
        # Every lane contains the sum of its columns so far, relative to the maximum of these.
        peak = tl.full((ROWS, BLOCK), minus_infinity, tl.float32)
        total = tl.zeros((ROWS, BLOCK), tl.float32)
        for start in range(0, end, BLOCK):
            place = start + column
            value = tl.load(input + place.to(tl.int64) * input_column, mask=place < loaded)
            value = tl.where(place < visible, value.to(tl.float32) * sign, minus_infinity)
            new_peak = tl.maximum(peak, value)
            # Avoid -inf - -inf, which is NaN, in lanes that have seen only -inf.
            shift = tl.where(new_peak == minus_infinity, 0.0, new_peak)
            total = total * tl.exp((peak - shift) * scale) + tl.exp((value - shift) * scale)
            peak = new_peak
        top = tl.max(peak, 1, keep_dims=True)
        top = tl.where(top == minus_infinity, 0.0, top)
        share = 1.0 / tl.sum(total * tl.exp((peak - top) * scale), 1, keep_dims=True)
        for start in range(0, columns, BLOCK):
            place = start + column
            value = tl.load(input + place.to(tl.int64) * input_column, mask=place < loaded)
            value = tl.exp((value.to(tl.float32) * sign - top) * scale) * share
            value = tl.where(place < visible, value, 0.0).to(out.dtype.element_ty)
            tl.store(out + place.to(tl.int64) * out_column, value, mask=place < columns)
    else:
        place = column.to(tl.int64)
        value = tl.load(input + place * input_column, mask=is_row & (column < loaded))
        value = tl.where(column < visible, value.to(tl.float32) * sign, minus_infinity)
        value = tl.exp((value - tl.max(value, 1, keep_dims=True)) * scale)
        value = value / tl.sum(value, 1, keep_dims=True)
        value = tl.where(column < visible, value, 0.0).to(out.dtype.element_ty)
        tl.store(out + place * out_column, value, mask=is_row & (column < columns))
