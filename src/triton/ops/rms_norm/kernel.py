"""The rows of a tensor divided by their root mean square and multiplied by a weight."""

import triton
import triton.language as tl


@triton.jit
def rms_norm(
    input,
    weight,
    out,
    rows,
    inner_rows,  # row r is [r // inner_rows, r % inner_rows]
    columns,
    eps,
    input_outer,
    input_inner,
    input_column,
    weight_column,
    out_outer,
    out_inner,
    out_column,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    LOOP: tl.constexpr,  # loop over the blocks of a row that is longer than one block
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    outer = (row // inner_rows).to(tl.int64)[:, None]
    inner = (row % inner_rows).to(tl.int64)[:, None]
    input += outer * input_outer + inner * input_inner
    out += outer * out_outer + inner * out_inner
    is_row = (row < rows)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    if LOOP:
        squares = tl.zeros((ROWS, BLOCK), tl.float32)
        for start in range(0, columns, BLOCK):
            place = start + column
            mask = is_row & (place < columns)
            value = tl.load(input + place.to(tl.int64) * input_column, mask=mask, other=0.0)
            value = value.to(tl.float32)
            squares += value * value
        scale = tl.rsqrt(tl.sum(squares, 1, keep_dims=True) / columns + eps)
        for start in range(0, columns, BLOCK):
            place = (start + column).to(tl.int64)
            mask = is_row & (place < columns)
            value = tl.load(input + place * input_column, mask=mask, other=0.0).to(tl.float32)
            factor = tl.load(weight + place * weight_column, mask=place < columns, other=0.0)
            value = value * scale * factor.to(tl.float32)
            tl.store(out + place * out_column, value.to(out.dtype.element_ty), mask=mask)
    else:
        place = column.to(tl.int64)
        mask = is_row & (column < columns)
        value = tl.load(input + place * input_column, mask=mask, other=0.0).to(tl.float32)
        factor = tl.load(weight + place * weight_column, mask=column < columns, other=0.0)
        scale = tl.rsqrt(tl.sum(value * value, 1, keep_dims=True) / columns + eps)
        value = value * scale * factor.to(tl.float32)
        tl.store(out + place * out_column, value.to(out.dtype.element_ty), mask=mask)
