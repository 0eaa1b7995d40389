"""The first failures of a platform: which test or stage, and the line that says why."""

from __future__ import annotations

from pathlib import Path

import pytest
from workplace import Workplace, new_workplace

from ci.facts.failures import error_line
from ci.model.results import LONGEST_MESSAGE, LONGEST_TEST, MOST_FAILURES, Failure
from ci.model.tests import Outcome
from ci.store.folder import read_results
from ci.util.text import first_line


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    return new_workplace(tmp_path)


def failed(test: str | None, message: str | None, stage: str = "pytest") -> Failure:
    return Failure(stage=stage, test=test, outcome=Outcome.FAILED, message=message)


def error(test: str, message: str) -> Failure:
    return Failure(stage="pytest", test=test, outcome=Outcome.ERROR, message=message)


KINDS = """\
import pytest
@pytest.fixture
def broken():
    raise RuntimeError("no room")
def test_assert():
    assert [1, 2] == [1, 3], "they\\nare lists"
def test_setup(broken): pass
def test_fixture(unknown): pass
@pytest.mark.xfail(strict=True, reason="a defect")
def test_strict(): pass
def test_passes(): pass
"""


def test_each_kind_of_failure_has_its_first_line(work: Workplace) -> None:
    work.write("tests/test_b.py", KINDS)
    work.write("tests/test_c.py", "import missing_module\n")
    assert list(work.only().failures) == [
        error("tests/test_c.py", "ModuleNotFoundError: No module named 'missing_module'")
    ]
    (work.folder / "source" / "tests" / "test_c.py").unlink()
    assert list(work.only().failures) == [
        failed("tests/test_b.py::test_assert", "AssertionError: they"),
        error("tests/test_b.py::test_setup", "RuntimeError: no room"),
        error("tests/test_b.py::test_fixture", "fixture 'unknown' not found"),
        failed("tests/test_b.py::test_strict", "[XPASS(strict)] a defect"),
    ]
    assert work.only().pytest is not None


def test_a_passing_run_has_none(work: Workplace) -> None:
    assert work.only().failures == ()


def test_the_first_failures_are_kept_and_all_are_counted(work: Workplace) -> None:
    tests = "import pytest\n@pytest.mark.parametrize('n', range(30))\ndef test_b(n): assert n < 0\n"
    work.write("tests/test_b.py", tests)
    result, _ = work.run()
    [platform] = result.platforms
    expected = [failed(f"tests/test_b.py::test_b[{n}]", f"assert {n} < 0") for n in range(30)]
    assert list(platform.failures) == expected[:MOST_FAILURES]
    assert platform.pytest is not None
    assert platform.pytest.failed == 30
    assert read_results(work.results / "latest" / "results.json") == result


def test_long_names_and_messages_are_cut_and_masked(work: Workplace) -> None:
    message = "'http://me:hunter22@host/' + 'a' * 900"
    test = f"def test_{'b' * 9000}():\n    raise AssertionError({message})\n"
    work.write("tests/test_b.py", test)
    [found] = work.only().failures
    assert found.test is not None
    assert found.message is not None
    assert (len(found.test), len(found.message)) == (LONGEST_TEST, LONGEST_MESSAGE)
    assert "http://***@host/aaa" in found.message


def test_the_test_that_a_process_died_in(work: Workplace) -> None:
    crash = "import os, signal\ndef test_b(): os.kill(os.getpid(), signal.SIGSEGV)\n"
    work.write("tests/test_b.py", crash)
    how = "the process ended in this test with signal SIGSEGV (exit code 139)"
    assert list(work.only().failures) == [failed("tests/test_b.py::test_b", how)]


def test_a_build_that_fails(work: Workplace) -> None:
    work.write("build.py", "print('a.cc:3:1: error: no such header', flush=True)\n1 / 0\n")
    message = "a.cc:3:1: error: no such header"
    assert list(work.only().failures) == [failed(None, message, stage="build")]


PIP = """\
Processing /workspace
  error: subprocess-exited-with-error

  x Building wheel for tiny (pyproject.toml) did not run successfully.
  │ exit code: 1
"""
NINJA = "  [3/9] Building CXX object a.cc.o\n  FAILED: [code=1] a.cc.o\n  c++ -Werror -c a.cc\n"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (
            f"{PIP}{NINJA}  /w/src/a.cc:3:10: fatal error: x.h: No such file or directory\n"
            "  /w/src/b.cc:1:1: error: later\n  ERROR: Failed building wheel for tiny\n",
            "/w/src/a.cc:3:10: fatal error: x.h: No such file or directory",
        ),
        (
            f'{NINJA}k.cu(12): error: identifier "x" is undefined\n',
            'k.cu(12): error: identifier "x"',
        ),
        (
            f"{PIP}  CMake Error at CMakeLists.txt:7 (message):\n    WITH_TRITON needs"
            " WITH_NVIDIA\n\n\n  -- Configuring incomplete, errors occurred!\n",
            "CMake Error at CMakeLists.txt:7 (message): WITH_TRITON needs WITH_NVIDIA",
        ),
        (
            "collect2: error: ld returned 1 exit status\n",
            "collect2: error: ld returned 1 exit status",
        ),
        (
            f"{PIP}  Traceback (most recent call last):\n  ModuleNotFoundError: No module named"
            " 'torchgen'\n",
            "ModuleNotFoundError: No module named 'torchgen'",
        ),
        ("ERROR: No matching distribution found for torch==9\n", "ERROR: No matching distribution"),
        ("+ ./setup\nsetup: line 3: cmkae: command not found\n\n", "setup: line 3: cmkae: command"),
        ("\x1b[31ma.cc:1:1: \x1b[0merror: colors\n", "a.cc:1:1: error: colors"),
    ],
)
def test_the_line_that_names_the_error(log: str, line: str) -> None:
    found = error_line(log.splitlines())
    assert found is not None
    assert found.startswith(line)


def test_no_line_names_an_error() -> None:
    assert error_line(["", " "]) is None
    assert first_line("\n \n") == ""
