"""Import runs from elsewhere into a folder of results and its store, one at a time.

A run's folder is copied to a staging folder, stored from there in one transaction, and then moved.
So a run that cannot be stored changes nothing, and importing again completes an interrupted import.

The folder may come from anywhere. Its size and depth are checked before it is copied or read.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from ci.errors import CiError, UnreadableRunError, UsageError
from ci.facts.result_files import ResultFiles
from ci.model.details import NO_DETAILS
from ci.model.platforms import PLATFORMS
from ci.model.results import HOST_LOCK, POOL_RECORD, RUN_ID, PlatformResult, RunResult
from ci.plan.request import REQUEST_FILE, imported_request, read_request
from ci.store.folder import (
    LOCK_FILE,
    PAGE_FILE,
    RESULTS_FILE,
    is_regular,
    is_running,
    link_latest,
    lock_run,
    read_results,
)
from ci.util.files import walk
from ci.util.lines import DEEPEST
from ci.util.text import counted, join_names

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store


STAGING = ".import"
ASIDE = "-aside"
# The locks refer to processes of the original machine, and the request to its files.
NOT_COPIED = (LOCK_FILE, HOST_LOCK, POOL_RECORD, REQUEST_FILE)
# Bounds of a run's folder; one of seven platforms has 300 files with 300 MB.
LARGEST_RUN = 1 << 34  # bytes
MOST_FILES = 100_000
# Bytes of a platform's per-test logs, reruns included. Those of 17,000 tests have 30 MB, and take
# 6 times their size in memory.
LARGEST_LOGS = 1 << 28


def find_run_folders(folder: Path) -> list[Path]:
    """The run folders: ``folder`` itself, or those below it, at most ``DEEPEST`` levels down.

    Links are not followed.
    """
    if not folder.is_dir():
        message = f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}"
        raise UsageError(message, remedy="Name a folder. Unpack an archive first.")
    found = []
    for parent, folders, _ in walk(folder, DEEPEST):
        # A run folder without results was not copied completely: it is reported, not skipped.
        if is_regular(parent / RESULTS_FILE) or RUN_ID.fullmatch(parent.name):
            found.append(parent)
            folders.clear()
        else:
            folders[:] = sorted(name for name in folders if not name.startswith("."))
    if not found:
        message = f"{folder}: got no {RESULTS_FILE} in it or below, expected the results of a run"
        remedy = "Name a folder results/<run id>, or a folder that contains several."
        raise UsageError(message, remedy=remedy)
    return found


def is_delegated(results: Path, folder: Path) -> bool:
    """Whether a folder has files of a run that was opened here for another system to carry out.

    They have no results yet: only this machine's own request says what they mean.
    """
    own = results / folder.name
    if is_regular(folder / RESULTS_FILE) or not is_regular(own / REQUEST_FILE):
        return False
    try:
        return read_request(results, folder.name, "import").system is not None
    except UsageError:  # it was imported itself
        return False


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
        remedy = "Copy the folder again from the machine that ran it. If a newer version of this"
        remedy += " program wrote it, update this one."
        raise UsageError(f"{folder / RESULTS_FILE}: " + "; ".join(faults), remedy=remedy)
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


def check_size(folder: Path) -> None:
    """Raise ``UsageError`` for a folder that exceeds the bounds, before any of it is copied."""
    files = size = 0
    for parent, folders, names in walk(folder, DEEPEST):
        if folders and len(parent.parts) - len(folder.parts) >= DEEPEST:
            raise UsageError(f"{folder}: got more than {DEEPEST} nested folders, expected fewer")
        files += len(folders) + len(names)
        size += sum((parent / name).lstat().st_size for name in names)
        for got, most, noun in ((files, MOST_FILES, "file"), (size, LARGEST_RUN, "byte")):
            if got > most:
                message = f"{folder}: got more than {counted(most, noun)}, expected at most that"
                remedy = "Remove what the run did not write. No results of a run are that large."
                raise UsageError(message, remedy=remedy)


def copy_files(folder: Path, target: Path) -> int:
    """Copy regular files and folders; return the number of links and special files left out."""
    left_out = 0
    for parent, folders, names in walk(folder, DEEPEST):
        copy = target / parent.relative_to(folder)
        copy.mkdir(parents=True, exist_ok=True)
        left_out += sum((parent / name).is_symlink() for name in folders)
        for name in names:
            if not is_regular(parent / name):
                left_out += 1
            elif name not in NOT_COPIED:
                shutil.copyfile(parent / name, copy / name)
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


@dataclass(kw_only=True)
class Importer:
    """Imports runs into one folder of results; a lock keeps a second import out.

    ``render`` makes the page ``results.md`` of a run, in place of the page that came with it.
    """

    results: Path
    store: Store
    render: Callable[[RunResult], str]
    replace: bool = False
    _stack: ExitStack = field(default_factory=ExitStack, init=False)

    @property
    def _staging(self) -> Path:
        return self.results / STAGING

    def __enter__(self) -> Importer:
        self._staging.mkdir(exist_ok=True)
        try:
            self._stack.enter_context(FileLock(self._staging / LOCK_FILE).acquire(timeout=0))
        except Timeout:
            message = f"another import into {self.results} is running"
            raise UsageError(message, remedy="Wait until it ends, then import again.") from None
        self._stack.callback(self._clean_up)
        self._clean_up()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _clean_up(self) -> None:
        """Remove leftovers of an interrupted import, and restore the run it had set aside."""
        for path in self._staging.iterdir():
            target = self.results / path.name.removesuffix(ASIDE)
            if path.name.endswith(ASIDE) and not target.exists():
                path.rename(target)
            elif path.is_dir():
                shutil.rmtree(path)

    def import_run(self, folder: Path) -> tuple[RunResult, ImportOutcome, list[str]]:
        """Import the run in ``folder`` if it is new or newer; return it with outcome and notes."""
        run = read_run(folder)
        target = self.results / run.run_id
        with ExitStack() as locks:
            if target.is_dir():
                locks.enter_context(lock_run(target))
            outcome = self._outcome(run)
            is_missing = outcome is ImportOutcome.UNCHANGED and not target.exists()
            is_placed = outcome.changes_results or is_missing
            left_out = self._stage(folder, run, locks) if is_placed else 0
            results = self._staging if is_placed else self.results
            notes = []
            if outcome is not ImportOutcome.OUTDATED:
                notes = list(self._save(run, outcome, results))
            if is_placed:
                self._place(run.run_id)
            # `latest` is the run that began last, not the one that was imported last.
            if outcome.changes_results and self.store.heads(last=1)[0].run_id == run.run_id:
                link_latest(target)
        if left_out:
            notes.append(f"left out: {counted(left_out, 'link')} or special files")
        return run, outcome, notes

    def _outcome(self, run: RunResult) -> ImportOutcome:
        path = self.results / run.run_id / RESULTS_FILE
        try:
            known = read_results(path) if path.exists() else self._stored(run.run_id)
            return compare_with_known(known, run)
        except CiError:  # other results, or damaged ones
            if self.replace:
                return ImportOutcome.UPDATED
            raise

    def _stored(self, run_id: str) -> RunResult | None:
        try:
            return self.store.find(run_id)
        except UnreadableRunError as error:
            if error.damaged:  # importing it again replaces its rows
                return None
            raise

    def _stage(self, folder: Path, run: RunResult, locks: ExitStack) -> int:
        """Copy a run's folder, and return the number of files that were left out."""
        check_size(folder)
        staged = self._staging / run.run_id
        shutil.rmtree(staged, ignore_errors=True)  # of another folder, which was refused
        left_out = copy_files(folder, staged)
        if read_run(staged) != run or read_run(folder) != run:
            message = f"{folder}: its results changed while they were copied"
            raise UsageError(message, remedy="Wait until its run ends, then import it again.")
        names = [result.platform for result in run.platforms]
        request = imported_request(run.project, names, run.started_at)
        (staged / REQUEST_FILE).write_text(request, encoding="utf-8")
        (staged / PAGE_FILE).write_text(self.render(run), encoding="utf-8")
        locks.enter_context(lock_run(staged))  # the lock file moves with the folder
        return left_out

    def _place(self, run_id: str) -> None:
        """Move the copy to its place."""
        staged, target = self._staging / run_id, self.results / run_id
        if target.exists():
            target.rename(self._staging / f"{run_id}{ASIDE}")
        staged.rename(target)

    def _save(self, run: RunResult, outcome: ImportOutcome, results: Path) -> Iterator[str]:
        """Store platforms that the store does not have, with their tests; yield notes.

        ``results`` is the folder that has the folder of the run.
        """
        stored = self._stored(run.run_id)
        if stored == run:
            return
        details = {}
        for result in run.platforms:
            if stored is None or result not in stored.platforms:
                files = ResultFiles(folder=results / run.run_id / result.platform)
                if too_long := _describe_long_logs(files.folder):
                    yield f"{result.platform}: stored without its tests: {too_long}"
                    details[result.platform] = NO_DETAILS
                    continue
                details[result.platform] = files.details
                if files.log is None and result.pytest is not None:
                    yield f"{result.platform}: stored without its tests: their log is missing"
        self.store.save(run, details)
        if outcome is ImportOutcome.UNCHANGED:
            yield "the run was missing in the store and is stored now"


def _describe_long_logs(folder: Path) -> str | None:
    """``their logs have 3,000,000,000 bytes, ...``; ``None`` if the logs are within the bound."""
    size = sum(path.lstat().st_size for path in folder.glob("pytest*.jsonl"))
    if size <= LARGEST_LOGS:
        return None
    return f"their logs have {counted(size, 'byte')}, expected at most {LARGEST_LOGS:,}"
