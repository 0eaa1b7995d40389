"""The source tree on disk: its files, its commit, its archive."""

from __future__ import annotations

import os
import stat
import sys
import tarfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ci.errors import InfrastructureError, UsageError
from ci.plan.uncommitted import find_changes
from ci.util import git
from ci.util.text import counted, join_names

JUNK = frozenset(
    [".git", ".hg", ".nox", ".tox", ".venv", "venv", "results", "node_modules"]
) | frozenset(["__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"])

# Fixed, so that archives of equal trees are identical. Not zero: zip files (wheels) start in 1980.
TIMESTAMP = 946_684_800  # 2000-01-01


@dataclass(frozen=True, kw_only=True)
class SourceState:
    """The commit of a tree, ``None`` outside of git, and whether the tree differs from it."""

    commit: str | None
    dirty: bool
    notes: tuple[str, ...] = ()


def state(folder: Path) -> SourceState:
    """Return the commit that ``folder`` is at, and whether it has uncommitted changes."""
    if not git.in_work_tree(folder):
        return SourceState(commit=None, dirty=False)
    found = find_changes(folder)
    notes = []
    if found.unfiltered:
        count = counted(len(found.unfiltered), "file")
        names = join_names([decode_file_name(name) for name in found.unfiltered])
        what = "the sources count as changed: only a git filter, which is not run, can compare"
        notes = [f"{what} {count}: {names}"]
    return SourceState(commit=git.head(folder), dirty=found.dirty, notes=tuple(notes))


def files(folder: Path, *, packed: bool = False) -> list[Path]:
    """Return the files of the tree, relative to ``folder``, sorted.

    In git: existing files that are tracked, or untracked but not ignored, including those of
    submodules. A submodule that is not checked out is listed as a folder. Outside of git, and in a
    folder that git ignores: everything but ``JUNK``. A ``packed`` tree was already filtered and is
    returned completely, since a project may track a folder named ``results``.
    """
    found = [path for path, kind in _listing(folder, packed=packed) if kind is None]
    if not found:
        raise UsageError(f"the source {folder} holds no files", remedy="Name a project's folder.")
    return found


# Neither can be copied: reading a FIFO or a device may never end.
SPECIAL_FILES = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _listing(folder: Path, *, packed: bool) -> list[tuple[Path, str | None]]:
    """Return every name of the tree, sorted, with the kind of a special file."""
    if not folder.is_dir():
        raise UsageError(f"the source {folder} is not a folder", remedy="Name an existing folder.")
    found = sorted(git.listed_files(folder)) if not packed and git.in_work_tree(folder) else []
    found = found or sorted(_walk(folder, without=frozenset() if packed else JUNK))
    return [(path, _special_kind(folder / path)) for path in found]


def _special_kind(path: Path) -> str | None:
    with readable(path):
        return SPECIAL_FILES.get(stat.S_IFMT(path.lstat().st_mode))


def write_archive(
    folder: Path,
    destination: BinaryIO,
    *,
    prefix: str = ".",
    owner: int = 0,
    without: Collection[Path] = (),
    packed: bool = False,
) -> tuple[str, ...]:
    """Write the tree as an uncompressed tar file, and return the names that were left out.

    Links are stored as links that work anywhere. A link that leads out of the tree is left out,
    never followed.

    Args:
        prefix: Folder that all names start with; it is part of the archive, its parents are not.
        owner: Numeric user and group of every entry.
        without: Files to skip.
        packed: As in ``files``.
    """
    listing = _listing(folder, packed=packed)
    left_out = [f"{decode_file_name(name)} ({kind})" for name, kind in listing if kind]
    folders = {Path(), *Path(prefix).parents}  # folders that need no further entry
    root = folder.resolve()
    with tarfile.open(fileobj=destination, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for relative in (name for name, kind in listing if kind is None):
            path, name = folder / relative, Path(prefix) / relative
            if relative in without:
                continue
            if not _real(path).is_relative_to(root):
                left_out.append(f"{decode_file_name(relative)} (a link out of the tree)")
                continue
            if path.is_dir() and not path.is_symlink():
                left_out.append(
                    f"{decode_file_name(relative)} (a submodule that is not checked out)"
                )
                continue
            for parent in reversed(name.parents):
                if parent not in folders:
                    folders.add(parent)
                    archive.addfile(_entry(parent, tarfile.DIRTYPE, 0o755, owner))
            _add(archive, path, name, root, owner)
    return tuple(left_out)


def decode_file_name(name: Path | str) -> str:
    """Return the name of a file as text; names are bytes that may not be UTF-8."""
    return os.fsencode(name).decode(errors="replace")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise ``InfrastructureError`` for a source file that cannot be read."""
    try:
        yield
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error


def _unreadable(path: Path, reason: str) -> InfrastructureError:
    message = f"{decode_file_name(path)}: this file of the sources cannot be read: {reason}"
    remedy = "Check its permissions. If something changes the sources, run again without that."
    return InfrastructureError(message, remedy=remedy)


def _add(archive: tarfile.TarFile, path: Path, name: Path, root: Path, owner: int) -> None:
    if path.is_symlink():
        entry = _entry(name, tarfile.SYMTYPE, 0o777, owner)
        with readable(path):
            entry.linkname = _link_target(path, root)
        archive.addfile(entry)
        return
    with readable(path):
        content = path.open("rb")
    with content:
        status = os.fstat(content.fileno())
        entry = _entry(name, tarfile.REGTYPE, 0o755 if status.st_mode & 0o100 else 0o644, owner)
        entry.size = status.st_size
        try:
            archive.addfile(entry, content)
        except OSError as error:
            if error.errno is not None:  # of the destination
                raise
            raise _unreadable(path, "it became shorter while it was copied") from error


def _link_target(path: Path, root: Path) -> str:
    """Return a link's target as a path that is valid wherever the tree is."""
    target, parent = path.readlink(), _real(path.parent)
    way = Path(os.path.normpath(parent.relative_to(root) / target))
    if not way.is_absolute() and ".." not in way.parts:
        return str(target)
    return os.path.relpath(_real(path), parent)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises for cyclic links


def _entry(name: Path, kind: bytes, mode: int, owner: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name.as_posix())
    entry.type = kind
    entry.mode = mode
    entry.uid = entry.gid = owner
    entry.mtime = TIMESTAMP
    return entry


def _walk(folder: Path, *, without: Collection[str]) -> Iterator[Path]:
    for parent, directories, names in os.walk(folder):
        links = [name for name in directories if (Path(parent) / name).is_symlink()]
        directories[:] = [name for name in directories if name not in without]
        for name in (*names, *links):
            path = Path(parent) / name
            if name not in without:
                yield path.relative_to(folder)


def _main() -> None:
    """``python -m ci.plan.source FOLDER PREFIX OWNER [packed]``: write the archive to stdout."""
    folder, prefix, owner, *packed = sys.argv[1:]
    left_out = write_archive(
        Path(folder), sys.stdout.buffer, prefix=prefix, owner=int(owner), packed=bool(packed)
    )
    for name in left_out:
        print(f"left out of the sources: {name}", file=sys.stderr)


if __name__ == "__main__":
    _main()
