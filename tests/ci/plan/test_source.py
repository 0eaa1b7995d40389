"""Which files a source tree has, and their archive."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ci.errors import InfrastructureError, UsageError
from ci.plan import source
from tests.ci.stored_history import git


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.fsencode(f"{name}\n"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    write(folder, "setup.py", "src/a.cc", "gone.txt", "ignored.log")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    return folder


def names(folder: Path) -> list[str]:
    return [str(name) for name in source.files(folder)]


def members(folder: Path, *, prefix: str, owner: int) -> dict[str, tarfile.TarInfo]:
    buffer = io.BytesIO()
    source.write_archive(folder, buffer, prefix=prefix, owner=owner)
    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as archive:
        return {member.name: member for member in archive}


def test_tracked_and_untracked_but_not_ignored(repository: Path) -> None:
    (repository / "gone.txt").unlink()
    write(repository, "new.py", "name with spaces\tand\ttabs.py")
    expected = [".gitignore", "name with spaces\tand\ttabs.py", "new.py", "setup.py", "src/a.cc"]
    assert names(repository) == expected


def test_commit_and_dirty_flag(repository: Path) -> None:
    write(repository, "ignored too.log")
    clean = source.state(repository)
    assert clean.commit == git(repository, "rev-parse", "HEAD")
    assert not clean.dirty
    write(repository, "new.py")
    assert source.state(repository) == source.SourceState(commit=clean.commit, dirty=True)


def test_repository_without_commits(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    write(tmp_path, "a.py")
    assert source.state(tmp_path) == source.SourceState(commit=None, dirty=True)
    assert names(tmp_path) == ["a.py"]


def test_repository_inside_a_repository(repository: Path) -> None:
    write(repository, "vendor/lib/b.cc")
    git(repository / "vendor/lib", "init", "--quiet")
    assert "vendor/lib/b.cc" in names(repository)


def test_submodule_that_is_not_checked_out(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},vendor/lib")
    (repository / "vendor/lib").mkdir(parents=True)
    assert left_out(repository) == ("vendor/lib (a submodule that is not checked out)",)


def test_part_of_a_repository(repository: Path) -> None:
    assert names(repository / "src") == ["a.cc"]


def left_out(folder: Path) -> tuple[str, ...]:
    return source.write_archive(folder, io.BytesIO())


def test_outside_of_git_no_name_is_left_out(tmp_path: Path) -> None:
    kept = ["docs/node_modules/x.js", "src/pkg/venv/a.py", "src/x/results/b.py", "tests/.tox/c"]
    kept += ["results/d.json", "tests/results/e.json", "venv/f.py", "data/pyvenv.cfg"]
    kept += ["pkg/.git/config", "g/__pycache__/h.pyc"]
    write(tmp_path, *kept)
    assert names(tmp_path) == sorted(kept)
    assert left_out(tmp_path) == ()
    assert source.state(tmp_path) == source.SourceState(commit=None, dirty=False)


MADE_AGAIN = {
    "a Python environment": ["env/pyvenv.cfg", "env/bin/python"],
    "a cache: it has a CACHEDIR.TAG": ["env/CACHEDIR.TAG", "env/a/b"],
    "results of this program": ["env/20260101T000000Z-nogit-0a1b/request.json", "env/ci.db"],
}


@pytest.mark.parametrize("reason", MADE_AGAIN)
def test_what_a_build_makes_again_is_left_out_by_what_it_is(tmp_path: Path, reason: str) -> None:
    write(tmp_path, "a.py", *MADE_AGAIN[reason])
    if reason.startswith("a cache"):
        assert left_out(tmp_path) == ()  # any file can have this name
        (tmp_path / "env/CACHEDIR.TAG").write_bytes(source.CACHE_TAG + b"\n")
    assert names(tmp_path) == ["a.py"]
    assert left_out(tmp_path) == (f"env ({reason})",)


def test_the_history_of_another_system_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a.py", ".hg/store", "sub/.hg/store")
    assert names(tmp_path) == ["a.py", "sub/.hg/store"]
    assert left_out(tmp_path) == (".hg (the history)",)


def test_bytecode_is_left_out_if_its_source_is_there(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "__pycache__/a.cpython-311.pyc", "b/__pycache__/gone.cpython-311.pyc")
    assert names(tmp_path) == ["a.py", "b/__pycache__/gone.cpython-311.pyc"]
    assert left_out(tmp_path) == ("__pycache__ (bytecode of the sources)",)


def test_names_of_one_reason_are_counted(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, "a.py", f"env{number}/pyvenv.cfg", f"env{number}/bin/python")
    assert left_out(tmp_path) == ("env0, env1, env2 and 2 more (a Python environment)",)


def test_a_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.py", "closed/b.py")
    scan = os.scandir

    def refuse(path: Any) -> Any:  # as for any user but root
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InfrastructureError, match=r"closed: .* cannot be read: Permission denied"):
        source.files(tmp_path)


def test_outside_of_git_modes_times_and_empty_folders_are_kept(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "secret", "run", "docs/b")
    (tmp_path / "empty/inner").mkdir(parents=True)
    modes = {"a.py": 0o444, "secret": 0o600, "run": 0o750, "docs": 0o700, "docs/b": 0o664}
    for number, (name, mode) in enumerate(modes.items()):
        (tmp_path / name).chmod(mode)
        os.utime(tmp_path / name, (0, 1_000_000_000 + number))
    os.utime(tmp_path / "run", (0, 1_000_000_000.25))
    found = members(tmp_path, prefix=".", owner=1000)
    assert {name: found[name].mode for name in modes} == modes
    assert [found[name].mtime for name in modes] == [
        *(1_000_000_000, 1_000_000_001, 1_000_000_000.25, 1_000_000_003, 1_000_000_004)
    ]
    assert found["empty/inner"].isdir()
    assert Path("empty/inner") not in source.files(tmp_path)


def test_what_a_copy_cannot_keep_is_named(tmp_path: Path) -> None:
    write(tmp_path, "old.py", "set", "closed/a")
    os.utime(tmp_path / "old.py", (0, 1))
    (tmp_path / "set").chmod(0o4755)
    (tmp_path / "closed").chmod(0o555)
    assert left_out(tmp_path) == (
        "the mode of closed (a folder in which the owner cannot write)",
        "the time of old.py (before 1980: a zip file, such as a wheel, cannot have it)",
        "the set-ID bits of set (its user or group would run it)",
    )
    found = members(tmp_path, prefix=".", owner=0)
    assert (found["closed"].mode, found["set"].mode) == (0o755, 0o755)
    assert found["old.py"].mtime == source.TIMESTAMP


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0a' * 32}\nsize 12345\n"


def test_pointers_of_git_lfs_are_named(repository: Path) -> None:
    (repository / "model.bin").write_text(POINTER)
    (repository / "old.bin").write_text(POINTER.replace("git-lfs.github", "hawser.github"))
    (repository / "about.md").write_text(f"A pointer looks so:\n{POINTER}")
    why = "(Git LFS has it: run `git lfs pull` in a clone)"
    named = [f"the content of {name} {why}" for name in ("model.bin", "old.bin")]
    assert [*left_out(repository)] == named


def test_folder_that_git_ignores_is_walked(repository: Path) -> None:
    write(repository, "scratch.log/project/a.py")
    assert names(repository / "scratch.log/project") == ["a.py"]


def test_missing_and_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere is not a folder"):
        source.files(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="empty holds no files"):
        source.files(tmp_path / "empty")


def test_archive_is_deterministic(repository: Path) -> None:
    first, second = io.BytesIO(), io.BytesIO()
    source.write_archive(repository, first)
    os.utime(repository / "setup.py", (1, 1))
    source.write_archive(repository, second)
    assert first.getvalue() == second.getvalue()


def test_a_file_that_is_removed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").touch()
    list_files = source._walk

    def remove(folder: Path, **options: bool) -> Iterator[tuple[Path, str | None]]:
        yield from list_files(folder, **options)
        (tmp_path / "a").unlink()

    monkeypatch.setattr(source, "_walk", remove)
    with pytest.raises(InfrastructureError, match=r"/a: this file .* cannot be read: No such file"):
        source.write_archive(tmp_path, io.BytesIO())


def test_a_file_that_becomes_shorter_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(bytes(1 << 20))

    class Pipe(io.BytesIO):
        def write(self, data: Any) -> int:
            os.truncate(file, 1)
            return super().write(data)

    with pytest.raises(InfrastructureError, match=r"/a: this file .* it became shorter"):
        source.write_archive(tmp_path, Pipe())


def test_archive_entries(repository: Path) -> None:
    (repository / "setup.py").chmod(0o700)
    found = members(repository, prefix="home/builder/work", owner=1000)
    assert found["home/builder/work"].isdir()
    assert "home/builder" not in found  # its owner is not ours to change
    assert found["home/builder/work/src"].isdir()
    assert found["home/builder/work/setup.py"].mode == 0o755
    assert found["home/builder/work/src/a.cc"].mode == 0o644
    assert {(member.uid, member.gid) for member in found.values()} == {(1000, 1000)}


def test_links_inside_are_kept_and_links_outside_left_out(tmp_path: Path) -> None:
    project = tmp_path / "project"
    write(tmp_path, "secret", "project/a.py", "project/folder/b.py")
    (project / "inside").symlink_to("a.py")
    (project / "inside-folder").symlink_to("folder")
    (project / "outside").symlink_to("../secret")
    (project / "outside-folder").symlink_to(tmp_path)
    (project / "loop").symlink_to("loop")
    links_out = [f"{name} (a link out of the tree)" for name in ("outside", "outside-folder")]
    assert [*left_out(project)] == links_out
    found = members(project, prefix=".", owner=0)
    assert found["inside"].linkname == "a.py"
    assert found["inside-folder"].issym()
    assert "secret" not in "".join(found)


def test_names_that_are_no_utf_8_are_kept(repository: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    write(repository, name)
    git(repository, "add", ".")
    assert name in members(repository, prefix=".", owner=0)
    (repository / name).unlink()
    (repository / name).symlink_to("/")
    assert left_out(repository) == ("caf\N{REPLACEMENT CHARACTER}.txt (a link out of the tree)",)


@pytest.mark.parametrize(
    ("target", "stored"),
    [
        pytest.param("{root}/src/a.cc", "../src/a.cc", id="absolute"),
        pytest.param("../../repository/src/a.cc", "../src/a.cc", id="out and in again"),
        pytest.param("../src/../src/a.cc", "../src/../src/a.cc", id="inside"),
    ],
)
def test_links_work_wherever_the_tree_lies(repository: Path, target: str, stored: str) -> None:
    write(repository, "folder/b.txt")
    (repository / "folder/link").symlink_to(target.format(root=repository))
    assert members(repository, prefix=".", owner=0)["folder/link"].linkname == stored
