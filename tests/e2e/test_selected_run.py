"""A run of selected operators of this project: build, suite and contract narrow together."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SELECTED = "abs,exp,mul"
OVERLOADS = 4  # abs.out, exp.out, mul.out, mul.Scalar_out


def ci(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ci", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def row_of(results: Path, run_id: str) -> dict[str, Any]:
    document = json.loads((results / run_id / "results.json").read_text())
    (row,) = document["platforms"]
    return row


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of a run that the shell's variable narrows."""
    folder = tmp_path_factory.mktemp("results")
    finished = ci(
        *("run", "cpu", "--engine", "host", "--results", folder), INFINI_OPS_TORCH_OPS=SELECTED
    )
    print(finished.stdout, finished.stderr)
    assert finished.returncode == 0
    return folder


@pytest.fixture(scope="module")
def run_id(results: Path) -> str:
    return (results / "latest").resolve().name


def test_the_row(results: Path, run_id: str) -> None:
    row = row_of(results, run_id)
    assert row["verdict"]["product"] == "passed"
    assert row["notes"][0] == "suite of the selected operators passed"
    assert row["notes"][1].startswith(f"selected {OVERLOADS} of 1,")
    assert not [note for note in row["notes"] if "contract" in note]
    selection = row["environment"]["selection"]
    assert (selection["operators"], selection["overloads"]) == (SELECTED, OVERLOADS)
    active = {count["slot"]: count["active"] for count in row["overloads"]}
    assert active == {0: 1, 8: OVERLOADS}


def test_only_what_was_selected_was_compiled(results: Path, run_id: str) -> None:
    commands = json.loads((results / run_id / "cpu" / "compile_commands.json").read_text())
    kernels = {Path(each["file"]).name for each in commands if "/src/cpu/" in each["file"]}
    assert kernels == {"isa.cc", "iteration.cc", "mul.cc", "parallel.cc"}


def test_a_selected_test_that_is_missing_breaks_the_contract(
    results: Path, run_id: str, tmp_path: Path
) -> None:
    """Planted into the log of the run, which is then judged once more."""
    planted = tmp_path / "results"
    shutil.copytree(results, planted, symlinks=True)
    folder = planted / run_id
    (folder / "results.json").unlink()
    log = folder / "cpu" / "pytest.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    kept = [line for line in lines if "test_overload[exp.out-float32-cpu-slot8]" not in line]
    assert len(lines) - len(kept) == 3  # setup, call, teardown
    log.write_text("".join(kept))
    output = folder / "cpu" / "pytest.log"  # that one more was collected than ran is another fault
    output.write_text(output.read_text().replace(" items]", " items (planted)]"))
    finished = ci("run", "--resume", run_id, "--results", planted)
    assert finished.returncode == 1, finished.stdout + finished.stderr
    notes = row_of(planted, run_id)["notes"]
    breach = "contract: 1 test vanished: float32 of exp.out (slot 8; was passed)"
    assert any(note.startswith(breach) for note in notes), notes


def test_no_contract_comes_from_it(results: Path) -> None:
    finished = ci("contract", "cpu", "--results", results, "--output", results / "cpu.yaml")
    assert finished.returncode == 2
    assert f"is of selected operators only: {SELECTED}" in finished.stderr
    assert not (results / "cpu.yaml").exists()
