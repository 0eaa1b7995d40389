"""Places of this program's files, and atomic writes."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

# Of a copied file, with its holes: twice the size of the largest known artifact, a wheel of torch.
LARGEST_COPY = 1 << 31
PIECE = 1 << 20
PROGRAM_ROOT = Path(__file__).resolve().parents[2]  # the folder that has the package ci
# In `site-packages`, a folder `docker` is that of the SDK.
IS_INSTALLED = not (PROGRAM_ROOT / "docker" / "Dockerfile").exists()
RECIPES = PROGRAM_ROOT / ("ci/recipes" if IS_INSTALLED else "docker")  # of images
PROGRAM_FOLDERS = ("ci",) if IS_INSTALLED else ("ci", "docker")


def user_cache() -> Path:
    """Return the user's cache folder by the XDG specification; it may not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "infini-ci")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_locked(path: Path) -> bool:
    """Return whether a process holds a ``flock`` on a file; needs no write permission."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


DEEPEST_FOLDER = 64  # levels; Python's own functions run out of stack at some hundreds


def walk(
    folder: Path, deepest: int = DEEPEST_FOLDER
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield what ``os.walk`` yields for a folder, at most ``deepest`` levels down."""
    for parent, folders, names in os.walk(folder):
        path = Path(parent)
        yield path, folders, names
        if len(path.parts) - len(folder.parts) >= deepest:
            folders.clear()


def files_below(folder: Path) -> list[Path]:
    """Return the regular files below a folder, sorted, at most ``DEEPEST_FOLDER`` levels down."""
    paths = (path / name for path, _, names in walk(folder) for name in names)
    return sorted(path for path in paths if stat.S_ISREG(path.lstat().st_mode))


def remove_folder(folder: Path) -> None:
    """Remove a folder of any depth, if it exists; raises ``OSError`` if something is left.

    ``shutil.rmtree`` recurses: a suite could end its caller with a ``RecursionError``.
    """
    # The whole path: the first folders of PATH may be those of a suite.
    command = ["/bin/rm", "-rf", "--", str(folder)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").splitlines()
        raise OSError(said[0] if said else f"rm ended with {done.returncode}")


@contextmanager
def open_for_replacement(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` when the block ends without an error."""
    # A name may have 255 bytes, and a character up to 4.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def copy_file(source: BinaryIO, target: BinaryIO) -> None:
    """Copy a file whose holes stay holes; raises ``OSError`` if it exceeds ``LARGEST_COPY`` bytes.

    A process may still write to the source.
    """
    if os.fstat(source.fileno()).st_size > LARGEST_COPY:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    for _ in range(LARGEST_COPY // PIECE):
        piece = source.read(PIECE)
        if piece.count(0) < len(piece):
            target.write(piece)
        else:  # also at the end
            target.seek(len(piece), os.SEEK_CUR)
        if len(piece) < PIECE:
            break
    target.truncate()


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open_for_replacement(path) as file:
            file.write(text.encode())
    except OSError as error:
        if error.filename is None:  # the error of a full disk names no file
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
