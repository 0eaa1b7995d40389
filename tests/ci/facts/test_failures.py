"""The first failures of a platform: which test or stage, and the line that says why."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from ci.cli import main
from ci.errors import ExitCode
from ci.facts.failures import error_line, reason_line
from ci.model.fields import LONGEST_MESSAGE, LONGEST_TEST, MOST_FAILURES
from ci.model.outcomes import Outcome
from ci.model.results import Failure
from ci.model.verdicts import Product
from ci.report.failure_list import command_for
from ci.store.folder import read_results
from ci.util.text import first_line
from tests.ci.workplace import CONTRACT, Workplace, new_workplace


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
        failed("tests/test_b.py::test_assert", "they: assert [1, 2] == [1, 3]"),
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


def test_a_suite_that_does_not_start(work: Workplace) -> None:
    work.write("tests/conftest.py", "import missing_module\n")
    message = "ModuleNotFoundError: No module named 'missing_module'"
    assert list(work.only().failures) == [failed(None, message)]
    work.write("tests/conftest.py", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    [found] = work.only().failures
    assert (found.stage, found.test) == ("pytest", None)


CONTRACT_WITH_ANOTHER_TEST = f"{CONTRACT}  tests/test_a.py::test_gone: 1\n"


def test_the_command_of_a_broken_contract_shows_how(
    work: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    config = (work.folder / "source" / "ci.yaml").read_text()
    work.write("ci.yaml", f"{config}contracts: contracts\n")
    work.write("contracts/cpu.yaml", CONTRACT_WITH_ANOTHER_TEST)
    file = str(work.folder / "source" / "contracts" / "cpu.yaml")
    result = work.only()
    assert result.verdict.product is Product.FAILED
    [found] = result.failures
    assert (found.stage, found.test, found.contract) == ("pytest", None, file)
    assert found.message == result.verdict.evidence[0].text
    assert found.message.startswith("contract: 1 test vanished: ")
    run_id = (work.results / "latest").resolve().name
    words = shlex.split(command_for(run_id, "cpu", found))
    assert words[:4] == ["python", "-m", "ci", "compare"]
    assert main([*words[3:], "--results", str(work.results)]) == ExitCode.REGRESSION
    assert "test_gone" in capsys.readouterr().out


PIP = """\
Processing /workspace
  error: subprocess-exited-with-error

  x Building wheel for tiny (pyproject.toml) did not run successfully.
  │ exit code: 1
"""
BACKEND = """\
Processing /workspace
  error: backend-unavailable

  \u00d7 Cannot import build backend 'hatchling.build'.
  ╰─> ModuleNotFoundError: No module named 'hatchling'

  note: This is likely not a problem with pip.
ERROR: Failed to build 'file:///workspace' when calling a hook
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
        (
            BACKEND,
            "Cannot import build backend 'hatchling.build': ModuleNotFoundError: No module named",
        ),
        (PIP.replace(" x ", " \u00d7 ") + "  ╰─> [9 lines]\n  ValueError: no\n", "ValueError: no"),
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
    assert reason_line("\n \n") is None
    assert reason_line(None) is None


NOT_CLOSE = """\
AssertionError: Tensor-likes are not close!

Mismatched elements: 7 / 24 (29.2%)
Greatest absolute difference: 2.0 at index (0, 1) (up to 1e-05 allowed)

The failure occurred for item [0]
"""
WHERE = """\
assert False
 +  where False = <built-in method equal>(tensor([1]), tensor([2]))
 +    where <built-in method equal> = torch.equal
"""
SHORTENED = """\
assert [0, 1, 2, 3, 4, 5, ...] == [0, 1, 2, 3, 4, 5, ...]

  At index 90 diff: 7 != 8
  Use -v to get more diff
"""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (
            NOT_CLOSE,
            "Mismatched elements: 7 / 24 (29.2%); Greatest absolute difference: 2.0 at index",
        ),
        (NOT_CLOSE.replace("Error: ", "Error: sliced: "), "sliced: Mismatched elements: 7 / 24"),
        (
            "AssertionError: Scalars are not equal!\n\nExpected 1 but got 2.\nThe failure",
            "Expected 1 but got 2.",
        ),
        (
            WHERE,
            "assert False: False = <built-in method equal>(tensor([1]), tensor([2]))",
        ),
        (SHORTENED, "At index 90 diff: 7 != 8; assert [0, 1, 2, 3, 4, 5, ...] == ["),
        ("AssertionError: add.out\nassert 'x' == 'y'\n  - y\n  + x", "add.out: assert 'x' == 'y'"),
        (
            "AssertionError: 8\nassert False == True\n +  where False = f()",
            "8: assert False == True: False = f()",
        ),
        (
            "subprocess.CalledProcessError: Command '['c++']' returned non-zero exit status 1.",
            "a process returned non-zero exit status 1: ['c++']",
        ),
        ("AssertionError", "AssertionError"),
        ("AssertionError: assert the device first", "assert the device first"),
        ("assert 1 == 2\n +  where 1 = f()", "assert 1 == 2"),
        ("ValueError: one\nassert two", "ValueError: one"),
        (
            "worker 'gw0' crashed while running 'a.py::test[it]': Aborted\nstack",
            "its process died: Aborted",
        ),
        (
            "TypeError: copy() takes no int; candidates:\n  copy(self)",
            "TypeError: copy() takes no int; candidates: copy(self)",
        ),
        ("worker 'gw0' crashed while running 'a.py::test[it]'", "its process died"),
        (
            "subtest [a: b] (i=1): AssertionError: assert 1 == 2\n   +  where 1 = f()\n"
            "subtest (i=2): assert False\n   +  where False = g()\n"
            "subtest (<subtest>): no\nthe test: own\nand 3 more subtests",
            "subtest [a: b] (i=1): assert 1 == 2; subtest (i=2): assert False: False = g();"
            " subtest (<subtest>): no; the test: own; and 3 more subtests",
        ),
    ],
)
def test_the_line_that_shows_what_differs(message: str, line: str) -> None:
    found = reason_line(message, "a.py::test[it]")
    assert found is not None
    assert found.startswith(line)
