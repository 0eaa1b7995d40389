"""A process that dies in a test: torch alone shows whose defect it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from evidence import is_simulated
from names import operator_test_id
from samples import Sample, SampleSet, load, save
from samples.values import BlankValue, TensorValue

import torch

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
# In a worker process, the library itself dies of one operator.
LIBRARY_DIES = """

if "PYTEST_XDIST_WORKER" in os.environ:
    infini.ops.abs = lambda *_, **__: os.abort()
"""


def sample_of(name: str) -> Sample:
    return load().samples[name]["float32"][0]


@pytest.mark.operators("abs", "exp", "internal_convert_indices_from_csr_to_coo")
def test_a_death_is_a_skip_if_torch_alone_dies_and_else_a_failure(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    device, platform = pytestconfig.option.device, pytestconfig.option.platform
    if not is_simulated(device):  # a real device might need a reset
        device, platform = "cpu", "cpu"
    dying = OF_THE_CPU if device == "cpu" else sample_of("exp.out")
    samples = {each.overload: {each.dtype: [each]} for each in (dying, sample_of("abs.out"))}
    suite = tmp_path / "ops"
    ignored = shutil.ignore_patterns("__pycache__", "samples.zip", "contracts")
    shutil.copytree(Path(__file__).parent, suite, ignore=ignored)
    save(SampleSet(load().header, samples), suite / "samples" / "samples.zip")
    with (suite / "conftest.py").open("a") as conftest:
        conftest.write(f"\n\nimport os\n\nimport infini.ops\n{LIBRARY_DIES}")

    names = [
        operator_test_id(overload=name, dtype=dtype, device=device, slot=8)
        for name, groups in samples.items()
        for dtype in groups
    ]
    outer = ("INFINI_CI_", "PYTEST_")  # of the run that this test belongs to
    environment = {k: value for k, value in os.environ.items() if not k.startswith(outer)}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "1", "-rsf"),
            *("--disable-plugin-autoload", "-p", "xdist"),
            *(f"--device={device}", f"--platform={platform}"),
            *(["--simulated"] if device != "cpu" else []),
            *(f"{suite / 'test_torch_ops.py'}::test_overload[{name}]" for name in names),
        ],
        cwd=tmp_path,
        env={**environment, "SIMULATED_DEVICE_DIES_IN": "exp.out"},
        capture_output=True,
        text=True,
    )
    signal = "SIGSEGV" if device == "cpu" else "SIGABRT"
    assert f"torch crashes: {signal}, without the library, too\n" in done.stdout
    assert f"test_overload[{names[1]}]" in done.stdout.partition("short test summary")[2]
    assert done.stdout.count("crashed while running") == 1
    assert ", 1 skipped in " in done.stdout.splitlines()[-1]
