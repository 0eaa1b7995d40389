"""Brings files of the workspace into the results."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path
from typing import Callable

LARGEST_MATCHES = 1 << 26  # bytes of files that one pattern brings; they are read when all is done


def collect(
    workspace: str, results: Path, emit: Callable[..., None], *, name: str, path: str
) -> None:
    """Copy an artifact; a folder becomes an archive, and so do the files that match a pattern."""
    source = Path(workspace, path)
    if source.is_dir():
        with _archive(results / f"{name}.tar.gz") as archive:
            archive.add(source, arcname=source.name)
    elif source.is_file():
        shutil.copyfile(source, results / name)
    elif matches := _matches(workspace, path):
        taken = _taken(matches)
        with _archive(results / f"{name}.tar.gz") as archive:
            for match in sorted(taken):
                archive.add(match, arcname=str(match.relative_to(workspace)), recursive=False)
        if len(taken) < len(matches):
            emit("artifact_cut", name=name, path=path, left_out=len(matches) - len(taken))
    else:
        emit("artifact_missing", name=name, path=path)


def _archive(path: Path) -> tarfile.TarFile:
    # The usual format has a second header for every file, for fractions of a second: 1,100 small
    # files take twice as long to be read.
    return tarfile.open(path, "w:gz", format=tarfile.GNU_FORMAT)


def _matches(workspace: str, pattern: str) -> list[Path]:
    """The files that match, the largest first: of time traces the most expensive units'."""
    if not set(pattern) & set("*?["):
        return []
    files = [path for path in Path(workspace).glob(pattern) if path.is_file()]
    return sorted(files, key=lambda path: (-path.stat().st_size, path))


def _taken(files: list[Path]) -> list[Path]:
    """As many as there is room for."""
    taken, room = [], LARGEST_MATCHES
    for path in files:
        size = path.stat().st_size
        if size <= room:
            taken.append(path)
            room -= size
    return taken
