"""What torch's dispatcher has for an overload on a device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

_COMPOSITE = (
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "CompositeImplicitAutograd",
)
# A device has a dispatch key of its own for each of these kinds of tensors: "SparseCsrCUDA".
_KINDS = ("", "Sparse", "SparseCsr", "Quantized", "NestedTensor")


@cache
def has_kernel(overload: Any, device: str) -> bool:
    """Says whether there is a kernel for strided tensors: the device's own or a composite one.

    What torch generated needs what it calls, too. A fallback to the CPU is no kernel.
    """
    return all(_has(each, _key(device), *_COMPOSITE) for each in _made_of(overload))


@cache
def has_own_kernel(overload: Any, device: str) -> bool:
    """Says whether the device has a kernel of its own, for whatever kind of tensors.

    Its fallback is none, even where it is registered for the operator.
    """
    keys = [kind + _key(device) for kind in _KINDS]
    return any(
        _has(each, key) and not is_for_any_operator(each, key)
        for each in _made_of(overload)
        for key in keys
    )


def kernel_of(overload: Any, device: str) -> str:
    """Returns what a call on the device runs: "own", "composite" or "fallback"."""
    if has_own_kernel(overload, device):
        return "own"
    falls_back = any(is_for_any_operator(each, _key(device)) for each in _made_of(overload))
    return "composite" if has_kernel(overload, device) and not falls_back else "fallback"


def is_for_any_operator(overload: Any, key: str) -> bool:
    """Says whether what is registered under a key is a boxed function in C++.

    A kernel has the types of its operator; a fallback has none, and devices register theirs for
    single operators, too, whose composite kernel asks for a CPU or CUDA. What Python registers is
    boxed and can be a kernel all the same.
    """
    kernel = rf"^{key}: registered at (?!\S+\.py:).* :: \(none\) \[ boxed \]$"
    return re.search(kernel, torch._C._dispatch_dump(overload.name()), re.MULTILINE) is not None


def has_fallback(device: str) -> bool:
    """Says whether a device does anything at all for operators that it has no kernel for."""
    key = getattr(torch._C.DispatchKey, _key(device))
    return bool(torch._C._dispatch_has_backend_fallback(key))


def _key(device: str) -> str:
    return str(torch._C._dispatch_key_for_device(device))


def _has(overload: Any, *keys: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has(overload.name(), key) for key in keys)


def _made_of(overload: Any) -> Iterator[Any]:
    """Yields the overload and, where torch generated it, the one of the same inputs it calls."""
    yield overload
    if torch.Tag.generated not in overload.tags:
        return
    packet = overload.overloadpacket
    wanted = _inputs(overload)
    for each in (getattr(packet, name) for name in packet.overloads()):
        if each != overload and _inputs(each) == wanted:
            yield each
            return


def _inputs(overload: Any) -> list[tuple[str, str]]:
    arguments = overload._schema.arguments
    return [(each.name, str(each.type)) for each in arguments if not _describes_output(each)]


def _describes_output(argument: Any) -> bool:
    """Says whether it is an output, or what a factory without outputs has in its place."""
    return argument.is_out or argument.name in ("dtype", "layout", "device", "pin_memory")
