"""A real release of a tiny project on this machine: once it may be published, once not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ci.errors import ExitCode
from ci.model.decision import Decision, OutcomeKind
from ci.model.release import ReleaseRule
from ci.store.folder import newest_decision
from tests.ci.stored_history import git
from tests.e2e.plans import PROJECT
from tests.forked import run_ci

CONFIG = """\
project: tiny
platforms:
  cpu:
    environment: {GREETING: good morning}
test: python -m pytest -k 'not that_fails'
release:
  required: [cpu]
  least_executed: 1.0
  oldest_days: 1
  baseline: optional
  waivers: release-waivers.yaml
"""
WAIVERS = """\
project: tiny
waivers:
- rule: installed
  platform: cpu
  reason: The tests run with what pip built by itself
  owner: "@tiny"
  until: 2999-12-31
"""


def release(project: Path, *words: str) -> tuple[int, Decision, str]:
    """Run the project as it is, and decide."""
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "change")
    results = project.parent / "results"
    options = ("--source", project, "--results", results)
    finished = run_ci("run", "cpu", "--engine", "host", "--gate", *options, *words)
    print(finished.stdout, finished.stderr)
    decision = newest_decision(results, "tiny")
    assert decision is not None
    assert decision.commit == git(project, "rev-parse", "HEAD")
    return finished.returncode, decision, finished.stdout


@pytest.mark.complete
def test_one_release_is_go_and_the_next_is_not(tmp_path: Path) -> None:
    project = tmp_path / "project"
    files = {**PROJECT, "ci.yaml": CONFIG, "release-waivers.yaml": WAIVERS}
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    git(project, "init", "--quiet")
    code, decision, shown = release(project)
    assert code == decision.exit_code == ExitCode.PASSED, decision.failed
    assert "\nrelease: go, 1 rule waived" in shown
    outcomes = {it.rule: it.outcome for it in decision.rules if it.platform == "cpu"}
    assert outcomes[ReleaseRule.RESULT] is OutcomeKind.PASSED
    assert outcomes[ReleaseRule.BASELINE] is OutcomeKind.INFORMATIONAL
    git(project, "tag", "v1.0")

    tests = project / "tests" / "test_tiny.py"
    tests.write_text(tests.read_text().replace("def test_answer", "def no_test"), encoding="utf-8")
    code, decision, shown = release(project)
    assert code == decision.exit_code == ExitCode.REGRESSION
    assert [it.rule for it in decision.failed] == [ReleaseRule.REGRESSION]
    assert "1 test vanished" in decision.failed[0].evidence
    assert "\nrelease: no-go, 1 rule failed, 1 rule waived" in shown
    # The run that passed is no longer that of the sources.
    words = ("--source", project, "--results", tmp_path / "results", "--tag", "v1.0")
    late = run_ci("gate", "latest", *words, environment={**os.environ, "COLUMNS": "80"})
    assert late.returncode == ExitCode.PRODUCT_FAILURE
    assert "of tag v1.0" in late.stdout
