"""``python -m ci gc``: what to remove of earlier runs, by age and size; their results and rows."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout
from pydantic import AwareDatetime, BaseModel, ValidationError
from rich.filesize import decimal

from ci.engines.leftovers import (
    RUN_FOLDER,
    SIZE_LIMITED,
    Item,
    ItemKind,
    Scope,
    folder_item,
    modified_at,
)
from ci.errors import InfrastructureError
from ci.facts.files import read_text_file
from ci.model.results import HOST_LOCK
from ci.plan.request import LARGEST_REQUEST, REQUEST_FILE
from ci.store.folder import LOCK_FILE, RESULTS_FILE, is_running
from ci.store.rows import LATEST
from ci.util.files import remove_folder
from ci.util.redaction import redact_folder

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store


@dataclass(frozen=True, kw_only=True)
class RemovalDecision:
    """Whether an item is removed, and why."""

    item: Item
    removed: bool
    reason: str


def decide(
    items: Collection[Item], *, now: datetime, age: timedelta, size_bytes: int
) -> list[RemovalDecision]:
    """Decide on every item; the longest unused of each kind come first.

    ``age`` is how long an item may be unused, ``size_bytes`` the limit of each shared kind.
    """
    decisions = []
    days = age / timedelta(days=1)
    most = f"more than {decimal(size_bytes)} of this kind, and this is the longest unused"
    for kind in ItemKind:
        members = sorted((it for it in items if it.kind is kind), key=lambda item: item.used)
        rest = sum(item.size_bytes for item in members)
        for item in members:
            if item.needed is not None:
                removed, reason = False, item.needed
            elif item.useless is not None:
                removed, reason = True, item.useless
            elif now - item.used >= age:
                removed, reason = True, f"not used for {days:g} days"
            elif kind in SIZE_LIMITED and rest > size_bytes:
                removed, reason = True, most
            else:
                removed, reason = False, f"used within {days:g} days"
            rest -= item.size_bytes if removed else 0
            decisions.append(RemovalDecision(item=item, removed=removed, reason=reason))
    return decisions


class _Request(BaseModel):
    """The fields that every version of this program has written into a run's request."""

    project: str
    platforms: tuple[str, ...]
    started_at: AwareDatetime


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """The results of one run, finished or not, in a folder that has the run's id as its name."""

    path: Path
    request: _Request
    used: datetime
    going_on: bool


def run_folders(results: Path) -> tuple[RunFolder, ...]:
    """Return every folder in ``results`` that holds the request of its run."""
    found = []
    for file in sorted(results.glob(f"*/{REQUEST_FILE}")):
        path = file.parent
        # Folders of other users or other programs are skipped.
        with suppress(OSError, ValidationError):
            if not path.is_symlink():
                text = read_text_file(file, LARGEST_REQUEST) or ""
                request = _Request.model_validate_json(text)
                used = max([request.started_at, *map(modified_at, path.glob(RESULTS_FILE))])
                going_on = is_running(path)
                found.append(RunFolder(path=path, request=request, used=used, going_on=going_on))
    return tuple(found)


def sessions() -> dict[str, bool]:
    """The ids of this user's sessions with a folder here, each with whether its caller lives.

    A session has a folder for its results, which its caller locks. On the host engine it also has a
    work folder.
    """
    found: dict[str, bool] = {}
    for path in Path(tempfile.gettempdir()).glob("infini-ci-*-session-*"):
        name = RUN_FOLDER.fullmatch(path.name)
        with suppress(FileNotFoundError):  # its session has just ended
            if name and path.lstat().st_uid == os.geteuid():
                found[name["run"]] = found.get(name["run"], False) or is_running(path)
    return found


def redact_interrupted(runs: Sequence[RunFolder], scope: Scope) -> Iterator[str]:
    """Hide secret values in logs whose caller was killed, and yield a note on each.

    On the host engine the agent writes the logs itself, and only its caller knows the values.
    """
    for run in runs:
        if run.request.project == scope.project and not run.going_on:
            for lock in sorted(run.path.glob(f"*/{HOST_LOCK}")):
                yield from (f"{run.path.name}: {note}" for note in redact_folder(lock.parent))


def result_items(
    runs: Sequence[RunFolder], scope: Scope, proven: Mapping[str, str]
) -> Iterator[Item]:
    """The results of a project; ``proven`` are the runs that must stay as evidence, with why."""
    for run in runs:
        if run.request.project == scope.project:
            latest = run.path.parent / LATEST
            is_latest = latest.is_symlink() and latest.resolve() == run.path.resolve()
            needed = scope.needed_by_run(run.path.name)
            needed = needed or ("the latest results" if is_latest else proven.get(run.path.name))
            item = folder_item(ItemKind.RESULTS, run.path, run.used, needed)
            yield replace(item, name=run.path.name, remove=partial(_remove_results, run.path))


def store_items(store: Store, scope: Scope) -> Iterator[Item]:
    """The runs in the store whose rows are damaged: no command can show them."""
    for error, head in store.damaged_runs():
        # Its project may be damaged, too.
        if scope.orphans or head.project == scope.project:
            yield Item(
                kind=ItemKind.STORED_RUN,
                name=head.run_id,
                size_bytes=0,  # a database does not know it
                used=head.started_at,
                needed=scope.needed_by_run(head.run_id),
                useless=str(error),
                remove=partial(store.remove, head.run_id),
            )


def _remove_results(folder: Path) -> None:
    """Remove a run's folder, unless the run has just been resumed.

    The request goes last: without it, no later call would find what an interrupted one has left.
    """
    try:
        with FileLock(folder / LOCK_FILE, timeout=0):
            for path in folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    remove_folder(path)
                elif path.name not in (REQUEST_FILE, LOCK_FILE):
                    path.unlink()
            remove_folder(folder)
    except Timeout:
        raise InfrastructureError("its run has just been resumed") from None
