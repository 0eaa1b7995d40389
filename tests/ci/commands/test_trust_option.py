"""``run --trust``, its default in a CI job, and what ``nox -s release`` adds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ci import cli
from ci.commands import run as run_command
from ci.errors import ExitCode
from ci.util.invocation import REPOSITORY
from tests.ci.local_engine import LocalEngine

Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

CI_SYSTEMS = ("GITLAB_CI", "BUILDKITE", "JENKINS_URL", "GITHUB_ACTIONS", "GITEA_ACTIONS")
STRANGERS = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "pull_request_target"}
ON_A_BRANCH = {"GITLAB_CI": "true", "CI_COMMIT_REF_PROTECTED": "false"}
CONFIG = """\
project: tiny
platforms: {cpu: {}}
stages:
- {name: pytest, command: python -m pytest, kind: pytest}
"""
# Runs the session `release` of noxfile.py, and prints the arguments of the command.
RELEASE = """
import importlib.util, sys, types
nox = types.ModuleType("nox")
nox.options = types.SimpleNamespace()
nox.session = lambda function=None, **_: function or (lambda decorated: decorated)
nox.Session = object
nox.project = types.SimpleNamespace(load_toml=lambda _: {}, dependency_groups=lambda *_: [])
sys.modules["nox"] = nox
spec = importlib.util.spec_from_file_location("noxfile", "noxfile.py")
noxfile = importlib.util.module_from_spec(spec)
spec.loader.exec_module(noxfile)
class CommandFailed(Exception):
    return_code = 4
nox.command = types.SimpleNamespace(CommandFailed=CommandFailed)
def run(*words, **_):
    print(*words[3:])
    if "no-go" in words:
        raise CommandFailed
session = types.SimpleNamespace(
    posargs=sys.argv[1:],
    run=run,
)
noxfile.ci_python = lambda *_: "python"
noxfile.release(session)
"""


@pytest.fixture(autouse=True)
def _no_ci_job(monkeypatch: Patch) -> None:
    for name in CI_SYSTEMS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "ci.yaml").write_text(CONFIG)
    (tmp_path / "source" / "test_a.py").write_text("def test_a(): pass\n")
    return tmp_path / "source"


@pytest.mark.parametrize(
    ("environ", "options", "level", "warning"),
    [
        ({}, [], "branch", ""),
        ({}, ["--trust=release"], "release", ""),
        (STRANGERS, [], "untrusted", ""),
        (
            STRANGERS,
            ["--trust=release"],
            "release",
            "--trust release: the variables of GitHub Actions state the level untrusted; the"
            " option decides, so this run writes the release cache\n",
        ),
        (ON_A_BRANCH, ["--trust=untrusted"], "untrusted", ""),
        (ON_A_BRANCH, ["--trust=branch"], "branch", ""),
    ],
)
def test_level_of_a_run(
    source: Path,
    monkeypatch: Patch,
    capsys: Output,
    environ: dict[str, str],
    options: list[str],
    level: str,
    warning: str,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(run_command, "select_engine", lambda _: LocalEngine())
    assert cli.main(["run", "cpu", f"--source={source}", *options]) == ExitCode.PASSED
    result = json.loads(Path("results/latest/results.json").read_text())
    assert result["platforms"][0]["environment"]["trust"] == level
    assert json.loads(Path("results/latest/request.json").read_text())["trust"] == level
    said = capsys.readouterr().err
    assert warning in said
    assert bool(warning) is ("--trust" in said)


def test_a_dry_run_names_the_level(source: Path, capsys: Output) -> None:
    options = ["--engine=host", "--dry-run", "--trust=untrusted", f"--source={source}"]
    assert cli.main(["run", "cpu", *options]) == ExitCode.PASSED
    shown = capsys.readouterr().out
    assert "\ntrust: untrusted\n" in shown
    name = "infini-ci-cache-tiny-cpu"
    assert f"\n  name: {name}-untrusted\n  trusted: {name}-release, {name}-branch\n" in shown


def test_level_is_part_of_the_resumed_request(
    source: Path, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.setattr(run_command, "select_engine", lambda _: LocalEngine())
    options = [f"--source={source}", "--trust=untrusted"]
    assert cli.main(["run", "cpu", *options]) == ExitCode.PASSED
    run = Path("results/latest").resolve().name
    assert cli.main(["run", "--resume", run]) == ExitCode.PASSED
    result = json.loads(Path("results/latest/results.json").read_text())
    assert result["platforms"][0]["environment"]["trust"] == "untrusted"
    capsys.readouterr()


def release_of_nox(environ: dict[str, str], words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "-c", RELEASE, *words],
        cwd=REPOSITORY,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("environ", "words", "expected"),
    [
        ({}, [], "run --all --trust release --gate"),
        ({}, ["cpu"], "run --trust release --gate cpu"),
        (ON_A_BRANCH, ["cpu"], "run --trust release --gate cpu"),
        ({}, ["cpu", "--trust", "branch"], "run --gate cpu --trust branch"),
        ({}, ["--trust=branch"], "run --all --gate --trust=branch"),
        ({}, ["--resume", "x"], "run --gate --resume x"),
        ({}, ["--bundle=x", "cpu"], "run --trust release --bundle=x cpu"),
        (STRANGERS, ["cpu"], "run --gate cpu"),
        (STRANGERS, ["cpu", "--trust=release"], "run --gate cpu --trust=release"),
    ],
)
def test_release_of_nox(environ: dict[str, str], words: list[str], expected: str) -> None:
    done = release_of_nox(environ, words)
    assert done.stdout == f"{expected}\n", done.stderr
    assert done.returncode == ExitCode.PASSED


def test_release_of_nox_has_the_exit_code_of_the_decision() -> None:
    assert release_of_nox({}, ["no-go"]).returncode == ExitCode.REGRESSION
