"""The repository that a copy of the sources gets: git answers there as in the original."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ci.engines.archives import chunks_of, extract
from ci.plan import git_history, source
from ci.plan.project import load_project, plan_run
from ci.util.process import run

DYNAMIC = '[project]\nname = "tiny"\ndynamic = ["version"]\n'
STATIC = '[project]\nname = "tiny"\nversion = "1.0"\n'
SHALLOW = f"tags ({git_history.LACKING_TAGS})"

# What plugins ask: setuptools-scm and hatch-vcs, versioningit and versioneer, dunamai, pbr.
QUESTIONS = (
    "describe --dirty --tags --long --match *[0-9]*",
    "describe --long --dirty --always --tags",
    "status --porcelain --untracked-files=no",
    "show -s --format=%H%n%at%n%ct",
    "log -1 --format=%H%cI",
    "log --simplify-by-decoration --topo-order --decorate --format=%H%d --decorate-refs=refs/tags/",
    "log --decorate=full --format=%h%x00%s%x00%d --decorate-refs=refs/tags/",
    "log --format=%H -- a.py",
    "rev-list --count HEAD",
    "rev-parse --abbrev-ref HEAD",
    "rev-parse --show-prefix",
    "rev-parse --is-shallow-repository",
    "ls-files",
    "diff HEAD~1 --stat",
    "tag --points-at HEAD",
)


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]
    who += ["-c", "protocol.file.allow=always"]
    return run(["git", *who, *arguments], cwd=folder, check=False).stdout


def commit(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("ab") as file:
            file.write(os.fsencode(f"{name}\n"))
    git(folder, "add", ".")
    return git(folder, "commit", "--quiet", "--message", f"change {len(names)}")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A project with a tag, two commits later."""
    folder = tmp_path / "repository"
    git(tmp_path, "init", "--quiet", "--initial-branch", "trunk", "repository")
    (folder / "pyproject.toml").write_text(DYNAMIC)
    commit(folder, "a.py")
    git(folder, "tag", "--annotate", "v1.2", "--message", "release")
    git(folder, "tag", "plain-1.1")
    commit(folder, "b.py")
    commit(folder, "sub/c.py")
    return folder


def copy(folder: Path, to: Path) -> tuple[str, ...]:
    with io.BytesIO() as archive:
        left_out = source.write_archive(folder, archive)
        archive.seek(0)
        extract(chunks_of(archive), to, links=True, modes=True)
    return left_out


def answers(folder: Path) -> list[str]:
    return [f"{question}: {git(folder, *question.split())}" for question in QUESTIONS]


def stage(folder: Path) -> None:
    (folder / "new.py").touch()
    git(folder, "add", "new.py")
    git(folder, "rm", "--quiet", "b.py")


STATES: dict[str, Callable[[Path], object]] = {
    "clean": Path.exists,
    "changed": lambda folder: (folder / "a.py").write_text("other\n"),
    "deleted": lambda folder: (folder / "a.py").unlink(),
    "staged": stage,
    "untracked": lambda folder: (folder / "new.py").touch(),
    "at its tag": lambda folder: git(folder, "checkout", "--quiet", "v1.2"),
    "detached": lambda folder: git(folder, "checkout", "--quiet", "--detach"),
    "merged": lambda folder: (
        git(folder, "checkout", "--quiet", "-b", "side", "v1.2"),
        commit(folder, "d.py"),
        git(folder, "checkout", "--quiet", "trunk"),
        git(folder, "merge", "--quiet", "--no-edit", "side"),
    ),
    "without a tag": lambda folder: git(folder, "tag", "--delete", "v1.2", "plain-1.1"),
    "without a commit": lambda folder: git(folder, "update-ref", "-d", "HEAD"),
    "a file name of another encoding": lambda folder: commit(folder, os.fsdecode(b"caf\xe9\n.txt")),
    "sparse": lambda folder: (
        git(folder, "sparse-checkout", "set", "--no-cone", "/*", "!/sub/"),
        (folder / "sub").exists(),
    ),
    "a tag of another branch": lambda folder: (
        git(folder, "checkout", "--quiet", "-b", "side", "v1.2"),
        commit(folder, "d.py"),
        git(folder, "tag", "v9"),
        git(folder, "checkout", "--quiet", "trunk"),
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_git_answers_in_the_copy_as_in_the_sources(
    repository: Path, tmp_path: Path, state: str
) -> None:
    STATES[state](repository)
    assert copy(repository, tmp_path / "copy") == ()
    assert answers(tmp_path / "copy") == answers(repository)
    assert git(tmp_path / "copy", "archive", "HEAD") == git(repository, "archive", "HEAD")


def test_repository_of_another_object_format(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--object-format", "sha256", "new")
    commit(tmp_path / "new", "a.py")
    commit(tmp_path / "new", "b.py")
    assert copy(tmp_path / "new", tmp_path / "copy") == ()
    assert answers(tmp_path / "copy") == answers(tmp_path / "new")


def test_linked_worktree(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "linked"), "HEAD~1")
    assert copy(tmp_path / "linked", tmp_path / "copy") == ()
    assert answers(tmp_path / "copy") == answers(tmp_path / "linked")


def test_nothing_of_the_original_configuration_travels(repository: Path, tmp_path: Path) -> None:
    git(repository, "config", "core.fsmonitor", "/bin/false")
    git(repository, "remote", "add", "origin", "https://user:password@example.org/x")
    (repository / ".git/hooks/post-index-change").write_text("#!/bin/sh\n")
    git(repository, "branch", "another")
    copy(repository, tmp_path / "copy")
    found = {path.name for path in (tmp_path / "copy/.git").iterdir()}
    assert found == {"HEAD", "config", "index", "objects", "packed-refs", "refs"}
    assert "fsmonitor" not in (tmp_path / "copy/.git/config").read_text()
    assert git(tmp_path / "copy", "remote") == ""
    assert git(tmp_path / "copy", "branch", "--format=%(refname)") == "refs/heads/trunk\n"


def test_files_of_a_filter_are_not_changes(repository: Path, tmp_path: Path) -> None:
    (repository / ".gitattributes").write_text("*.bin filter=upper\n")
    (repository / "x.bin").write_text("content\n")
    git(repository, "-c", "filter.upper.clean=tr a-z A-Z", "add", ".")
    git(repository, "commit", "--quiet", "--message", "filtered")
    copy(repository, tmp_path / "copy")
    assert (tmp_path / "copy/x.bin").read_text() == "content\n"
    short = git(repository, "rev-parse", "--short", "HEAD")
    assert git(tmp_path / "copy", "describe", "--dirty") == f"v1.2-3-g{short}"


def test_subfolder_keeps_its_place(repository: Path, tmp_path: Path) -> None:
    (repository / "sub/pyproject.toml").write_text(DYNAMIC)
    commit(repository, "sub/d.py")
    folder = repository / "sub"
    assert copy(folder, tmp_path / "copy") == ()
    assert sorted(it.name for it in (tmp_path / "copy").iterdir()) == [".git", "sub"]
    assert answers(tmp_path / "copy/sub") == answers(folder)
    # What is changed beside the sources is also dirty in the copy, which lacks it.
    (repository / "a.py").write_text("other\n")
    copy(folder, tmp_path / "dirty")
    for place in (folder, tmp_path / "dirty/sub"):
        assert git(place, "describe", "--dirty").endswith("-dirty\n")


def test_stages_run_in_the_subfolder(repository: Path, tmp_path: Path) -> None:
    (repository / "sub/ci.yaml").write_text("project: tiny\nplatforms:\n  cpu: {}\n")
    project = load_project(repository / "sub/ci.yaml", {})
    for text, subfolder in ((DYNAMIC, "sub"), (STATIC, ".")):
        (repository / "sub/pyproject.toml").write_text(text)
        [plan] = plan_run(project, ["cpu"], run_id="r", source=project.source, results=tmp_path)
        assert plan.subfolder == subfolder


@pytest.mark.parametrize("depth", ["1", "2"])
def test_shallow_clone_without_tags_is_named(repository: Path, tmp_path: Path, depth: str) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth", depth, repository.as_uri(), str(clone))
    assert copy(clone, tmp_path / "copy") == (SHALLOW,)
    assert answers(tmp_path / "copy") == answers(clone)
    git(clone, "tag", "v2")
    assert copy(clone, tmp_path / "tagged") == ()
    assert answers(tmp_path / "tagged") == answers(clone)


def test_long_history_is_cut(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_history, "MOST_COMMITS", 2)
    assert copy(repository, tmp_path / "copy") == (SHALLOW,)
    assert git(tmp_path / "copy", "rev-list", "--count", "HEAD") == "2\n"
    git(repository, "tag", "v1.3", "HEAD~1")
    assert copy(repository, tmp_path / "tagged") == ()
    asked = ("describe", "--tags", "--long")
    assert git(tmp_path / "tagged", *asked) == git(repository, *asked)


def test_history_that_git_cannot_read_is_named(repository: Path, tmp_path: Path) -> None:
    parent = git(repository, "rev-parse", "HEAD~1").strip()
    (repository / ".git/objects" / parent[:2] / parent[2:]).unlink()
    [reason] = copy(repository, tmp_path / "copy")
    assert reason.startswith(".git (git cannot copy the history: git rev-list")
    assert not (tmp_path / "copy/.git").exists()
    assert (tmp_path / "copy/a.py").exists()


def test_static_version_needs_no_history(repository: Path, tmp_path: Path) -> None:
    (repository / "pyproject.toml").write_text(STATIC)
    copy(repository, tmp_path / "copy")
    assert not (tmp_path / "copy/.git").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(DYNAMIC, True, id="dynamic"),
        pytest.param(STATIC, False, id="static"),
        pytest.param('[build-system]\nrequires = ["setuptools"]\n', True, id="in setup.py"),
        pytest.param('[tool.poetry]\nversion = "0"\n', True, id="a placeholder"),
        pytest.param(None, True, id="no pyproject.toml"),
        pytest.param("project = [", True, id="damaged"),
        pytest.param('project = "tiny"\n', True, id="no table"),
    ],
)
def test_who_needs_a_history(repository: Path, text: str | None, *, expected: bool) -> None:
    (repository / "pyproject.toml").unlink()
    if text is not None:
        (repository / "pyproject.toml").write_text(text)
    assert git_history.travels(repository) is expected


def test_outside_of_git_there_is_none(repository: Path, tmp_path: Path) -> None:
    assert not git_history.travels(tmp_path)
    (repository / ".gitignore").write_text("scratch\n")
    (repository / "scratch").mkdir()
    (repository / "scratch/a.py").touch()
    assert not git_history.travels(repository / "scratch")
    assert git_history.subfolder(repository / "scratch") == "."


def test_submodules_that_are_checked_out(repository: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    git(tmp_path, "init", "--quiet", "outer")
    git(outer, "submodule", "--quiet", "add", str(repository), "vendor/lib")
    commit(outer, "pyproject.toml")
    git(outer, "tag", "v3")
    assert copy(outer, tmp_path / "copy") == ()
    assert git(tmp_path / "copy", "describe", "--dirty", "--tags") == "v3\n"
    assert git(tmp_path / "copy", "status", "--porcelain", "--untracked-files=no") == ""
