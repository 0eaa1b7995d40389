"""What engines keep of earlier runs, and the runs in progress that need some of it: for gc.

Only items that this program created and labelled are considered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Protocol

from ci.util.files import remove_folder, walk

# Why a cache without a trust level is removed: any run could write to it.
NO_LEVEL = "no run uses caches without a trust level"
# A temporary folder of a platform's run on this machine.
RUN_FOLDER = re.compile(r"infini-ci-(?P<run>.+)-(?P<platform>[a-z][a-z0-9_]*)-[a-z0-9_]{8}")


class ItemKind(StrEnum):
    """The kind of an item."""

    CONTAINER = "container"
    KEPT = "failed container"  # which `run --keep` left for `shell`
    IMAGE = "image"
    CACHE = "compiler cache"
    WHEELS = "wheelhouse"
    VOLUME = "volume"  # of a container that was removed without it
    RESULTS = "results"
    WORK_FOLDER = "work folder"
    STORED_RUN = "stored run"


# Runs share items of these kinds, and recreate missing ones. Other items belong to one run.
SIZE_LIMITED = (ItemKind.IMAGE, ItemKind.CACHE, ItemKind.WHEELS)


@dataclass(frozen=True, kw_only=True)
class Item:
    """An item that this program created, on this machine or on an engine.

    Attributes:
        used: when it was last used, as far as is known
        needed: why it must stay at any age; ``None`` if it need not
        useless: why it is removed at any age; ``None`` if its age decides
        remove: removes it; raises ``CiError``, or ``OSError`` for the disk
    """

    kind: ItemKind
    name: str
    size_bytes: int
    used: datetime
    needed: str | None = None
    useless: str | None = None
    remove: Callable[[], object] = field(repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The items that are considered, and the runs in progress.

    Attributes:
        orphans: also items without a project's label, or of runs whose results are gone
        runs: ids of the runs in progress, here or on an engine
        platforms: the platforms of the runs in progress
        abandoned: ids of the sessions whose callers were killed on this machine
        projects: the projects of the runs whose results are here, by their ids
    """

    project: str
    orphans: bool
    runs: Set[str]
    platforms: Set[str]
    abandoned: Set[str] = frozenset()
    projects: Mapping[str, str] = field(default_factory=dict)

    def covers(self, project: str | None) -> bool:
        return project == self.project or (project is None and self.orphans)

    def needed_by_run(self, run: str | None) -> str | None:
        return "its run is in progress" if run in self.runs else None

    def needed_on(self, platform: str) -> str | None:
        return f"a run on {platform} is in progress" if platform in self.platforms else None


class Leftovers(Protocol):
    """What an engine keeps, as it was when this was read."""

    @property
    def place(self) -> str:
        """Where it is, for messages."""

    @property
    def identity(self) -> str:
        """The same text for the same engine, even if it has several names here."""

    @property
    def running(self) -> Set[str]:
        """Ids of the runs that the engine carries out, for any caller."""

    def items(self, scope: Scope) -> Iterator[Item]:
        """Yield the items of the scope's project."""


def folder_item(kind: ItemKind, path: Path, used: datetime, needed: str | None) -> Item:
    return Item(
        kind=kind,
        name=str(path),
        size_bytes=folder_size(path),
        used=used,
        needed=needed,
        remove=partial(remove_folder, path),
    )


def folder_size(folder: Path) -> int:
    """Return the bytes of the files below ``folder`` that this user can see."""
    total = 0
    for parent, _, names in walk(folder):
        for name in names:
            with suppress(OSError):  # it has just been removed
                total += (parent / name).lstat().st_size
    return total


def from_seconds(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def modified_at(path: Path) -> datetime:
    return from_seconds(path.stat().st_mtime)
