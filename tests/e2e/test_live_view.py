"""The live view as a user sees it: a real run of seven platforms on a terminal."""

from __future__ import annotations

import fcntl
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from unicodedata import east_asian_width

import pytest

from ci.errors import ExitCode
from ci.model.platforms import PLATFORMS
from tests.e2e.pane import Pane
from tests.e2e.plans import LAUNCHER

ROOT = Path(__file__).resolve().parents[2]
SEVEN = tuple(PLATFORMS)[:7]
WIDTHS = (80, 120, 200)
CLOCK = re.compile(r" \d:\d\d:\d\d$")
MARKS = ("\N{BLACK RIGHT-POINTING SMALL TRIANGLE} ", "\N{MIDDLE DOT} ")

CONFIG = """\
project: live
platforms:
  cpu: {{requirements: requirements.txt}}
{others}
stages:
- {{name: build, command: python stages.py build {gates}}}
- {{name: pytest, kind: pytest, command: python -m pytest tests}}
"""
OTHER = "  {name}: {{requirements: requirements.txt, simulated: true}}"
# A stage waits at a gate, a file, until the test releases its lock.
STAGES = r"""
import fcntl, pathlib, sys

def wait_at(gate):
    with (pathlib.Path(sys.argv[2]) / gate).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)

print("\x1b[2J\x1b]0;title\x07 [bold]markup[/bold]", flush=True)
print("[1/4] Building CXX object a.o", flush=True)
print("[2/4] Building CXX object " + "\u5bbd" * 500, flush=True)
wait_at("build")
print("[4/4] Linking", flush=True)
"""
TESTS = """
import fcntl, pathlib

def test_a():
    pass

def test_b():
    assert 1 == 2

def test_c():
    with (pathlib.Path({gates!r}) / "pytest").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
"""


class Gates:
    """Files that stages wait at until they are opened."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self._files = {}
        for name in names:
            (folder / name).touch()
            self._files[name] = (folder / name).open()
            fcntl.flock(self._files[name], fcntl.LOCK_EX)

    def open(self, name: str) -> None:
        self._files.pop(name).close()

    def close(self) -> None:
        for name in [*self._files]:
            self.open(name)


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[Gates]:
    (tmp_path / "gates").mkdir()
    gates = Gates(tmp_path / "gates", "build", "pytest")
    yield gates
    gates.close()


@pytest.fixture
def project(tmp_path: Path, gates: Gates) -> Path:
    others = "\n".join(OTHER.format(name=name) for name in SEVEN if name != "cpu")
    folder = tmp_path / "project"
    (folder / "tests").mkdir(parents=True)
    (folder / "ci.yaml").write_text(CONFIG.format(others=others, gates=gates.folder))
    (folder / "requirements.txt").touch()
    (folder / "stages.py").write_text(STAGES)
    (folder / "tests" / "test_tiny.py").write_text(TESTS.format(gates=str(gates.folder)))
    return folder


@pytest.mark.complete
def test_a_run_of_seven_platforms(project: Path, python: str, gates: Gates) -> None:
    command = [sys.executable, "-c", LAUNCHER, python, "run", "--all", "--engine", "host"]
    command += ["--jobs", "2", "--source", str(project)]
    command += ["--results", str(project.parent / "results")]
    with Pane(command, cwd=ROOT, columns=WIDTHS[0]) as pane:
        for width in WIDTHS:
            pane.resize(width)
            rows = pane.read_until(lambda rows: is_whole(rows) and count(rows, " 2/4 ") == 2)
            check_platforms(rows, width)
            # There is little room behind an estimate.
            shown = ("[2/4] Building CXX object", " left, ")
            assert sum(any(text in row for text in shown) for row in rows) == 2
        gates.open("build")
        for width in WIDTHS:
            pane.resize(width)
            rows = pane.read_until(lambda rows: is_whole(rows) and count(rows, " 2/3 ") == 2)
            check_platforms(rows, width)
            assert count(rows, " 1 failed") == 2
            assert count(rows, "\N{BOX DRAWINGS LIGHT VERTICAL} tests/test_tiny.py::test_b") == 2
        gates.open("pytest")
        assert pane.read_to_end() == ExitCode.PRODUCT_FAILURE
        assert count(pane.rows, "results: ") == 1
        assert not live_rows(pane.rows)


def count(rows: list[str], text: str) -> int:
    return sum(text in row for row in rows)


def is_whole(rows: list[str]) -> bool:
    """Whether all of the view is there, once: the terminal may be read while it is drawn."""
    live = live_rows(rows)
    return len(live) == 8 and live[-1].startswith("7 platforms:") and bool(CLOCK.search(live[-1]))


def live_rows(rows: list[str]) -> list[str]:
    return [row for row in rows if row.startswith((*MARKS, "7 platforms:"))]


def check_platforms(rows: list[str], width: int) -> None:
    """All platforms and the run are shown once; the clocks are whole, at the right edge."""
    *platforms, run = live_rows(rows)
    labels = [row[2:].split("  ")[0].split(" (")[0] for row in platforms]
    assert [label.split()[0].lower() for label in labels] == [*SEVEN]
    running, waiting = run.removeprefix("7 platforms: ").split(",")
    assert (running, waiting.split()[:2]) == ("2 running", ["5", "waiting"])
    clocks = [row for row in (*platforms, run) if CLOCK.search(row)]
    assert len(clocks) == 3
    assert {columns(row) for row in clocks} == {width - 1}
    assert [row for row in rows if "markup" in row or "\N{REPLACEMENT CHARACTER}" in row] == []


def columns(row: str) -> int:
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in row)
