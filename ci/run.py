"""The run coordinator: plan, engine, events, verdict, store, results, one after the other.

After every platform the results so far are written, so whatever happens to this process,
what is on disk is true, and ``--resume`` goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from filelock import FileLock, Timeout

from ci.collect import judged, not_run_result, read_log, read_record
from ci.engines.base import Engine, ExecutionFacts, ImageFacts
from ci.errors import CiError, UsageError
from ci.interrupts import interrupts_go_to
from ci.plan import RunPlan
from ci.progress import Progress
from ci.pytest_log import TestOutcome
from ci.report import results_markdown
from ci.request import REQUEST_FILE, RunRequest, changed_sources
from ci.results import PlatformResult, Product, RunResult, read_results, title, write_atomically
from ci.store import Store

LOCK_FILE = ".lock"
RESUMED = "resumed: the first caller's image and sync times are lost"
PENDING = "it had not begun when these results were written"


@dataclass(kw_only=True)
class Run:
    """One run under way."""

    request: RunRequest
    plans: Sequence[RunPlan]
    engine: Engine
    results: Path  # results/<run-id>
    store: Store
    progress: Progress
    resumed: bool
    interrupted: bool = False
    _done: dict[str, PlatformResult] = field(default_factory=dict)
    _tests: dict[str, Sequence[TestOutcome]] = field(default_factory=dict)

    def execute(self) -> RunResult:
        """Carry out every plan in turn; never raises for what a platform does."""
        self.results.mkdir(parents=True, exist_ok=True)
        with _only_caller(self.results):
            return self._execute()

    def _execute(self) -> RunResult:
        write_atomically(self.results / REQUEST_FILE, self.request.model_dump_json(indent=2))
        _link_latest(self.results)
        if self.resumed:
            self._keep_finished()
        else:
            self._save()
        for plan in self.plans:
            if plan.platform in self._done:
                continue
            if self.interrupted:
                break
            self.progress.platform(title(plan.label, simulated=plan.simulated))
            self._done[plan.platform] = self._platform(plan)
            self._save()
        return self._save()

    def _keep_finished(self) -> None:
        """Take over the platforms that the earlier attempt brought to an end."""
        path = self.results / "results.json"
        if not path.exists():
            return
        for result in read_results(path).platforms:
            if result.verdict.product in (Product.PASSED, Product.FAILED):
                self._done[result.platform] = result
                self._tests[result.platform] = _tests_in(self.results / result.platform)

    def _platform(self, plan: RunPlan) -> PlatformResult:
        try:
            if facts := self._adopt(plan) if self.resumed else None:
                return self._judged(plan, facts)
            if self.resumed:
                self._refuse_other_sources()
            image = self._begin(plan)
        except UsageError:  # nothing that a row of the table could say
            raise
        except (CiError, OSError) as error:
            self.progress.failure(_message(error))
            return not_run_result(plan, _message(error))
        except KeyboardInterrupt:
            self.interrupted = True
            return not_run_result(plan, "the run was interrupted while the image was prepared")
        return self._carry_out(plan, image)

    def _refuse_other_sources(self) -> None:
        if changes := self._changes():
            message = f"--resume: run {self.request.run_id} had other sources: {changes}"
            raise UsageError(message, remedy="Undo the change, or start a new run.")

    def _changes(self) -> str | None:
        return changed_sources(self.request, self.results.parent)

    def _judged(self, plan: RunPlan, facts: ExecutionFacts) -> PlatformResult:
        self.interrupted |= facts.interrupted
        with interrupts_go_to(self._interrupt):
            self._tests[plan.platform] = _tests_in(plan.results)
            return judged(plan, facts)

    def _begin(self, plan: RunPlan) -> ImageFacts:
        _set_aside(plan.results)
        plan.results.mkdir(parents=True)
        self.progress.event({"event": "stage_started", "stage": "image"})
        image = self.engine.prepare(plan, self.progress)
        finished = {"event": "stage_finished", "stage": "image", "exit_code": 0}
        self.progress.event({**finished, "seconds": image.seconds, "reason": image.reason})
        return image

    def _carry_out(self, plan: RunPlan, image: ImageFacts) -> PlatformResult:
        try:
            changes = self._changes()  # making the image may have taken long
            facts = self.engine.execute(plan, image, self.progress)
            notes = [f"the sources changed meanwhile: {changes}"] if changes else []
            facts = replace(facts, notes=(*notes, *facts.notes))
        except (CiError, OSError) as error:
            self.progress.failure(_message(error))
            if not read_record(plan.results).events:
                return not_run_result(plan, _message(error))
            facts = ExecutionFacts(
                engine=self.engine.name, image=image, lost=True, notes=(_message(error),)
            )
        except KeyboardInterrupt:  # outside of the engine's own handling
            facts = ExecutionFacts(engine=self.engine.name, image=image, interrupted=True)
        return self._judged(plan, facts)

    def _adopt(self, plan: RunPlan) -> ExecutionFacts | None:
        """What an earlier attempt left: a container, or results that nobody judged."""
        facts = self.engine.resume(plan, self.progress)
        if facts is not None:
            return replace(facts, notes=(RESUMED, *facts.notes))
        finished = read_record(plan.results).run_finished
        if finished is None or finished.interrupted:
            return None
        return ExecutionFacts(
            engine=self.engine.name, exit_code=finished.exit_code, notes=(RESUMED,)
        )

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        self.interrupted = True  # noticed before the next platform

    def _save(self) -> RunResult:
        with interrupts_go_to(self._interrupt):
            return self._write()

    def _write(self) -> RunResult:
        pending = "the run was interrupted before it began" if self.interrupted else PENDING
        request = self.request
        result = RunResult(
            run_id=request.run_id,
            project=request.project,
            commit=request.commit,
            dirty=request.dirty,
            started_at=request.started_at,
            finished_at=datetime.now(UTC),
            engine=self.engine.name,
            platforms=tuple(
                self._done.get(plan.platform) or not_run_result(plan, pending)
                for plan in self.plans
            ),
        )
        write_atomically(self.results / "results.json", result.to_json())
        write_atomically(self.results / "results.md", results_markdown(result))
        self.store.save(result, self._tests)
        return result


def _only_caller(folder: Path) -> AbstractContextManager[object]:
    """A second caller would take the first one's container away. The kernel unlocks."""
    try:
        return FileLock(folder / LOCK_FILE).acquire(timeout=0)
    except Timeout:
        message = f"run {folder.name} is still going on"
        raise UsageError(message, remedy="Wait for it, or interrupt it where it runs.") from None


def _tests_in(folder: Path) -> Sequence[TestOutcome]:
    log = read_log(folder)
    return log.tests if log else ()


def _set_aside(folder: Path) -> None:
    """Keep what an earlier attempt left, so that two attempts never mix in one log."""
    if not folder.exists():
        return
    taken = len(list(folder.parent.glob(f"{folder.name}.attempt-*")))
    folder.rename(folder.with_name(f"{folder.name}.attempt-{taken + 1}"))


def _message(error: CiError | OSError) -> str:
    remedy = error.remedy if isinstance(error, CiError) else None
    return f"{error} ({remedy})" if remedy else str(error)


def _link_latest(folder: Path) -> None:
    """Point ``results/latest`` to ``folder``, at once."""
    temporary = folder.parent / f".latest-{folder.name}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(folder.name)
    temporary.replace(folder.parent / "latest")
