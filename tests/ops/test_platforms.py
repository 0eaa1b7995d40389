"""Which platform a run is for, and which hardware it ran on."""

from __future__ import annotations

from platforms import (
    DEVICES,
    PLATFORMS,
    SIMULATED_DEVICES,
    default_platform,
    identify,
    ran_platform,
)

import infini.ops
import torch
from codegen import devices


def test_hardware_is_known_by_its_name() -> None:
    """One test for all platforms: a further one changes no contract."""
    known = [(platform, name) for platform in devices.platforms() for name in platform.examples]
    assert len(known) >= 17
    for platform, name in known:
        assert identify(platform.torch_device, name) == platform.name, name


def test_unknown_hardware_has_no_platform() -> None:
    assert identify("cuda", "Radeon PRO") is None
    assert identify("cuda", "") is None
    assert identify("npu", "MLU370-X8") is None


def test_the_library_and_the_table_agree_on_platforms() -> None:
    for platform in infini.ops.devices():
        device = PLATFORMS[platform].torch_device
        assert infini.ops.Abs.active_implementation_indices(device), platform
        assert default_platform(device) == platform


def test_every_device_has_a_platform_and_most_name_a_plugin() -> None:
    files = [(each.name, each.torch_device, each.torch_plugin) for each in devices.platforms()]
    assert [(each.name, each.torch_device, each.torch_plugin) for each in PLATFORMS.values()] == (
        files
    )
    plugins = {device: name for name, device, plugin in files if plugin}
    assert {device: default_platform(device) for device in SIMULATED_DEVICES} == plugins
    assert set(DEVICES) == {"cpu", "cuda", *plugins}


def test_the_cpu_is_the_cpu_and_a_device_that_is_not_there_is_unknown() -> None:
    assert ran_platform("cpu") == "cpu"
    if not torch.cuda.is_available():
        assert ran_platform("cuda") is None
    assert ran_platform("privateuseone") is None
