"""What ``bisect`` refuses before it runs anything, and the worktree that it runs in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from stored_history import Project, git

from ci.errors import ExitCode, UsageError
from ci.run.commit_runs import temporary_checkout
from ci.util.files import user_cache

CONFIG = """\
project: tiny
platforms:
  cpu: {}
stages:
- {name: pytest, kind: pytest, command: python -m pytest}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Commits ``first``, ``main~1`` and ``main``, and ``topic``, which ``main`` has not."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    project = Project(folder=tmp_path)
    project.commit()
    (project.source / "ci.yaml").write_text(CONFIG, encoding="utf-8")
    git(project.source, "add", ".")
    project.commit()
    git(project.source, "tag", "first")
    project.branch("topic")
    project.commit("topic")
    project.branch("main")
    project.commit()
    project.commit()
    yield project
    assert len(git(project.source, "worktree", "list").splitlines()) == 1


def refused(project: Project, *words: str, source: Path | None = None) -> str:
    config = project.source / "ci.yaml"
    options = ("--source", str(source or project.source), "--config", str(config))
    code, error = project.ci("bisect", *words, *options)
    assert code == ExitCode.USAGE
    return error


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("missing", "main", "--good: there is no commit 'missing' in "),
        ("first", "0123abcd", "--bad: there is no commit '0123abcd' in "),
        ("main", "main", "--good and --bad: got commit "),
        ("main", "first", "on its line of first parents\nName a commit that `git log "),
        ("topic", "main", "on its line of first parents\nName a commit that `git log "),
    ],
)
def test_ends_without_commits_between(project: Project, good: str, bad: str, message: str) -> None:
    error = refused(project, "cpu", "--good", good, "--bad", bad)
    assert message in error
    assert "shallow" not in error


def test_a_shallow_clone(project: Project) -> None:
    clone, first = project.folder / "clone", git(project.source, "rev-parse", "first")
    git(project.folder, "clone", "--quiet", "--depth=1", project.source.as_uri(), str(clone))
    error = refused(project, "cpu", "--good", first, "--bad", "HEAD", source=clone)
    assert f"--good: there is no commit '{first}'" in error
    assert f"{clone} is a shallow clone. Fetch its history: git fetch --unshallow" in error


def test_other_wrong_options(project: Project) -> None:
    ends = ("--good", "first", "--bad", "main")
    assert "unknown platform 'cpx', configured: cpu; did" in refused(project, "cpx", *ends)
    error = refused(project, "cpu", *ends, "--warm", "--test", "tests/test_it.py::test_sum")
    assert "--warm: got --test, expected --stage\nLeave out --warm." in error
    outside = project.folder / "outside"
    outside.mkdir()
    error = refused(project, "cpu", *ends, source=outside)
    assert f"--source: {outside}: fatal: not a git repository" in error


def test_a_killed_search_leaves_nothing_to_the_next(project: Project) -> None:
    left = user_cache() / "search" / "source"
    others = project.folder / "unmounted"
    for folder in (left, others):
        git(project.source, "worktree", "add", "--quiet", "--detach", str(folder))
    shutil.rmtree(others)
    config = project.source / "ci.yaml"
    with temporary_checkout(project.source, config, "search") as checkout:
        assert checkout.source == left
        assert checkout.config == left / "ci.yaml"
        with (
            pytest.raises(UsageError, match="search search is still running"),
            temporary_checkout(project.source, config, "search"),
        ):
            pass
        assert left.exists()
    assert not left.parent.exists()
    assert str(others) in git(project.source, "worktree", "list")
    git(project.source, "worktree", "prune")
