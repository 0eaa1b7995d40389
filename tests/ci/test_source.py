"""Which files a source tree has, and their archive."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from ci.errors import InfrastructureError, UsageError
from ci.plan import source
from ci.util.process import run


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]
    run(["git", *who, *arguments], cwd=folder)


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
    clean = source.state(repository)
    assert clean.commit == run(["git", "rev-parse", "HEAD"], cwd=repository).stdout.strip()
    assert not clean.dirty
    write(repository, "new.py")
    assert source.state(repository) == source.SourceState(commit=clean.commit, dirty=True)


def test_ignored_files_are_no_change(repository: Path) -> None:
    write(repository, "build.log")
    assert not source.state(repository).dirty


def test_repository_without_commits(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    write(tmp_path, "a.py")
    assert source.state(tmp_path) == source.SourceState(commit=None, dirty=True)
    assert names(tmp_path) == ["a.py"]


def test_repository_inside_a_repository(repository: Path) -> None:
    write(repository, "vendor/lib/b.cc")
    git(repository / "vendor/lib", "init", "--quiet")
    assert "vendor/lib/b.cc" in names(repository)


def test_submodule_that_is_not_checked_out(repository: Path, tmp_path: Path) -> None:
    commit = run(["git", "rev-parse", "HEAD"], cwd=repository).stdout.strip()
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},vendor/lib")
    (repository / "vendor/lib").mkdir(parents=True)
    with (tmp_path / "archive.tar").open("wb") as archive:
        left_out = source.write_archive(repository, archive)
    assert left_out == ("vendor/lib (a submodule that is not checked out)",)


def test_part_of_a_repository(repository: Path) -> None:
    assert names(repository / "src") == ["a.cc"]


def test_outside_of_git_everything_but_junk(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "src/b.py", "src/__pycache__/b.pyc", ".venv/x", "results/r.json")
    assert names(tmp_path) == ["a.py", "src/b.py"]
    assert source.state(tmp_path) == source.SourceState(commit=None, dirty=False)


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

    def remove(folder: Path, **options: Collection[str]) -> Iterator[Path]:
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
    assert {member.uid for member in found.values()} == {1000}
    assert {member.gid for member in found.values()} == {1000}


def test_links_inside_are_kept_and_links_outside_left_out(tmp_path: Path) -> None:
    project = tmp_path / "project"
    write(tmp_path, "secret", "project/a.py", "project/folder/b.py")
    (project / "inside").symlink_to("a.py")
    (project / "inside-folder").symlink_to("folder")
    (project / "outside").symlink_to("../secret")
    (project / "outside-folder").symlink_to(tmp_path)
    (project / "loop").symlink_to("loop")
    buffer = io.BytesIO()
    left_out = source.write_archive(project, buffer)
    assert left_out == (
        "outside (a link out of the tree)",
        "outside-folder (a link out of the tree)",
    )
    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as archive:
        assert archive.getmember("inside").linkname == "a.py"
        assert archive.getmember("inside-folder").issym()
        assert "secret" not in "".join(archive.getnames())


def test_names_that_are_no_utf_8_are_kept(repository: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    write(repository, name)
    git(repository, "add", ".")
    assert name in members(repository, prefix=".", owner=0)
    (repository / name).unlink()
    (repository / name).symlink_to("/")
    left_out = source.write_archive(repository, io.BytesIO())
    assert left_out == ("caf\N{REPLACEMENT CHARACTER}.txt (a link out of the tree)",)


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
