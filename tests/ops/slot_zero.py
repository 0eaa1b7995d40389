"""Calls of slot 0 on the CPU, and its refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from installed import TORCH_SLOT

import infini.ops

BLOCK = 512  # elements that src/cpu/row_elements.h gathers at a time
CHUNK = 2048  # those that src/cpu/convert.cc converts at a time
STREAMED = 1 << 25  # bytes from which on src/cpu/stream.h stores an out past the caches

# Those of `add` on the CPU.
SLOTS_OF_ADD = (pytest.param(0, marks=pytest.mark.cpu_kernels), TORCH_SLOT)

Array = np.ndarray[Any, Any]


def run(name: str, *arguments: Any, **keywords: Any) -> None:
    getattr(infini.ops, name)(*arguments, **keywords, implementation_index=0)


def is_accepted(name: str, *arguments: Any, **keywords: Any) -> bool:
    """Run slot 0; return False if it refuses the call."""
    try:
        run(name, *arguments, **keywords)
    except ValueError as error:
        if f"{name}: slot 0 takes " not in str(error):
            raise
        return False
    return True
