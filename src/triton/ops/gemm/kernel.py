"""Products of matrices."""

import triton
import triton.language as tl


@triton.jit
def gemm(
    a,
    b,
    out,
    m,
    n,
    k,
    inner_batches,  # matrix i of a tensor is [i // inner_batches, i % inner_batches]
    alpha,
    beta,
    a_outer,
    a_inner,
    a_row,
    a_column,
    b_outer,
    b_inner,
    b_row,
    b_column,
    out_outer,
    out_inner,
    out_row,
    out_column,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    ALIGNED: tl.constexpr,  # no 16-byte block of a matrix without gaps crosses its edge
):
    """Compute one tile of one matrix per program; `beta * out` is read only if beta is not 0."""
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    batch = tl.program_id(0) // (tiles_m * tiles_n)
    tile = tl.program_id(0) % (tiles_m * tiles_n)
    # Process GROUP rows of tiles at a time, column by column, so that neighbors share operands in
    # L2.
    group_size = GROUP * tiles_n
    first_tile = tile // group_size * GROUP
    group_rows = tl.minimum(tiles_m - first_tile, GROUP)
    row = (first_tile + tile % group_size % group_rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile % group_size // group_rows * BLOCK_N + tl.arange(0, BLOCK_N)

    outer = (batch // inner_batches).to(tl.int64)
    inner = (batch % inner_batches).to(tl.int64)
    a += outer * a_outer + inner * a_inner
    b += outer * b_outer + inner * b_inner
    out += outer * out_outer + inner * out_inner

    # A tile beyond the edge reads rows from the start, and their results are not stored: no masks.
    a_rows = row % m
    b_columns = column % n
    if ALIGNED:
        a_rows = tl.max_contiguous(tl.multiple_of(a_rows, BLOCK_M), BLOCK_M)
        b_columns = tl.max_contiguous(tl.multiple_of(b_columns, BLOCK_N), BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_tile = a + a_rows[:, None].to(tl.int64) * a_row + depth[None, :].to(tl.int64) * a_column
    b_tile = b + depth[:, None].to(tl.int64) * b_row + b_columns[None, :].to(tl.int64) * b_column
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        left = tl.load(a_tile, mask=(depth < k - start)[None, :], other=0.0)
        right = tl.load(b_tile, mask=(depth < k - start)[:, None], other=0.0)
        # float32 as in torch by default, without TF32.
        total = tl.dot(left, right, total, input_precision="ieee")
        a_tile += BLOCK_K * a_column
        b_tile += BLOCK_K * b_row

    total *= alpha
    place = out + row[:, None].to(tl.int64) * out_row + column[None, :].to(tl.int64) * out_column
    mask = (row < m)[:, None] & (column < n)[None, :]
    if beta != 0.0:
        total += beta * tl.load(place, mask=mask, other=0.0).to(tl.float32)
    tl.store(place, total.to(out.dtype.element_ty), mask=mask)
