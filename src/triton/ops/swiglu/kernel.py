"""out = input * activation(gate), elementwise.

All offsets have 32 bits. The glue code splits larger tensors.
"""

import triton
import triton.language as tl


@triton.jit
def _gelu(x):
    """Compute the tail of the normal distribution: for negative x, 1 + erf would cancel.

    The numbers are those of core/gelu.h.
    """
    z = tl.abs(x)
    z = tl.where(z > 15.0, 15.0, z)  # a NaN stays NaN
    over = 0.004119544
    over = over * z + 0.040670622
    over = over * z + 0.18336897
    over = over * z + 0.43851128
    over = over * z + 0.5
    under = 0.01032605
    under = under * z + 0.1019524
    under = under * z + 0.46981695
    under = under * z + 1.2031165
    under = under * z + 1.6749074
    under = under * z + 1.0
    tail = tl.exp(-0.5 * z * z) * (over / under)
    return x * tl.where(x < 0.0, tail, 1.0 - tail)


@triton.jit
def _gelu_tanh(x):
    """Compute x * (1 + tanh(y)) / 2 as x * sigmoid(2 * y)."""
    return x * tl.sigmoid(x * (x * x * 0.071354814) + x * 1.5957692)


@triton.jit
def _gated(input, gate, ACTIVATION: tl.constexpr):
    """Round once: the computation uses float32."""
    x = gate.to(tl.float32)
    if ACTIVATION == "silu":
        factor = x * tl.sigmoid(x)
    elif ACTIVATION == "gelu":
        factor = _gelu(x)
    else:
        factor = _gelu_tanh(x)
    return (input.to(tl.float32) * factor).to(input.dtype)


@triton.jit
def gated_rows(
    input,
    gate,
    out,
    columns,
    input_row,
    gate_row,
    out_row,
    ACTIVATION: tl.constexpr,
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
        tl.store(c, _gated(tl.load(a), tl.load(b), ACTIVATION))
    else:
        mask = column < columns
        tl.store(c, _gated(tl.load(a, mask), tl.load(b, mask), ACTIVATION), mask)


@triton.jit
def gated_elements(
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
    ACTIVATION: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program takes BLOCK elements, however short the rows are."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < count
    row = index // columns
    column = index % columns
    a = tl.load(input + row * input_row + column * input_column, mask)
    b = tl.load(gate + row * gate_row + column * gate_column, mask)
    c = out + row * out_row + column * out_column
    tl.store(c, _gated(a, b, ACTIVATION), mask)
