"""Runs of the store together with runs that are only files, such as those of other machines.

Files are imported into a temporary store, with all the checks of an import. What is compared with
them is copied there, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING

from ci.errors import InfrastructureError, UsageError
from ci.model.results import RunResult
from ci.store.folder import (
    RESULTS_FILE,
    default_url,
    is_regular,
    parse_results,
    read_results_bytes,
)
from ci.store.importing import Importer, find_run_folders, read_run
from ci.util.invocation import command

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store


@dataclass(kw_only=True)
class RunPool:
    """Finds runs by id, wherever they are."""

    results: Path
    """The folder of all runs."""
    store: Store | None
    """Their store; ``None``: there is none here."""
    _stack: ExitStack
    """Ends what was opened, and removes it."""
    _outside: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the files that are not in the store, by run id."""

    @cached_property
    def _folder(self) -> Path:
        """A temporary folder, made only if files are named."""
        return Path(self._stack.enter_context(TemporaryDirectory(prefix="infini-ci-gate-")))

    @cached_property
    def _others(self) -> Importer:
        """Imports files into a temporary store."""
        from ci.store.store import Store

        results = self._folder / "results"
        results.mkdir()
        store = self._stack.enter_context(Store(default_url(results)))
        return self._stack.enter_context(
            Importer(results=results, store=store, render=lambda _: "")
        )

    def add(self, path: Path) -> list[RunResult]:
        """Read a results file, or the run folders at or below a folder.

        Raises ``UsageError`` if another run here has the same id and other results.
        """
        folders = find_run_folders(path) if path.is_dir() else [self._folder_of(path)]
        return [*map(self._add, folders)]

    def _folder_of(self, path: Path) -> Path:
        if path.name == RESULTS_FILE:
            return path.parent
        if not is_regular(path):
            raise UsageError(f"{path}: got no regular file, expected a {RESULTS_FILE}")
        content = read_results_bytes(path)
        parse_results(path, content)  # its message names the file of the user
        folder = Path(mkdtemp(dir=self._folder))
        (folder / RESULTS_FILE).write_bytes(content)
        return folder

    def _add(self, folder: Path) -> RunResult:
        run = read_run(folder)
        known = self.store.find(run.run_id) if self.store else None
        if known is None and run.run_id in self._outside:
            known = self._others.store.find(run.run_id)
        if known is None:
            digest = hashlib.sha256(read_results_bytes(folder / RESULTS_FILE)).hexdigest()
            self._others.import_run(folder)
            self._outside[run.run_id] = digest
        elif known != run:
            message = f"{folder}: run {run.run_id} is already here with other results"
            raise UsageError(message, remedy="Name only one of the two.")
        return run

    def digest(self, run_id: str) -> str:
        """SHA-256 of a run's results file; raises ``InfrastructureError`` if the store differs."""
        if run_id in self._outside:
            return self._outside[run_id]
        run, path = self.store_of(run_id).load(run_id), self.results / run_id / RESULTS_FILE
        if not is_regular(path):
            return hashlib.sha256(run.to_json().encode()).hexdigest()
        content = read_results_bytes(path)
        if parse_results(path, content) != run:
            message = f"{path}: got other results than the store has of run {run_id}"
            remedy = f"If the file is right: {command('import', path.parent, '--replace')}"
            raise InfrastructureError(message, remedy=remedy)
        return hashlib.sha256(content).hexdigest()

    def folder(self, run_id: str) -> Path:
        """The folder of a run's results file, also of a run that is a file."""
        results = self._others.results if run_id in self._outside else self.results
        return results / run_id

    def store_of(self, *run_ids: str) -> Store:
        """A store that has all of these runs, with their tests.

        Raises ``UsageError`` if one is a file, and another one has no folder to copy.
        """
        if self.store is not None and self._outside.keys().isdisjoint(run_ids):
            return self.store
        for run_id in run_ids:
            if self._others.store.find(run_id) is None:
                folder = self.results / run_id
                if not is_regular(folder / RESULTS_FILE):
                    message = (
                        f"run {run_id} has no folder in {self.results}: it is only in the store"
                    )
                    what = "To compare it with a run that is a file, import that one"
                    raise UsageError(message, remedy=f"{what}: {command('import', 'DIR')}")
                self._others.import_run(folder)
        return self._others.store


@contextmanager
def open_pool(results: Path, store: Store | None) -> Iterator[RunPool]:
    """Open a pool. What it copies is removed at the end."""
    with ExitStack() as stack:
        yield RunPool(results=results, store=store, _stack=stack)
