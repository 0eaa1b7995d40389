"""A platform's proof and contract on the host engine: planted faults reach table, JSON and code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ci.facts.sentences.on_rows import no_contract
from tests.forked import run_ci

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """\
project: tiny
platforms:
  cpu: {}
stages:
- {name: build, command: "true"}
- {name: pytest, command: python -m pytest, kind: pytest}
contracts: contracts
"""
SUITE = """\
import os
import pytest

DEVICE = os.environ["INFINI_CI_TORCH_DEVICE"]
RAN = "cpu"
NAMES = ["add.out", "mul.out", "sub.out"]
SKIPPED = []


@pytest.mark.parametrize("test", [f"{name}-float32-{DEVICE}-slot8" for name in NAMES])
def test_overload(test, record_property):
    name = test.split("-")[0]
    recorded = {"overload": name, "dtype": "float32", "slot": 8, "device": DEVICE, "active": True}
    recorded["platform"] = os.environ["INFINI_CI_PLATFORM"]
    recorded["simulated"] = "INFINI_CI_SIMULATED" in os.environ
    if name in SKIPPED:
        recorded["reason"] = "no sample"
    else:
        recorded |= {"executed": 1, "ran_device": RAN, "ran_slot": 8}
    for key, value in recorded.items():
        record_property(key, value)
    if name in SKIPPED:
        pytest.skip("no sample: none")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, python: str) -> Path:
    """A project whose contract was written from its first run."""
    place = tmp_path_factory.mktemp("contract")
    (place / "python").symlink_to(python)
    (place / "project").mkdir()
    (place / "project" / "ci.yaml").write_text(CONFIG)
    finished, row = run(place)
    assert finished.returncode == 0, finished.stderr
    [hint] = [it for it in row["findings"] if it["code"] == no_contract.code]
    printed = hint["parameters"]["update"]
    assert " -m ci contract cpu --config " in printed
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-euc", printed], cwd=ROOT, env={**os.environ, "PATH": path}, check=True)
    return place


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_ci(
        *arguments,
        *("--results", folder / "results"),
        # What the caller did before is no part of the run.
        environment={**os.environ, "INFINI_CI_SIMULATED": "1"},
        python=str(folder / "python"),
    )


def run(
    folder: Path, old: str = "", new: str = ""
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the suite with a fault planted; returns the command and the row of its results."""
    assert old in SUITE
    (folder / "project" / "test_ops.py").write_text(SUITE.replace(old, new) if old else SUITE)
    finished = command(
        folder, "run", "cpu", "--engine", "host", "--source", str(folder / "project")
    )
    document = json.loads((folder / "results" / "latest" / "results.json").read_text())
    (row,) = document["platforms"]
    return finished, row


def test_the_suite_as_it_was_fulfils_its_contract(folder: Path) -> None:
    finished, row = run(folder)
    assert finished.returncode == 0
    assert row["verdict"]["product"] == "passed"
    assert "overloads executed: 3 of 3" in row["notes"]
    assert not [note for note in row["notes"] if "contract" in note]
    counts = {"slot": 8, "device": "cpu", "active": 3, "executed": 3, "passed": 3}
    assert row["overloads"] == [{**counts, "simulated": False, "kernels": {}}]


@pytest.mark.parametrize(
    ("old", "new", "evidence"),
    [
        (
            'RAN = "cpu"',
            'RAN = "meta"',
            "requested cpu; 3 of 3 executed tests ran on meta: add.out-float32-cpu-slot8,",
        ),
        (
            ', "sub.out"]',
            "]",
            "contract: 1 test vanished: float32 of sub.out (slot 8; was passed)",
        ),
        (
            "SKIPPED = []",
            'SKIPPED = ["sub.out"]',
            "contract: 1 test pass -> skip: float32 of sub.out (slot 8; passed -> no sample)",
        ),
    ],
    ids=["elsewhere", "vanished", "skipped"],
)
def test_a_planted_fault(folder: Path, old: str, new: str, evidence: str) -> None:
    finished, row = run(folder, old, new)
    assert finished.returncode == 1
    assert row["verdict"]["product"] == "failed"
    assert row["verdict"]["harness"] == "clean"
    assert any(item["text"].startswith(evidence) for item in row["verdict"]["evidence"])
    assert any(note.startswith(evidence) for note in row["notes"])
    assert evidence in " ".join(finished.stdout.split())  # below the table, in whole
    assert row["pytest"]["failed"] == 0
