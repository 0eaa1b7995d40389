"""The platforms are those of the library's own table, with what else holds on any of them."""

from __future__ import annotations

from ci.model.platforms import PLATFORMS
from codegen import devices


def test_names_and_torch_devices_are_those_of_the_one_table() -> None:
    table = {device.name: device.torch_device for device in devices.PLATFORMS}
    assert {name: PLATFORMS[name].torch_device for name in PLATFORMS} == table
    assert all(PLATFORMS[name].name == name for name in PLATFORMS)


def test_every_platform_has_the_label_that_people_know() -> None:
    labels = [PLATFORMS[name].label for name in PLATFORMS]
    assert labels == ["CPU", "NVIDIA", "Iluvatar", "MetaX", "Cambricon", "Moore", "Ascend"]
