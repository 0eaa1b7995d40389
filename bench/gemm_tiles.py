"""Compares tiles of Triton's gemm with torch's own product on this GPU; prints a line for each.

``python -m bench.gemm_tiles [SIZE]`` multiplies square matrices of 16-bit floats. The tiles in use
are in ``src/triton/ops/gemm/build.py``, which the fastest tile here should replace.
"""

from __future__ import annotations

import sys
from functools import partial
from statistics import median
from typing import Any

import torch
from bench.context import ROOT
from bench.interleaved import Interleaved
from bench.kernel_worker import ROUND_SECONDS, warm_seconds
from bench.rows import paired_ratios
from codegen.triton.worker import load

KERNEL = ROOT / "src" / "triton" / "ops" / "gemm" / "kernel.py"
ROUNDS = 15
# The first is in use. For sm_90a, Triton 3.9 compiles all of them to warp-group products, without
# spilled registers and with at most 192 of the 227 KiB of shared memory.
CANDIDATES = (
    {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP": 8, "num_warps": 8, "num_stages": 3},
    {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP": 8, "num_warps": 8, "num_stages": 4},
    {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP": 16, "num_warps": 8, "num_stages": 4},
    {"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8, "num_warps": 8, "num_stages": 3},
    {"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8, "num_warps": 8, "num_stages": 4},
    {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8, "num_warps": 4, "num_stages": 4},
    {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "GROUP": 8, "num_warps": 8, "num_stages": 3},
)


def product(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, tile: dict[str, int]
) -> partial[Any]:
    """A call of the kernel on row-major matrices, with a tile and its launch parameters."""
    (m, k), n = a.shape, b.shape[1]
    grid = (-(-m // tile["BLOCK_M"]) * -(-n // tile["BLOCK_N"]),)
    numbers = (m, n, k, 1, 1.0, 0.0)  # one batch, alpha, beta
    strides = [stride for each in (a, b, out) for stride in (0, 0, *each.stride())]
    kernel = load(str(KERNEL)).gemm[grid]
    return partial(kernel, a, b, out, *numbers, *strides, ALIGNED=True, **tile)


def main(size: int) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        a, b = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(2))
        expected, out = a @ b, torch.empty_like(a)
        calls = {"torch": partial(torch.mm, a, b, out=out)}
        for tile in CANDIDATES:
            calls[str(tile)] = call = product(a, b, out, tile)
            out.fill_(float("nan"))
            call()
            torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-2 * size**0.5)
        timers = {name: partial(warm_seconds, "cuda", [call]) for name, call in calls.items()}
        timing = Interleaved(timers, ROUND_SECONDS["cuda"], least_loops=1)
        for index in range(ROUNDS):
            timing.time_round(index)
        for name in list(calls)[1:]:
            ratio = median(paired_ratios(timing.seconds, name, "torch"))
            print(f"{dtype} {size}³: {ratio:.3f} of torch's time: {name}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 8192)
