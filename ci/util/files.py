"""Files and folders of this program: where they are, and how they are written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(descriptor, 0o644)
        Path(temporary).replace(path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # what a full disk says
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


REPOSITORY = Path(__file__).resolve().parents[2]


def user_cache() -> Path:
    """The user's folder, as the XDG base directory specification has it; it may not be there."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "infini-ci")
