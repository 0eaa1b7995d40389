"""Copy artifacts from the workspace into the results.

The code under test made both folders: they may hold links, pipes, files that cannot be read, and
folders without end. Only regular files are copied, and nothing is written through a link.
"""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, Callable, ContextManager

from ci.protocol.events import ArtifactCut, ArtifactMissing
from ci.protocol.job import ArtifactPlan
from ci.util.files import copy_file, open_for_replacement, remove_folder

LARGEST_MATCHES = 1 << 26  # bytes of all files that match one pattern
MOST_FILES = 100_000  # of a folder; the largest generated tree has some thousands
DEEPEST = 64  # levels of a folder; Python's own functions run out of stack at some hundreds


def collect(
    artifact: ArtifactPlan,
    workspace: Path,
    results: Path,
    access: Callable[[], ContextManager[None]] = nullcontext,
) -> ArtifactCut | ArtifactMissing | None:
    """Copy an artifact; a folder becomes an archive, and so do the files that match a pattern.

    With ``access`` the workspace is read with the rights of the stages.

    Returns an event if the artifact is missing or incomplete.
    """
    name, path = artifact.name, artifact.path
    source = workspace / path
    found: list[Path] = []
    left_out, above = 0, workspace
    with access():
        is_file, is_folder = source.is_file(), source.is_dir()
        if is_folder:
            found, left_out = _files_of(source)
            above = source.parent
        elif not is_file and set(path) & set("*?["):
            found, left_out = _largest(_matches(workspace, path))
    if is_file:
        with suppress(OSError), open_for_replacement(results / name) as file, access():
            with open_regular(source) as content:
                copy_file(content, file)
            return None
        return ArtifactCut(name=name, path=path, left_out=1)
    if not found and not left_out and not is_folder:
        return ArtifactMissing(name=name, path=path)
    try:
        with open_for_replacement(results / f"{name}.tar.gz") as file, access():
            left_out += _pack(found, above, file)
    except OSError:  # such as a full disk
        left_out += len(found)
    return ArtifactCut(name=name, path=path, left_out=left_out) if left_out else None


def remove_results(path: Path, access: Callable[[], ContextManager[None]] = nullcontext) -> bool:
    """Remove a file or a folder; return whether nothing is there any more.

    With ``access`` it is done with the rights of the stages.
    """
    with access():
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                remove_folder(path)
            else:
                path.unlink()
        return not os.path.lexists(path)


def _pack(files: list[Path], above: Path, destination: BinaryIO) -> int:
    """Write an archive with names relative to ``above``; return the number of unreadable files."""
    left_out = 0
    # The default format has a second header for every file, for fractions of a second. With it,
    # reading 1,100 small files takes twice as long.
    form = tarfile.GNU_FORMAT
    # With "dereference", a second hard link is stored as a file.
    with gzip.GzipFile(fileobj=destination, mode="wb") as packed, tarfile.open(
        fileobj=packed, mode="w", format=form, dereference=True
    ) as archive:
        for path in sorted(files):
            try:
                content = open_regular(path, os.O_NOFOLLOW)
            except OSError:
                left_out += 1
                continue
            with content:
                name = str(path.relative_to(above))
                archive.addfile(archive.gettarinfo(arcname=name, fileobj=content), content)
    return left_out


def _files_of(folder: Path) -> tuple[list[Path], int]:
    """Return the regular files below a folder, and the number of other things there."""
    found: list[Path] = []
    left_out = 0
    pending = [(str(folder), 1)]
    while pending:
        path, depth = pending.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False) and depth < DEEPEST:
                        pending.append((entry.path, depth + 1))
                    elif entry.is_file(follow_symlinks=False) and len(found) < MOST_FILES:
                        found.append(Path(entry.path))
                    else:
                        left_out += 1
        except OSError:
            left_out += 1
    return found, left_out


def _matches(workspace: Path, pattern: str) -> list[Path]:
    with suppress(OSError, RecursionError):
        return [path for path in workspace.glob(pattern) if path.is_file()]
    return []


def _largest(files: list[Path]) -> tuple[list[Path], int]:
    """Return the largest files that fit; the largest time traces are of the costliest units.

    Also return the number of the other files.
    """
    taken, room = [], LARGEST_MATCHES
    sizes = [(path.stat().st_size, path) for path in files if not path.is_symlink()]
    for size, path in sorted(sizes, key=lambda pair: (-pair[0], pair[1])):
        if size <= room:
            taken.append(path)
            room -= size
    return taken, len(files) - len(taken)


def open_regular(path: str | Path, flags: int = 0, *, folder: int | None = None) -> BinaryIO:
    """Open a regular file; raises ``OSError`` for anything else, such as a pipe.

    The path is relative to ``folder``, if that is the descriptor of one.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"not a regular file: {path}")
    return os.fdopen(descriptor, "rb")
