"""out = input + alpha * other, elementwise, over up to five dimensions; 0 is the innermost.

All offsets have 32 bits. The glue code splits larger tensors.
"""

import triton
import triton.language as tl


@triton.jit
def _sum(a, b, alpha):
    """Round once: 16-bit floats are computed in float32, small integers in 32 bits."""
    if a.dtype.is_floating():
        return (a.to(tl.float32) + alpha * b.to(tl.float32)).to(a.dtype)
    elif a.dtype == tl.int64:
        return a + alpha.to(tl.int64) * b
    else:
        return (a.to(tl.int32) + alpha * b.to(tl.int32)).to(a.dtype)


@triton.jit
def _add_block(a, b, c, alpha, start, size, a_stride, b_stride, c_stride, BLOCK: tl.constexpr):
    """Process the elements `start` to `start + BLOCK` of a row of `size`."""
    index = start + tl.arange(0, BLOCK)
    a += index * a_stride
    b += index * b_stride
    c += index * c_stride
    # A mask with an arbitrary end prevents vector loads, so only the last block of a row uses one.
    if start + BLOCK <= size:
        tl.store(c, _sum(tl.load(a), tl.load(b), alpha))
    else:
        mask = index < size
        tl.store(c, _sum(tl.load(a, mask), tl.load(b, mask), alpha), mask)


@triton.jit
def add_contiguous(input, other, out, alpha, count, BLOCK: tl.constexpr):
    """Process three tensors without gaps and with the same order of elements."""
    start = tl.program_id(0) * BLOCK
    _add_block(input, other, out, alpha, start, count, 1, 1, 1, BLOCK)


@triton.jit
def add_rows(
    input,
    other,
    out,
    alpha,
    size0,
    size1,
    size2,
    size3,
    input_stride0,
    input_stride1,
    input_stride2,
    input_stride3,
    input_stride4,
    other_stride0,
    other_stride1,
    other_stride2,
    other_stride3,
    other_stride4,
    out_stride0,
    out_stride1,
    out_stride2,
    out_stride3,
    out_stride4,
    BLOCK: tl.constexpr,
):
    """Add up to BLOCK elements of one row per program, so that no element needs a division."""
    blocks = tl.cdiv(size0, BLOCK)
    program = tl.program_id(0)
    row = program // blocks
    start = (program - row * blocks) * BLOCK

    i1 = row % size1
    row = row // size1
    i2 = row % size2
    row = row // size2
    i3 = row % size3
    i4 = row // size3
    a = input + i1 * input_stride1 + i2 * input_stride2 + i3 * input_stride3 + i4 * input_stride4
    b = other + i1 * other_stride1 + i2 * other_stride2 + i3 * other_stride3 + i4 * other_stride4
    c = out + i1 * out_stride1 + i2 * out_stride2 + i3 * out_stride3 + i4 * out_stride4
    _add_block(a, b, c, alpha, start, size0, input_stride0, other_stride0, out_stride0, BLOCK)


@triton.jit
def add_elements(
    input,
    other,
    out,
    alpha,
    count,
    size0,
    size1,
    size2,
    size3,
    input_stride0,
    input_stride1,
    input_stride2,
    input_stride3,
    input_stride4,
    other_stride0,
    other_stride1,
    other_stride2,
    other_stride3,
    other_stride4,
    out_stride0,
    out_stride1,
    out_stride2,
    out_stride3,
    out_stride4,
    BLOCK: tl.constexpr,
):
    """Process rows that are too short for a program each: every element computes its position."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < count
    i0 = index % size0
    index = index // size0
    i1 = index % size1
    index = index // size1
    i2 = index % size2
    index = index // size2
    i3 = index % size3
    i4 = index // size3
    a = input + (
        i0 * input_stride0
        + i1 * input_stride1
        + i2 * input_stride2
        + i3 * input_stride3
        + i4 * input_stride4
    )
    b = other + (
        i0 * other_stride0
        + i1 * other_stride1
        + i2 * other_stride2
        + i3 * other_stride3
        + i4 * other_stride4
    )
    c = out + (
        i0 * out_stride0 + i1 * out_stride1 + i2 * out_stride2 + i3 * out_stride3 + i4 * out_stride4
    )
    tl.store(c, _sum(tl.load(a, mask), tl.load(b, mask), alpha), mask)
