"""One table and one status from several runs of a commit, such as those of a CI's jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.errors import ExitCode
from ci.facts.sentences import on_stages
from ci.model.results import PlatformResult
from ci.model.verdicts import Harness, Product
from tests.ci.made_results import made_verdict
from tests.ci.stored_history import BEGIN, Project, expect, result

NO_RESULT = on_stages.no_result("commit", "").text.partition(":")[0]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Two runs of an old commit; of HEAD, an old and a new run of cpu, and one of ascend."""
    project = Project(folder=tmp_path)
    old = project.commit()
    project.run(old, result(), result(platform="metax"))
    head = project.commit()
    project.run(head, result(verdict=made_verdict(Product.FAILED, "1 test failed")))
    project.run(head, result())
    project.run(head, result(platform="ascend"))
    return project


def report(project: Project, *words: str) -> tuple[int, str]:
    return project.ci("report", "--source", str(project.source), *words)


def test_a_commit_has_the_newest_run_of_each_platform(project: Project) -> None:
    code, text = report(project, "HEAD", "--format", "json", "--check", "--expect", "cpu,ascend")
    run = json.loads(text)
    assert code == ExitCode.PASSED
    assert [it["platform"] for it in run["platforms"]] == ["cpu", "ascend"]
    assert run["run_id"] == "run-003"
    assert run["started_at"] < run["finished_at"]
    assert (BEGIN.hour, run["started_at"][11:13], run["finished_at"][11:16]) == (12, "14", "15:30")


def test_a_platform_of_an_older_commit_is_not_in_the_table(project: Project) -> None:
    code, text = report(project, "HEAD", "--check", "--expect", "cpu, ascend,metax")
    assert code == ExitCode.INFRASTRUCTURE
    assert NO_RESULT in text.lower()
    assert text.index("cpu") < text.index("MetaX") < text.index("ascend")
    assert "product not_run, harness lost" in text


def test_a_check_has_the_code_of_the_run(project: Project) -> None:
    assert report(project, "run-001", "--expect", "moore")[0] == ExitCode.PASSED
    assert report(project, "run-001", "--check")[0] == ExitCode.PRODUCT_FAILURE
    assert report(project, "run-002", "--check")[0] == ExitCode.PASSED


def test_one_platform_of_a_run(project: Project) -> None:
    text = expect(report(project, "run-000/metax", "--format", "junit"))
    assert '<testsuite name="tiny.metax" ' in text
    assert "tiny.cpu" not in text


def test_one_platform_of_a_commit(project: Project) -> None:
    text = expect(report(project, "HEAD/ascend", "--format", "json"))
    assert [it["platform"] for it in json.loads(text)["platforms"]] == ["ascend"]
    # The commit before has a run of it.
    text = expect(report(project, "HEAD/metax"), code=ExitCode.USAGE)
    assert "the store holds no run of it\nRun it: python -m ci run metax" in text


def test_a_commit_without_a_run(project: Project) -> None:
    commit = project.commit()
    text = expect(report(project, "HEAD"), code=ExitCode.USAGE)
    assert f"commit {commit[:12]}: the store holds no run of it" in text


def not_run(platform: str) -> PlatformResult:
    verdict = made_verdict(Product.NOT_RUN, "no free device", harness=Harness.INFRASTRUCTURE)
    return result(platform=platform, verdict=verdict, pytest=None, built=None)


def test_a_platform_that_could_not_begin_has_its_own_reason(project: Project) -> None:
    head = project.main
    project.run(head, not_run("metax"))
    code, text = report(project, "HEAD", "--check", "--expect", "cpu,metax")
    assert code == ExitCode.INFRASTRUCTURE
    assert "fact: no free device" in text
    assert NO_RESULT not in text


def test_a_run_that_began_wins_over_one_that_did_not(project: Project) -> None:
    project.run(project.main, not_run("ascend"))
    text = expect(report(project, "HEAD", "--check"))
    assert "no free device" not in text


def test_changes_without_a_commit_are_not_results_of_it(project: Project) -> None:
    project.run(project.main, result(platform="metax"), dirty=True)
    code, text = report(project, "HEAD", "--check", "--expect", "metax")
    assert code == ExitCode.INFRASTRUCTURE
    assert NO_RESULT in text.lower()


def test_a_missing_platform_fails_in_every_format(project: Project) -> None:
    for form in ("junit", "ctrf", "github"):
        code, text = report(project, "HEAD", "--format", form, "--check", "--expect", "cpu,moore")
        assert code == ExitCode.INFRASTRUCTURE
        assert NO_RESULT in text
        assert "Moore" in text


def test_a_merged_page_is_compared_by_its_commit(project: Project) -> None:
    _, text = report(project, "HEAD", "--format", "gitlab")
    assert "Not compared with a base: got no BASE, and no run recorded a branch" in text


def test_a_summary_is_written_once_for_a_commit(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    report(project, "HEAD")
    assert not file.exists()
    expect(report(project, "HEAD", "--check"))
    assert file.read_text(encoding="utf-8").count("tiny: passed on cpu, ascend") == 1
