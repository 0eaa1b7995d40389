"""Earlier runs in the store say whose change broke a platform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ci.facts.sentences import on_tests
from ci.model.outcomes import Outcome
from ci.model.verdicts import Harness, Product, Verdict
from tests.ci.made_results import made_verdict
from tests.ci.stored_history import ENVIRONMENT, Project, result

BROKEN = made_verdict(Product.FAILED, "1 failed")
OLD, NEW = "2.13.0", "2.14.0.dev20261128+gitabcdef0123"
FAILED = {"test_a.py::test_one": Outcome.FAILED}
A, B = "a" * 40, "b" * 40


def with_torch(version: str, **changes: Any) -> dict[str, Any]:
    return {**ENVIRONMENT, "torch": version, **changes}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(folder=tmp_path)
    project.commit()
    return project


def verdict(project: Project) -> dict[str, Any]:
    """Of a run that failed, the newest one."""
    code, text = project.ci("report", project.runs[-1], "--format", "crcr", "--source", ".")
    assert code == 0
    document = json.loads(text)
    assert document["conclusion"] == "failure"
    found: dict[str, Any] = document["triage-verdict"]
    return found


def fail(project: Project, commit: str, **environment: Any) -> None:
    broken = result(verdict=BROKEN, environment=environment)
    project.run(commit, broken, outcomes=FAILED)


def test_the_same_commit_passed_with_another_torch(project: Project) -> None:
    project.run(A, result(environment=with_torch(OLD)))
    project.run(B, result(environment=with_torch(OLD)))
    warm = {"compiler_cache": {"state": "cold"}}
    fail(project, A, **with_torch(NEW, **warm))
    found = verdict(project)
    assert (found["category"], found["confidence"]) == ("upstream", "high")
    assert "run-000" in found["summary"]
    assert found["suspected_upstream"]["commit"] == "abcdef0123"


def test_another_commit_passed_in_the_same_environment(project: Project) -> None:
    project.run(A, result(environment=with_torch(NEW)))
    fail(project, B, **with_torch(NEW))
    found = verdict(project)
    assert (found["category"], found["confidence"]) == ("backend", "high")


@pytest.mark.parametrize(
    ("before", "changes"),
    [
        pytest.param({"environment": with_torch(OLD), "verdict": BROKEN}, {}, id="it failed, too"),
        pytest.param({"environment": with_torch(OLD)}, {"dirty": True}, id="dirty"),
        pytest.param({"environment": with_torch(OLD, compiler="g++ 13")}, {}, id="a compiler"),
        pytest.param({"environment": ENVIRONMENT}, {}, id="no known torch"),
        pytest.param({"environment": with_torch(OLD), "platform": "nvidia"}, {}, id="elsewhere"),
    ],
)
def test_what_blames_no_torch(
    project: Project, before: dict[str, Any], changes: dict[str, Any]
) -> None:
    project.run(A, result(**before), **changes)
    fail(project, A, **with_torch(NEW))
    found = verdict(project)
    assert (found["category"], found["confidence"]) == ("backend", "medium")


def test_a_later_run_is_no_evidence(project: Project) -> None:
    fail(project, A, **with_torch(NEW))
    project.run(A, result(environment=with_torch(OLD)))
    project.runs.reverse()
    assert verdict(project)["category"] == "backend"


@pytest.mark.parametrize(("commit", "confidence"), [(A, "high"), (B, "medium")])
def test_flaky_tests_are_those_of_the_store(project: Project, commit: str, confidence: str) -> None:
    verdict_of_tests = Verdict(
        product=Product.FAILED,
        harness=Harness.CLEAN,
        evidence=(on_tests.failed_tests(1, 0, 0, [*FAILED]),),
    )
    broken = result(verdict=verdict_of_tests, environment=with_torch(NEW))
    project.run(A, result(environment=with_torch(NEW)))
    project.run(A, broken, outcomes=FAILED)
    if commit != A:
        project.run(commit, broken, outcomes=FAILED)
    found = verdict(project)
    assert (found["category"], found["confidence"]) == ("flake", confidence)
    [test] = [it for it in found["evidence"] if "test" in it]
    assert test["test"] == "test_a.py::test_one"
    assert "failed 1 of 2 times" in test["excerpt"]


def test_a_commit_that_passed(project: Project) -> None:
    project.run(A)
    code, text = project.ci("report", "latest", "--format", "crcr")
    assert code == 0
    assert json.loads(text) == {
        "conclusion": "success",
        "test-results": {"passed": 1, "failed": 0, "skipped": 1, "total": 2},
        "failed-tests-detail": [],
    }
