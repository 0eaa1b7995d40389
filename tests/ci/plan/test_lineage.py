"""The lineage that a run records: from real clones, in jobs of CI systems."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from ci.model.results import NO_LINEAGE, Lineage
from ci.plan.lineage import read_lineage
from tests.ci.stored_history import Project, git

GITHUB = {"GITHUB_ACTIONS": "true"}
PULL_REQUEST = {
    "GITHUB_HEAD_REF": "topic",
    "GITHUB_BASE_REF": "main",
    "GITHUB_REF": "refs/pull/12/merge",
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A remote with three commits of ``main``, and ``topic`` with one, forked from the second."""
    project = Project(folder=tmp_path)
    for _ in range(3):
        project.commit()
    project.branch("topic", "main~1")
    project.commit("topic")
    project.branch("main")
    return project


def tip(project: Project, revision: str) -> str:
    return git(project.source, "rev-parse", revision)


def clone(project: Project, *options: str) -> Path:
    folder = project.folder / "clone"
    git(project.folder, "clone", "--quiet", *options, project.source.as_uri(), str(folder))
    return folder


def lineage(folder: Path, variables: Mapping[str, str] | None = None) -> Lineage:
    return read_lineage(folder, git(folder, "rev-parse", "HEAD"), variables or {})


def checkout(folder: Path, ref: str, *options: str) -> None:
    """Check a ref of the remote out as CI systems do: alone, and without a branch."""
    git(folder, "fetch", "--quiet", *options, "origin", ref)
    git(folder, "checkout", "--quiet", "--detach", "FETCH_HEAD")


def merge(project: Project) -> str:
    """The commit that a forge makes of ``topic`` and its target, only to test it."""
    git(project.source, "checkout", "--quiet", "--detach", "main")
    git(project.source, "merge", "--quiet", "--no-ff", "-m", "merge", "topic")
    commit = tip(project, "HEAD")
    git(project.source, "update-ref", "refs/pull/12/merge", commit)
    project.branch("main")
    return commit


def test_a_branch_and_its_clone(project: Project) -> None:
    folder = clone(project, "--branch=topic")
    first, base = tip(project, "topic~2"), tip(project, "topic~1")
    assert lineage(folder) == Lineage(
        branch="topic",
        main_branch="main",
        target="main",
        parents=(base,),
        ancestors=(base, first),
        depth=3,
        merge_base=base,
    )
    found = lineage(project.source)
    assert (found.branch, found.target, found.merge_base, found.depth) == ("main", None, None, 3)


def test_a_commit_of_main_that_was_not_pushed_names_the_newest_one_that_was(
    project: Project,
) -> None:
    pushed, folder = tip(project, "main"), clone(project)
    assert lineage(folder).merge_base == pushed
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "mine")
    found = lineage(folder)
    assert (found.branch, found.target, found.merge_base) == ("main", None, pushed)
    # What a job of a CI system tests was pushed, however old its clone is.
    assert lineage(folder, {"GITLAB_CI": "true", "CI_COMMIT_BRANCH": "main"}).merge_base is None


def test_a_shallow_clone_knows_the_parents_by_name(project: Project) -> None:
    found = lineage(clone(project, "--depth=1"))
    parent = tip(project, "main~1")
    assert (found.parents, found.ancestors, found.depth) == ((parent,), (parent,), None)
    assert found.branch == "main"


def test_a_detached_head_has_the_branch_that_points_to_it(project: Project) -> None:
    folder = clone(project)
    checkout(folder, "main")
    assert lineage(folder).branch == "main"
    git(folder, "checkout", "--quiet", "--detach", "HEAD~1")
    found = lineage(folder)
    assert (found.branch, found.target) == (None, "main")
    assert found.merge_base == tip(project, "main~1")


def test_no_git_and_no_commit(tmp_path: Path) -> None:
    assert read_lineage(tmp_path, None, {}) == NO_LINEAGE
    assert read_lineage(tmp_path, "a" * 40, {}) == NO_LINEAGE


def test_git_that_fails_does_not_stop_a_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = tip(project, "main")
    monkeypatch.setenv("PATH", str(project.folder))
    assert read_lineage(project.source, commit, {}) == NO_LINEAGE


@pytest.mark.parametrize("depth", ["--depth=1", "--depth=50"])
def test_the_test_merge_of_a_pull_request(project: Project, tmp_path: Path, depth: str) -> None:
    commit, event = merge(project), tmp_path / "event.json"
    head = {"number": 12, "head": {"sha": tip(project, "topic")}}
    event.write_text(json.dumps({"pull_request": head, "repository": {"default_branch": "main"}}))
    folder = clone(project, "--depth=1", "--branch=topic")  # which has no main
    checkout(folder, "refs/pull/12/merge", depth)
    variables = {**GITHUB, **PULL_REQUEST, "GITHUB_SHA": commit, "GITHUB_EVENT_PATH": str(event)}
    found = lineage(folder, variables)
    assert (found.branch, found.target, found.main_branch) == ("topic", "main", "main")
    assert found.merge_commit
    assert found.merge_base == found.ancestors[0] == tip(project, "main")
    assert found.tip == tip(project, "topic")


def test_the_own_commit_of_a_pull_request(project: Project) -> None:
    """Gitea, or a workflow that checks out the branch; here it has merged main into itself."""
    project.branch("topic")
    git(project.source, "merge", "--quiet", "--no-ff", "-m", "merge", "main")
    project.branch("main")
    folder = clone(project)
    checkout(folder, "topic")
    pull = {**GITHUB, **PULL_REQUEST, "GITHUB_REF": "refs/pull/12/head"}
    found = lineage(folder, {**pull, "GITHUB_SHA": tip(project, "topic")})
    assert (found.branch, found.merge_commit, found.tip) == ("topic", False, None)
    assert found.merge_base == tip(project, "main")


def test_the_main_branch_of_a_fork_is_not_main(project: Project) -> None:
    folder = clone(project)
    checkout(folder, "topic")
    variables = {**GITHUB, **PULL_REQUEST, "GITHUB_HEAD_REF": "main"}
    assert lineage(folder, variables).branch == "pull/12"


def test_the_job_of_another_project_is_not_about_this_clone(project: Project) -> None:
    folder = clone(project)
    push = {**GITHUB, "GITHUB_REF": "refs/heads/release", "GITHUB_SHA": "a" * 40}
    assert lineage(folder, push).branch == "main"
    git(folder, "checkout", "--quiet", "--detach", "HEAD~1")
    assert lineage(folder, push).branch is None


def test_a_name_that_cannot_be_stored_is_left_out(project: Project) -> None:
    git(project.source, "checkout", "--quiet", "-b", "a" * 200 + "/" + "b" * 200)
    found = lineage(project.source)
    assert (found.branch, found.depth) == (None, 3)
