"""What a run tests, and on what; a simulated device is never taken for a real one."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from platforms import SIMULATED_DEVICES, DeviceError, load_device, ran_platform
from properties import Record
from target import choose_target, prepare

import torch


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PLATFORM", "TORCH_DEVICE", "SIMULATED"):
        monkeypatch.delenv(f"INFINI_CI_{name}", raising=False)


def chosen(**options: Any) -> tuple[str, str, bool]:
    option = SimpleNamespace(platform=None, device=None, simulated=False)
    vars(option).update(options)
    choose_target(option)
    return option.device, option.platform, option.simulated


def test_nothing_is_simulated_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen() == ("cpu", "cpu", False)
    assert chosen(device="npu") == ("npu", "ascend", False)
    assert chosen(platform="moore", simulated=True) == ("musa", "moore", True)
    monkeypatch.setenv("INFINI_CI_SIMULATED", "1")
    assert chosen(device="mlu") == ("mlu", "cambricon", True)
    monkeypatch.setenv("INFINI_CI_SIMULATED", "0")
    assert chosen(device="mlu") == ("mlu", "cambricon", False)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_torch_itself_has_is_not_simulated(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = rf"asks for a simulated device, and the device is {device}; expected one of mlu, musa"
    with pytest.raises(pytest.UsageError, match=wanted):
        chosen(device=device, simulated=True)
    monkeypatch.setenv("INFINI_CI_SIMULATED", "1")
    with pytest.raises(pytest.UsageError, match=wanted):
        chosen(device=device)


def test_the_environment_is_read_strictly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFINI_CI_SIMULATED", "yes")
    with pytest.raises(pytest.UsageError, match=r"\$INFINI_CI_SIMULATED is 'yes'; .* 0, 1"):
        chosen(device="npu")


@pytest.mark.parametrize("device", SIMULATED_DEVICES)
def test_a_missing_plug_in_has_a_remedy(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simulated_device", None)
    monkeypatch.setitem(sys.modules, f"torch_{device}", None)
    with pytest.raises(
        pytest.UsageError,
        match=f"torch_{device} is not installed; .*--simulated runs on a simulated {device}",
    ):
        prepare(device, simulated=False)
    with pytest.raises(
        pytest.UsageError,
        match=r"simulated_device is not installed; run `pip install \./tests/simulated ",
    ):
        prepare(device, simulated=True)


def test_a_simulated_device_has_to_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "npu", raising=False)
    monkeypatch.setitem(sys.modules, "simulated_device", SimpleNamespace(load=str))
    with pytest.raises(DeviceError, match=r"torch\.npu does not say that it is simulated"):
        load_device("npu", simulated=True)


def test_what_is_simulated_ran_on_nobodys_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor: Any = SimpleNamespace(get_device_name="Ascend910B{}".format)
    monkeypatch.setattr(torch, "npu", vendor, raising=False)
    assert recorded("npu") == {"ran_device": "npu", "ran_platform": "ascend"}
    vendor.is_simulated = True
    assert recorded("npu") == {"simulated": True, "ran_device": "npu", "ran_platform": None}


def recorded(device: str) -> dict[str, object]:
    """Returns what a test that ran on a device records about that."""
    ran_platform.cache_clear()
    written: dict[str, object] = {}
    record = Record(property=written.__setitem__, device=device, platform="ascend")
    record.asked(overload="abs.out", dtype="float32", slot=8, active=True)
    record.ran(executed=1, device=device)
    ran_platform.cache_clear()
    return {
        name: written[name] for name in written.keys() & {"simulated", "ran_device", "ran_platform"}
    }
