"""Create small archives in memory, and extract any archive safely.

``TarFile.extractall(filter="data")`` is not used: Debian 12's Python 3.11.2 does not have it.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

from ci.plan.source import TIMESTAMP


def pack(contents: Mapping[str, bytes], *, folders: Iterable[str] = (), owner: int = 0) -> BinaryIO:
    """Return a tar file of ``contents``, owned by root; equal contents give equal bytes.

    Files that begin with ``#!`` are executable. ``folders`` are empty folders that belong to
    ``owner``.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, TIMESTAMP
            entry.uid = entry.gid = owner
            archive.addfile(entry)
        for name, content in sorted(contents.items()):
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755 if content.startswith(b"#!") else 0o644
            entry.size, entry.mtime = len(content), TIMESTAMP
            archive.addfile(entry, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def extract(archive: BinaryIO, destination: Path, *, strip: int = 0) -> tuple[str, ...]:
    """Extract files, folders and links; return the names of entries that were refused.

    The first ``strip`` parts of each name are dropped. Refused are entries that would be written
    outside of ``destination``, links that lead out of it, devices and other special files.
    """
    refused = []
    root = Path(os.path.realpath(destination))
    with tarfile.open(fileobj=archive, mode="r:") as members:
        for member in members:
            parts = [part for part in PurePosixPath(member.name).parts if part != "."]
            if len(parts) <= strip:
                continue
            if not _extract_one(members, member, root, root.joinpath(*parts[strip:])):
                refused.append(member.name)
    return tuple(refused)


def _extract_one(members: tarfile.TarFile, member: tarfile.TarInfo, root: Path, path: Path) -> bool:
    if not _inside(root, path.parent) or path.is_symlink():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        path.mkdir(exist_ok=True)
    elif member.isreg():
        path.unlink(missing_ok=True)  # a reader of the old file must not see it change
        with path.open("wb") as file:
            shutil.copyfileobj(cast(IO[bytes], members.extractfile(member)), file)
        path.chmod(0o755 if member.mode & 0o100 else 0o644)
        os.utime(path, (member.mtime, member.mtime))
    elif member.issym() and _inside(root, path.parent / member.linkname):
        path.symlink_to(member.linkname)
    else:
        return False
    return True


def _inside(root: Path, path: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(root)
