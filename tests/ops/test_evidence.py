"""A call that fell back to the CPU is detected."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch.utils.backend_registration
from dispatcher import is_boxed_fallback
from evidence import watch_fallbacks
from harness import FallbackError
from installed import overloads
from reasons import SkipReason, skip
from test_harness import ABS, ABS_SAMPLE
from test_torch_ops import Run, cases_of

import torch

COPIED = "tensors were copied to the CPU by its fallback"


@pytest.mark.full_suite
def test_fallbacks_of_a_device_are_found_at_any_depth() -> None:
    if not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"):
        skip(SkipReason.NOT_IN_THIS_TORCH, "a device made in Python")
    program = Path(__file__).with_name("toy_device.py")
    kernels = {
        "abs": "own",
        "absolute": "composite",  # made of abs
        "neg": "composite",  # torch's own composite kernel, which calls neg.out
        "relu": "fallback",
        "silu": "composite",
        "sign": "own",  # and copies to the CPU for its own purposes
    }
    evidence = {
        "neg": f" | {COPIED}",
        "relu": f" | aten::relu has no kernel but the fallback | {COPIED}",
        "silu": f" | {COPIED}",
    }
    command = [sys.executable, str(program), *kernels]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    calls = {name: f"{name}: {kernel}" for name, kernel in kernels.items()}
    real = [call + evidence.get(name, "") for name, call in calls.items()]
    # A simulated device computes on the CPU only.
    assert output.splitlines() == [*real, *calls.values()]


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [
        ("rrelu", "FuncTorchVmapMode", True),  # an error for all operators that draw random numbers
        ("relu", "FuncTorchBatched", False),
        ("resize_", "CPU", False),  # takes symbolic numbers: boxed, but with types
        ("abs", "Meta", False),  # from Python
        ("abs", "XPU", False),  # nothing at all
    ],
)
def test_a_fallback_that_is_registered_as_a_kernel_is_detected(
    name: str, key: str, expected: bool
) -> None:
    assert is_boxed_fallback(getattr(torch.ops.aten, name).default, key) is expected


@pytest.mark.parametrize(
    "message",
    [
        "The operator 'aten::x' is not currently supported on the NPU backend and will fall back "
        "to run on the CPU. This may have performance implications.",
        "x is not implemented for MLU, falling back to run on the CPU",
        "Op x fallback to CPU",
    ],
)
def test_a_warning_of_a_fallback_is_found(message: str) -> None:
    with watch_fallbacks(ABS, "cuda") as found:
        warnings.warn(message, stacklevel=1)
        warnings.warn("something else", stacklevel=1)
    assert found == [message]


def test_the_cpu_has_nothing_to_fall_back_to() -> None:
    with watch_fallbacks(ABS, "cpu") as found:
        torch.ops.aten._to_cpu([torch.ones(1)])
    assert found == []


@pytest.mark.operators("abs")
def test_a_test_that_fell_back_executed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fall_back(*_: object) -> None:
        raise FallbackError("aten::abs.out has no kernel but the fallback")

    (overload,) = [each for each in overloads() if each.qualified_name == "abs.out"]
    run = Run(cases_of(overload)[0], "npu")
    monkeypatch.setattr("test_torch_ops.check", fall_back)
    run.execute(ABS_SAMPLE, by_keyword=False)
    assert (run.executed, run.ran_device) == (0, "cpu")
    reason, detail = run.refusals[0]
    assert reason is SkipReason.NO_KERNEL
    assert detail == "fell back to the CPU: aten::abs.out has no kernel but the fallback"
