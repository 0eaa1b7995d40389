"""Copy cached files of more trusted levels into a run's own compiler cache.

ccache reads one cache. So what a more trusted level has compiled is copied into the run's own
cache before the stages. This needs no setting of ccache, and its versions 3.7, 4.5 and 4.7 find the
copies. Its remote storage is unknown to 3.7, has no size limit, and cannot read a local cache. On a
busy machine, copying 20,000 files of 25 kB takes 5 s, and finding that none is missing 1 s.

Earlier runs of the own level may have been hostile, and its cache may hold links, pipes, and
folders without end. Folders are opened one by one, never through a link. Only regular files with
names that ccache gives are read, nothing is overwritten, and the copies only fill the room that
remains.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Callable, Iterator, Sequence, Tuple

from ci.agent.artifacts import open_regular

# ccache's folders: one hexadecimal digit per level. It has 2 to 4 levels, and at most 8.
DIGITS = tuple("0123456789abcdef")
DEEPEST = 8
# The rest of a hash in base 16 or 32 and, by version, a size and a kind: 89d7…-23903.o, 52uts…R,
# 1dll…0W. Not counters, locks, temporary files and settings.
CACHED = re.compile(r"[0-9a-v]{16,64}(-\d+)?(\.[a-z]{1,16}|\d{0,3}[A-Z])?")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
MOST_FILES = 200_000  # below one digit; 5 GiB of objects of 25 KiB, the usual size, have 13,000
# In names of temporary files: ccache removes those that are older than an hour.
TEMPORARY = ".tmp."

Name = Tuple[str, ...]  # the folders of a file, and its own name


def copy_missing(
    trusted: Sequence[str],
    own: str,
    most_bytes: int,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Copy files that the cache ``own`` lacks, the latest used first; return their number.

    Args:
        trusted: Folders of caches, the most trusted first; missing ones are skipped.
        own: Folder of the cache that gets the copies.
        most_bytes: Limit of the size of ``own``. ccache applies a sixteenth of it to each digit.
        stopped: Ends the copying when it returns true.
    """
    copied = 0
    with suppress(OSError), _opened(None, (own,)) as target:
        for folder in trusted:
            with suppress(OSError), _opened(None, (folder,)) as source:
                for digit in DIGITS:
                    copied += _fill(source, target, digit, most_bytes // len(DIGITS), stopped)
    return copied


def _fill(
    source: int, target: int, digit: str, most_bytes: int, stopped: Callable[[], bool]
) -> int:
    there, here = _files(source, digit), _files(target, digit)
    room = most_bytes - sum(map(_size, here.values()))
    missing = [(status, name) for name, status in there.items() if name not in here]
    copied = 0
    for status, name in sorted(missing, key=lambda pair: pair[0].st_mtime_ns, reverse=True):
        room -= _size(status)
        if room < 0 or stopped():
            break
        with suppress(OSError):  # it is gone, or the disk is full
            _copy(source, target, name, status)
            copied += 1
    return copied


def _size(status: os.stat_result) -> int:
    """Return the bytes of a file on the disk, or those that a copy of a sparse file may take."""
    return max(status.st_size, status.st_blocks * 512)  # POSIX: blocks of 512 bytes


def _files(cache: int, digit: str) -> dict[Name, os.stat_result]:
    """Return the cached files below a digit's folder, at most ``MOST_FILES``."""
    with suppress(OSError), _opened(cache, (digit,)) as folder:
        return dict(islice(_listed(folder, (digit,)), MOST_FILES))
    return {}


def _listed(folder: int, above: Name) -> Iterator[tuple[Name, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = (*above, entry.name)
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False) and CACHED.fullmatch(entry.name):
                    yield name, entry.stat(follow_symlinks=False)
                elif entry.name in DIGITS and len(above) < DEEPEST:
                    with _opened(folder, (entry.name,)) as inner:
                        yield from _listed(inner, name)


def _copy(source: int, target: int, path: Name, status: os.stat_result) -> None:
    """Copy a file with its time of use; raises ``FileExistsError`` if another run has made it."""
    *folders, name = path
    temporary = f"{name}{TEMPORARY}{os.getpid()}"
    with _opened(source, folders) as there, _opened(target, folders, create=True) as here:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open_regular(name, os.O_NOFOLLOW, folder=there) as content:
            writing = os.open(temporary, flags, 0o644, dir_fd=here)
            try:
                with os.fdopen(writing, "wb") as copy:
                    shutil.copyfileobj(content, copy)
                    copy.flush()
                    os.utime(writing, ns=(status.st_atime_ns, status.st_mtime_ns))
                # Unlike a rename, this replaces nothing.
                os.link(temporary, name, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)
            finally:
                os.unlink(temporary, dir_fd=here)


@contextmanager
def _opened(above: int | None, names: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """Open a folder below an open one, name by name; raises ``OSError`` for a link."""
    opened = []
    try:
        for name in names:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=above)
            above = os.open(name, FOLDER, dir_fd=above)
            opened.append(above)
        yield opened[-1]
    finally:
        for folder in opened:
            os.close(folder)
