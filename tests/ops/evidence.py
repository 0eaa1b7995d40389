"""Evidence of where a call really ran: on hardware, and whether it left its device for the CPU.

A vendor's plug-in sends what it has no kernel for to the CPU, through one function for all
operators that is registered as the fallback of its dispatch key; torch's own CUDA has none.
torch's function (``at::native::cpu_fallback``, which the plug-ins use or copy) brings the tensors
over with ``aten::_to_cpu``, so counting its calls finds a fallback at any depth. A device's own
kernel may call it for other ends, as for a few elements, and proves that the device computes.

A simulated device has no hardware that a call could leave: the CPU is where it computes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

from dispatcher import has_fallback, has_kernel, has_own_kernel
from torch.autograd.profiler_legacy import profile

import torch

_WARNING = re.compile(r"fall(?:s|ing)?[ -]?back to (?:run on )?(?:the )?cpu", re.IGNORECASE)
_TO_CPU = ("push", "aten::_to_cpu")  # the begin of a call, to the profiler
_COPIED = "tensors were copied to the CPU by its fallback"


def is_simulated(device: str) -> bool:
    """Says whether a device is a simulated one, whatever the command line asked for."""
    return getattr(getattr(torch, device, None), "is_simulated", False) is True


@cache
def is_absent(device: str) -> bool:
    """Says whether torch knows a device type of which there is no device here."""
    is_available = getattr(getattr(torch, device, None), "is_available", None)
    return is_available is not None and not is_available()


@contextmanager
def watch_fallbacks(overload: Any, device: str) -> Iterator[list[str]]:
    """Gives what proves that a call of an overload, made inside, went to the CPU instead."""
    found: list[str] = []
    if device == "cpu" or is_simulated(device):
        yield found
        return
    may_fall_back = has_fallback(device) and not has_own_kernel(overload, device)
    watching = _watch_copies() if may_fall_back else nullcontext([])
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
    """Gives a line for each time that what is called inside copied its tensors to the CPU.

    torch's profiler sees the calls, for 0.1 ms. A kernel in Python in the place of ``_to_cpu``
    would be given the number of ``sub.Scalar``, which is a tensor to the fallback, as a number.
    """
    found: list[str] = []
    torch.autograd._enable_profiler_legacy(profile().config())
    try:
        yield found
    finally:
        events = [event for thread in torch.autograd._disable_profiler_legacy() for event in thread]
        found += [_COPIED for event in events if (event.kind(), event.name()) == _TO_CPU]
