"""Fill the folders that stages write to, where no engine does it: in a pod.

Its root is read-only, and the volumes over its folders begin empty. A first container, with the
same image, mounts the one volume elsewhere and copies the image's folders and the run's archives.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

HIDDEN = 0o700  # of a folder while it is filled; the image's may be read-only


def unpack(words: Sequence[str]) -> None:
    """Fill a volume: ``VOLUME ARCHIVE,... FOLDER...``; the folders are those of this container."""
    volume, archives, *folders = words
    for folder in map(Path, folders):
        copy_folder(folder, Path(volume, *folder.parts[1:]))
    for archive in archives.split(","):
        with tarfile.open(archive) as tar:
            # Written by this program. From Python 3.14 on, another filter is the default.
            if hasattr(tarfile, "fully_trusted_filter"):
                tar.extraction_filter = tarfile.fully_trusted_filter
            tar.extractall(volume)  # noqa: S202 - as above


def copy_folder(folder: Path, target: Path) -> None:
    """Copy a folder, if it exists, with its links, modes and times, and with this user as owner.

    What this user cannot read, such as the home of another one, is left out: the user could not
    read it in a container either.
    """
    copied = []
    for parent, names, files in os.walk(folder):
        copy = target / Path(parent).relative_to(folder)
        copy.mkdir(HIDDEN, parents=True, exist_ok=True)
        copied.append((parent, copy))
        for source in (Path(parent, name) for name in (*files, *names)):
            with suppress(PermissionError):
                # No pipe, whose reader would wait. Folders have their own turn, links do not.
                if source.is_symlink() or source.is_file():
                    shutil.copy2(source, copy / source.name, follow_symlinks=False)
    for parent, copy in reversed(copied):  # a read-only folder takes no more files
        shutil.copystat(parent, copy)
    target.mkdir(parents=True, exist_ok=True)
