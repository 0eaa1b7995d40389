"""Create small archives in memory, and extract archives that may be hostile.

``TarFile.extractall(filter="data")`` is not used: Debian 12's Python 3.11.2 does not have it, a
chain of links leads it out of the folder (CVE-2025-4517), and it bounds nothing.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import tarfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import IO, BinaryIO, cast

from ci.model.plan import ResultLimits
from ci.plan.source import TIMESTAMP, decode_file_name
from ci.util.files import open_for_replacement
from ci.util.tar import TAR_ERRORS, TarStream, entries_of, open_tar
from ci.util.text import LONGEST_NAME, counted, strip_controls

# Bytes. Pieces of zeros become holes, so it is a multiple of every file system's block.
CHUNK = 1 << 16
ZEROS = bytes(CHUNK)
# Times the limit on bytes. Zeros of sparse files are sent too: 64 GiB of them take two minutes.
MOST_SENT = 16
NAMED = 5  # names that a line lists; the others are counted
LATEST_TIME = 1 << 33  # the year 2242; file systems fail or wrap around at later ones
UNNAMEABLE = {errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL}  # the disk's rules for file names


NO_OWNERS: Mapping[str, int] = MappingProxyType({})


def pack(
    contents: Mapping[str, bytes],
    *,
    folders: Mapping[str, int] = NO_OWNERS,
    private: Mapping[str, int] = NO_OWNERS,
) -> BinaryIO:
    """Return a tar file of ``contents``, owned by root; equal contents give equal bytes.

    Files that begin with ``#!`` are executable. ``folders`` are empty folders, with their owners.
    ``private`` are the owners of the files that no other user may read.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder, owner in folders.items():
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, TIMESTAMP
            entry.uid = entry.gid = owner
            archive.addfile(entry)
        for name, content in sorted(contents.items()):
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755 if content.startswith(b"#!") else 0o644
            if name in private:
                entry.mode, entry.uid = 0o600, private[name]
            entry.size, entry.mtime = len(content), TIMESTAMP
            archive.addfile(entry, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def chunks_of(file: IO[bytes] | BufferedIOBase) -> Iterator[bytes]:
    """Yield the bytes of an open file."""
    return iter(partial(file.read, CHUNK), b"")


def extract(
    chunks: Iterable[bytes],
    destination: Path,
    *,
    strip: int = 0,
    links: bool = False,
    modes: bool = False,
    reserved: Collection[str] = (),
    limits: ResultLimits | None = None,
) -> tuple[str, ...]:
    """Extract the files and folders of an uncompressed tar file while its bytes arrive.

    An entry replaces what has its name, and is never written through a link. Left out are devices,
    pipes, hard links, and names that lead out of ``destination``.

    Args:
        strip: Number of leading parts of each name that are dropped.
        links: Whether symbolic links are created: after everything else, and only those that then
            lead to a place inside of ``destination``.
        modes: Whether files and folders get their modes, and folders their times. Otherwise files
            have 0644 or 0755.
        reserved: Names at the top of ``destination`` that are left out.
        limits: What is beyond them is left out; ``None``: there are none.

    Returns:
        Lines about entries that were left out, such as ``2 links: a, b``.
    """
    root = Path(os.path.realpath(destination))
    root.mkdir(parents=True, exist_ok=True)
    extraction = _Extraction(
        root, links=links, modes=modes, room=limits.total_bytes if limits else None
    )
    stream = TarStream(chunks)
    try:
        with open_tar(stream) as archive:
            for entry in _entries(archive, stream, limits):
                parts = [part for part in PurePosixPath(entry.name).parts if part != "."]
                if limits and (why := _excess(entry, parts, limits)):
                    extraction.leave_out("name", entry.name, why)
                elif entry.name.startswith("/") or ".." in parts or "\0" in entry.name:
                    extraction.leave_out("unsafe name", entry.name)
                elif parts[strip : strip + 1] and parts[strip] in reserved:
                    extraction.leave_out("reserved name", entry.name)
                elif parts[strip:]:
                    extraction.add(archive, entry, root.joinpath(*parts[strip:]))
    except _LimitError as error:
        extraction.leave_out("part of the archive", str(error))
    except TAR_ERRORS as error:
        extraction.leave_out("damaged part of the archive", str(error))
    extraction.make_links()
    extraction.finish_folders()
    return extraction.left_out()


def _entries(
    archive: tarfile.TarFile, stream: TarStream, limits: ResultLimits | None
) -> Iterator[tarfile.TarInfo]:
    sent = 0
    for count, entry in enumerate(entries_of(archive, stream), 1):
        sent += entry.size
        if limits and count > limits.entries:
            raise _LimitError(f"everything after the first {limits.entries:,} entries")
        if limits and sent > MOST_SENT * limits.total_bytes:
            raise _LimitError(
                f"{_shown(entry.name)} of {entry.size:,} bytes, and everything after it"
            )
        yield entry


class _LimitError(Exception):
    """The rest of an archive is not read."""


def _excess(entry: tarfile.TarInfo, parts: Sequence[str], limits: ResultLimits) -> str | None:
    """Return which limit a name exceeds."""
    if len(entry.name.encode(errors="surrogateescape")) > limits.name_bytes:
        return f" of more than {limits.name_bytes:,} bytes"
    return f" of more than {limits.depth:,} parts" if len(parts) > limits.depth else None


def _shown(name: str) -> str:
    return strip_controls(decode_file_name(name)).replace("\n", " ")[:LONGEST_NAME]


class _Extraction:
    """The entries of one archive on their way into a folder."""

    def __init__(self, root: Path, *, links: bool, modes: bool, room: int | None) -> None:
        self._root = root
        self._with_links = links
        self._with_modes = modes
        self._folders: dict[Path, tarfile.TarInfo] = {}
        self._room = self._limit = room
        self._links: dict[Path, str] = {}  # the target of each
        self._names: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._counts: Counter[tuple[str, str]] = Counter()

    def leave_out(self, what: str, name: str, why: str = "") -> None:
        """Count an entry that is left out, and remember the first names."""
        self._counts[what, why] += 1
        if len(self._names[what, why]) < NAMED:
            self._names[what, why].append(_shown(name))

    def left_out(self) -> tuple[str, ...]:
        """Return one line for each reason."""
        return tuple(
            f"{counted(count, what)}{why}: {', '.join(self._names[what, why])}"
            + (f" and {count - NAMED:,} more" if count > NAMED else "")
            for (what, why), count in self._counts.items()
        )

    def add(self, archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
        """Extract an entry to ``path``, which is below the root; keep a link for later."""
        if entry.issym() and self._with_links:
            self._links[path] = entry.linkname
        elif entry.isdir() or entry.isreg():
            self._links.pop(path, None)
            try:
                self._write(archive, entry, path)
            except _LimitError:
                why = f" for which the limit of {self._limit:,} bytes leaves no room"
                self.leave_out("file", entry.name, why)
            except OSError as error:
                if error.errno not in UNNAMEABLE:
                    raise
                self.leave_out("name", entry.name, " that this disk does not accept")
        else:
            self.leave_out("link" if entry.issym() or entry.islnk() else "special file", entry.name)

    def _write(self, archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
        if entry.isdir():
            self._make_folder(path)
            if self._with_modes:
                self._folders[path] = entry
            return
        self._clear(path)
        content = cast(IO[bytes], archive.extractfile(entry))
        with open_for_replacement(path) as file:
            written = _copy_with_holes(content, file, self._room)
        if self._room is not None:
            self._room -= written
        usual = 0o755 if entry.mode & 0o100 else 0o644
        path.chmod(entry.mode & 0o777 | 0o400 if self._with_modes else usual)
        _set_time(path, entry)

    def _make_folder(self, folder: Path) -> None:
        """Make a folder below the root; a file or link in its way is removed, never followed."""
        path = self._root
        for part in folder.relative_to(self._root).parts:
            path /= part
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
                path.mkdir()

    def _clear(self, path: Path) -> None:
        """Make room for a file: its parent is a folder, and no folder has its name."""
        self._make_folder(path.parent)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)

    def make_links(self) -> None:
        """Create the links, and remove those that lead out of the root.

        Only now: a chain of links can lead out although each of them alone does not.
        """
        made = set()
        for path, target in self._links.items():
            try:
                self._clear(path)
                path.unlink(missing_ok=True)
                path.symlink_to(target)
                made.add(path)
            except (OSError, ValueError):  # a target that no link can have
                self.leave_out("link", str(path.relative_to(self._root)))
        # Without one link, another one may lead elsewhere.
        while outside := [path for path in sorted(made) if not self._is_inside(path)]:
            for path in outside:
                path.unlink(missing_ok=True)
                self.leave_out("link", str(path.relative_to(self._root)))
            made.difference_update(outside)

    def _is_inside(self, path: Path) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(self._root)

    def finish_folders(self) -> None:
        """Set the modes and times of folders: nothing is written to them any more."""
        for path, entry in self._folders.items():
            if path.is_dir() and not path.is_symlink():
                path.chmod(entry.mode & 0o777 | 0o700)
                _set_time(path, entry)


def _set_time(path: Path, entry: tarfile.TarInfo) -> None:
    if 0 <= entry.mtime <= LATEST_TIME:
        os.utime(path, (entry.mtime, entry.mtime))


def _copy_with_holes(content: IO[bytes], file: BinaryIO, most: int | None) -> int:
    """Copy a file, and return the bytes that it takes on the disk; pieces of zeros take none.

    Raises ``_LimitError`` if it takes more than ``most``.
    """
    written = 0
    for chunk in chunks_of(content):
        if chunk == ZEROS[: len(chunk)]:
            file.seek(len(chunk), os.SEEK_CUR)
            continue
        written += len(chunk)
        if most is not None and written > most:
            raise _LimitError
        file.write(chunk)
    file.truncate(file.tell())
    return written
