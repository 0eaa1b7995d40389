"""Finds the kernels that torch's dispatcher has for an overload on a device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
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
    """Report whether there is a kernel for strided tensors: the device's own or a composite one.

    A generated overload also needs the kernel of the overload that it calls. A fallback to the CPU
    is not a kernel.
    """
    return all(_has(each, _key(device), *_COMPOSITE) for each in _overload_and_callee(overload))


@cache
def has_own_kernel(overload: Any, device: str) -> bool:
    """Report whether the device has a kernel of its own, for any kind of tensors.

    The device's fallback does not count, even if it is registered for the operator.
    """
    keys = [kind + _key(device) for kind in _KINDS]
    return any(
        _has(each, key) and not is_boxed_fallback(each, key)
        for each in _overload_and_callee(overload)
        for key in keys
    )


def kernel_of(overload: Any, device: str) -> str:
    """Returns what a call on the device runs: "own", "composite" or "fallback"."""
    if has_own_kernel(overload, device):
        return "own"
    falls_back = any(
        is_boxed_fallback(each, _key(device)) for each in _overload_and_callee(overload)
    )
    return "composite" if has_kernel(overload, device) and not falls_back else "fallback"


def is_boxed_fallback(overload: Any, key: str) -> bool:
    """Report whether the function under a key is boxed and from C++: a fallback, not a kernel.

    A kernel has the argument types of its operator; a fallback has none. Devices also register
    their fallback for single operators whose composite kernel accepts only the CPU or CUDA. A
    function from Python is boxed too, but can be a kernel.
    """
    kernel = rf"^{key}: registered at (?!\S+\.py:).* :: \(none\) \[ boxed \]$"
    return re.search(kernel, torch._C._dispatch_dump(overload.name()), re.MULTILINE) is not None


def has_fallback(device: str) -> bool:
    """Report whether a device has a fallback for operators that it has no kernel for."""
    key = getattr(torch._C.DispatchKey, _key(device))
    return bool(torch._C._dispatch_has_backend_fallback(key))


def _key(device: str) -> str:
    return str(torch._C._dispatch_key_for_device(device))


def _has(overload: Any, *keys: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has(overload.name(), key) for key in keys)


def _overload_and_callee(overload: Any) -> Iterator[Any]:
    """Yields the overload and, if torch generated it, the one with equal inputs that it calls."""
    yield overload
    if torch.Tag.generated not in overload.tags:
        return
    yield from islice(_siblings(overload), 1)


def functional_sibling(overload: Any) -> Any | None:
    """Returns the overload with equal inputs that allocates its outputs, or None."""
    return next((each for each in _siblings(overload) if not _writes(each)), None)


def _siblings(overload: Any) -> Iterator[Any]:
    """Yields the other overloads of the same name with equal inputs."""
    packet = overload.overloadpacket
    wanted = _inputs(overload)
    for each in (getattr(packet, name) for name in packet.overloads()):
        if each != overload and _inputs(each) == wanted:
            yield each


def _writes(overload: Any) -> bool:
    return any(argument.is_out for argument in overload._schema.arguments)


def _inputs(overload: Any) -> list[tuple[str, str]]:
    arguments = overload._schema.arguments
    return [(each.name, str(each.type)) for each in arguments if not _describes_output(each)]


def _describes_output(argument: Any) -> bool:
    """Report whether it is an output, or describes the output of a factory without ``out``."""
    return argument.is_out or argument.name in ("dtype", "layout", "device", "pin_memory")
