"""The four cells of a blame: the old and the new library, each in the old and the new environment.

Runs that are stored already are used: those of the commit whose environment was made of the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ci.analysis.blame import BUILD, SUITE, CellRun
from ci.errors import InfrastructureError, UsageError
from ci.facts.environment_key import environment_key
from ci.facts.failures import DIED, ENDED_USUALLY, reason_line
from ci.facts.sentences import on_tests
from ci.model.plan import EngineKind, RunPlan
from ci.model.results import PlatformResult
from ci.model.verdicts import Product
from ci.plan.environment import EnvironmentChoice, EnvironmentKind
from ci.plan.planning import RunOptions
from ci.run.commit_runs import Checkout, CommitRun
from ci.store.folder import open_store
from ci.store.store import Store
from ci.util.files import file_digest
from ci.util.terminal import complain
from ci.util.text import commit_name, join_names

BLAME = "blame"
MOST_STORED = 5  # newest runs of a cell: each is another sample of its tests


@dataclass(frozen=True, kw_only=True)
class BlameCell:
    """A commit of the library in an environment; ``name`` is for messages."""

    name: str
    commit: str
    environment: EnvironmentChoice


@dataclass(frozen=True, kw_only=True)
class CellReader:
    """Reads the runs of cells from the store, and makes those that are not there."""

    checkout: Checkout
    project: str
    platform: str
    results: Path
    options: RunOptions

    def runs_of(self, cell: BlameCell) -> list[CellRun]:
        """Return the stored runs of a cell, the newest first, or a new one.

        Raises:
            UsageError, ConfigError: The cell cannot be run as asked.
            InfrastructureError: The run has no result.
        """
        options = self.options.model_copy(update={"asked_by": BLAME})
        planned = self.checkout.plan(
            cell.commit, self.platform, self.results, options, cell.environment
        )
        _refuse_image(cell, planned.plans[0].engine.kind)
        place = f"{cell.name}: {commit_name(cell.commit)} with {cell.environment.text}"
        if stored := self._stored(planned, cell.commit):
            complain(f"{BLAME}: {place}: use {join_names([it.run_id for it in stored])}")
            return stored
        complain(f"{BLAME}: run {place}")
        run_id = planned.request.run_id
        row = planned.execute().platform(self.platform)
        self._check(row, run_id, cell)
        with open_store(self.results) as store:
            return [read_cell_run(store, run_id, row)]

    def _stored(self, planned: CommitRun, commit: str) -> list[CellRun]:
        [plan] = planned.plans
        asked = self.options.engine_of(self.platform) and plan.engine.kind
        found: list[CellRun] = []
        with open_store(self.results) as store:
            heads = [
                head
                for head in store.heads(project=self.project)
                if head.commit == commit
                and not head.dirty
                and self.platform in head.begun
                and head.selected.get(self.platform) == self.options.selected
            ]
            for head in heads:
                if len(found) == MOST_STORED:
                    break
                if (run := store.load_or_skip(head.run_id)) is None:
                    continue
                row = run.platform(self.platform)
                is_of_engine = asked in (None, row.facts("engine").get("name"))
                if is_of_engine and is_judged_cell(row) and is_made_of(row, plan):
                    found.append(read_cell_run(store, head.run_id, row))
        return found

    def _check(self, row: PlatformResult, run_id: str, cell: BlameCell) -> None:
        """Raise an error for a run that says nothing of its cell."""
        _refuse_image(cell, row.facts("engine").get("name"))  # which ``auto`` chose
        if not is_judged_cell(row):
            verdict = row.verdict
            message = f"{BLAME}: {cell.name}: run {run_id} of {commit_name(cell.commit)} has no"
            message += f" result: {verdict.reason or verdict.harness}"
            remedy = "Repeat the command when this is solved: it keeps all runs so far."
            raise InfrastructureError(message, remedy=remedy)


def _refuse_image(cell: BlameCell, engine: str | None) -> None:
    """Raise ``UsageError`` for a base image on an engine without images."""
    if cell.environment.kind is EnvironmentKind.IMAGE and engine == EngineKind.HOST:
        message = f"{BLAME}: {cell.name}: got the host engine, expected one of containers for"
        remedy = "Start a Docker Engine, or name requirements in place of the image."
        raise UsageError(f"{message} the base image {cell.environment.text}", remedy=remedy)


def is_judged_cell(row: PlatformResult) -> bool:
    """Whether a run shows what its sources do, as a test that hangs or ends its process does."""
    return row.verdict.product.is_final or row.verdict.harness in DIED


def is_made_of(row: PlatformResult, plan: RunPlan) -> bool:
    """Whether the environment of a stored run was made of what ``plan`` would make it of."""
    image = row.facts("engine", "image")
    if row.facts("engine").get("name") == EngineKind.HOST:
        return image.get("requirements") == file_digest(plan.host.requirements)
    return plan.image is not None and image.get("reference") == plan.image.tag


def read_cell_run(store: Store, run_id: str, row: PlatformResult) -> CellRun:
    """Read what a run says of its tests."""
    stored = store.outcomes(run_id, row.platform)
    outcomes = {name: state.outcome for name, state in stored.states.items()}
    messages = {name: reason_line(text, name) for name, text in stored.failures.items()}
    if row.built is False and row.failures:
        messages[BUILD] = row.failures[0].message
    breaches = [it.text for it in row.verdict.evidence if it.code == on_tests.contract_broken.code]
    if breaches:
        messages[SUITE] = breaches[0]
    reruns = store.reruns(run_id, row.platform)
    # pytest runs no test if a file cannot be collected, unless an option of it allows that.
    is_collected = not any(it.bad for name, it in outcomes.items() if "::" not in name)
    return CellRun(
        run_id=run_id,
        machine=machine_text(row),
        built=row.built,
        passed=row.verdict.product is Product.PASSED,
        complete=(row.pytest is not None and row.verdict.harness in ENDED_USUALLY and is_collected),
        outcomes=outcomes,
        messages=messages,
        ended_in=frozenset(it.test for it in row.failures if it.test and it.test not in outcomes),
        broke_contract=bool(breaches),
        recovered=frozenset(it.node_id for it in reruns if it.outcome.good),
    )


def machine_text(row: PlatformResult) -> str:
    """Return the machine of a run, its devices and its engine."""
    key = environment_key(row)
    return "; ".join((key.machine, key.instruction_sets, key.devices, key.engine))


def software_changes(store: Store, before: str, since: str, platform: str) -> Sequence[str]:
    """Return how the recorded environments of two runs differ."""
    keys = [environment_key(store.load_platform(it, platform)) for it in (before, since)]
    return [str(change) for change in keys[1].changes(keys[0])]
