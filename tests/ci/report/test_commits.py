"""The addresses of commits on forges, and what git says of commits."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.analysis.repository import CommitFacts, Repository
from ci.report.dashboard.commits import commit_pages, read_commits
from tests.ci.stored_history import Project, git

GITHUB = "https://github.com/owner/name/commit/"


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        ("https://github.com/owner/name.git", GITHUB),
        ("https://github.com/owner/name/", GITHUB),
        ("git@github.com:owner/name.git", GITHUB),
        ("github.com:owner/name", GITHUB),
        ("ssh://git@github.com:22/owner/name.git", GITHUB),
        ("git://github.com/owner/name.git", GITHUB),
        ("https://user:pass@word@github.com/owner/name.git?token=abc#x", GITHUB),
        (
            "https://gitlab.example.org:8443/a/b/c.git",
            "https://gitlab.example.org:8443/a/b/c/-/commit/",
        ),
        ("ssh://git@gitea.example.org:2222/a/b", "https://gitea.example.org/a/b/commit/"),
        ("git@codeberg.org:a/b.git", "https://codeberg.org/a/b/commit/"),
        ("https://bitbucket.org/a/b.git", "https://bitbucket.org/a/b/commits/"),
        (
            'https://github.com/a/b"><script>.git',
            "https://github.com/a/b%22%3E%3Cscript%3E/commit/",
        ),
    ],
)
def test_the_page_of_a_commit_comes_from_the_remote(remote: str, expected: str) -> None:
    assert commit_pages(remote) == expected


@pytest.mark.parametrize(
    "remote",
    [
        "",
        "/srv/github/name.git",
        "../github.com/a/b",
        "file:///srv/github.com/a/b",
        "https://git.example.org/a/b.git",  # any forge, with any paths
        "https://github.com/name",
        "https://github.com:port/a/b",
        "https://[::1/github.com/a/b",
        "https://github.com<b>/a/b",
        "javascript://github.com/a/b",
        "ext::sh -c github.com/a/b",
    ],
)
def test_other_remotes_give_no_link(remote: str) -> None:
    assert commit_pages(remote) is None


def test_git_describes_the_commits_that_it_knows(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    commits = [project.commit("one\n\nbody"), project.commit("two: \u00fc")]
    found = Repository(project.source).describe([*commits, "0" * 40, "--all", "HEAD"])
    assert found == {
        commits[0]: CommitFacts(subject="one", author="a"),
        commits[1]: CommitFacts(subject="two: \u00fc", author="a"),
    }


def test_no_program_of_a_repository_runs(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    commit = project.commit("one")
    ran = tmp_path / "ran"
    for name in ("core.fsmonitor", "core.pager", "pager.log", "gpg.program"):
        git(project.source, "config", name, f"touch {ran}; false")
    git(project.source, "config", "log.showSignature", "true")
    git(project.source, "remote", "add", "origin", f"ext::touch {ran}")
    found = read_commits(Repository(project.source), [commit])
    assert found.of(commit).about == "one (a)"
    assert found.of(commit).page is None
    assert not ran.exists()


def test_a_folder_without_a_repository_knows_no_commit(tmp_path: Path) -> None:
    found = read_commits(Repository(tmp_path), ["0" * 40])
    assert (found.facts, found.page) == ({}, None)
    assert found.of("0" * 40, dirty=True).short == f"{'0' * 12}+"
    assert found.of(None).short == "no commit"
