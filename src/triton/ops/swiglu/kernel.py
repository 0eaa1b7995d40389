"""out = input * gate * sigmoid(gate), elementwise.

All offsets have 32 bits. The glue code splits larger tensors.
"""

import triton
import triton.language as tl


@triton.jit
def _gated(input, gate):
    """Round once: the computation uses float32."""
    factor = gate.to(tl.float32)
    return (input.to(tl.float32) * factor * tl.sigmoid(factor)).to(input.dtype)


@triton.jit
def swiglu_rows(
    input,
    gate,
    out,
    columns,
    input_row,
    gate_row,
    out_row,
    BLOCK: tl.constexpr,
):
    """Process up to BLOCK elements of one row without gaps per program."""
    blocks = tl.cdiv(columns, BLOCK)
    row = tl.program_id(0) // blocks
    start = tl.program_id(0) % blocks * BLOCK
    column = start + tl.arange(0, BLOCK)
    a = input + row * input_row + column
    b = gate + row * gate_row + column
    c = out + row * out_row + column
    # A mask with an arbitrary end prevents vector loads, so only the last block of a row uses one.
    if start + BLOCK <= columns:
        tl.store(c, _gated(tl.load(a), tl.load(b)))
    else:
        mask = column < columns
        tl.store(c, _gated(tl.load(a, mask), tl.load(b, mask)), mask)


@triton.jit
def swiglu_elements(
    input,
    gate,
    out,
    count,
    columns,
    input_row,
    input_column,
    gate_row,
    gate_column,
    out_row,
    out_column,
    BLOCK: tl.constexpr,
):
    """A program takes BLOCK elements, however short the rows are."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < count
    row = index // columns
    column = index % columns
    a = tl.load(input + row * input_row + column * input_column, mask)
    b = tl.load(gate + row * gate_row + column * gate_column, mask)
    tl.store(out + row * out_row + column * out_column, _gated(a, b), mask)
