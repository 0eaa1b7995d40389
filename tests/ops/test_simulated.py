"""A run on a simulated device says so in all its output.

Runs where ``--device`` is a simulated one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dispatcher import kernel_of
from evidence import watch_fallbacks
from names import operator_test_id
from platforms import default_platform, ran_platform
from target import on_simulated_devices

import torch

SUITE = Path(__file__).parent
# A kernel of the device, a composite kernel of torch, and one that only the CPU has.
KERNELS = {"add.out": "own", "sub_.Tensor": "composite", "exp.out": "fallback"}

Run = tuple[list[str], list[dict[str, Any]]]


pytest_generate_tests = on_simulated_devices


@pytest.fixture(scope="module")
def run(device: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Returns the output of a run of three overloads, and the properties of each test."""
    log = tmp_path_factory.mktemp("simulated") / "pytest.jsonl"
    ids = (
        operator_test_id(overload=name, dtype="float32", device=device, slot=8) for name in KERNELS
    )
    tests = [f"{SUITE}/test_torch_ops.py::test_overload[{name}]" for name in ids]
    options = ["--device", device, "--simulated", "-n", "0", f"--report-log={log}"]
    command = [sys.executable, "-m", "pytest", *tests, *options]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    reports = map(json.loads, log.read_text().splitlines())
    return process.stdout.splitlines(), [
        dict(report["user_properties"]) for report in reports if report.get("when") == "call"
    ]


@pytest.mark.operators("add", "exp", "sub_inplace")
def test_header_and_closing_lines_say_it(run: Run, device: str) -> None:
    lines, _ = run
    platform = default_platform(device)
    assert f"operators: {device} (simulated) for {platform}; no vendor hardware is used" in lines
    assert lines[-3:-1] == [
        f"slot 8 on {device} (simulated): 3 of 3 active overloads executed (100.0 %), 3 passed, "
        "of which 1 by its own kernels, 1 composite, 1 by the CPU fallback",
        "against the CPU (simulated): 3 overloads agree, 0 differ",
    ]


@pytest.mark.operators("add", "exp", "sub_inplace")
def test_every_test_records_it_and_no_hardware(run: Run, device: str) -> None:
    _, records = run
    assert {record["overload"]: record["kernel"] for record in records} == KERNELS
    for record in records:
        assert record["simulated"] is True
        assert record["ran_device"] == device
        assert record["ran_platform"] is None
        assert record["against_cpu"] == "agrees"


def test_it_has_no_vendor_hardware(device: str) -> None:
    assert "Simulated" in getattr(torch, device).get_device_name(0)
    assert ran_platform(device) is None


def test_a_fallback_in_the_place_of_a_kernel_is_a_fallback(device: str) -> None:
    # torch's composite kernel accepts only the CPU or CUDA.
    assert kernel_of(torch.ops.aten.mode.values, device) == "fallback"


def test_the_watch_for_fallbacks_lets_numbers_pass(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The fallback sees them as tensors; their dtype yields to that of the other operands.
    monkeypatch.setattr(getattr(torch, device), "is_simulated", False)
    tensor = torch.ones((), dtype=torch.bfloat16, device=device)
    with watch_fallbacks(torch.ops.aten.xlogy.Scalar_Other, device) as found:
        result = torch.xlogy(tensor, 2.5)
    assert result.dtype == torch.bfloat16
    assert found == ["tensors were copied to the CPU by its fallback"]
