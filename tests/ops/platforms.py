"""The platforms of the library, and what their hardware is called.

Several vendors present their devices to torch as ``cuda``. The build of the library determines
which of them a run is for. Only the name of the hardware shows which one really computed.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from typing import Any

from evidence import is_simulated

import infini.ops
import torch
from codegen import devices

SIMULATOR = "simulated_device"  # the module of simulated devices, in place of a vendor's plug-in


class DeviceError(Exception):
    """The module that adds a device to torch is missing, or the device is not as requested."""


PLATFORMS = {platform.name: platform for platform in infini.ops.platforms()}
DEVICES = tuple(dict.fromkeys(platform.torch_device for platform in PLATFORMS.values()))
SIMULATED_DEVICES = tuple(each.torch_device for each in PLATFORMS.values() if each.torch_plugin)


def default_platform(device: str) -> str:
    """Returns the platform of this build of the library that uses a torch device type.

    If the build has no such platform, returns the first platform with that device type.
    """
    of_device: list[str] = [
        platform.name for platform in PLATFORMS.values() if platform.torch_device == device
    ]
    enabled: list[str] = [name for name in of_device if name in infini.ops.devices()]
    return (enabled or of_device)[0]


def load_device(device: str, *, simulated: bool) -> None:
    """Imports the module that adds the device type to torch, unless torch has it itself.

    Raises:
        DeviceError: the module is not installed, or a device to simulate is not simulated.
    """
    if simulated:
        _import(SIMULATOR, "run `pip install ./tests/simulated --no-build-isolation`").load(device)
        if not is_simulated(device):
            raise DeviceError(f"torch.{device}: got a real device, expected a simulated one")
        return
    plugin = PLATFORMS[default_platform(device)].torch_plugin
    if plugin is not None:
        _import(plugin, f"install it, or pass --simulated to run on a simulated {device}")


def _import(module: str, remedy: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise DeviceError(f"{module} is not installed; {remedy}") from error


def identify(device: str, hardware_name: str) -> str | None:
    """Returns the platform with this device type whose hardware has this name."""
    names = [
        platform.name
        for platform in devices.platforms()
        if platform.torch_device == device
        and platform.hardware
        and re.search(platform.hardware, hardware_name, re.IGNORECASE)
    ]
    return names[0] if len(names) == 1 else None


@cache
def ran_platform(device: str) -> str | None:
    """Returns the platform of the hardware behind a torch device type, by the hardware's name.

    None if the hardware has no name or an unknown one, and for a simulated device, which has no
    hardware.
    """
    if device == "cpu":
        return "cpu"
    if is_simulated(device):
        return None
    name_of = getattr(getattr(torch, device, None), "get_device_name", None)
    try:
        name = str(name_of(0)) if name_of else ""
    except Exception:
        # Each plug-in raises other errors; the operator tests show whether it works.
        return None
    return identify(device, name)
