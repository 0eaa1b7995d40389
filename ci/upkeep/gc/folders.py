"""What is on this machine: folders of results, and work folders of the host engine."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Set
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from ci.errors import InfrastructureError
from ci.model.platforms import PLATFORMS
from ci.plan.planning import cache_name
from ci.store.folder import LATEST, LOCK_FILE, RunFolder, _changed, _commands, _names, size_of
from ci.upkeep.gc.items import Item, Kind
from ci.util.files import user_cache

_WORK_FOLDER = re.compile(r"infini-ci-(?P<run>.+)-(?P<platform>[a-z][a-z0-9_]*)-[a-z0-9_]{8}")


def results_items(runs: tuple[RunFolder, ...], project: str, busy: Set[str]) -> Iterator[Item]:
    """The results of a project; ``busy`` are the runs that go on."""
    for run in runs:
        if run.project == project:
            latest = _names(run.path.parent / LATEST, run.path)
            going_on = "its run goes on" if run.run_id in busy else None
            yield Item(
                kind=Kind.RESULTS,
                name=run.run_id,
                size_bytes=size_of(run.path),
                used=run.used,
                needed=going_on or ("the latest results" if latest else None),
                remove=partial(_remove_results, run.path),
            )


def work_items(
    runs: tuple[RunFolder, ...], project: str, busy: Set[str], *, strangers: bool
) -> Iterator[Item]:
    """Work folders of the host engine in this machine's temporary folder.

    ``strangers``: also those of runs whose results are not among ``runs``, removed or elsewhere.
    """
    projects = {run.run_id: run.project for run in runs}
    commands = _commands()
    for path in sorted(Path(tempfile.gettempdir()).glob("infini-ci-*")):
        name = _WORK_FOLDER.fullmatch(path.name)
        if not name or path.is_symlink() or path.stat().st_uid != os.geteuid():
            continue
        run = name["run"]
        if projects.get(run, project if strangers else None) != project:
            continue
        alive = run in busy or any(str(path) in command for command in commands)
        yield Item(
            kind=Kind.WORK_FOLDER,
            name=str(path),
            size_bytes=size_of(path),
            used=_changed(path),
            needed="its run goes on" if alive else None,
            remove=partial(shutil.rmtree, path),
        )


def host_cache_items(project: str, busy: Set[str]) -> Iterator[Item]:
    """The host engine's compiler caches of a project; ``busy`` are the platforms that run."""
    for platform in PLATFORMS:
        path = user_cache() / cache_name(project, platform)
        if path.is_dir():
            yield Item(
                kind=Kind.CACHE,
                name=str(path),
                size_bytes=size_of(path),
                used=max(map(_changed, (path, *path.iterdir()))),
                needed=f"a run on {platform} goes on" if platform in busy else None,
                remove=partial(shutil.rmtree, path),
            )


def _remove_results(folder: Path) -> None:
    """Remove a run's folder, unless somebody has just gone on with it."""
    try:
        with FileLock(folder / LOCK_FILE, timeout=0):
            shutil.rmtree(folder)
    except Timeout:
        raise InfrastructureError("its run has just been resumed") from None
