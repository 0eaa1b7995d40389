"""A process that dies in a test: torch alone shows whose defect it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from evidence import is_simulated
from names import TestName, operator_test_id
from samples import Sample, SampleSet, load, save
from samples.values import BlankValue, TensorValue
from torch_alone import death_of_torch

import torch

SUITE = Path(__file__).parent

# Row pointers that lie about the number of elements: torch's CPU reads and writes far beyond them.
LYING = torch.tensor([0, 1 << 40])
OF_THE_CPU = Sample(
    "_convert_indices_from_csr_to_coo.out",
    "int64",
    {
        "crow_indices": TensorValue.of(LYING),
        "col_indices": TensorValue.of(torch.zeros(1, dtype=torch.int64)),
        "out": BlankValue("int64", (2, 1)),
    },
)


@pytest.fixture
def target(pytestconfig: pytest.Config) -> dict[str, Any]:
    """The device and the platform: a real device might need a reset, so it is the CPU there."""
    option = pytestconfig.option
    if is_simulated(option.device):
        return {"device": option.device, "platform": option.platform, "simulated": True}
    return {"device": "cpu", "platform": "cpu", "simulated": False}


def node_id(sample: Sample, device: str) -> str:
    name = operator_test_id(overload=sample.overload, dtype=sample.dtype, device=device, slot=8)
    return f"test_torch_ops.py::test_overload[{name}]"


@pytest.mark.operators("exp", "internal_convert_indices_from_csr_to_coo")
def test_a_death_that_torch_alone_dies_is_a_skip(tmp_path: Path, target: dict[str, Any]) -> None:
    dying = load().samples["exp.out"]["float32"][0] if target["simulated"] else OF_THE_CPU
    suite = tmp_path / "ops"
    ignored = shutil.ignore_patterns("__pycache__", "samples.zip", "contracts")
    shutil.copytree(SUITE, suite, ignore=ignored)
    samples = {dying.overload: {dying.dtype: [dying]}}
    save(SampleSet(load().header, samples), suite / "samples" / "samples.zip")

    outer = ("INFINI_CI_", "PYTEST_")  # of the run that this test belongs to
    environment = {k: value for k, value in os.environ.items() if not k.startswith(outer)}
    # The suite reads the table of platforms from the sources.
    path = os.pathsep.join([str(SUITE.parents[1]), environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "1", "-rs"),
            *("--disable-plugin-autoload", "-p", "xdist"),
            *(f"--device={target['device']}", f"--platform={target['platform']}"),
            *(["--simulated"] if target["simulated"] else []),
            str(suite / node_id(dying, target["device"])),
        ],
        cwd=tmp_path,
        env={**environment, "SIMULATED_DEVICE_DIES_IN": "exp.out", "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    signal = "SIGABRT" if target["simulated"] else "SIGSEGV"
    assert f"torch crashes: {signal}, without the library, too\n" in done.stdout
    assert " 1 skipped in " in done.stdout.splitlines()[-1]
    assert done.returncode == 0


@pytest.mark.full_suite
def test_torch_survives_what_it_can_compute(target: dict[str, Any]) -> None:
    """So the death of such a test is a failure; ``tests/guards`` has one."""
    test = TestName(node_id(load().samples["abs.out"]["float32"][0], target.pop("device")))
    assert death_of_torch([test, test], **target, limit_s=100.0) is None
