"""What a run tests, and on what; a simulated device is never taken for a real one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from evidence import is_absent
from platforms import SIMULATED_DEVICES, DeviceError, default_platform, load_device, ran_platform
from properties import Record, origin
from target import choose_target, prepare, skip_without_device

import infini.ops
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


def test_the_cpu_is_not_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = (
        r"asks for a run without a vendor's device, and the device is cpu; expected one of cuda, "
    )
    with pytest.raises(pytest.UsageError, match=wanted):
        chosen(device="cpu", simulated=True)
    monkeypatch.setenv("INFINI_CI_SIMULATED", "1")
    with pytest.raises(pytest.UsageError, match=wanted):
        chosen()


@pytest.mark.parametrize("platform", ["nvidia", "iluvatar", "metax"])
def test_what_nothing_simulates_is_compiled_only(platform: str) -> None:
    assert chosen(platform=platform, simulated=True) == ("cuda", platform, True)


def without_gpu(monkeypatch: pytest.MonkeyPatch, *, is_available: bool = False) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_available)
    is_absent.cache_clear()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    is_absent.cache_clear()


def test_compiled_only_is_for_where_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    without_gpu(monkeypatch, is_available=True)
    with pytest.raises(pytest.UsageError, match="there is no cuda device, and one is here"):
        prepare("cuda", "nvidia", simulated=True)


def test_a_build_for_another_platform_was_not_compiled_for_this(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_gpu(monkeypatch)
    monkeypatch.setattr(infini.ops, "devices", lambda: ["cpu", "metax"])
    prepare("cuda", "metax", simulated=True)
    with pytest.raises(pytest.UsageError, match="built for cpu, metax, expected nvidia"):
        prepare("cuda", "nvidia", simulated=True)


def test_a_run_for_hardware_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without_gpu(monkeypatch)
    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.raises(pytest.UsageError, match="cuda cannot be used here: no CUDA"):
        prepare("cuda", "nvidia", simulated=False)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("no CUDA")


def test_without_its_device_a_test_skips_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    without_gpu(monkeypatch)
    told = "^no device: no cuda device is here, the build for metax was compiled only$"
    with pytest.raises(pytest.skip.Exception, match=told):
        skip_without_device("cuda", "metax")
    assert origin("cuda") == {"simulated": True}
    without_gpu(monkeypatch, is_available=True)
    skip_without_device("cuda", "metax")
    assert origin("cuda") == {}


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
        prepare(device, default_platform(device), simulated=False)
    with pytest.raises(
        pytest.UsageError,
        match=r"simulated_device is not installed; run `pip install \./tests/simulated ",
    ):
        prepare(device, default_platform(device), simulated=True)


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
