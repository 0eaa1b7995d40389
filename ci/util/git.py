"""Git, as this program calls it on the sources of others."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from ci.util import process

# git reads a tree of 100,000 files in a few seconds, and in a minute over a slow network.
GIT_TIMEOUT_S = 120.0


def git(folder: Path, *arguments: str, check: bool = True) -> str:
    """Return the output of git; raises ``ProcessError`` if it fails, or without ``check`` never."""
    command = ["git", *arguments]
    try:
        return process.run(
            command,
            cwd=folder,
            check=check,
            decoding_errors="surrogateescape",
            timeout_s=GIT_TIMEOUT_S,
        ).stdout
    except process.TimeLimitError as error:
        error.remedy = (
            f"Run `git -C {shlex.quote(str(folder))} status` by hand: a file system that does not"
            " answer, a hook or a monitor (git config core.fsmonitor) can block it."
        )
        raise


def in_work_tree(folder: Path) -> bool:
    """Return whether ``folder`` is in the work tree of a repository."""
    if not any((parent / ".git").exists() for parent in (folder, *folder.resolve().parents)):
        return False
    return git(folder, "rev-parse", "--is-inside-work-tree").strip() == "true"


def head(folder: Path) -> str | None:
    """Return the commit that ``folder`` is at; ``None``: the repository has none."""
    return git(folder, "rev-parse", "--verify", "--quiet", "HEAD", check=False).strip() or None


def has_changes(folder: Path) -> bool:
    """Return whether ``folder`` has uncommitted changes or files that git does not ignore."""
    return bool(git(folder, "status", "--porcelain", "--", "."))


def listed_files(folder: Path) -> Iterator[Path]:
    """Yield the existing files that are tracked, or untracked but not ignored; also submodules'."""
    listing = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listing.split("\0")):
        path = folder / name
        # A submodule, or a nested repository. A submodule that is not checked out is an empty
        # folder, in which git would list the outer repository.
        if (path / ".git").exists() and not path.is_symlink():
            yield from (Path(name) / inner for inner in listed_files(path))
        elif os.path.lexists(path):
            yield Path(name)
