"""Files and folders of this program: where they are, and how they are written."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

REPOSITORY = Path(__file__).resolve().parents[2]


def user_cache() -> Path:
    """The user's folder, as the XDG base directory specification has it; it may not be there."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "infini-ci")


def is_locked(path: Path) -> bool:
    """Whether a process holds the kernel's lock on a file; to look takes no right to write."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file that appears at ``path`` when the block ends well, and not before."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        if error.filename is None:  # what a full disk says
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
