"""The platform and the device of a run: from the command line, the environment or the build."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any

import pytest
from evidence import is_absent, is_simulated
from platforms import (
    DEVICES,
    PLATFORMS,
    SIMULATED_DEVICES,
    DeviceError,
    default_platform,
    load_device,
)
from reasons import SkipReason, skip

import infini.ops
import torch

# The variables that `python -m ci run` sets for every stage.
PLATFORM, DEVICE = "INFINI_CI_PLATFORM", "INFINI_CI_TORCH_DEVICE"
SIMULATED = "INFINI_CI_SIMULATED"


def choose_target(option: Any) -> None:
    """Fills in the options that the command line does not set."""
    option.platform = option.platform or _from_environment(PLATFORM, sorted(PLATFORMS))
    option.device = option.device or _from_environment(DEVICE, DEVICES)
    if option.device is None:
        option.device = PLATFORMS[option.platform].torch_device if option.platform else "cpu"
    option.platform = option.platform or default_platform(option.device)
    option.simulated = option.simulated or _from_environment(SIMULATED, ("0", "1")) == "1"
    if option.simulated and option.device == "cpu":
        raise pytest.UsageError(
            f"--simulated and ${SIMULATED} test a vendor's platform without its device: got device "
            f"cpu, expected one of {', '.join(each for each in DEVICES if each != 'cpu')}"
        )


def _from_environment(name: str, known: Collection[str]) -> str | None:
    value = os.environ.get(name) or None
    if value is not None and value not in known:
        raise pytest.UsageError(f"${name}: got {value!r}, expected one of {', '.join(known)}")
    return value


def on_simulated_devices(metafunc: pytest.Metafunc) -> None:
    """Makes a case of ``--device`` if it is simulated; ``conftest.py`` drops tests without one."""
    _on_devices(metafunc, is_simulated)


def on_accelerators(metafunc: pytest.Metafunc) -> None:
    """Makes a case of ``--device`` if it is here and not the CPU, real or simulated."""
    _on_devices(metafunc, lambda device: device != "cpu" and not is_absent(device))


def without_device(metafunc: pytest.Metafunc) -> None:
    """Makes a case of ``--device`` if this machine lacks it: the build is compiled only."""
    _on_devices(metafunc, is_absent)


def _on_devices(metafunc: pytest.Metafunc, wanted: Callable[[str], bool]) -> None:
    device = metafunc.config.getoption("device")
    metafunc.parametrize("device", [device] if wanted(device) else [], scope="session")


def skip_without_device(device: str, platform: str) -> None:
    if is_absent(device):
        detail = f"no {device} device is here, the build for {platform} was compiled only"
        skip(SkipReason.NO_DEVICE, detail)


def answers(device: str) -> bool:
    """Report whether a device still computes; a CUDA device never does after a bad access."""
    if device == "cpu" or is_absent(device):
        return True
    try:
        return bool(torch.tensor([1, 2]).to(device).cpu().tolist() == [1, 2])
    except Exception:
        # Any error counts: torch, its plug-ins and the drivers have no base class in common.
        return False


def prepare(device: str, platform: str, *, simulated: bool) -> None:
    """Imports the module of the device; stops if torch or the library cannot use the device."""
    try:
        if simulated and device not in SIMULATED_DEVICES:
            _check_compiled(device, platform)
            return
        load_device(device, simulated=simulated)
        torch.empty(0, device=device)
        # The operands are small and the suite runs one process per core.
        torch.set_num_threads(1)
        # NNPACK's operators fail in a process that has not initialized NNPACK; this query does it.
        torch.backends.nnpack.is_available()
        if not infini.ops.Operator.active_implementation_indices(device):
            raise DeviceError(f"the library was built for {', '.join(infini.ops.devices())}")
    except Exception as error:
        raise pytest.UsageError(
            f"device {device} cannot be used here: {error}. The device comes from the first of "
            f"--device, ${DEVICE}, --platform and ${PLATFORM} that is set"
        ) from error


def _check_compiled(device: str, platform: str) -> None:
    """Raises if the device is present, or the library is built for another platform."""
    if not is_absent(device):
        raise DeviceError(f"--simulated: got a {device} device, expected none. Omit --simulated")
    if platform not in infini.ops.devices():
        has = ", ".join(infini.ops.devices())
        raise DeviceError(f"the library was built for {has}, expected {platform}")
