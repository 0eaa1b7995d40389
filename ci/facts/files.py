"""Read files and archives of a results folder within bounds; unreadable ones count as missing."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ci.util.lines import LONGEST_LOG_LINE, lines_of_file
from ci.util.tar import TAR_ERRORS, TarStream, entries_of, open_tar

# Bytes; a ninja log of 100,000 commands has 15 million. In memory it can take 20 times its size.
LARGEST_FILE = 1 << 25
LARGEST_CONTENT = 1 << 27  # bytes of an archive's content; the agent packs at most half of it
GZIP = 31  # zlib's code for its largest window and this format
# Paths differ between runs up to these folders: the workspace, the host engine's environment.
PLACES = ("/workspace/", "/site-packages/", "/dist-packages/")


class ArchiveMember(NamedTuple):
    """A file in an archive."""

    name: str
    content: bytes


def read_text_file(path: Path, largest: int = LARGEST_FILE) -> str | None:
    """Return the text of a file; ``None`` if it is missing, too large or unreadable."""
    try:
        # Only regular files: a pipe could block its reader.
        if not path.is_file() or path.stat().st_size > largest:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def read_log_lines(path: Path) -> Iterator[str]:
    """Read the lines of a log of any size; of a long line, only its beginning."""
    try:
        if path.is_file():
            yield from lines_of_file(path, LONGEST_LOG_LINE, returns=True)
    except OSError:
        return


def read_archive(path: Path) -> Iterator[ArchiveMember] | None:
    """Read the files in a ``.tar.gz``; ``None`` if it is missing or truncated."""
    # Decompressed in memory: tarfile's own gzip support takes twice as long.
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_FILE:
            return None
        archive = zlib.decompressobj(GZIP)
        content = archive.decompress(path.read_bytes(), LARGEST_CONTENT)
    except (OSError, zlib.error):
        return None
    return _members(content) if archive.eof else None


def _members(content: bytes) -> Iterator[ArchiveMember]:
    stream = TarStream([content])
    try:
        with open_tar(stream, errors="replace") as archive:
            for entry in entries_of(archive, stream):
                if entry.isreg():
                    start = entry.offset_data
                    yield ArchiveMember(entry.name, content[start : start + entry.size])
    except TAR_ERRORS:  # not a tar file, or a damaged one
        return


def strip_place(path: str) -> str:
    """Return the part of ``path`` that is the same in every run."""
    return min((path.rpartition(place)[2] for place in PLACES), key=len)
