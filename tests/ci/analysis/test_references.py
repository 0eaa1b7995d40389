"""What BASE and HEAD of ``compare`` may be, on a real repository and a real store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ci.errors import ExitCode
from ci.model.verdicts import Product
from tests.ci.made_results import made_verdict
from tests.ci.stored_history import Project, expect, git, result


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(folder=tmp_path)


@pytest.fixture(scope="module")
def branched(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """``main`` with a run of its first commit, ``v1``; ``topic/fast`` with a run of its own."""
    project = Project(folder=tmp_path_factory.mktemp("branched"))
    first = project.commit("first")
    git(project.source, "tag", "--annotate", "v1", "--message", "one", first)
    project.commit("never run")
    git(project.source, "checkout", "--quiet", "-b", "topic/fast", "v1")
    project.run(first, result(), result(platform="ascend"))
    project.run(project.commit("fast"))
    return project


@pytest.fixture
def copied(branched: Project, tmp_path: Path) -> Project:
    return branched.copy(tmp_path)


def commit_of(project: Project, revision: str) -> str:
    return git(project.source, "rev-parse", f"{revision}^{{commit}}")


def test_branches_tags_prefixes_and_revisions(branched: Project) -> None:
    prefix = commit_of(branched, "v1")[:7].upper()
    first = f"base  run-000/cpu (commit {commit_of(branched, 'v1')[:12]}"
    second = f"head  run-001/cpu (commit {commit_of(branched, 'topic/fast')[:12]}"
    for base, reference in {
        "main": ", the merge base)",
        "main/cpu": ", the merge base)",
        "refs/heads/main": ", the merge base)",
        f"{commit_of(branched, 'main')}": f", 1 commit before {commit_of(branched, 'main')})",
        "HEAD~1": " of HEAD~1)",
        "v1": " of v1)",
        prefix: f" of {prefix})",
    }.items():
        said = expect(branched.compare(base, "topic/fast"), f"{second} of topic/fast): ")
        assert f"{first}{reference}: 1 passed, 1 skipped\n" in said
    assert "only base has ascend\n" in branched.compare("main", "topic/fast")[1]
    assert f"{second} of topic/fast): " in branched.compare("v1", "topic/fast/cpu")[1]


def test_a_commit_is_its_newest_run_of_each_platform(project: Project) -> None:
    commit = project.commit()
    project.run(commit, result(), result(platform="ascend"))
    project.run(commit)
    project.run(commit, dirty=True)
    said = project.compare(commit, "run-000")[1]
    assert "base  run-001/cpu (" in said
    assert "base  run-000/ascend (" in said


def test_a_run_that_has_not_begun_does_not_represent_its_commit(project: Project) -> None:
    commit = project.commit()
    project.run(commit)
    project.run(commit, result(verdict=made_verdict(Product.NOT_RUN), pytest=None))
    assert "base  run-000/cpu (" in project.compare(commit, "run-000")[1]


def test_changes_without_a_commit_stand_for_none(project: Project) -> None:
    commit = project.commit()
    project.run(commit, dirty=True)
    said = expect(project.compare("main", "latest"), code=ExitCode.USAGE)
    assert "the store holds no run of it or its ancestors (1 commit); runs with " in said
    assert " uncommitted changes belong to no commit\n" in said
    assert "Name the run itself: run-000\n" in said


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("mian", "the store holds no run 'mian'"),
        ("--all", "the store holds no run '--all'"),
        ("v1..main", "the store holds no run 'v1..main'"),
        ("0123456", "the store holds no run '0123456', and no commit that begins with it"),
        (
            "v1/cpuu",
            "the store holds no run with 'cpuu' of it or its ancestors (1 commit), but has runs"
            " with ascend, cpu; did you mean 'cpu'?",
        ),
        ("run-001/ascend", "run run-001: got platform 'ascend', expected cpu"),
        ("run-01", "the store holds no run 'run-01'; did you mean 'run-001'?"),
    ],
)
def test_what_is_unknown(branched: Project, base: str, message: str) -> None:
    expect(branched.compare("--", base, "topic/fast"), message, code=ExitCode.USAGE)


def test_the_beginning_of_two_commits(project: Project) -> None:
    project.run("0123456a" + "0" * 32)
    project.run("0123456b" + "0" * 32)
    said = expect(project.compare("0123456", "latest"), code=ExitCode.USAGE)
    assert "'0123456' is ambiguous: 2 commits of the store begin with it: 0123456a" in said
    assert "Write more digits of the commit." in said
    assert project.compare("0123456a", "latest")[0] == ExitCode.PASSED  # which needs no git


def test_what_was_never_run_says_how_to(copied: Project) -> None:
    git(copied.source, "checkout", "--quiet", "--orphan", "new")
    commit = copied.commit("another beginning")[:12]
    said = expect(copied.compare("new", "main"), code=ExitCode.USAGE)
    assert (
        f"'new' is commit {commit}: the store holds no run of it or its ancestors (1 commit)"
        in said
    )
    command = f"python -m ci run cpu --source {copied.source} --results"
    assert f"Run it: git checkout {commit} && {command} " in said


def test_a_shallow_clone_says_that_it_is_one(copied: Project) -> None:
    origin = copied.source.rename(copied.folder / "origin")
    clone = ("clone", "--quiet", "--depth=1", "--branch=main", origin.as_uri())
    git(copied.folder, *clone, str(copied.source))
    said = expect(copied.compare("main", "latest"), code=ExitCode.USAGE)
    assert f"{copied.source} is a shallow clone. Fetch its history: git fetch --unshallow" in said


@pytest.mark.parametrize(
    ("without", "message"),
    [
        (".git", "not a git repository"),
        ("git", "git was not found"),
        (".", "is not a folder"),
    ],
)
def test_without_git_runs_and_commits_are_known(
    copied: Project, monkeypatch: pytest.MonkeyPatch, without: str, message: str
) -> None:
    commit = commit_of(copied, "v1")
    if without == "git":
        monkeypatch.setenv("PATH", str(copied.folder))
    else:
        shutil.rmtree(copied.source / without)
    expect(copied.compare(commit[:9], "run-001"))
    expect(copied.compare("main", "latest"), message, code=ExitCode.USAGE)


def test_what_base_has_and_head_has_not(branched: Project) -> None:
    said = branched.compare(commit_of(branched, "main"), "topic/fast")[1]
    assert "note: HEAD does not contain 1 commit of BASE: " in said
    assert "note: HEAD is 1 commit older than BASE\n" in branched.compare("topic/fast", "v1")[1]
    assert "note" not in branched.compare("v1", "main")[1]


def test_a_run_that_both_mean_says_nothing_of_head(copied: Project) -> None:
    git(copied.source, "checkout", "--quiet", "-b", "idle", "main")
    copied.commit("not run either")
    for base, head, idle in (
        ("v1", "idle", "idle"),
        ("v1", "idle/cpu", "idle"),
        ("main", "v1", "main"),
    ):
        said = expect(copied.compare(base, head), code=ExitCode.USAGE)
        assert " are the same run, run-000: nothing to compare\n" in said
        assert f"Run it: git checkout {git(copied.source, 'rev-parse', idle)[:12]} && " in said
    expect(copied.compare("v1", "run-000/cpu"), "note: BASE and HEAD are the same run, run-000\n")


def test_platforms_that_only_one_has(project: Project) -> None:
    project.run(None, result(platform="moore"), result(platform="ascend"))
    project.run(None, result(), result(platform="nvidia"))
    said = expect(project.compare("run-000", "run-001"), code=ExitCode.USAGE)
    assert "no common platform: run run-000 has ascend, moore, run run-001 has cpu, nv" in said
    assert "Name one platform of each: run-000/ascend run-001/cpu\n" in said
    assert project.compare("run-000/moore", "run-001/cpu")[0] == ExitCode.PASSED


def test_a_commit_means_runs_of_the_same_project(project: Project) -> None:
    commit = project.commit()
    project.run(commit)
    project.run(commit, project="another")
    assert "base  run-001/cpu (" in project.compare("main", "run-001")[1]
    assert "base  run-000/cpu (" in project.compare("main", "run-000")[1]
