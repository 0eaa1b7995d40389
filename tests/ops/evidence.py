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
from contextlib import contextmanager
from functools import cache
from typing import Any

from dispatcher import has_fallback, has_kernel, has_own_kernel

import torch

_WARNING = re.compile(r"fall(?:s|ing)?[ -]?back to (?:run on )?(?:the )?cpu", re.IGNORECASE)

# What the calls that are being watched did; appended to by `_to_cpu` of each device.
_copies: list[str] = []


def is_simulated(device: str) -> bool:
    """Says whether a device is a simulated one, whatever the command line asked for."""
    return getattr(getattr(torch, device, None), "is_simulated", False) is True


@contextmanager
def watch_fallbacks(overload: Any, device: str) -> Iterator[list[str]]:
    """Gives what proves that a call of an overload, made inside, went to the CPU instead."""
    found: list[str] = []
    if device == "cpu" or is_simulated(device):
        yield found
        return
    if has_fallback(device):
        _watch_copies(device)
    _copies.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    if has_fallback(device) and not has_own_kernel(overload, device):
        if not has_kernel(overload, device):
            found.append(f"{overload.name()} has no kernel but the fallback")
        found += _copies
    found += [str(each.message) for each in caught if _WARNING.search(str(each.message))]


@cache
def _watch_copies(device: str) -> torch.library.Library | None:
    """Notes every call of ``_to_cpu`` with tensors of a device; a vendor's own is left alone."""
    key = torch._C._dispatch_key_for_device(device)
    if torch._C._dispatch_has_kernel_for_dispatch_key("aten::_to_cpu", key):
        return None

    def to_cpu(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        _copies.append("tensors were copied to the CPU by its fallback")
        return [tensor.cpu() for tensor in tensors]

    library = torch.library.Library("aten", "IMPL")
    library.impl("_to_cpu", to_cpu, key)
    return library
