"""A folder of results: each run's ``results.json`` and lock, the link to the latest run, the store.

SQLAlchemy takes 0.3 s to import, so only code that opens the store imports it: not the workers of
a run.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ci.errors import InfrastructureError, UsageError
from ci.model.decision import LARGEST_DECISION, Decision, parse_decision
from ci.model.fields import DEEPEST_DOCUMENT, LARGEST_DOCUMENT
from ci.model.results import HOST_LOCK, SCHEMA_VERSION, RunResult, parse_run
from ci.store.rows import LATEST
from ci.util.files import is_locked
from ci.util.invocation import command
from ci.util.lines import parse_object
from ci.util.process import STORE_VARIABLE
from ci.util.text import counted

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store

DATABASE = "ci.db"
RESULTS_FILE = "results.json"
PAGE_FILE = "results.md"
LOCK_FILE = ".lock"
ATTESTATIONS = "attestations"  # folder of a run, of `attest`
DECISION = "decision-"  # and the tag or the commit: a file of `gate`


def make_folder(folder: Path, option: str = "--results") -> None:
    """Create a folder that a command line option names."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        message = f"{option}: {folder}: got a file, expected a folder"
        raise UsageError(message, remedy="Name another folder, or move the file away.") from None
    latest = folder / LATEST
    if latest.is_dir() and not latest.is_symlink():
        message = f"{option}: {latest}: got a folder, expected a link to the latest run"
        raise UsageError(message, remedy="Name another folder, or move this one away.")


def link_latest(folder: Path) -> None:
    """Point ``results/latest`` to ``folder``, atomically."""
    temporary = folder.parent / f".latest-{folder.name}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(folder.name)
    temporary.replace(folder.parent / LATEST)


def lock_run(folder: Path, kind: str = "run") -> AbstractContextManager[object]:
    """Lock a run: a second caller would take over the container of the first.

    The kernel releases the lock when the caller's process ends.
    """
    from filelock import FileLock, Timeout  # imports asyncio; commands that only read need neither

    try:
        return FileLock(folder / LOCK_FILE).acquire(timeout=0)
    except Timeout:
        message = f"{kind} {folder.name} is still running"
        remedy = "Wait until it ends, or interrupt it with Ctrl-C where it was started."
        raise UsageError(message, remedy=remedy) from None


def is_running(folder: Path) -> bool:
    """Whether a caller or an agent works on a run; an agent can outlive its caller."""
    locks = (folder / LOCK_FILE, *folder.glob(f"*/{HOST_LOCK}"))
    return any(is_locked(it) for it in locks if is_regular(it))


def is_regular(path: Path) -> bool:
    """Whether a path is a regular file: not a link, nor a pipe that would block its reader."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:  # it does not exist, or its folder cannot be searched
        return False


def read_results(path: Path) -> RunResult:
    """Read a ``results.json``; raises ``InfrastructureError`` with all its faults."""
    return parse_results(path, read_results_bytes(path))


def read_results_bytes(path: Path) -> bytes:
    """Read the content of a ``results.json``; raises ``InfrastructureError`` if it is too long."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_DOCUMENT + 1)
        if len(content) > LARGEST_DOCUMENT:
            size = f"got {path.stat().st_size:,} bytes, expected at most {LARGEST_DOCUMENT:,}"
            raise InfrastructureError(f"{path}: {size}")
    except OSError as error:
        raise InfrastructureError(f"{path}: cannot be read: {error.strerror}") from error
    return content


def parse_results(path: Path, content: bytes) -> RunResult:
    """Parse the content of a ``results.json``; ``path`` is for the message."""
    try:
        return parse_run(parse_object(content.decode(), deepest=DEEPEST_DOCUMENT))
    except ValueError as error:  # not UTF-8, not JSON within bounds, not a run
        message = f"{path}: expected a results file of version {SCHEMA_VERSION} or older"
        raise InfrastructureError(f"{message}: {error}") from error


def decision_file(results: Path, decision: Decision) -> Path:
    """The file of the decision about a tag, else about a commit."""
    name = decision.tag or decision.commit or "unknown"
    return results / f"{DECISION}{name.replace('/', '-')}.json"


def decision_files(results: Path) -> Iterator[Path]:
    """The files of decisions, which may be damaged."""
    return filter(is_regular, results.glob(f"{DECISION}*.json"))


def read_decision(path: Path) -> Decision:
    """Read a decision; raises ``OSError``, or ``ValueError`` with the faults of a file."""
    with path.open("rb") as file:
        return parse_decision(file.read(LARGEST_DECISION + 1))


def newest_decision(
    results: Path, project: str, run_ids: Collection[str] | None = None
) -> Decision | None:
    """The newest decision about a project, or about one of these runs of it.

    Files that are no decision do not count.
    """
    found = []
    for path in decision_files(results):
        with suppress(OSError, ValueError):
            found.append(read_decision(path))
    own = (
        it
        for it in found
        if it.project == project
        and (run_ids is None or any(run.run_id in run_ids for run in it.runs))
    )
    return max(own, key=lambda it: it.decided_at, default=None)


def default_url(results: Path) -> str:
    """The URL of the SQLite database beside the results."""
    return f"sqlite:///{(results / DATABASE).resolve()}"


def store_url(results: Path) -> str:
    """The URL in INFINI_CI_DB, by default that of the database beside the results."""
    return os.environ.get(STORE_VARIABLE) or default_url(results)


def open_store(results: Path) -> Store:
    """Open the store of these results; create it if there is none."""
    from ci.store.store import Store

    return Store(store_url(results))


def open_existing_store(results: Path, *, run: str | None = None) -> Store:
    """Open the store of these results; raises ``UsageError`` if no run has created one yet.

    ``run`` is the run to look up, for the message.
    """
    remedy = f"Run a platform first: {command('run', 'cpu')}"
    if store_url(results) == default_url(results) and not (results / DATABASE).is_file():
        runs = {it.parent.name for it in results.glob(f"*/{RESULTS_FILE}")} - {LATEST}
        if runs:
            message = f"{results} contains {counted(len(runs), 'run')}, but no store {DATABASE}"
            raise UsageError(message, remedy=f"Rebuild it: {command('import', results)}")
        named = f"there is no run '{run}': " if run not in (None, LATEST) else ""
        message = f"{named}{results} contains no results yet"
        raise UsageError(message, remedy=remedy)
    from ci.store.connect import missing_file

    if file := missing_file(store_url(results)):
        raise UsageError(f"{STORE_VARIABLE}: {file} does not exist", remedy=remedy)
    return open_store(results)
