"""``.ci/run``: what each part took is printed, also where one fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# In place of what installs, starts an engine and runs for half an hour.
PROGRAMS = {
    "docker/start-engine": "echo starting >&2",
    "bin/id": "echo 1000",  # a user without the right to install
    "bin/python3": 'echo "called $*"; case "$*" in *"FAILS"*) exit 7;; esac',
    ".nox/tests/bin/python": 'echo "called $*"',
}


PARTS = {
    "tools": "",
    "engine": "",
    "docs": "docs",
    "environment of tests": "tests --install-only",
    "lint": "lint",
    "tests": "tests",
    "tests, complete": "tests -- -m complete -n 3 --dist loadfile --no-loadscope-reorder",
    "faults --selection": "tests -- tests/faults/test_fault_suite.py --selection -n 4",
    "compat": "compat -- pythons --without-torch 3.11",
    "machines --fast --budgets": "-m tests.machines --fast --budgets",
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash is installed")
@pytest.mark.parametrize(
    ("fails", "part", "count"),
    [
        ("--install-only", "environment of tests", 5),
        ("-s lint", "lint", 5),
        ("-m complete", "tests, complete", 7),
        ("nothing", None, 10),
    ],
)
def test_the_table_has_each_part_that_ran(
    tmp_path: Path, fails: str, part: str | None, count: int
) -> None:
    for name, program in PROGRAMS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + program.replace("FAILS", fails))
        path.chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    finished = subprocess.run(
        [tmp_path / ".ci" / "run"],
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (7 if part else 0, "starting\n")
    said, table = finished.stdout.split("part  ")
    names = list(PARTS)[:count]
    called = [re.sub("^called (noxfile.py -s )?", "", line) for line in said.splitlines()]
    rows = re.findall(r"^(\S.*?)  +\d+ +\d+ *(.*)$", table, re.MULTILINE)
    # Two of them run side by side, and begin and end in any order.
    called[1:3], rows[3:5] = sorted(called[1:3], reverse=True), sorted(rows[3:5])
    assert called == [PARTS[name] for name in names if PARTS[name]]
    assert rows == [(name, "exit code 7" * (name == part)) for name in names]
