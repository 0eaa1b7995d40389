"""A build for a device that this machine lacks: everything except running on the device.

Runs if torch knows ``--device`` but the machine has no such device. torch's fake tensors replace
its tensors: they have its name, shapes and dtypes, but no memory.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from installed import TORCH_SLOT, overloads
from names import operator_test_id
from platforms import PLATFORMS
from target import without_device
from torch._subclasses.fake_tensor import FakeTensorMode

import infini.ops
import torch

SUITE = Path(__file__).parent
OVERLOADS = ("abs.out", "add_.Tensor")


pytest_generate_tests = without_device


@pytest.fixture
def platform(pytestconfig: pytest.Config) -> str:
    name: str = pytestconfig.getoption("platform")
    return name


@pytest.fixture
def _fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Fake mode logs the stack of every refusal.
    monkeypatch.setattr(logging.getLogger(FakeTensorMode.__module__), "disabled", True)
    with FakeTensorMode():
        yield


def test_the_build_is_for_the_platform(device: str, platform: str) -> None:
    assert infini.ops.devices() == ["cpu", platform]
    assert PLATFORMS[platform].torch_device == device
    for name in (platform, device, f"{device}:1", torch.device(device, 1)):
        assert infini.ops.Abs.active_implementation_indices(name) == [TORCH_SLOT]


def test_every_overload_is_registered(device: str, platform: str) -> None:
    assert overloads()
    for overload in overloads():
        assert overload.active_slots(device) == [TORCH_SLOT], overload.name
        assert f"Active slots on {platform}: 8\n" in f"{overload.function.__doc__}\n"


def test_other_platforms_are_unknown(device: str, platform: str) -> None:
    for name in PLATFORMS.keys() - {"cpu", platform, device}:
        assert infini.ops.Abs.active_implementation_indices(name) == []
        with pytest.raises(ValueError, match=f"^unknown device '{name}'; this build has: cpu, "):
            infini.ops.internal_pin_memory(torch.ones(2), name, torch.zeros(0))


def test_what_needs_the_device_is_refused_with_torchs_words(device: str, platform: str) -> None:
    x, out = torch.ones(2), torch.zeros(2)
    ours = message(infini.ops.internal_pin_memory, x, platform, out)
    assert ours == message(torch.ops.aten._pin_memory.out, x, torch.device(device), out=out)
    assert out.tolist() == [0.0, 0.0]


def message(call: Callable[..., object], *arguments: object, **keywords: object) -> str:
    """Returns the type and the first line of the error that a call raises."""
    try:
        call(*arguments, **keywords)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    pytest.fail("no error")


@pytest.mark.usefixtures("_fake")
class TestCalls:
    """Dispatch, argument checks and the slot's thunks, up to the kernel."""

    def test_tensors_of_the_device_reach_its_slot(self, device: str, platform: str) -> None:
        x, out = torch.empty(2, 3, device=device), torch.empty(0, device=device)
        infini.ops.abs(x, out)
        assert (out.device.type, tuple(out.shape)) == (device, (2, 3))
        assert infini.ops.last_call() == infini.ops.Call("abs", "out", platform, TORCH_SLOT)
        infini.ops.add_inplace(x, x)
        ran = infini.ops.last_call()
        assert (ran.operator, ran.device, ran.slot) == ("add_inplace", platform, TORCH_SLOT)

    def test_there_is_no_native_slot(self, device: str, platform: str) -> None:
        x = torch.empty(2, device=device)
        expected = f"implementation_index 0 is not active for 'add.out' on {platform}; active: 8"
        with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
            infini.ops.add(x, x, x, implementation_index=0)

    def test_arguments_are_checked(self, device: str) -> None:
        x = torch.empty(2, device=device)
        with pytest.raises(TypeError, match=r"^abs\(\)"):
            infini.ops.abs(x, "out")
        with pytest.raises(TypeError, match=r"^add\(\)"):
            infini.ops.add(x, x, x, beta=1)

    def test_shapes_are_refused_with_torchs_words(self, device: str) -> None:
        x, out = torch.empty(2, 3, device=device), torch.empty(0, device=device)
        ours = message(infini.ops.mm, x, x, out)
        assert ours == message(torch.mm, x, x, out=out)
        assert "reduction dim" in ours


@pytest.mark.operators("abs", "add_inplace")
def test_operator_tests_skip_and_say_why(device: str, platform: str, tmp_path: Path) -> None:
    log = tmp_path / "pytest.jsonl"
    tests = [
        f"{SUITE}/test_torch_ops.py::test_overload"
        f"[{operator_test_id(overload=name, dtype='float32', device=device, slot=TORCH_SLOT)}]"
        for name in OVERLOADS
    ]
    options = ["--platform", platform, "--simulated", "-n", "0", "-rs", f"--report-log={log}"]
    command = [sys.executable, "-m", "pytest", *tests, *options]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = finished.stdout.splitlines()
    assert f"operators: {device} (no device) for {platform}, compiled only" in lines
    assert lines[-2] == (
        f"slot 8 on {device} (no device): 0 of 2 active overloads executed, compiled only"
    )
    reason = f"no device: no {device} device is here, the build for {platform} was compiled only"
    assert reason in finished.stdout
    for recorded in _recorded(log):
        assert recorded["simulated"] is True
        assert recorded["reason"] == "no device"
        assert recorded.keys().isdisjoint({"executed", "ran_device", "ran_platform", "kernel"})


def _recorded(log: Path) -> list[dict[str, Any]]:
    reports = map(json.loads, log.read_text().splitlines())
    found = [dict(each["user_properties"]) for each in reports if each.get("when") == "call"]
    assert [each["overload"] for each in found] == list(OVERLOADS)
    return found
