"""What the host engine keeps of earlier runs: compiler caches and work folders."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ci.engines.leftovers import (
    NO_LEVEL,
    RUN_FOLDER,
    Item,
    ItemKind,
    Scope,
    folder_item,
    from_seconds,
    modified_at,
)
from ci.model.platforms import PLATFORMS
from ci.model.trust import Trust
from ci.plan.planning import cache_name, old_cache_name
from ci.util.files import user_cache


class HostLeftovers:
    """The folders of this user."""

    place = "this machine"
    identity = "host"
    running: Set[str] = frozenset()  # their results show these

    def items(self, scope: Scope) -> Iterator[Item]:
        """The compiler caches and the work folders of a project."""
        yield from _caches(scope)
        yield from _work_folders(scope)


def _caches(scope: Scope) -> Iterator[Item]:
    for platform in PLATFORMS:
        old = old_cache_name(scope.project, platform)
        for name in (old, *(cache_name(scope.project, platform, level) for level in Trust)):
            cache = user_cache() / name
            with suppress(FileNotFoundError, NotADirectoryError):  # or a run has just removed it
                used = max(map(modified_at, (cache, *cache.iterdir())))
                item = folder_item(ItemKind.CACHE, cache, used, scope.needed_on(platform))
                yield replace(item, useless=NO_LEVEL if name == old else None)


def _work_folders(scope: Scope) -> Iterator[Item]:
    commands = []  # of the processes that this user can see
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            commands.append(os.fsdecode(process.read_bytes()))
    for path in sorted(Path(tempfile.gettempdir()).glob("infini-ci-*")):
        name = RUN_FOLDER.fullmatch(path.name)
        if not name or not scope.covers(scope.projects.get(name["run"])):
            continue
        with suppress(FileNotFoundError):  # its run has just removed it
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                in_use = any(str(path) in command for command in commands)
                needed = "its run is in progress" if in_use else scope.needed_by_run(name["run"])
                used = from_seconds(status.st_mtime)
                yield folder_item(ItemKind.WORK_FOLDER, path, used, needed)
