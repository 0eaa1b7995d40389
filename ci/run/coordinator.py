"""The run coordinator: one worker for each platform, side by side.

The results so far are written after every platform. If this process dies, the results on disk are
correct, and ``--resume`` continues from them.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from ci.engines.select import Connect, shared_connections
from ci.errors import CiError, ExitCode, InfrastructureError, UsageError
from ci.facts.platform_result import not_run_result
from ci.facts.sentences.on_stages import PENDING
from ci.model.plan import RunPlan
from ci.model.results import PlatformResult, RunResult
from ci.model.verdicts import Product
from ci.plan.request import RunRequest
from ci.protocol.events import Event
from ci.run.attempts import PlatformAttempts
from ci.run.platform import PlatformOutcome, error_text, judge_lost, not_judged_outcome
from ci.run.progress import Progress
from ci.run.records import Records
from ci.run.status import Expectation
from ci.run.workers import Caller, Message, Readiness, WorkerFailure, Workers, forked_workers
from ci.store.folder import RESULTS_FILE, read_results
from ci.util.invocation import command, results_option
from ci.util.text import os_reason

ENGINE_LENGTH = 32  # characters of the store's column
INTERRUPTED = "the run was interrupted before this platform started"


@dataclass(kw_only=True)
class RunCoordinator:
    """One run in progress."""

    request: RunRequest
    plans: Sequence[RunPlan]
    connect: Connect
    records: Records
    progress: Progress
    resumed: bool
    jobs: int | None = None  # most platforms at once; None: the capacity of the engines
    interrupted: bool = False
    install: dict[str, None] = field(default_factory=dict)
    """The commands that install missing prerequisites, once each."""
    _rows: dict[str, PlatformResult] = field(default_factory=dict)  # of earlier attempts too
    _refused: dict[str, CiError] = field(default_factory=dict)

    def execute(self) -> RunResult:
        """Carry out every plan; raises ``CiError`` if every platform is refused."""
        if self.resumed:
            self._read_earlier()
        plans = [plan for plan in self.plans if not self._is_final(plan)]
        with ExitStack() as stack:
            connect = stack.enter_context(shared_connections(plans, self.connect))
            work = partial(self._work, connect)
            stack.enter_context(self.records)
            workers = stack.enter_context(forked_workers(plans, work, jobs=self.jobs))
            stack.enter_context(self.progress)
            for plan in plans:
                self.progress.expect(plan.title, expectation_of(plan))
            for plan, message in workers.messages():
                self._handle_safely(plan, message, workers)
            self.interrupted |= workers.interrupts > 0
            if self.interrupted and not self.records.is_open:
                raise KeyboardInterrupt
            if plans and len(self._refused) == len(plans):
                # In the order of the plans: the engines answer in any order.
                raise combined_refusal(
                    {plan.platform: self._refused[plan.platform] for plan in plans}
                )
            self._open_records()
            try:
                return self._save()
            except OSError as error:
                raise InfrastructureError(
                    f"the results of run {self.request.run_id} cannot be saved: {os_reason(error)}",
                    remedy="Make room there, then resume the run, which keeps what has finished:"
                    f" {self.command_to_resume}",
                ) from error

    def _work(self, connect: Connect, plan: RunPlan, caller: Caller) -> Message:
        """Carry out a plan in its worker."""
        row = self._rows.get(plan.platform)
        return PlatformAttempts(
            plan=plan,
            caller=caller,
            request=self.request,
            connect=connect,
            resumed=self.resumed,
            judged=row is not None and is_judged(row),
        ).carry_out()

    def _read_earlier(self) -> None:
        """Keep the rows of an earlier attempt, until their platforms have new ones."""
        if missing := self.records.missing_contracts(self.plans):
            self.progress.show_notice(missing)
        path = self.records.folder / RESULTS_FILE
        try:
            earlier = read_results(path).platforms if path.exists() else ()
        except InfrastructureError as error:  # each platform is then judged by its own files
            self.progress.show_notice(f"{error}; its rows are rebuilt from the platforms' files")
            earlier = ()
        self._rows = {
            row.platform: row for row in earlier if row.verdict.product is not Product.NOT_RUN
        }

    def _is_final(self, plan: RunPlan) -> bool:
        row = self._rows.get(plan.platform)
        return row is not None and row.verdict.product.is_final

    def _handle_safely(self, plan: RunPlan, message: Message, workers: Workers) -> None:
        """Handle a message; a failure of one platform never ends the others."""
        try:
            self._handle(plan, message, workers)
        except (CiError, OSError) as error:
            if not self.records.is_open:  # no result of any platform could be written
                raise
            self.progress.show_failure(plan.title, error_text(error))
        except Exception as error:  # the error is shown; the row follows at the platform's end
            self._show_fault(plan, error)

    def _show_fault(self, plan: RunPlan, error: Exception) -> None:
        """Show an internal error with its traceback."""
        details = "".join(traceback.format_exception(error)).strip()
        self.progress.show_failure(plan.title, f"{error_text(error)}\n{details}")

    def _handle(self, plan: RunPlan, message: Message, workers: Workers) -> None:
        match message:
            case Readiness():
                # The engine that `auto` selected: a resumed run needs the same one.
                engines = {**self.request.engines, plan.platform: message.engine}
                self.request = self.request.model_copy(update={"engines": engines})
                if self.records.is_open:
                    self.records.write_request(self.request)
                else:
                    self._open_records()
                if not workers.has_room(message):
                    self.progress.show_waiting(plan.title, engine=message.engine)
                self._estimate(plan, message.engine)
            case CiError():
                self._refused[plan.platform] = message
                if self.records.is_open:
                    self.progress.show_refusal(plan.title, error_text(message))
            case PlatformOutcome():
                self.interrupted |= message.interrupted
                self.install |= dict.fromkeys(filter(None, [message.install]))
                self._finish(plan, message)
            case WorkerFailure(reason=reason, details=details):
                self.progress.show_failure(plan.title, f"{reason}\n{details}".strip())
                self._open_records()
                self._finish(plan, self._judge_lost(plan, reason))
            case Event():
                self.progress.event(plan.title, message)

    def _estimate(self, plan: RunPlan, engine: str) -> None:
        # The store has the engine's kind, not its name in the site file.
        kind = engine if plan.engine.kind == "auto" else plan.engine.kind
        seconds = self.records.estimates(self.request.project, plan, kind)
        self.progress.estimate(plan.title, seconds)

    def _judge_lost(self, plan: RunPlan, reason: str) -> PlatformOutcome:
        try:
            return judge_lost(plan, reason, engine=plan.engine.name)
        except Exception as error:  # the same error may have killed the worker
            self._show_fault(plan, error)
            return not_judged_outcome(plan, f"{reason}; its results cannot be read", error)

    def _open_records(self) -> None:
        """Write the first results; a run that cannot write them must not go on."""
        if self.records.is_open:
            return
        self.records.open()
        if not self.resumed:
            self.records.write_contracts(self.plans)
        self.records.write_request(self.request)
        if self.resumed:
            self._restore()
        else:
            self._save()
        for plan in self.plans:
            if error := self._refused.get(plan.platform):
                self.progress.show_refusal(plan.title, error_text(error))

    def _restore(self) -> None:
        """Read the details of finished platforms that an earlier caller did not store."""
        for plan in filter(self._is_final, self.plans):
            try:
                self.records.restore(self.request.run_id, self._rows[plan.platform])
            except CiError:  # of the store
                raise
            except Exception as error:  # its row exists; only its tests are not stored
                self._show_fault(plan, error)

    def _finish(self, plan: RunPlan, outcome: PlatformOutcome) -> None:
        try:
            self._save_outcome(plan, outcome)
        except Exception as error:  # with this row no other row could be saved
            self._show_fault(plan, error)
            self._save_outcome(
                plan, not_judged_outcome(plan, "its results cannot be written", error)
            )
        self.progress.show_result(plan.title, self._rows[plan.platform])

    def _save_outcome(self, plan: RunPlan, outcome: PlatformOutcome) -> None:
        self._rows[plan.platform] = outcome.result
        self.records.add(plan.platform, outcome.details)
        try:
            self._save()
        except (CiError, OSError) as error:  # the others go on; the last save has to succeed
            self.progress.show_failure(plan.title, f"cannot be saved yet: {error_text(error)}")

    def _save(self) -> RunResult:
        result = self.request.result(self._engine_names(), map(self._row, self.plans))
        self.records.save(result)
        return result

    @property
    def command_to_resume(self) -> str:
        bundle = ("--bundle", self.request.bundle) if self.request.bundle else ()
        results = results_option(self.records.folder.parent)
        return command("run", "--resume", self.request.run_id, *bundle, *results)

    def _engine_names(self) -> str:
        """Return the engines that answered; ``environment.engine`` has each platform's own."""
        known = self.request.engines
        names = [known[plan.platform] for plan in self.plans if plan.platform in known]
        joined = ", ".join(dict.fromkeys(names or [plan.engine.name for plan in self.plans]))
        fits = len(joined) <= ENGINE_LENGTH
        return joined if fits else joined[: ENGINE_LENGTH - 1] + "\N{HORIZONTAL ELLIPSIS}"

    def _row(self, plan: RunPlan) -> PlatformResult:
        name = plan.platform
        if row := self._rows.get(name):
            return row
        if error := self._refused.get(name):
            return not_run_result(plan, error_text(error))
        return not_run_result(plan, INTERRUPTED if self.interrupted else PENDING)


def expectation_of(plan: RunPlan) -> Expectation:
    """Return what is known of a platform before it runs."""
    tests = {}
    # A contract is of the whole suite: of a selection, pytest counts the tests.
    if plan.selected is None and plan.expected_suite is not None:
        tests = {plan.pytest_stage.name: plan.expected_suite.counts().total()}
    return Expectation(stages=tuple(it.name for it in plan.stages), tests=tests)


def is_judged(row: PlatformResult) -> bool:
    """Whether a row was read from the files of its stages, not from the loss of them."""
    return any(stage.exit_code is not None for stage in row.stages)


def combined_refusal(refused: Mapping[str, CiError]) -> CiError:
    """Return one error for a run whose platforms are all refused."""
    reasons: dict[str, list[str]] = {}
    for name, error in refused.items():
        reasons.setdefault(str(error), []).append(name)
    if len(reasons) == 1:
        return next(iter(refused.values()))
    errors = refused.values()
    usage = all(error.exit_code is ExitCode.USAGE for error in errors)
    remedies = dict.fromkeys(error.remedy for error in errors if error.remedy)
    return (UsageError if usage else InfrastructureError)(
        "\n".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items()),
        remedy="\n".join(remedies) or None,
    )
