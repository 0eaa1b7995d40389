"""The slots of an operator, defined only here.

``src/include/infini/ops/slot.h`` is generated from this module (``python -m codegen headers``).
"""

from __future__ import annotations

from enum import IntEnum


class Slot(IntEnum):
    """An implementation index. 0 to 7 are free for native and vendor code."""

    NATIVE_FIRST = 0
    NATIVE_LAST = 7
    TORCH = 8
    TRITON = 9


SLOT_COUNT = max(Slot) + 1
