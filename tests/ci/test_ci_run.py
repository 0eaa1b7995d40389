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
    "lint": "lint",
    "docs": "docs",
    "tests": "tests",
    "tests, complete": "tests -- -m complete -n 3 --dist loadfile --no-loadscope-reorder",
    "faults --selection": "tests -- tests/faults/test_fault_suite.py --selection -n 4",
    "compat": "compat -- pythons --without-torch 3.11",
    "machines --fast --budgets": "-m tests.machines --fast --budgets",
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash is installed")
@pytest.mark.parametrize(("fails", "code", "count"), [("-s tests", 7, 5), ("nothing", 0, 9)])
def test_the_table_has_each_part_that_ran(
    tmp_path: Path, fails: str, code: int, count: int
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
    assert (finished.returncode, finished.stderr) == (code, "starting\n")
    said, table = finished.stdout.split("part  ")
    names = list(PARTS)[:count]
    called = [re.sub("^called (noxfile.py -s )?", "", line) for line in said.splitlines()]
    assert called == [PARTS[name] for name in names if PARTS[name]]
    rows = re.findall(r"^(\S.*?)  +\d+ +\d+ *(.*)$", table, re.MULTILINE)
    notes = [""] * count
    if code:
        notes[-1] = f"exit code {code}"
    assert rows == list(zip(names, notes, strict=True))
