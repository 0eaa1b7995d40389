"""The closed vocabulary of skip reasons.

``guards`` turns a skip with any other reason into a failure.
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
    INSTRUCTION_SET = "instruction set missing"  # as torch's message reports
    TORCH_REFUSES = "torch refuses"  # on this device or in this version, with its message
    TORCH_CRASHES = "torch crashes"  # without the library, too; with the signal
    SLOT_NOT_ACTIVE = "slot not active"
    NO_DEVICE = "no device"
    NOT_SELECTED = "operator not selected"  # for this build
    VENDOR_DEFECT = "vendor defect"  # with its reference: "vendor defect #123: adds twice"


def skip(reason: SkipReason, detail: str) -> NoReturn:
    """Skips the running test, with the message that led to the reason."""
    pytest.skip(skip_message(reason, _decisive_sentence(detail)))


def skip_message(reason: SkipReason, detail: str) -> str:
    """Returns the message of a skip; the detail of a defect begins with its reference and ": "."""
    separator = " " if reason is SkipReason.VENDOR_DEFECT else ": "
    return f"{reason.value}{separator}{detail}"


def reason_of(message: str) -> SkipReason | None:
    """Returns the reason at the start of a skip's message, or None if there is none."""
    head, _, detail = message.partition(": ")
    if not detail.strip():
        return None
    if head.startswith(f"{SkipReason.VENDOR_DEFECT.value} "):
        return SkipReason.VENDOR_DEFECT
    known = {reason.value: reason for reason in SkipReason if reason != SkipReason.VENDOR_DEFECT}
    return known.get(head)


# Phrases with which torch and its vendors refuse a call, in the order in which they are tried.
_PHRASES = (
    # The dispatcher, on every device: no kernel is registered.
    (SkipReason.NO_KERNEL, "Could not run 'aten::"),
    (SkipReason.NO_KERNEL, "There were no tensor arguments to this function"),
    (SkipReason.NO_KERNEL, "is not implemented for the device"),
    (SkipReason.NO_KERNEL, "You are likely triggering this with tensor backend other than"),
    # The fallback to the CPU of devices outside of torch, for a view.
    (SkipReason.NO_KERNEL, "but it has no implementation for the backend"),
    # The same fallback: its result has a layout that only the CPU has.
    (SkipReason.NO_KERNEL, "Unsupported device type for mkldnn layout"),
    # A library that this build of torch lacks: cuDNN, MIOpen, MKLDNN, MAGMA, LAPACK.
    (SkipReason.NO_KERNEL, "ATen not compiled with "),
    (SkipReason.NO_KERNEL, "requires compiling PyTorch with "),
    # AT_DISPATCH and its kin: "abs_cuda" not implemented for 'Half'.
    (SkipReason.DTYPE_UNSUPPORTED, "\" not implemented for '"),
    (SkipReason.DTYPE_UNSUPPORTED, "not supported for dtype"),
    (SkipReason.DTYPE_UNSUPPORTED, "doesn't support dtype"),
    # Ascend's aclnn: "self not implemented for DT_DOUBLE, should be in dtype support list [...]"
    # (https://github.com/hiyouga/LlamaFactory/issues/4165).
    (SkipReason.DTYPE_UNSUPPORTED, " not implemented for DT_"),
)


def classify(error: Exception) -> SkipReason | None:
    """Returns the reason why torch refuses a recorded call, or None for an unknown error."""
    message = str(error)
    return next((reason for reason, phrase in _PHRASES if phrase in message), None)


def _decisive_sentence(message: str) -> str:
    """Leaves out the advice and the lists of backends that torch appends."""
    lines = message.strip().splitlines() or [""]
    decisive = (line for line in lines if any(phrase in line for _, phrase in _PHRASES))
    return next(decisive, lines[0]).partition(". ")[0].strip()
