"""The platforms of the library, and what their hardware is called.

Three vendors present their devices to torch as ``cuda``. Which of them a run is for, the build
of the library says; which of them really computed, only the hardware does.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from typing import Any

from evidence import is_simulated

import infini.ops
import torch

SIMULATOR = "simulated_device"  # what brings a simulated device, in place of a vendor's plug-in


class DeviceError(Exception):
    """What brings a device to torch is missing, or is something else than was asked for."""


PLATFORMS = {platform.name: platform for platform in infini.ops.platforms()}
DEVICES = tuple(dict.fromkeys(platform.torch_device for platform in PLATFORMS.values()))
SIMULATED_DEVICES = tuple(each.torch_device for each in PLATFORMS.values() if each.torch_plugin)

# Matches what the devices of a platform answer to ``get_device_name``.
HARDWARE = {
    "nvidia": r"nvidia|tesla|geforce|quadro|titan|\brtx\b|^[abhlv]\d{2,3}\b",
    "iluvatar": r"iluvatar|\b(bi|mr)-?v\d+",
    "metax": r"metax|\bmxc|\bmxn|^c[56]\d\d\b",
    "cambricon": r"cambricon|\bmlu-?\d",
    "moore": r"moore|mthreads|\bmtt\b",
    "ascend": r"ascend",
}


def default_platform(device: str) -> str:
    """Returns the platform that this build of the library means by a torch device type.

    Where the build has none, the only platform with that device type, or the first of several.
    """
    of_device = [
        platform.name for platform in PLATFORMS.values() if platform.torch_device == device
    ]
    enabled = [name for name in of_device if name in infini.ops.devices()]
    return (enabled or of_device)[0]


def load_device(device: str, *, simulated: bool) -> None:
    """Imports what brings torch the device type, where torch does not have it itself.

    Raises:
        DeviceError: it is not installed, or what is to be simulated is not.
    """
    if simulated:
        _import(SIMULATOR, "run `pip install ./tests/simulated --no-build-isolation`").load(device)
        if not is_simulated(device):
            raise DeviceError(f"torch.{device} does not say that it is simulated")
        return
    plugin = PLATFORMS[default_platform(device)].torch_plugin
    if plugin is not None:
        _import(plugin, f"without the vendor's device, --simulated runs on a simulated {device}")


def _import(module: str, remedy: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise DeviceError(f"{module} is not installed; {remedy}") from error


def identify(device: str, hardware_name: str) -> str | None:
    """Returns the platform with this device type whose hardware has such a name."""
    names = [
        name
        for name, pattern in HARDWARE.items()
        if PLATFORMS[name].torch_device == device
        and re.search(pattern, hardware_name, re.IGNORECASE)
    ]
    return names[0] if len(names) == 1 else None


@cache
def ran_platform(device: str) -> str | None:
    """Returns the platform that the hardware behind a torch device type says it is.

    None where it does not say, or says something that no platform is known by; and on a simulated
    device, behind which is no hardware.
    """
    if device == "cpu":
        return "cpu"
    if is_simulated(device):
        return None
    name_of = getattr(getattr(torch, device, None), "get_device_name", None)
    try:
        name = str(name_of(0)) if name_of else ""
    except Exception:
        # Plug-ins differ in what they raise; the tests of the operators say whether they work.
        return None
    return identify(device, name)
