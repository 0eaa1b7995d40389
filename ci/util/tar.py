"""Read tar files of hostile origin with bounded time and memory.

tarfile of Python before 3.11.10, 3.12.6 and 3.13 takes hours for some extended headers
(CVE-2024-6232), and a header of 64 KiB can take a gigabyte. Here an entry's headers are bounded and
checked before tarfile reads them.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator
from typing import IO, cast

# Bytes of all headers of an entry, which tarfile holds in memory. A path has at most 4,096 bytes,
# and an engine adds a few attributes.
LARGEST_HEADERS = 1 << 16
# What tarfile raises for a damaged archive, depending on the field; IndexError for a map of holes
# that ends early.
TAR_ERRORS = (tarfile.TarError, ValueError, OverflowError, RecursionError, IndexError)

NEWLINE = ord("\n")
_RECORD = re.compile(rb"([0-9]{1,20}) [^=\n]+=")
# tarfile searches for the end of a number from each of its digits. A part of a path has at most
# 255 bytes on any disk, and no other number is as long.
_LONG_NUMBER = re.compile(rb"[0-9]{256}")


class TarStream:
    """Lets tarfile read a stream, forwards only and with bounded memory."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.header_room: int | None = LARGEST_HEADERS
        """Bytes that may still be read of an entry's headers; ``None``: its content is read."""
        self.record_bytes: int | None = None
        """Size of the records of an extended header, if they are read next."""
        self.last = b""
        """The bytes of the last read."""
        self._chunks = iter(chunks)
        self._held = memoryview(b"")
        self._position = 0
        self._ended = False

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> int:
        """Skip bytes."""
        if position < self._position:  # for an entry with a negative size, over and over
            raise tarfile.ReadError("an entry of an impossible size")
        while self._position < position and self._fill():
            self._take(position - self._position)
        return self._position

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer at the end of the stream."""
        if self.header_room is not None:
            self.header_room -= size
        if size < 0 or size > LARGEST_HEADERS or (self.header_room or 0) < 0:
            raise tarfile.ReadError("an entry with too large a header")
        if self._ended:  # at the end of the stream tarfile may read over and over
            raise tarfile.ReadError("it ends early")
        parts = []
        while size and self._fill():
            part = self._take(size)
            parts.append(part)
            size -= len(part)
        self._ended = size > 0
        self.last = b"".join(parts)
        if self.header_room is not None:
            self._check_header()
        return self.last

    def _check_header(self) -> None:
        if _LONG_NUMBER.search(self.last):
            raise tarfile.ReadError("an entry with too long a number")
        if self.record_bytes is not None:
            _check_records(self.last[: self.record_bytes])
            self.record_bytes = None

    def _fill(self) -> bool:
        """Hold some bytes; return whether there are any."""
        while not self._held:
            try:
                self._held = memoryview(next(self._chunks))
            except StopIteration:
                return False
        return True

    def _take(self, size: int) -> memoryview:
        part, self._held = self._held[:size], self._held[size:]
        self._position += len(part)
        return part


class _Entry(tarfile.TarInfo):
    """An entry that lets the stream check its extended headers."""

    def _proc_pax(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        cast(TarStream, archive.fileobj).record_bytes = self.size
        entry: tarfile.TarInfo = super()._proc_pax(archive)  # type: ignore[misc]
        return entry


def _check_records(content: bytes) -> None:
    """Raise ``ReadError`` unless there is one ``11 path=a`` after the other.

    tarfile accepts records within records, each with all the bytes up to the next equals sign.
    """
    at = 0
    while at < len(content) and content[at]:  # zeros fill the block
        match = _RECORD.match(content, at)
        end = at + int(match[1]) if match else 0
        if match is None or not match.end() < end <= len(content) or content[end - 1] != NEWLINE:
            raise tarfile.ReadError("a damaged extended header")
        at = end


def open_tar(stream: TarStream, *, errors: str = "surrogateescape") -> tarfile.TarFile:
    """Open an uncompressed tar file; ``errors`` is for names that are not UTF-8.

    Raises one of ``TAR_ERRORS``.
    """
    file = cast(IO[bytes], stream)
    return tarfile.open(fileobj=file, mode="r:", tarinfo=_Entry, errors=errors)


def entries_of(archive: tarfile.TarFile, stream: TarStream) -> Iterator[tarfile.TarInfo]:
    """Yield the entries; the content of one can be read until the next one is.

    Raises one of ``TAR_ERRORS``, also if the archive ends early.
    """
    while entry := archive.next():
        if entry.size < 0:  # tarfile would read it over and over
            raise tarfile.ReadError("an entry of an impossible size")
        # tarfile would keep all entries, and apply global headers to all later ones.
        archive.members.clear()  # type: ignore[attr-defined]
        archive.pax_headers.clear()  # type: ignore[attr-defined]
        stream.header_room = None
        yield entry
        stream.header_room = LARGEST_HEADERS
    if stream.last != bytes(tarfile.BLOCKSIZE):  # tarfile takes a bad header for the end
        raise tarfile.ReadError("it ends early")
