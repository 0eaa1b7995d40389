"""A device without hardware, made in Python: kernels for ``abs`` and ``sign``, and a fallback.

A program, because a device type can be named once per process. Prints the
evidence of the calls named by the arguments, for a real device and then for a simulated one.
"""

from __future__ import annotations

import sys
from typing import Any

from dispatcher import kernel_of
from evidence import watch_fallbacks
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import torch

DEVICE = "toy"
ATEN = torch.ops.aten
# The elements of the device's tensors, which have no memory of their own.
elements: dict[int, torch.Tensor] = {}


def to_device(tensor: torch.Tensor) -> torch.Tensor:
    on_device = torch._C._acc.create_empty_tensor(tensor.shape, tensor.dtype)
    elements[id(on_device)] = tensor.clone()
    return on_device


def copy_to(tensor: torch.Tensor, **_: object) -> torch.Tensor:
    return elements[id(tensor)].clone()


def absolute(tensor: torch.Tensor) -> torch.Tensor:
    return to_device(elements[id(tensor)].abs())


def sign(tensor: torch.Tensor) -> torch.Tensor:
    (on_cpu,) = ATEN._to_cpu([tensor])
    return to_device(on_cpu.sign())


def empty(size: list[int], *_: object, dtype: torch.dtype | None = None, **__: object) -> Any:
    return to_device(torch.empty(size, dtype=dtype))


def fall_back(overload: Any, tensor: torch.Tensor, *, out: torch.Tensor | None = None) -> Any:
    """Replaces ``at::native::cpu_fallback`` for the operators that are called below."""
    (on_cpu,) = ATEN._to_cpu([tensor])
    if out is None:
        return to_device(overload(on_cpu))
    elements[id(out)] = overload(on_cpu, out=torch.empty(0))
    return out


_setup_privateuseone_for_python_backend(DEVICE)
aten = torch.library.Library("aten", "IMPL")
aten.impl("_to_copy", copy_to, "PrivateUse1")
aten.impl("empty.memory_format", empty, "PrivateUse1")
aten.impl("empty_strided", empty, "PrivateUse1")
aten.impl("abs", absolute, "PrivateUse1")
aten.impl("sign", sign, "PrivateUse1")
everything = torch.library.Library("_", "IMPL")
everything.fallback(fall_back, "PrivateUse1")

for torch.toy.is_simulated in (False, True):
    for name in sys.argv[1:]:
        overload = getattr(ATEN, name).default
        x = to_device(torch.tensor([-1.0, 2.0]))
        with watch_fallbacks(overload, DEVICE) as found:
            overload(x)
        print(f"{name}: {kernel_of(overload, DEVICE)}", *found, sep=" | ")
