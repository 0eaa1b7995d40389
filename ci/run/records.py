"""The records of a run: its folder, and its rows in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ci.facts.contract import Contract
from ci.facts.contract_text import contract_text
from ci.facts.result_files import ResultFiles
from ci.model.details import Details
from ci.model.plan import RunPlan
from ci.model.results import PlatformResult, RunResult
from ci.plan.project import KEPT_CONTRACTS
from ci.plan.request import REQUEST_FILE, RunRequest
from ci.report.table import ResultsReport
from ci.run.estimates import stage_estimates
from ci.store.folder import PAGE_FILE, RESULTS_FILE, link_latest, lock_run, make_folder, open_store
from ci.util.files import write_atomically

if TYPE_CHECKING:  # SQLAlchemy takes 0.3 s to import
    from ci.store.store import Store


class Records:
    """The results of a run; nothing is written, locked or opened before ``open``."""

    def __init__(self, folder: Path, open_store: Callable[[], Store]) -> None:
        self.folder = folder
        self._open_store = open_store
        self._store: Store | None = None
        self._stack = ExitStack()
        self._unsaved: dict[str, Details] = {}

    @classmethod
    def of_run(cls, results: Path, run_id: str) -> Records:
        """The records of a run in a folder of results, which has the store."""
        return cls(results / run_id, partial(open_store, results))

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def is_open(self) -> bool:
        return self._store is not None

    def open(self) -> None:
        """Make the folder, and lock it: no other caller may resume the same run."""
        make_folder(self.folder.parent)
        store = self._stack.enter_context(self._open_store())
        self.folder.mkdir(exist_ok=True)
        self._stack.enter_context(lock_run(self.folder))
        link_latest(self.folder)
        self._store = store

    def estimates(self, project: str, plan: RunPlan, engine: str) -> Mapping[str, float]:
        """Return the seconds that the stages of a platform usually take on an engine."""
        return stage_estimates(self._store, project, plan, engine) if self._store else {}

    def write_contracts(self, plans: Sequence[RunPlan]) -> None:
        """Keep the contracts of the start: a later caller judges the run by them."""
        folder = self.folder / KEPT_CONTRACTS
        for plan in plans:
            if plan.contract is None:
                continue
            folder.mkdir(exist_ok=True)  # also for a platform that has none yet
            if suite := plan.contract.suite:
                contract = Contract(platform=plan.platform, suite=suite, simulated=plan.simulated)
                write_atomically(folder / f"{plan.platform}.yaml", contract_text(contract))

    def missing_contracts(self, plans: Sequence[RunPlan]) -> str | None:
        """Return the message for a run of a version that did not keep its contracts."""
        is_kept = (self.folder / KEPT_CONTRACTS).is_dir()
        if is_kept or all(plan.contract is None for plan in plans):
            return None
        return f"run {self.folder.name} has no contracts of its start: the present ones are used"

    def write_request(self, request: RunRequest) -> None:
        write_atomically(self.folder / REQUEST_FILE, request.model_dump_json(indent=2))

    def add(self, platform: str, details: Details) -> None:
        """Keep a platform's tests and other details for the next ``save``."""
        self._unsaved[platform] = details

    def restore(self, run_id: str, result: PlatformResult) -> None:
        """Read the details that an earlier caller did not store before it died."""
        if self._store is not None and not self._store.holds(run_id, result):
            files = ResultFiles(folder=self.folder / result.platform)
            self.add(result.platform, files.details)

    def save(self, result: RunResult) -> None:
        """Write the results so far; the store gets each platform's details once."""
        write_atomically(self.folder / RESULTS_FILE, result.to_json())
        write_atomically(self.folder / PAGE_FILE, ResultsReport(result).markdown())
        if self._store is not None:
            self._store.save(result, self._unsaved)
        self._unsaved.clear()
