"""Files and archives of a results folder, read in bounds; what cannot be read counts as missing."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ci.util.lines import LONGEST_LOG_LINE, lines_of_file

LARGEST_FILE = 1 << 27  # bytes; a ninja log of 100,000 commands has 15 million
LARGEST_CONTENT = 1 << 28  # of an archive
GZIP = 31  # zlib's code for this format
# What a name begins with is of one run only: the workspace, the environment of the host engine.
PLACES = ("/workspace/", "/site-packages/", "/dist-packages/")


class ArchiveMember(NamedTuple):
    """A file in an archive."""

    name: str
    content: bytes


def text_of(path: Path, largest: int = LARGEST_FILE) -> str | None:
    """The text of a file; ``None`` where it is missing, too large or cannot be read."""
    try:
        # A pipe could keep its reader waiting.
        if not path.is_file() or path.stat().st_size > largest:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a log, which may be as long as it likes; of a long line its beginning."""
    try:
        if path.is_file():
            yield from lines_of_file(path, LONGEST_LOG_LINE, returns=True)
    except OSError:
        return


def members_of(path: Path) -> Iterator[ArchiveMember] | None:
    """The files in a ``.tar.gz``; ``None`` where it is not there as a whole."""
    # As a whole in memory: tarfile's own way through gzip takes twice as long.
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_FILE:
            return None
        archive = zlib.decompressobj(GZIP)
        content = archive.decompress(path.read_bytes(), LARGEST_CONTENT)
    except (OSError, zlib.error):
        return None
    return _members(content) if archive.eof else None


def _members(content: bytes) -> Iterator[ArchiveMember]:
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:", errors="replace") as archive:
            for entry in archive:
                if entry.isreg():
                    start = entry.offset_data
                    yield ArchiveMember(entry.name, content[start : start + entry.size])
    except (tarfile.TarError, ValueError, OverflowError):  # no archive after all
        return


def without_place(path: str) -> str:
    """``path`` from where it is the same in every run."""
    return min((path.rpartition(place)[2] for place in PLACES), key=len)
