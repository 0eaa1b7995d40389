"""Uses a driver in the ways that it has to refuse; prints what it answered.

The arguments are machine code of gemm for sm_80, and for sm_90 with more than 48 KiB of shared
memory, and how many bytes that is.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

DYNAMIC_SHARED = 8


def load(driver: Any, code: bytes) -> ctypes.c_void_p:
    library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuLibraryLoadData(ctypes.byref(library), code, None, None, 0, None, None, 0) == 0
    assert driver.cuLibraryGetKernel(ctypes.byref(kernel), library, b"gemm") == 0
    return kernel


def main() -> None:
    foreign, code = (Path(path).read_bytes() for path in sys.argv[1:3])
    shared = int(sys.argv[3])
    driver = ctypes.CDLL("libcuda.so.1")
    context, other = ctypes.c_void_p(), ctypes.c_void_p()
    arguments = (ctypes.c_void_p * 64)(*[ctypes.addressof(ctypes.c_int64())] * 64)

    def launch(kernel: ctypes.c_void_p, grid: int = 1, block: int = 256, size: int = shared) -> int:
        shape = (grid, 1, 1, block, 1, 1)
        return int(driver.cuLaunchKernel(kernel, *shape, size, None, arguments, None))

    answers = {"before cuInit": driver.cuDeviceGet(ctypes.byref(ctypes.c_int()), 0)}
    assert driver.cuInit(0) == 0
    answers["no such device"] = driver.cuDeviceGet(ctypes.byref(ctypes.c_int()), 1)
    answers["no machine code"] = driver.cuLibraryLoadData(
        ctypes.byref(other), bytes(64), None, None, 0, None, None, 0
    )
    kernel, foreign_kernel = load(driver, code), load(driver, foreign)
    answers["no context"] = launch(kernel)
    answers["an unknown context"] = driver.cuCtxPushCurrent_v2(ctypes.byref(other))
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    answers["another architecture"] = launch(foreign_kernel, block=128, size=0)
    answers["an unknown kernel"] = launch(ctypes.c_void_p(ctypes.addressof(other)))
    answers["shared memory without the attribute"] = launch(kernel)
    answers["more shared memory than there is"] = driver.cuKernelSetAttribute(
        DYNAMIC_SHARED, 228 * 1024, kernel, 0
    )
    assert driver.cuKernelSetAttribute(DYNAMIC_SHARED, shared, kernel, 0) == 0
    answers["no blocks"] = launch(kernel, grid=0)
    answers["another block"] = launch(kernel, block=128)
    answers["as it should be"] = launch(kernel)
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
