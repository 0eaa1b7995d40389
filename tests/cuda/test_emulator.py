"""The emulator runs right kernels, and reports the errors of wrong ones."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest


def run(programs: Path, case: str, order: int = 0) -> str:
    """What self_test prints, on either stream."""
    finished = subprocess.run(
        [programs / "self_test", case, str(order)], capture_output=True, text=True, check=False
    )
    return finished.stdout + finished.stderr


RIGHT = {
    "sum": "124500 124750 125000 125250",
    "shift": "1 31 31",
    "product": "20 26 26 35",
    "raised_shared": "cudaSuccess",
}
WRONG = {
    "no_barrier": "nan",
    "leave_before_barrier": r"threads wait for each other in block \(0, 0, 0\): 1 of 64 threads: "
    r"left the kernel, the first is \(63, 0, 0\); 63 of 64 threads: waits at __syncthreads, "
    r"self_test.cc:\d+, the first is \(0, 0, 0\)\.",
    "shuffle_half_a_warp": r"wait for each other .* __shfl_xor_sync, .* __syncthreads, ",
    "read_a_lane_that_left": r"lane 1, which thread \(0, 0, 0\) reads, takes no part",
    "beyond_array": r"AddressSanitizer: global-buffer-overflow .*\s+WRITE of size 4",
    "beyond_shared": r"index 4 out of bounds for type 'float \[4\]'",
    "no_block": "cudaErrorInvalidConfiguration",
    "large_block": "cudaErrorInvalidConfiguration",
    "high_grid": "cudaErrorInvalidConfiguration",
    "much_shared": "cudaErrorInvalidConfiguration",
    "small_leading": "CUBLAS_STATUS_INVALID_VALUE",
}


@pytest.mark.parametrize("order", [0, 7])
@pytest.mark.parametrize("case", RIGHT)
def test_a_right_kernel_runs_in_any_order(programs: Path, case: str, order: int) -> None:
    assert RIGHT[case] in run(programs, case, order)


@pytest.mark.parametrize("order", [0, 7])
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_kernel_is_found_in_any_order(programs: Path, case: str, order: int) -> None:
    assert re.search(WRONG[case], run(programs, case, order))
