"""The first bad commit of a real history of a C++ project, on the host engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.plans import LAUNCHER

pytestmark = pytest.mark.complete  # builds some thirty times

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """\
project: tiny
platforms:
  cpu: {}
stages:
- name: install
  command: ninja
- name: pytest
  kind: pytest
  command: python -m pytest -q tests
artifacts:
  ninja_log: build/.ninja_log
"""
NINJA = """\
builddir = build
rule cxx
  command = c++ -O0 -c $in -o $out
build build/one.o: cxx one.cpp
"""
UNIT = "#include <iostream>\nvoid f() { std::cout << 1; }\n"  # 0.4 CPU-s
TEST = "def test_sum():\n    assert 1 + 1 == {}\n\n\ndef test_other():\n    pass\n"
FILES = {
    "ci.yaml": CONFIG,
    "build.ninja": NINJA,
    "one.cpp": UNIT,
    "tests/test_it.py": TEST.format(2),
}
LAST = 17
SLOWER, FAILING = 12, 6
# What a commit changes besides a comment. Commits 8 and 9, the first to be tried, do not build.
CHANGES: Mapping[int, Mapping[str, str]] = {
    FAILING: {"tests/test_it.py": TEST.format(3)},
    8: {"one.cpp": UNIT + "oops\n"},
    10: {"one.cpp": UNIT},
    SLOWER: {
        "build.ninja": NINJA + "build build/two.o: cxx two.cpp\n",
        "two.cpp": UNIT,
    },
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, python: str) -> Path:
    """A repository whose commits have the tags ``c0`` to ``c17``."""
    folder = tmp_path_factory.mktemp("bisect") / "project"
    (folder.parent / "python").symlink_to(python)
    git(folder.parent, "init", "--quiet", "--initial-branch=main", str(folder))
    for number in range(LAST + 1):
        changes = {**(CHANGES.get(number, {}) if number else FILES)}
        for name, text in {**changes, "notes.txt": f"commit {number}\n"}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        git(folder, "add", ".")
        identity = ("-c", "user.name=Tests", "-c", "user.email=tests@example.org")
        git(folder, *identity, "commit", "--quiet", "--message", f"Commit {number}")
        git(folder, "tag", f"c{number}")
    return folder


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def start(project: Path, *words: str) -> subprocess.Popen[str]:
    """Begin a search, in a process group of its own."""
    folder = project.parent
    (folder / "temporary").mkdir(exist_ok=True)
    # A killed search leaves folders in both; the agent of its run ends by itself.
    places = {"XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder / "temporary")}
    command = [sys.executable, "-c", LAUNCHER, str(folder / "python")]
    command += ["bisect", "cpu", "--engine", "host", *words]
    return subprocess.Popen(
        [*command, "--source", str(project), "--results", str(folder / "results")],
        cwd=ROOT,
        env={**os.environ, **places},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def bisect(project: Path, *words: str, code: int = 0) -> tuple[str, str]:
    """Search to the end; returns stdout and stderr."""
    process = start(project, *words)
    out, error = process.communicate()
    assert process.returncode == code, out + error
    return out, error


def end_in_run(process: subprocess.Popen[str], number: int, signal_: signal.Signals) -> int:
    """Send a signal while the ``number``-th run of a search installs; returns the exit code."""
    assert process.stderr
    for line in process.stderr:
        number -= line.startswith("bisect: run ")
        if number <= 0 and "install started" in line:
            os.killpg(process.pid, signal_)
            break
    process.communicate()
    return process.returncode


def runs(project: Path) -> int:
    return len(list((project.parent / "results").glob("*/results.json"))) - 1  # without latest


def worktrees(project: Path) -> int:
    return len(git(project, "worktree", "list").splitlines())


def commit_of(project: Path, tag: str) -> str:
    return git(project, "rev-parse", tag).strip()


def test_an_extra_translation_unit_and_a_failing_test(project: Path) -> None:
    (project / "notes.txt").write_text("not committed")  # the user's tree stays as it is
    ends = ("--good", "c0", "--bad", f"c{LAST}")
    code = end_in_run(start(project, *ends), 3, signal.SIGINT)
    assert (code, worktrees(project)) == (130, 1)
    code = end_in_run(start(project, *ends), 2, signal.SIGKILL)
    assert (code, worktrees(project)) == (-signal.SIGKILL, 1)
    out, error = bisect(project, *ends, "--format", "json")
    assert f"the uncommitted changes of {project} are in none of its commits" in error
    found: dict[str, Any] = json.loads(out)
    assert found["first_bad"] == [commit_of(project, f"c{SLOWER}")]
    assert found["probability"] >= 0.95
    assert found["measure"] == "install.cpu_s"
    assert "1 new unit" in found["cause"]
    skipped = {it["subject"] for it in found["commits"] if it["skipped"]}
    assert skipped
    assert skipped <= {"Commit 8", "Commit 9"}
    made = runs(project)
    assert made < 30  # 11 without noise, and 2 that were ended

    # The same command again has its answer. No run of it got to the tests.
    again, _ = bisect(project, *ends)
    assert f"install is slower since commit {found['first_bad'][0][:12]}" in again
    assert runs(project) == made
    test = "tests/test_it.py::test_sum"
    found = json.loads(bisect(project, *ends, "--test", test, "--format", "json")[0])
    assert found["first_bad"] == [commit_of(project, f"c{FAILING}")]
    assert "assert (1 + 1) == 3" in found["cause"]
    assert sum(len(it["runs"]) for it in found["commits"]) <= runs(project) - made

    assert (project / "notes.txt").read_text() == "not committed"
    assert worktrees(project) == 1


def test_an_end_that_does_not_build(project: Path) -> None:
    _, error = bisect(project, "--good", "c8", "--bad", "c11", code=2)
    assert "cannot be judged" in error
