"""What is on this machine: folders of results, and work folders of the host engine."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import AwareDatetime, BaseModel, ValidationError

from ci.errors import InfrastructureError
from ci.model.platforms import PLATFORMS
from ci.plan.planning import cache_name
from ci.plan.request import REQUEST_FILE
from ci.store.folder import LOCK_FILE, RESULTS_FILE, is_going_on
from ci.store.rows import LATEST
from ci.upkeep.gc.items import Item, Kind
from ci.util.files import user_cache

_WORK_FOLDER = re.compile(r"infini-ci-(?P<run>.+)-(?P<platform>[a-z][a-z0-9_]*)-[a-z0-9_]{8}")


class _Request(BaseModel):
    """What every version of this program has written into a run's request."""

    project: str
    platforms: tuple[str, ...]
    started_at: AwareDatetime


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """The results of one run, finished or not."""

    path: Path
    project: str
    platforms: tuple[str, ...]
    used: datetime
    going_on: bool

    @property
    def run_id(self) -> str:
        return self.path.name


def run_folders(results: Path) -> tuple[RunFolder, ...]:
    """Every folder in ``results`` that says which run it is of."""
    found = []
    for request in sorted(results.glob(f"*/{REQUEST_FILE}")):
        path = request.parent
        # One of another user, or not written by this program, is passed over.
        with suppress(OSError, ValidationError):
            if not path.is_symlink():
                asked = _Request.model_validate_json(request.read_bytes())
                run = RunFolder(
                    path=path,
                    project=asked.project,
                    platforms=asked.platforms,
                    used=max([asked.started_at, *map(_changed, path.glob(RESULTS_FILE))]),
                    going_on=is_going_on(path),
                )
                found.append(run)
    return tuple(found)


def results_items(runs: tuple[RunFolder, ...], project: str, busy: Set[str]) -> Iterator[Item]:
    """The results of a project; ``busy`` are the runs that go on."""
    for run in runs:
        if run.project == project:
            latest = run.path.parent / LATEST
            is_latest = latest.is_symlink() and latest.resolve() == run.path.resolve()
            going_on = "its run goes on" if run.run_id in busy else None
            yield Item(
                kind=Kind.RESULTS,
                name=run.run_id,
                size_bytes=size_of(run.path),
                used=run.used,
                needed=going_on or ("the latest results" if is_latest else None),
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


def size_of(folder: Path) -> int:
    """Bytes of the files below ``folder``, as far as they can be seen."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # it has just gone
                total += (Path(parent) / name).lstat().st_size
    return total


def _changed(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _commands() -> list[str]:
    """The command lines of this machine's processes, as far as they can be seen."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            found.append(os.fsdecode(path.read_bytes()))
    return found
