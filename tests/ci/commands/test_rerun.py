"""``python -m ci rerun`` and ``shell`` as programs read them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from ci import cli
from ci.errors import ExitCode
from ci.run import session
from ci.util.terminal import standard_output_to
from tests.ci.workplace import Workplace, new_workplace

TESTS = "def test_a(): pass\ndef test_b(): assert 0\n"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    found = new_workplace(tmp_path)
    found.write("tests/test_a.py", TESTS)
    found.run()
    monkeypatch.setattr(session, "select_engine", lambda _: found.engine)
    return found


@pytest.mark.parametrize(
    ("test", "code", "outcomes"),
    [
        ((), ExitCode.PRODUCT_FAILURE, {"test_a": "passed", "test_b": "failed"}),
        (("tests/test_a.py::test_a",), ExitCode.PASSED, {"test_a": "passed"}),
    ],
)
def test_a_rerun_as_json(
    work: Workplace,
    capsys: pytest.CaptureFixture[str],
    test: tuple[str, ...],
    code: int,
    outcomes: dict[str, str],
) -> None:
    words = ["rerun", "latest", "cpu", *test, "--format", "json", "--results", str(work.results)]
    assert cli.main(words) == code
    shown = capsys.readouterr()
    printed = json.loads(shown.out)
    assert printed["run_id"] == (work.results / "latest").resolve().name
    assert (printed["platform"], printed["exit_code"]) == ("cpu", code)
    assert printed["result"]["pytest"]["passed"] == 1
    found = {it["test"].partition("::")[2]: it["outcome"] for it in printed["tests"]}
    assert found == outcomes
    assert [it["reason"] for it in printed["tests"][1:]] == ["assert 0"][: len(outcomes) - 1]
    assert "1 passed" in printed["output"][-1]
    assert "CPU: image finished after" in shown.err


def test_a_shell_at_a_terminal_has_no_json(
    work: Workplace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "wb", 0), os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        words = ["shell", "latest", "cpu", "--format", "json", "--results", str(work.results)]
        assert cli.main(words) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "got json, expected text: the standard input is a terminal\nPass the" in shown.err


def test_the_standard_output_goes_to_a_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "file").open("wb") as file, standard_output_to(file):
        subprocess.run(["echo", "one"], check=True)
    subprocess.run(["echo", "two"], check=True)
    assert (tmp_path / "file").read_text() == "one\n"
    assert capfd.readouterr().out == "two\n"
