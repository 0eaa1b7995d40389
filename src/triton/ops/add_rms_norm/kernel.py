"""The sums of the rows of two tensors, and these rows divided by their root mean square."""

import triton
import triton.language as tl


@triton.jit
def _sum(input, residual, mask):
    """Read both before anything is written there: an out can be an input."""
    value = tl.load(input, mask=mask, other=0.0).to(tl.float32)
    return value + tl.load(residual, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _write(total, scale, factor, out, residual_out, mask):
    tl.store(residual_out, total.to(residual_out.dtype.element_ty), mask=mask)
    value = total * scale * factor.to(tl.float32)
    tl.store(out, value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def add_rms_norm(
    input,
    residual,
    weight,
    out,
    residual_out,
    rows,
    inner_rows,  # row r is [r // inner_rows, r % inner_rows]
    columns,
    eps,
    input_outer,
    input_inner,
    residual_outer,
    residual_inner,
    out_outer,
    out_inner,
    residual_out_outer,
    residual_out_inner,
    input_column,
    residual_column,
    weight_column,
    out_column,
    residual_out_column,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    LOOP: tl.constexpr,  # loop over the blocks of a row that is longer than one block
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    outer = (row // inner_rows).to(tl.int64)[:, None]
    inner = (row % inner_rows).to(tl.int64)[:, None]
    input += outer * input_outer + inner * input_inner
    residual += outer * residual_outer + inner * residual_inner
    out += outer * out_outer + inner * out_inner
    residual_out += outer * residual_out_outer + inner * residual_out_inner
    is_row = (row < rows)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    if LOOP:
        squares = tl.zeros((ROWS, BLOCK), tl.float32)
        for start in range(0, columns, BLOCK):
            place = (start + column).to(tl.int64)
            mask = is_row & (place < columns)
            total = _sum(input + place * input_column, residual + place * residual_column, mask)
            squares += total * total
        scale = tl.rsqrt(tl.sum(squares, 1, keep_dims=True) / columns + eps)
        for start in range(0, columns, BLOCK):
            place = (start + column).to(tl.int64)
            mask = is_row & (place < columns)
            total = _sum(input + place * input_column, residual + place * residual_column, mask)
            factor = tl.load(weight + place * weight_column, mask=place < columns, other=0.0)
            written = residual_out + place * residual_out_column
            _write(total, scale, factor, out + place * out_column, written, mask)
    else:
        place = column.to(tl.int64)
        mask = is_row & (column < columns)
        total = _sum(input + place * input_column, residual + place * residual_column, mask)
        factor = tl.load(weight + place * weight_column, mask=column < columns, other=0.0)
        scale = tl.rsqrt(tl.sum(total * total, 1, keep_dims=True) / columns + eps)
        written = residual_out + place * residual_out_column
        _write(total, scale, factor, out + place * out_column, written, mask)
