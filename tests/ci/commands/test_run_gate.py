"""``run --gate``, with which ``nox -s release`` ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ci import cli
from ci.commands import run as run_command
from ci.engines import Observer
from ci.errors import CiError, ExitCode
from ci.model.decision import parse_decision
from ci.model.execution import ExecutionFacts, ImageFacts
from ci.model.plan import RunPlan
from tests.ci.local_engine import LocalEngine
from tests.ci.stored_history import git

CONFIG = """\
project: tiny
platforms: {cpu: {}, nvidia: {}, ascend: {}}
stages:
- {name: pytest, command: python -m pytest, kind: pytest}
"""
RELEASE = """\
release:
  installed_wheel: false
  baseline: optional
"""
Start = Callable[..., tuple[int, str, str]]


class CpuOnly(LocalEngine):
    """An engine on a machine without a vendor's device."""

    def execute(self, plan: RunPlan, image: ImageFacts, observer: Observer) -> ExecutionFacts:
        if plan.platform != "cpu":
            raise CiError("no such device is on this machine")
        return super().execute(plan, image, observer)


@pytest.fixture
def start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Start:
    """Run the CPU here, where no other platform can run, and return the code and the output."""
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "--quiet")
    (source / "test_a.py").write_text("def test_a(): pass\n")
    monkeypatch.setenv("INFINI_CI_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words: str, release: str = RELEASE, interrupted: bool = False) -> tuple[int, str, str]:
        (source / "ci.yaml").write_text(CONFIG + release)
        git(source, "add", "--all")
        git(source, "commit", "--quiet", "--allow-empty", "--message", "change")
        engine = CpuOnly(interrupted=interrupted)
        monkeypatch.setattr(run_command, "select_engine", lambda _: engine)
        code = cli.main(["run", *words, "--gate", "--source", str(source)])
        return code, *capsys.readouterr()

    return run


def test_an_informational_platform_that_cannot_run_does_not_decide(
    start: Start, tmp_path: Path
) -> None:
    policy = f"{RELEASE}  required: [cpu]\n  informational: [accelerators]\n"
    code, shown, _ = start("--all", release=policy)
    assert code == ExitCode.PASSED, shown
    assert "no such device is on this machine" in shown
    assert "no result, which is informational: NVIDIA, " in shown
    assert "\nrelease: go, no rule failed" in shown
    file = Path(shown.splitlines()[-1].removeprefix("decision: "))
    assert file.parent == tmp_path / "results"
    assert parse_decision(file.read_bytes()).exit_code == code


@pytest.mark.parametrize("words", [("--all",), ("cpu",)])
def test_a_required_platform_that_cannot_run_here_is_no_go(
    start: Start, words: tuple[str, ...]
) -> None:
    """Whether it was tried or not: one rule of it fails, and the remedy is named."""
    code, shown, _ = start(*words, release=f"{RELEASE}  required: [cpu, nvidia, ascend]\n")
    assert code == ExitCode.PRODUCT_FAILURE
    _, verdict = shown.split("\nrelease: no-go, 2 rules failed\n")
    assert "  failed: nvidia: result: " in verdict
    assert "  failed: ascend: result: " in verdict
    assert "The release requires a result of NVIDIA, Ascend." in verdict
    assert " run --trust release nvidia ascend --source " in verdict
    assert " gate latest DIR --source " in verdict


def test_a_failed_run_is_no_go(start: Start, tmp_path: Path) -> None:
    (tmp_path / "source" / "test_b.py").write_text("def test_b(): assert False\n")
    code, shown, _ = start("cpu", "--format=markdown", release=f"{RELEASE}  required: [cpu]\n")
    assert code == ExitCode.PRODUCT_FAILURE
    assert "# tiny: no-go\n" in shown
    assert "* failed: cpu: result: failed in run " in shown


def test_json_is_one_document(start: Start) -> None:
    code, shown, said = start("cpu", "--format=json", release=f"{RELEASE}  required: [nvidia]\n")
    assert code == ExitCode.PRODUCT_FAILURE
    assert json.loads(shown)["project"] == "tiny"
    assert "release: no-go, decision: " in said


def test_without_rules_there_is_no_decision(start: Start) -> None:
    code, shown, said = start("cpu", release="")
    assert code == ExitCode.PASSED
    assert "release" not in shown
    assert "no decision about a release: " in said
    assert "ci.yaml has no section `release:`" in said


def test_an_interrupted_run_has_no_decision(start: Start) -> None:
    policy = f"{RELEASE}  required: [cpu]\n"
    code, _, said = start("cpu", release=policy, interrupted=True)
    assert code == ExitCode.INTERRUPTED
    assert "no decision about a release: the run was interrupted" in said
