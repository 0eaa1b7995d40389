"""How ``nox -s compat`` finds Pythons, and how it reports missing ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tools.compat import __main__ as command
from tools.compat.interpreters import find_interpreters
from tools.compat.pythons import supported_versions
from tools.compat.steps import project

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on PATH, on a machine without Pythons of pyenv and uv."""
    folder = tmp_path / "with a space"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/bin")  # a launcher may need a shell
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    return folder


def test_an_interpreter_is_found_once(path: Path, tmp_path: Path) -> None:
    """This one has a link on PATH, another link in pyenv's folder, and an environment."""
    pyenv = tmp_path / f"pyenv/versions/{VERSION}.0/bin"
    pyenv.mkdir(parents=True)
    for folder in (path, pyenv):
        (folder / f"python{VERSION}").symlink_to(sys.executable)
    here = Path(sys.executable).resolve()
    found = [each for each in find_interpreters(VERSION) if each.executable == here]
    [interpreter] = found
    assert interpreter.version == sys.version.partition(" ")[0]
    assert not interpreter.is_free_threaded


@pytest.mark.parametrize(
    "program", ["#!/bin/sh\nexit 127\n", "#!/bin/no-such-shell\n"], ids=["fails", "no-shell"]
)
def test_a_launcher_that_does_not_start_is_ignored(path: Path, program: str) -> None:
    launcher = path / "python3.99"
    launcher.write_text(program)
    launcher.chmod(0o755)
    assert find_interpreters("3.99") == []


def test_an_interpreter_with_the_name_of_another_version_is_ignored(path: Path) -> None:
    (path / "python3.99").symlink_to(sys.executable)
    assert find_interpreters("3.99") == []


@pytest.mark.parametrize(
    ("words", "named"),
    [(["pythons", "3.14"], ["3.14"]), (["pythons"], []), ([], [])],
    ids=["by-name", "all", "by default"],
)
def test_missing_pythons_are_listed_and_never_a_success(
    words: list[str],
    named: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "find_interpreters", lambda _: [])
    assert command.main([f"--work-dir={tmp_path}", *words]) == 1
    versions = named or supported_versions()
    printed = capsys.readouterr()
    assert f"not checked: Python {', '.join(versions)}\n" in printed.err
    table = (tmp_path / "pythons.md").read_text()
    for version in versions:
        assert f"| {version} | missing | not run |" in table
        assert f"no python{version} in PATH, /usr/bin" in table


def test_an_unsupported_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main([f"--work-dir={tmp_path}", "pythons", "3.9"])
    expected = f"got '3.9', expected a supported Python: {', '.join(supported_versions())}"
    assert expected in capsys.readouterr().err


def test_the_classifiers_begin_where_requires_python_does() -> None:
    assert project()["project"]["requires-python"] == f">={supported_versions()[0]}"
