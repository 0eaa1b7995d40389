"""A device on host memory that torch treats as an accelerator, such as ``npu``.

Its kernels and its memory are the CPU's, but only the kernels may use the memory. Host code that
dereferences an address on the device crashes, as with a real one.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

runtime: Any = import_module("simulated_device.runtime")  # generated, so there are no types
# Names an overload whose kernel ends the process, as a vendor's defect may: exp.out.
DIES_IN = "SIMULATED_DEVICE_DIES_IN"
_DEFECTS = torch.library.Library("aten", "IMPL")


def library() -> Path:
    """Returns the shared library that adds the device to a C++ program.

    There it keeps torch's name for any such device, ``privateuseone``, until the program calls
    ``c10::register_privateuse1_backend``.
    """
    return Path(__file__).with_name("libsimulated_device.so")


def _get_device_name(device: Any = None) -> str:
    return f"Simulated {_name_of_torch(device)}"


# Torch calls the generated module, with these differences. Reports ask for `is_simulated`.
_name_of_torch, runtime.get_device_name = runtime.get_device_name, _get_device_name
runtime.is_simulated = True


def load(name: str) -> None:
    """Adds the device to torch under a name; a second call in a process does nothing.

    Raises:
        RuntimeError: torch has a device of this kind already, under another name, or has a device
            of this name itself.
    """
    present = torch._C._get_privateuse1_backend_name()
    if present == name and getattr(getattr(torch, name, None), "is_simulated", False):
        return
    if present != "privateuseone":
        raise RuntimeError(
            f"the simulated device can't be called {name!r}: torch has one device of this kind per "
            f"process, and it is called {present!r} already. Start another process"
        )
    runtime.load(library(), name)
    if overload := os.environ.get(DIES_IN):
        _DEFECTS.impl(overload, lambda *_, **__: os.abort(), "PrivateUse1")
