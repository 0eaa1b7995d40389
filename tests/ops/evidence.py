"""Evidence of where a call really ran: on hardware or not, and whether it fell back to the CPU.

A vendor's plug-in runs an operator without a kernel on the CPU. It does so by one function for all
operators, registered as the fallback of its dispatch key; torch's own CUDA has no fallback. torch's
function (``at::native::cpu_fallback``, which the plug-ins use or copy) copies the tensors with
``aten::_to_cpu``, so counting the calls of ``_to_cpu`` finds a fallback at any depth. A device's
own kernel may call ``_to_cpu`` for other purposes, as for a few elements. Such a kernel proves that
the device computes.

A simulated device always computes on the CPU, so a call cannot fall back.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

from dispatcher import has_fallback, has_kernel, has_own_kernel
from torch.autograd.profiler_legacy import profile

import torch

_WARNING = re.compile(r"fall(?:s|ing)?[ -]?back to (?:run on )?(?:the )?cpu", re.IGNORECASE)
_TO_CPU = ("push", "aten::_to_cpu")  # the start of a call, as the profiler records it
_COPIED = "tensors were copied to the CPU by its fallback"


def is_simulated(device: str) -> bool:
    """Report whether a device is a simulated one, independent of the command line."""
    return getattr(getattr(torch, device, None), "is_simulated", False) is True


@cache
def is_absent(device: str) -> bool:
    """Report whether torch knows a device type but this machine has no such device."""
    is_available = getattr(getattr(torch, device, None), "is_available", None)
    return is_available is not None and not is_available()


@contextmanager
def watch_fallbacks(overload: Any, device: str) -> Iterator[list[str]]:
    """Collects the evidence that a call of an overload inside the block fell back to the CPU."""
    found: list[str] = []
    if device == "cpu" or is_simulated(device):
        yield found
        return
    may_fall_back = has_fallback(device) and not has_own_kernel(overload, device)
    watching: AbstractContextManager[list[str]]
    watching = _watch_copies() if may_fall_back else nullcontext[list[str]]([])
    with warnings.catch_warnings(record=True) as caught, watching as copies:
        warnings.simplefilter("always")
        yield found
    if may_fall_back:
        if not has_kernel(overload, device):
            found.append(f"{overload.name()} has no kernel but the fallback")
        found += copies
    found += [str(each.message) for each in caught if _WARNING.search(str(each.message))]


@contextmanager
def _watch_copies() -> Iterator[list[str]]:
    """Collects a line for each copy of tensors to the CPU inside the block.

    torch's profiler sees the copies, and costs 0.1 ms. A Python kernel in place of ``_to_cpu``
    would get the number of ``sub.Scalar`` as a number, but the fallback needs it as a tensor.
    """
    found: list[str] = []
    torch.autograd._enable_profiler_legacy(profile().config())
    try:
        yield found
    finally:
        events = [event for thread in torch.autograd._disable_profiler_legacy() for event in thread]
        found += [_COPIED for event in events if (event.kind(), event.name()) == _TO_CPU]
