"""A fault in the library, from the run that shows it to the pasted command that fails again.

``nox -s mutants`` checks this for all of its faults, without the engine and the build of a run.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ci.plan import source
from tools.mutants.edits import WRONG_NATIVE_KERNELS
from tools.mutants.faults import replace_once

ROOT = Path(__file__).resolve().parents[2]
KERNEL = "causal_softmax"


@pytest.mark.complete  # builds the library twice; test_sessions has a project without a build
def test_a_wrong_kernel_is_shown_and_fails_again(tmp_path: Path) -> None:
    [(_, file, old, new)] = [it for it in WRONG_NATIVE_KERNELS if KERNEL in it[0]]
    copy = tmp_path / "copy"
    for path in source.files(ROOT):
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes((ROOT / path).read_bytes())
    (copy / file).write_text(replace_once((copy / file).read_text(), old, new, file))
    options = ("--source", copy, "--config", copy / "ci.yaml", "--results", tmp_path / "results")
    words = ("run", "cpu", "--engine", "host", "--select", KERNEL, *map(str, options))
    shown = carried_out([sys.executable, "-m", "ci", *words]).splitlines()
    run = (tmp_path / "results" / "latest").resolve()
    failures = json.loads((run / "results.json").read_text())["platforms"][0]["failures"]
    failed = [failure["test"] for failure in failures]
    assert f"tests/ops/test_native_ops.py::test_native[{KERNEL}-float32-cpu-slot0]" in failed
    # Workers decide which tests end first, and only the first few are shown.
    after = iter(shown[shown.index(failed[0]) + 1 :])
    assert "Mismatched elements: " in next(after)
    command = next(line for line in after if f" rerun {run.name} cpu " in line)
    again = carried_out(shlex.split(command))
    assert "1 failed" in again.splitlines()[-1]


def carried_out(command: list[str]) -> str:
    """Return what a command prints that ends with a product failure."""
    finished = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1, finished.stdout + finished.stderr
    return finished.stdout
