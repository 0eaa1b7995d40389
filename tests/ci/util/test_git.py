"""git on all kinds of clones, and with the caller's environment."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from ci.engines.checks import Severity
from ci.plan import source
from ci.plan.lineage import read_lineage
from ci.plan.uncommitted import find_changes
from ci.upkeep.doctor.prerequisites import check_git
from ci.util.checkout import check_out
from ci.util.git import find_work_tree, user_setting
from ci.util.process import ProcessError
from tests.ci.stored_history import git

ALLOW = ("-c", "protocol.file.allow=always")


def new_repository(folder: Path, *options: str) -> Path:
    """A repository with two commits."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", *options)
    for name in ("a.txt", "src/b.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"{name}\n")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message", name)
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "repository")


def is_clean(folder: Path, commit: str) -> bool:
    return source.state(folder) == source.SourceState(commit=commit, dirty=False)


def linked_worktree(repository: Path) -> Path:
    git(repository, "worktree", "add", "--quiet", "--detach", "../linked")
    return repository.with_name("linked")


def shallow_clone(repository: Path) -> Path:
    git(repository, "clone", "--quiet", "--depth=1", repository.as_uri(), "../shallow")
    return repository.with_name("shallow")


def shared_clone(repository: Path) -> Path:
    git(repository, "clone", "--quiet", "--shared", ".", "../shared")
    return repository.with_name("shared")


def partial_clone(repository: Path) -> Path:
    git(repository, "config", "uploadpack.allowFilter", "true")
    git(repository, "clone", "--quiet", "--filter=blob:none", repository.as_uri(), "../partial")
    return repository.with_name("partial")


def sparse_checkout(repository: Path) -> Path:
    git(repository, "sparse-checkout", "set", "--sparse-index", "src")
    return repository


def split_index(repository: Path) -> Path:
    git(repository, "update-index", "--split-index")
    return repository


def packed_refs(repository: Path) -> Path:
    git(repository, "pack-refs", "--all")
    git(repository, "gc", "--quiet")
    return repository


def sha256(repository: Path) -> Path:
    return new_repository(repository.with_name("sha256"), "--object-format=sha256")


def separate_git_folder(repository: Path) -> Path:
    separate = repository.with_name("git-folder")
    return new_repository(repository.with_name("separate"), f"--separate-git-dir={separate}")


def submodule(repository: Path) -> Path:
    outer = new_repository(repository.with_name("outer"))
    git(outer, *ALLOW, "submodule", "--quiet", "add", str(repository), "lib")
    git(outer, "commit", "--quiet", "--message", "lib")
    return outer


@pytest.mark.parametrize(
    "make",
    [
        *(linked_worktree, shallow_clone, shared_clone, partial_clone, sparse_checkout),
        *(split_index, packed_refs, sha256, separate_git_folder, submodule),
    ],
    ids=lambda it: it.__name__,
)
def test_every_kind_of_clone(
    repository: Path, tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    folder = make(repository)
    commit = git(folder, "rev-parse", "HEAD")
    assert is_clean(folder, commit)
    present = {str(it.relative_to(folder)) for it in folder.rglob("*.txt")}
    assert set(map(str, source.files(folder))) - {".gitmodules"} == present
    assert present
    lineage = read_lineage(folder, commit, {})
    assert lineage.parents == (git(folder, "cat-file", "commit", "HEAD").split()[3],)
    check_out(folder, commit, tmp_path / "copy")
    assert is_clean(tmp_path / "copy", commit)
    copied = {str(it.relative_to(tmp_path / "copy")) for it in (tmp_path / "copy").rglob("*.txt")}
    assert copied == present
    before = git(folder, "status", "--porcelain")
    (folder / "src/b.txt").write_text("other\n")
    assert source.state(folder) == source.SourceState(commit=commit, dirty=True)
    assert (before, git(folder, "worktree", "list").count("copy")) == ("", 0)


def test_changes_of_a_submodule(repository: Path) -> None:
    outer = submodule(repository)
    (outer / "lib" / "a.txt").write_text("other\n")
    assert source.state(outer).dirty
    git(outer / "lib", "checkout", "--quiet", "--", ".")
    assert not source.state(outer).dirty
    (outer / "lib" / "new.txt").write_text("new\n")
    assert source.state(outer).dirty
    (outer / "lib" / "new.txt").unlink()
    git(outer / "lib", "checkout", "--quiet", "HEAD~1")
    assert source.state(outer).dirty


def test_commits_with_other_submodules(repository: Path, tmp_path: Path) -> None:
    """A nested one, one of another commit, none; and one whose commit is in no clone."""
    middle = submodule(repository).rename(tmp_path / "middle")
    outer = new_repository(tmp_path / "top")
    git(outer, *ALLOW, "submodule", "--quiet", "add", str(middle), "vendor/middle")
    git(outer, *ALLOW, "submodule", "--quiet", "update", "--init", "--recursive")
    git(outer, "commit", "--quiet", "--message", "middle")
    copy = tmp_path / "copy"
    check_out(outer, git(outer, "rev-parse", "HEAD"), copy)
    assert (copy / "vendor/middle/lib/src/b.txt").read_text() == "src/b.txt\n"
    git(outer / "vendor/middle", "checkout", "--quiet", "HEAD~1")
    git(outer, "commit", "--quiet", "--all", "--message", "older")
    older = git(outer, "rev-parse", "HEAD")
    check_out(outer, older, copy)
    assert is_clean(copy, older)
    assert not (copy / "vendor/middle/lib").exists()
    check_out(outer, git(outer, "rev-parse", "HEAD~2"), copy)
    assert not (copy / "vendor").exists()
    shutil.rmtree(outer / "vendor")  # what git keeps of the submodule is enough
    check_out(outer, older, copy)
    assert (copy / "vendor/middle/a.txt").exists()
    git(outer, "update-index", "--cacheinfo", f"160000,{'1' * 40},vendor/middle")
    git(outer, "commit", "--quiet", "--message", "missing")
    with pytest.raises(ProcessError, match=f"submodule vendor/middle: .* has no commit {'1' * 40}"):
        check_out(outer, git(outer, "rev-parse", "HEAD"), copy)


def test_a_submodule_without_a_repository(repository: Path) -> None:
    outer = submodule(repository)
    (outer / "lib" / ".git").unlink()
    (outer / "lib" / ".git").mkdir()
    assert "lib (a submodule that is not checked out)" in source.write_archive(outer, BytesIO())


def test_a_submodule_name_that_leads_out(repository: Path, tmp_path: Path) -> None:
    outer = submodule(repository)
    commit = git(outer, "rev-parse", "HEAD:lib")
    (outer / ".gitmodules").write_text('[submodule "../../repository/.git"]\npath = lib\nurl = x\n')
    git(outer, "commit", "--quiet", "--all", "--message", "other name")
    shutil.rmtree(outer / "lib")
    check_out(outer, git(outer, "rev-parse", "HEAD"), tmp_path / "copy")
    assert commit
    assert not [*(tmp_path / "copy" / "lib").iterdir()]


# The caller's environment


@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"])
def test_variables_do_not_redirect_git(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    other = new_repository(tmp_path / "other")
    (other / "a.txt").write_text("other\n")
    values = {"GIT_WORK_TREE": other, "GIT_INDEX_FILE": other / ".git" / "index"}
    monkeypatch.setenv(name, str(values.get(name, other / ".git")))
    assert is_clean(repository, commit)
    assert [*map(str, source.files(repository))] == ["a.txt", "src/b.txt"]


def test_all_variables_that_git_lists(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    for name in git(repository, "rev-parse", "--local-env-vars").split():
        if not name.startswith("GIT_CONFIG"):  # the caller's settings
            monkeypatch.setenv(name, "/nowhere")
    assert is_clean(repository, commit)


def test_git_is_not_taken_from_the_sources(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "git").write_text("#!/bin/sh\ntouch ran\n")
    (repository / "git").chmod(0o755)
    monkeypatch.chdir(repository)
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.pathsep}{os.environ['PATH']}")
    assert source.state(repository).dirty
    assert not (repository / "ran").exists()


def test_settings_of_the_caller(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ignored").write_text("*.log\n")
    settings = tmp_path / "settings"
    settings.write_text(f"[user]\nname = Ada\n[core]\nexcludesFile = {tmp_path / 'ignored'}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    (repository / "a.log").write_text("")
    assert not source.state(repository).dirty
    assert user_setting(repository, "user.name") == "Ada"
    git(repository, "config", "user.name", "Grace")
    assert user_setting(repository, "user.name") == "Grace"


def test_a_temporary_folder_in_the_tree(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(repository / "src"))
    assert not source.state(repository).dirty
    assert [*map(str, source.files(repository))] == ["a.txt", "src/b.txt"]


# A .git that is none


def remove_main_repository(folder: Path) -> Path:
    linked = linked_worktree(folder)
    shutil.rmtree(folder)
    return linked


def replacing_git(make: Callable[[Path], object]) -> Callable[[Path], Path]:
    def replace(folder: Path) -> Path:
        shutil.rmtree(folder / ".git")
        make(folder / ".git")
        return folder

    return replace


def git_file(text: str) -> Callable[[Path], Path]:
    return replacing_git(lambda path: path.write_text(text))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (remove_main_repository, r"it names the repository .*/\.git/worktrees/linked, but "),
        (git_file("gitdir: ../gone\n"), "it names the repository .*/gone, but .* is missing"),
        (git_file("anything"), "got no line `gitdir: FOLDER`"),
        (git_file(""), "got no line `gitdir: FOLDER`"),
        (replacing_git(Path.mkdir), r".*/\.git/HEAD is missing"),
        (replacing_git(lambda it: it.symlink_to("gone")), "it links to gone, which does not exist"),
        (replacing_git(os.mkfifo), "it is neither a file nor a folder"),
    ],
)
def test_a_dangling_git(repository: Path, damage: Callable[[Path], Path], reason: str) -> None:
    folder = damage(repository)
    message = rf"/\.git is not a git repository: {reason}"
    with pytest.raises(ProcessError, match=message) as error:
        source.state(folder / "src")
    assert f"mv {folder}/.git {folder}/git.old" in str(error.value.remedy)
    found = check_git(folder)
    assert (found.level, found.remedy) == (Severity.PROBLEM, error.value.remedy)
    (folder / ".git").rename(folder / "git.old")  # the remedy helps
    assert source.state(folder) == source.SourceState(commit=None, dirty=False)


def test_an_empty_git_folder_inside_a_repository(repository: Path) -> None:
    (repository / "src" / ".git").mkdir()
    assert source.state(repository / "src").commit == git(repository, "rev-parse", "HEAD")


def test_errors_name_the_repository(repository: Path) -> None:
    (repository / ".git" / "HEAD").write_text("damaged\n")
    with pytest.raises(ProcessError, match=f"not a git repository: '{repository}/.git'"):
        source.state(repository)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_repository_of_another_user(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    os.chown(repository, 12345, -1)
    with pytest.raises(ProcessError, match=r"dubious ownership .* belongs to user 12345") as error:
        source.state(repository)
    assert error.value.remedy == f"git config --global --add safe.directory {repository}"
    assert check_git(repository).remedy == error.value.remedy
    # A repository cannot declare itself safe.
    git(tmp_path, "config", "--file", str(repository / ".git" / "config"), "safe.directory", "*")
    assert check_git(repository).level is Severity.PROBLEM
    for number, value in enumerate((repository, "*", f"{tmp_path}/*")):
        settings = tmp_path / f"settings-{number}"
        settings.write_text(f"[safe]\ndirectory = {value}\n")
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
        assert source.state(repository).commit
    settings.write_text("[safe]\ndirectory = *\ndirectory =\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings.rename(tmp_path / "reset")))
    assert check_git(repository).level is Severity.PROBLEM
    monkeypatch.setenv("SUDO_UID", "12345")  # root, by sudo of that user
    assert source.state(repository).commit


def test_a_bare_repository_is_not_a_source(repository: Path, tmp_path: Path) -> None:
    git(repository, "clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
    assert find_work_tree(tmp_path / "bare") is None
    git(repository, "config", "core.bare", "true")
    assert source.state(repository) == source.SourceState(commit=None, dirty=False)


# Filters, which are not run


def filtered(repository: Path, stored: str, checked_out: str, name: str) -> Path:
    """A file that a filter stores in another form."""
    (repository / ".gitattributes").write_text(f"*.bin filter={name}\n")
    (repository / "x.bin").write_text(stored)
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "x")
    (repository / "x.bin").write_text(checked_out)
    return repository / "x.bin"


def test_files_of_git_lfs(repository: Path) -> None:
    text = "the content\n"
    pointer = (
        "version https://git-lfs.github.com/spec/v1\n"
        f"oid sha256:{hashlib.sha256(text.encode()).hexdigest()}\nsize {len(text)}\n"
    )
    file = filtered(repository, pointer, text, "lfs")
    subprocess.run(["git", "config", "filter.lfs.clean", "false"], cwd=repository, check=True)
    assert not source.state(repository).dirty
    assert not source.state(repository / "src").dirty
    file.write_text("other\n")
    assert source.state(repository).dirty
    file.write_text(text)
    file.chmod(0o755)
    assert source.state(repository).dirty
    file.chmod(0o644)
    (repository / "a.txt").write_text("other\n")
    assert source.state(repository).dirty


def test_files_of_another_filter(repository: Path) -> None:
    file = filtered(repository / "src", "stored\n", "checked out\n", "own")
    found = find_changes(repository)
    assert (found.dirty, found.unfiltered) == (True, ("src/x.bin",))
    assert find_changes(repository / "src") == found
    file.write_text("stored\n")
    assert not find_changes(repository).dirty
