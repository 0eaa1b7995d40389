"""Evidence of where a call really ran: whether it left its device for the CPU.

A vendor's plug-in sends what it has no kernel for to the CPU, through one function for all
operators that is registered as the fallback of its dispatch key. torch's own
(``at::native::cpu_fallback``, which the plug-ins use or copy) brings the tensors over with
``aten::_to_cpu``, which nothing else calls, so counting its calls finds a fallback at any depth.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

_COMPOSITE = (
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "CompositeImplicitAutograd",
)
_WARNING = re.compile(r"fall(?:s|ing)?[ -]?back to (?:run on )?(?:the )?cpu", re.IGNORECASE)

# What the calls that are being watched did; appended to by `_to_cpu` of each device.
_fallbacks: list[str] = []


@contextmanager
def watch_fallbacks(overload: Any, device: str) -> Iterator[list[str]]:
    """Gives what shows that a call of an overload, made inside, went to the CPU instead."""
    if device == "cpu":
        yield []
        return
    _watch_copies(device)
    _fallbacks.clear()
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    if not has_kernel(overload, device):
        found.append(f"{overload.name()} has no kernel but the fallback")
    found += _fallbacks
    found += [str(each.message) for each in caught if _WARNING.search(str(each.message))]


@cache
def _watch_copies(device: str) -> torch.library.Library | None:
    """Notes every call of ``_to_cpu`` with tensors of a device; a vendor's own is left alone."""
    key = torch._C._dispatch_key_for_device(device)
    if torch._C._dispatch_has_kernel_for_dispatch_key("aten::_to_cpu", key):
        return None

    def to_cpu(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        _fallbacks.append("tensors were copied to the CPU by its fallback")
        return [tensor.cpu() for tensor in tensors]

    library = torch.library.Library("aten", "IMPL")
    library.impl("_to_cpu", to_cpu, key)
    return library


def has_kernel(overload: Any, device: str) -> bool:
    """Says whether a device has more for an ATen overload than the fallback to the CPU.

    A composite kernel counts for what it is made of, as far as that is known: an ``out=`` that
    torch generates calls its functional sibling.
    """
    key = torch._C._dispatch_key_for_device(device)
    if device == "cpu" or not torch._C._dispatch_has_backend_fallback(_key(key)):
        return True
    name = overload.name()
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if has(name, key):
        return True
    if not any(has(name, composite) for composite in _COMPOSITE):
        return False
    functional = _functional_sibling(overload)
    return functional is None or has_kernel(functional, device)


def _key(name: str) -> Any:
    return getattr(torch._C.DispatchKey, name)


def _functional_sibling(overload: Any) -> Any:
    """Returns the overload that a generated ``out=`` overload calls: "abs" of "abs.out"."""
    name, _, suffix = overload.name().removeprefix("aten::").partition(".")
    if not suffix.endswith("out"):
        return None
    packet = getattr(torch.ops.aten, name)
    return getattr(packet, suffix.removesuffix("out").removesuffix("_") or "default", None)
