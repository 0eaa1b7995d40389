"""The closed vocabulary of reasons for which an operator test may skip.

Whatever none of these covers is a failure.
"""

from __future__ import annotations

from enum import Enum
from typing import NoReturn

import pytest


class SkipReason(str, Enum):
    """Why a test did not execute its overload."""

    NOT_IN_THIS_TORCH = "not in this torch"
    NO_SAMPLE = "no sample"
    NOTHING_TO_COMPARE = "nothing to compare"
    OPERAND_NOT_RECORDABLE = "operand not recordable"
    NO_KERNEL = "no kernel on this device"
    DTYPE_UNSUPPORTED = "dtype unsupported"
    SLOT_NOT_ACTIVE = "slot not active"
    TORCH_DEFECT = "torch defect"


# Overloads that no sample can show to work, because torch 2.13 itself is wrong.
TORCH_DEFECTS = {
    "_compute_linear_combination.out": "adds to out instead of writing it (torch 2.13)",
}


def skip(reason: SkipReason, detail: str) -> NoReturn:
    """Skips the running test, with the message that led to the reason."""
    pytest.skip(f"{reason.value}: {_first_sentence(detail)}")


# Phrases of torch's own messages, in the order in which they are tried.
_PHRASES = (
    (SkipReason.NO_KERNEL, "Could not run 'aten::"),
    (SkipReason.NO_KERNEL, "There were no tensor arguments to this function"),
    (SkipReason.NO_KERNEL, "is not implemented for the device"),
    (SkipReason.NO_KERNEL, "You are likely triggering this with tensor backend other than"),
    (SkipReason.DTYPE_UNSUPPORTED, "\" not implemented for '"),
    (SkipReason.DTYPE_UNSUPPORTED, "not supported for dtype"),
    (SkipReason.DTYPE_UNSUPPORTED, "doesn't support dtype"),
)


def classify(error: Exception) -> SkipReason | None:
    """Says why torch itself refuses a recorded call, or None where that is unexpected."""
    message = str(error)
    for reason, phrase in _PHRASES:
        if phrase in message:
            return reason
    return None


def _first_sentence(message: str) -> str:
    """Leaves out the advice and the lists of backends that torch appends."""
    return message.strip().partition("\n")[0].partition(". ")[0]
