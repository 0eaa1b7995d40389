"""Commands that messages name: they work where the program was started."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from ci.util.invocation import NOX_VARIABLE, REPOSITORY, SESSIONS, command, remember_options


@pytest.fixture(autouse=True)
def _as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (NOX_VARIABLE, "INFINI_CI_RESULTS", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (["python3.12", "-m", "ci", "report"], "python3.12 -m ci gc"),
        (["my venv/bin/python", "-X", "dev", "-m", "ci"], "'my venv/bin/python' -X dev -m ci gc"),
        (["python", "-m", "pytest", "ci"], "python -m ci gc"),
    ],
)
def test_the_python_is_the_one_that_was_typed(
    typed: list[str], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", typed)
    assert command("gc") == shown


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["run", "--resume", "r"], "-s release -- --resume r --results 'my results'"),
        (["run", "cpu"], "-s build-cpu -- --config 'a b.yaml' --results 'my results'"),
        (["compare", "a", "b"], "-s compare -- a b --results 'my results'"),
        (["report"], "-s report -- --results 'my results'"),
    ],
)
def test_a_user_of_nox_gets_a_session(
    words: list[str], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NOX_VARIABLE, "python3 noxfile.py")
    with remember_options(Namespace(results=Path("my results"), config=Path("a b.yaml"))):
        assert command(*words) == f"python3 noxfile.py {shown}"
    assert command("run", "cpu") == "python3 noxfile.py -s build-cpu"


def test_without_a_session_of_nox_it_is_the_python_of_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(NOX_VARIABLE, "nox")
    monkeypatch.setattr(sys, "executable", str(REPOSITORY / ".nox/ci/bin/python"))
    monkeypatch.setenv("PWD", str(REPOSITORY))
    assert command("gc") == ".nox/ci/bin/python -m ci gc"
    monkeypatch.setenv("PWD", "/")
    python = shlex.quote(str(REPOSITORY / ".nox/ci/bin/python"))
    assert command("gc") == f"cd {shlex.quote(str(REPOSITORY))} && {python} -m ci gc"


@pytest.mark.parametrize(
    ("options", "words", "added"),
    [
        ({"results": Path("results")}, ["gc"], ""),
        ({"results": Path("results"), "variable": True}, ["gc"], " --results results"),
        ({"results": Path("r")}, ["gc"], " --results r"),
        ({"results": Path("r")}, ["platforms"], ""),
        ({"config": Path("c")}, ["run", "--resume", "x"], ""),
        ({"config": Path("c")}, ["contract", "cpu", "--config", "d"], ""),
        ({"source": Path("s")}, ["run", "cpu"], " --source s"),
        ({"source": Path("s")}, ["contract", "cpu"], " --config s/ci.yaml"),
        ({"source": Path("s"), "config": Path("c")}, ["contract", "cpu"], " --config c"),
        ({"source": REPOSITORY}, ["run", "cpu"], ""),
    ],
)
def test_options_other_than_the_default_are_part_of_the_command(
    options: dict[str, object], words: list[str], added: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "variable" in options:
        monkeypatch.setenv("INFINI_CI_RESULTS", "elsewhere")
    with remember_options(Namespace(**options)):
        assert command(*words) == f"python -m ci {shlex.join(words)}{added}"


def test_what_it_prints_can_be_run(tmp_path: Path) -> None:
    """From another folder, where only PYTHONPATH leads to this program, as a bundle's user."""
    results = tmp_path / "my results"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "INFINI_CI_DB": ""}
    started = [sys.executable, "-m", "ci", "report", "--results", str(results)]

    def said(words: list[str] | str, **variables: str) -> str:
        return subprocess.run(
            words if isinstance(words, list) else ["sh", "-euc", words],
            cwd=tmp_path,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        ).stderr

    [printed] = re.findall(r"Run a platform first: (.*)$", said(started), re.M)
    assert printed.startswith(f"PYTHONPATH={REPOSITORY} {sys.executable} -m ci run cpu --results ")
    asked = printed.replace(" run cpu", " report nosuchrun")
    assert "there is no run 'nosuchrun'" in said(asked, PYTHONPATH="")


def test_noxfile_says_how_it_was_started() -> None:
    text = (REPOSITORY / "noxfile.py").read_text(encoding="utf-8")
    assert f'"{NOX_VARIABLE}"' in text
    assert {"release", *SESSIONS} <= set(re.findall(r"^@ci_session\ndef (\w+)", text, re.M))
