"""The platform and the device of a run; a simulated device never counts as a real one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from evidence import is_absent
from platforms import SIMULATED_DEVICES, DeviceError, default_platform, load_device, ran_platform
from properties import Record, origin
from target import answers, choose_target, prepare, skip_without_device

import infini.ops
import torch


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PLATFORM", "TORCH_DEVICE", "SIMULATED"):
        monkeypatch.delenv(f"INFINI_CI_{name}", raising=False)


def choose(**options: Any) -> tuple[str, str, bool]:
    option = SimpleNamespace(platform=None, device=None, simulated=False)
    vars(option).update(options)
    choose_target(option)
    return option.device, option.platform, option.simulated


def test_nothing_is_simulated_unless_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose() == ("cpu", "cpu", False)
    assert choose(device="npu") == ("npu", "ascend", False)
    assert choose(platform="moore", simulated=True) == ("musa", "moore", True)
    monkeypatch.setenv("INFINI_CI_SIMULATED", "1")
    assert choose(device="mlu") == ("mlu", "cambricon", True)
    monkeypatch.setenv("INFINI_CI_SIMULATED", "0")
    assert choose(device="mlu") == ("mlu", "cambricon", False)


def test_the_cpu_is_not_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = r"a vendor's platform without its device: got device cpu, expected one of cuda, "
    with pytest.raises(pytest.UsageError, match=expected):
        choose(device="cpu", simulated=True)
    monkeypatch.setenv("INFINI_CI_SIMULATED", "1")
    with pytest.raises(pytest.UsageError, match=expected):
        choose()


@pytest.mark.parametrize("platform", ["nvidia", "iluvatar", "metax"])
def test_platforms_without_a_simulated_device_are_compiled_only(platform: str) -> None:
    assert choose(platform=platform, simulated=True) == ("cuda", platform, True)


def without_gpu(monkeypatch: pytest.MonkeyPatch, *, is_available: bool = False) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_available)
    is_absent.cache_clear()


@pytest.fixture(autouse=True)
def _clear_cache() -> Iterator[None]:
    yield
    is_absent.cache_clear()


def test_a_compiled_only_run_refuses_a_present_device(monkeypatch: pytest.MonkeyPatch) -> None:
    without_gpu(monkeypatch, is_available=True)
    with pytest.raises(pytest.UsageError, match="--simulated: got a cuda device, expected none"):
        prepare("cuda", "nvidia", simulated=True)


def test_a_compiled_only_run_refuses_a_build_for_another_platform(
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
    expected = "^no device: no cuda device is here, the build for metax was compiled only$"
    with pytest.raises(pytest.skip.Exception, match=expected):
        skip_without_device("cuda", "metax")
    assert origin("cuda") == {"simulated": True}
    without_gpu(monkeypatch, is_available=True)
    skip_without_device("cuda", "metax")
    assert origin("cuda") == {}


def test_the_environment_is_read_strictly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFINI_CI_SIMULATED", "yes")
    with pytest.raises(
        pytest.UsageError, match=r"\$INFINI_CI_SIMULATED: got 'yes', expected one of 0, 1"
    ):
        choose(device="npu")


@pytest.mark.parametrize("device", SIMULATED_DEVICES)
def test_a_missing_plug_in_has_a_remedy(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simulated_device", None)
    monkeypatch.setitem(sys.modules, f"torch_{device}", None)
    with pytest.raises(
        pytest.UsageError,
        match=f"torch_{device} is not installed; install it, or pass --simulated to run on a "
        f"simulated {device}",
    ):
        prepare(device, default_platform(device), simulated=False)
    with pytest.raises(
        pytest.UsageError,
        match=r"simulated_device is not installed; run `pip install \./tests/simulated ",
    ):
        prepare(device, default_platform(device), simulated=True)


def test_a_real_device_does_not_pass_for_a_simulated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "npu", raising=False)
    monkeypatch.setitem(sys.modules, "simulated_device", SimpleNamespace(load=str))
    with pytest.raises(
        DeviceError, match=r"torch\.npu: got a real device, expected a simulated one"
    ):
        load_device("npu", simulated=True)


def test_a_simulated_device_records_no_vendor_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor: Any = SimpleNamespace(get_device_name="Ascend910B{}".format)
    monkeypatch.setattr(torch, "npu", vendor, raising=False)
    assert recorded("npu") == {"ran_device": "npu", "ran_platform": "ascend"}
    vendor.is_simulated = True
    assert recorded("npu") == {"simulated": True, "ran_device": "npu", "ran_platform": None}


@pytest.mark.parametrize(
    ("computed", "expected"), [([1, 2], True), ([0, 2], False), ([1, 3], False), ([], False)]
)
def test_a_device_that_computes_other_numbers_does_not_answer(
    computed: list[int], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not answers("meta")  # it has no memory to copy from
    monkeypatch.setattr(torch.Tensor, "cpu", lambda _: torch.tensor(computed))
    assert answers("meta") is expected


def recorded(device: str) -> dict[str, object]:
    """Returns the properties that a test records about the device that it ran on."""
    ran_platform.cache_clear()
    written: dict[str, object] = {}
    record = Record(property=written.__setitem__, device=device, platform="ascend")
    record.write_request(overload="abs.out", dtype="float32", slot=8, active=True)
    record.write_run(executed=1, device=device)
    ran_platform.cache_clear()
    return {
        name: written[name] for name in written.keys() & {"simulated", "ran_device", "ran_platform"}
    }
