"""Uncommitted changes of a tree, found without the filters that its attributes name."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ci.util.git import call, filters_of, git, has_repository, submodules, top_folder

# A file that differs from the index and from nothing else, in `git status --porcelain=v2`.
EDITED = re.compile(
    r"1 \.M N\.\.\. \d+ (?P<before>\d+) (?P<now>\d+) [0-9a-f]+ (?P<object>[0-9a-f]+) (?P<path>.+)",
    re.DOTALL,
)
# https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md, as `cat-file --batch` prints it.
POINTER = re.compile(
    r"^([0-9a-f]{40,64}) blob \d+\nversion https://git-lfs\.github\.com/spec/v1\n"
    r"oid sha256:([0-9a-f]{64})\nsize (\d+)\n",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """How a folder differs from the commit that it is at."""

    dirty: bool
    unfiltered: tuple[str, ...] = ()
    """Files that only their filter, which is not run, could compare. They make the folder dirty."""


def find_changes(folder: Path) -> Changes:
    """Return whether ``folder`` has uncommitted changes or files that git does not ignore.

    Submodules count. No filter is run: a file of Git LFS is compared with the digest in its
    pointer, and another filtered file that git would have to filter counts as changed.
    """
    options = ("--porcelain=v2", "-z", "--untracked-files=normal", "--ignore-submodules=dirty")
    edited: dict[str, str] = {}  # what the index has, by path
    for entry in filter(None, git(folder, "status", *options, "--", ".").split("\0")):
        found = EDITED.fullmatch(entry)
        if found is None or found["before"] != found["now"]:
            return Changes(dirty=True)
        edited[found["path"]] = found["object"]
    top = top_folder(folder)
    filters = filters_of(top, edited) if edited else {}
    stored = _pointers(top, {path: edited[path] for path, it in filters.items() if it == "lfs"})
    undecided = [path for path in edited if path in filters and path not in stored]
    unequal = (path for path, pointer in stored.items() if not _is_stored_as(top / path, pointer))
    if len(stored) + len(undecided) < len(edited) or any(unequal):
        return Changes(dirty=True)
    inner = [(path, find_changes(path)) for path in submodules(folder) if has_repository(path)]
    return Changes(
        dirty=bool(undecided) or any(it.dirty for _, it in inner),
        unfiltered=(
            *undecided,
            *(f"{path.relative_to(top)}/{name}" for path, it in inner for name in it.unfiltered),
        ),
    )


def _pointers(top: Path, objects: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Return the digests and sizes that ``objects``, by path, have in place of LFS files."""
    names = "".join(f"{name}\n" for name in {*objects.values()})
    sizes = call(top, "cat-file", "--batch-check=%(objectsize) %(objectname)", stdin=names).stdout
    rows = map(str.split, sizes.splitlines())
    small = (f"{name}\n" for size, name in rows if size.isdecimal() and int(size) < 1024)
    text = call(top, "cat-file", "--batch", stdin="".join(small)).stdout
    known = {name: (digest, int(size)) for name, digest, size in POINTER.findall(text)}
    return {path: known[name] for path, name in objects.items() if name in known}


def _is_stored_as(path: Path, pointer: tuple[str, int]) -> bool:
    try:
        with path.open("rb") as file:
            is_same_size = os.fstat(file.fileno()).st_size == pointer[1]
            return is_same_size and hashlib.file_digest(file, "sha256").hexdigest() == pointer[0]
    except OSError:
        return False
