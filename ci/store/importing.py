"""Import runs from elsewhere into a folder of results and its store, one at a time.

A run's folder is copied to a staging folder and then renamed, so it arrives as a whole or not at
all. Importing again completes an interrupted import.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from ci.errors import UsageError
from ci.facts.result_files import ResultFiles
from ci.model.platforms import PLATFORMS
from ci.model.results import HOST_LOCK, PlatformResult, RunResult
from ci.plan.request import RUN_ID
from ci.store.folder import (
    LOCK_FILE,
    RESULTS_FILE,
    is_regular,
    is_running,
    link_latest,
    lock_run,
    read_results,
)
from ci.util.text import counted, join_names

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store


STAGING = ".import"
ASIDE = "-aside"
NOT_COPIED = (LOCK_FILE, HOST_LOCK)  # they refer to processes of the original machine


def find_run_folders(folder: Path) -> list[Path]:
    """The run folders: ``folder`` itself, or those below it. Links are not followed."""
    if not folder.is_dir():
        message = f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}"
        raise UsageError(message, remedy="Name a folder. Unpack an archive first.")
    found = []
    for parent, folders, _ in os.walk(folder):
        # A run folder without results was not copied completely: it is reported, not skipped.
        if is_regular(Path(parent) / RESULTS_FILE) or RUN_ID.fullmatch(Path(parent).name):
            found.append(Path(parent))
            folders.clear()
        else:
            folders[:] = sorted(name for name in folders if not name.startswith("."))
    if not found:
        message = f"{folder}: got no {RESULTS_FILE} in it or below, expected the results of a run"
        remedy = "Name a folder results/<run id>, or a folder that contains several."
        raise UsageError(message, remedy=remedy)
    return found


def read_run(folder: Path) -> RunResult:
    """Read the results of a finished run, and check that its names are safe as paths here."""
    if is_running(folder):
        message = f"{folder}: its run is still running"
        raise UsageError(message, remedy="Wait until it ends, then import it again.")
    if not is_regular(folder / RESULTS_FILE):
        message = f"{folder}: got no {RESULTS_FILE}, which every run writes at its start"
        raise UsageError(message, remedy="Copy the whole folder again.")
    run = read_results(folder / RESULTS_FILE)
    if faults := list(_faults(run)):
        raise UsageError(f"{folder / RESULTS_FILE}: " + "; ".join(faults))
    return run


def _faults(run: RunResult) -> Iterator[str]:
    if not RUN_ID.fullmatch(run.run_id):
        expected = "such as 20260101T120000Z-0123abcd-00ff"
        yield f"run_id: got {run.run_id!r}, expected a run id {expected}"
    names = [result.platform for result in run.platforms]
    for name in dict.fromkeys(names):
        if name not in PLATFORMS:
            yield f"platforms: got {name!r}, expected only {', '.join(PLATFORMS)}"
        elif names.count(name) > 1:
            yield f"platforms: got {name} {names.count(name)} times, expected it once"
    if run.started_at.tzinfo is None or run.finished_at.tzinfo is None:
        yield "started_at, finished_at: got a time without a zone, expected one with a zone"


def copy_files(folder: Path, target: Path) -> int:
    """Copy regular files and folders; return the number of links and special files left out."""
    left_out = 0
    for parent, folders, names in os.walk(folder):
        copy = target / Path(parent).relative_to(folder)
        copy.mkdir(parents=True, exist_ok=True)
        left_out += sum((Path(parent) / name).is_symlink() for name in folders)
        for name in names:
            if not is_regular(Path(parent) / name):
                left_out += 1
            elif name not in NOT_COPIED:
                shutil.copyfile(Path(parent) / name, copy / name)
    return left_out


class ImportOutcome(StrEnum):
    """The result of importing one run."""

    NEW = "imported"
    UPDATED = "updated"  # it was here, but not complete
    UNCHANGED = "already here"
    OUTDATED = "already here, and has got further since"

    @property
    def changes_results(self) -> bool:
        return self in (ImportOutcome.NEW, ImportOutcome.UPDATED)


def compare_with_known(known: RunResult | None, run: RunResult) -> ImportOutcome:
    """Compare a run with its known results; raises ``UsageError`` if they contradict."""
    if known is None:
        return ImportOutcome.NEW
    if known == run:
        return ImportOutcome.UNCHANGED
    if _is_continuation(known, run):
        return ImportOutcome.UPDATED
    if _is_continuation(run, known):
        return ImportOutcome.OUTDATED
    message = f"run {run.run_id} is already here with other results: "
    message += "; ".join(_differences(known, run))
    remedy = "The run here is not changed. To replace it with the one you name, add --replace."
    raise UsageError(message, remedy=remedy)


def _is_continuation(earlier: RunResult, later: RunResult) -> bool:
    """Whether ``--resume`` can have turned the earlier results into the later ones."""
    names, later_names = ([it.platform for it in run.platforms] for run in (earlier, later))
    if names != later_names or any(_different_fields(earlier, later, _UNCHANGING)):
        return False
    ended = [result for result in earlier.platforms if result.verdict.product.is_final]
    is_later = earlier.finished_at <= later.finished_at
    return is_later and all(result in later.platforms for result in ended)


# The fields that resuming a run never changes; it does not change the platforms either.
_UNCHANGING = ("project", "commit", "dirty", "started_at")


def _different_fields(one: object, other: object, names: Iterable[str]) -> list[str]:
    return [name for name in names if getattr(one, name) != getattr(other, name)]


def _differences(known: RunResult, run: RunResult) -> Iterator[str]:
    for name in _different_fields(known, run, _UNCHANGING):
        yield f"{name} is {getattr(known, name)} here, {getattr(run, name)} there"
    here, there = ({result.platform: result for result in it.platforms} for it in (known, run))
    for name in {**here, **there}:
        one, other = here.get(name), there.get(name)
        if _verdict(one) != _verdict(other):
            yield f"{name} {_verdict(one)} here, {_verdict(other)} there"
        elif fields := _different_fields(one, other, PlatformResult.model_fields):
            yield f"{name} differs in {join_names(fields)}"


def _verdict(result: PlatformResult | None) -> str:
    if result is None:
        return "is missing"
    counts = (result.pytest and result.pytest.summary) or "without a pytest summary"
    return f"{result.verdict.product} ({counts})"


class Importer:
    """Imports runs into one folder of results; a lock keeps a second import out."""

    def __init__(self, results: Path, store: Store, *, replace: bool = False) -> None:
        self._results = results
        self._store = store
        self._replace = replace
        self._staging = results / STAGING
        self._stack = ExitStack()

    def __enter__(self) -> Importer:
        self._staging.mkdir(exist_ok=True)
        try:
            self._stack.enter_context(FileLock(self._staging / LOCK_FILE).acquire(timeout=0))
        except Timeout:
            message = f"another import into {self._results} is running"
            raise UsageError(message, remedy="Wait until it ends, then import again.") from None
        self._stack.callback(self._clean_up)
        self._clean_up()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _clean_up(self) -> None:
        """Remove leftovers of an interrupted import, and restore the run it had set aside."""
        for path in self._staging.iterdir():
            target = self._results / path.name.removesuffix(ASIDE)
            if path.name.endswith(ASIDE) and not target.exists():
                path.rename(target)
            elif path.is_dir():
                shutil.rmtree(path)

    def import_run(self, folder: Path) -> tuple[RunResult, ImportOutcome, list[str]]:
        """Import the run in ``folder`` if it is new or newer; return it with outcome and notes."""
        run = read_run(folder)
        target = self._results / run.run_id
        with ExitStack() as locks:
            if target.is_dir():
                locks.enter_context(lock_run(target))
            outcome = self._outcome(run)
            left_out = 0
            if outcome.changes_results or (
                outcome is ImportOutcome.UNCHANGED and not target.exists()
            ):
                left_out = self._place(folder, run, locks)
            notes = list(self._save(run, outcome)) if outcome is not ImportOutcome.OUTDATED else []
            # `latest` is the run that began last, not the one that was imported last.
            if outcome.changes_results and self._store.load().run_id == run.run_id:
                link_latest(target)
        if left_out:
            notes.append(f"left out: {counted(left_out, 'link')} or special files")
        return run, outcome, notes

    def _outcome(self, run: RunResult) -> ImportOutcome:
        path = self._results / run.run_id / RESULTS_FILE
        known = read_results(path) if path.exists() else self._stored(run.run_id)
        try:
            return compare_with_known(known, run)
        except UsageError:
            if self._replace:
                return ImportOutcome.UPDATED
            raise

    def _stored(self, run_id: str) -> RunResult | None:
        with suppress(UsageError):  # there is none
            return self._store.load(run_id)
        return None

    def _place(self, folder: Path, run: RunResult, locks: ExitStack) -> int:
        staged = self._staging / run.run_id
        left_out = copy_files(folder, staged)
        if read_run(staged) != run or read_run(folder) != run:
            message = f"{folder}: its results changed while they were copied"
            raise UsageError(message, remedy="Wait until its run ends, then import it again.")
        locks.enter_context(lock_run(staged))  # the lock file moves with the folder
        target = self._results / run.run_id
        if target.exists():
            target.rename(self._staging / f"{run.run_id}{ASIDE}")
        staged.rename(target)
        return left_out

    def _save(self, run: RunResult, outcome: ImportOutcome) -> Iterator[str]:
        """Store platforms that the store does not have, with their tests; yield notes."""
        stored = self._stored(run.run_id)
        if stored == run:
            return
        details = {}
        for result in run.platforms:
            if stored is None or result not in stored.platforms:
                files = ResultFiles(folder=self._results / run.run_id / result.platform)
                details[result.platform] = files.details
                if files.log is None and result.pytest is not None:
                    yield f"{result.platform}: stored without its tests: their log is missing"
        self._store.save(run, details)
        if outcome is ImportOutcome.UNCHANGED:
            yield "the run was missing in the store and is stored now"
