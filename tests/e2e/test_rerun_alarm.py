"""Both sides of an alarm again, in real runs on the host engine of a build that burns CPU time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ci.model.results import StageResult
from tests.ci.stored_history import Project, git, result
from tests.e2e.plans import LAUNCHER

pytestmark = pytest.mark.complete  # 20 runs

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """\
project: tiny
platforms:
  cpu: {}
stages:
- {name: install, command: python build.py}
- {name: pytest, kind: pytest, command: python -m pytest -q tests}
"""
BUILD = "import time\nwhile time.process_time() < %s:\n    pass\n"
USUAL_S, SLOW_S = 0.3, 0.4
PLACE = 10  # of the first commit with the rise


def alarmed(folder: Path, *, is_true: bool) -> Project:
    """A store with the runs of a rise, which the commits may not have."""
    project = Project(folder=folder)
    project.commit()
    for place in range(20):
        burned = SLOW_S if is_true and place >= PLACE else USUAL_S
        (project.source / "build.py").write_text(BUILD % burned, encoding="utf-8")
        (project.source / "ci.yaml").write_text(CONFIG, encoding="utf-8")
        tests = project.source / "tests"
        tests.mkdir(exist_ok=True)
        (tests / "test_it.py").write_text("def test_it():\n    assert False\n", encoding="utf-8")
        git(project.source, "add", ".")
        level = SLOW_S if place >= PLACE else USUAL_S
        seconds = level * (1 + 0.01 * (place % 3))
        stage = StageResult(
            name="install",
            seconds=seconds,
            cpu_user_s=seconds,
            cpu_system_s=0.0,
            exit_code=0,
            in_total=True,
        )
        project.measure(result(stages=(stage,)))
    return project


def rerun(project: Project, python: str) -> tuple[int, dict[str, Any]]:
    listed = project.ci("history", "--check", "--source", str(project.source), "--format", "json")
    [alarm] = json.loads(listed[1])["alarms"]
    folder = project.folder
    (folder / "temporary").mkdir(exist_ok=True)
    places = {"XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder / "temporary")}
    command = [sys.executable, "-c", LAUNCHER, python, "rerun-alarm", alarm["id"]]
    command += ["--source", str(project.source), "--results", str(project.results)]
    done = subprocess.run(
        [*command, "--format", "json"],
        cwd=ROOT,
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "cpu: install CPU: 5 runs of each side show +33 % in noise of " in done.stderr, (
        done.stderr
    )
    return done.returncode, json.loads(done.stdout)


def test_a_rise_that_is_there(tmp_path: Path, python: str) -> None:
    project = alarmed(tmp_path, is_true=True)
    code, found = rerun(project, python)
    assert (code, found["outcome"]) == (4, "confirmed"), found
    [row] = found["rows"]
    assert [len(runs) for runs in row["runs"].values()] == [5, 5]
    assert 0.1 < row["low"] < row["high"] < 0.6
    logs = [*project.results.glob("2*/cpu/pytest.log")]
    assert not logs  # the tests, which fail, were left out
    code, said = project.ci("history", "--check", "--source", str(project.source))
    assert code == 4
    assert "runs since" in said


def test_a_rise_that_is_not_there(tmp_path: Path, python: str) -> None:
    project = alarmed(tmp_path, is_true=False)
    code, found = rerun(project, python)
    assert (code, found["outcome"]) == (0, "not confirmed"), found
    [row] = found["rows"]
    assert any(note.startswith("unlike in the alarm: machine changed: ") for note in row["notes"])
