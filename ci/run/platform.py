"""One platform of a run: prepare, execute or adopt, judge.

It runs in a process of its own (``ci.run.workers``) and knows nothing of the other platforms.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

from ci.engines import Engine, Observer
from ci.errors import CiError, PrerequisiteError, UsageError
from ci.facts.platform_result import judged_result, not_judged_result, not_run_result
from ci.facts.result_files import ResultFiles
from ci.model.details import NO_DETAILS, Details
from ci.model.plan import RunPlan
from ci.model.results import ExecutionFacts, ImageFacts, PlatformResult
from ci.plan.request import RunRequest, source_changes
from ci.util.process import handle_interrupts

RESUMED = "resumed: the first caller's image and sync times are lost"


@dataclass(frozen=True, kw_only=True)
class PlatformOutcome:
    """A platform at its end: its row of the table, and what the store keeps beside it."""

    result: PlatformResult
    details: Details = NO_DETAILS
    interrupted: bool = False
    install: str | None = None
    """The command that installs what this machine lacks."""


@dataclass(frozen=True, kw_only=True)
class PlatformRun:
    """One platform under way."""

    request: RunRequest
    plan: RunPlan
    engine: Engine
    observer: Observer
    resumed: bool

    def execute(self) -> PlatformOutcome:
        """Carry the plan out; never raises for what the platform does."""
        try:
            if self.resumed:
                if outcome := self._adopted():
                    return outcome
                if changes := self._changes():
                    message = f"--resume: run {self.request.run_id} had other sources: {changes}"
                    raise UsageError(message, remedy="Undo the change, or start a new run.")
            image = self._prepare()
        except UsageError:  # nothing that a row of the table could say
            raise
        except PrerequisiteError as error:  # one command for all platforms, shown once, at the end
            return replace(self._not_run(str(error)), install=error.remedy)
        except (CiError, OSError) as error:
            return self._not_run(error_text(error))
        except KeyboardInterrupt:
            reason = "the run was interrupted while the image was prepared"
            return replace(self._not_run(reason), interrupted=True)
        return self._carry_out(image)

    def _not_run(self, reason: str) -> PlatformOutcome:
        self.observer.event({"event": "failure", "text": reason})
        return PlatformOutcome(result=not_run_result(self.plan, reason))

    def _adopted(self) -> PlatformOutcome | None:
        """Judge what an earlier attempt left: a container, or results that nobody judged."""
        facts = self.engine.resume(self.plan, self.observer)
        files = ResultFiles(folder=self.plan.results, stages=self.plan.stages)
        if facts is None:
            end = files.record.run_finished
            if end is None or end.interrupted:
                return None
            facts = ExecutionFacts(engine=self.engine.name, exit_code=end.exit_code)
        facts = replace(facts, notes=(RESUMED, *facts.notes))
        with handle_interrupts(signal.SIG_IGN):  # the caller heeds them; reading takes no time
            return judge_platform(self.plan, facts, files)

    def _changes(self) -> str | None:
        return source_changes(self.request, self.plan.results.parent.parent)  # of all runs

    def _prepare(self) -> ImageFacts:
        folder = self.plan.results
        if folder.exists():  # of an earlier attempt: two never mix in one log
            taken = len(list(folder.parent.glob(f"{folder.name}.attempt-*")))
            folder.rename(folder.with_name(f"{folder.name}.attempt-{taken + 1}"))
        folder.mkdir(parents=True)
        return prepare_image(self.engine, self.plan, self.observer)

    def _carry_out(self, image: ImageFacts) -> PlatformOutcome:
        try:
            changes = self._changes()  # making the image may have taken long
            facts = self.engine.execute(self.plan, image, self.observer)
            notes = [f"the sources changed meanwhile: {changes}"] if changes else []
            facts = replace(facts, notes=(*notes, *facts.notes))
        except (CiError, OSError) as error:
            self.observer.event({"event": "failure", "text": error_text(error)})
            with handle_interrupts(signal.SIG_IGN):
                return judge_lost(
                    self.plan, error_text(error), engine=self.engine.name, image=image
                )
        except KeyboardInterrupt:  # outside of the engine's own handling
            facts = ExecutionFacts(engine=self.engine.name, image=image, interrupted=True)
        with handle_interrupts(signal.SIG_IGN):
            return judge_platform(self.plan, facts)


def prepare_image(engine: Engine, plan: RunPlan, observer: Observer) -> ImageFacts:
    """Prepare the image of ``plan``, which an observer is shown as a stage of its own."""
    observer.event({"event": "stage_started", "stage": "image"})
    image = engine.prepare(plan, observer)
    end = {"event": "stage_finished", "stage": "image", "exit_code": 0}
    observer.event({**end, "seconds": image.seconds, "reason": image.reason})
    return image


def judge_platform(
    plan: RunPlan, facts: ExecutionFacts, files: ResultFiles | None = None
) -> PlatformOutcome:
    """Judge what lies in the platform's results folder; ``files`` where some of it is read."""
    files = files or ResultFiles(folder=plan.results, stages=plan.stages)
    result = judged_result(plan, facts, files)
    return PlatformOutcome(result=result, details=files.details, interrupted=facts.interrupted)


def judge_lost(
    plan: RunPlan, reason: str, *, engine: str, image: ImageFacts | None = None
) -> PlatformOutcome:
    """Judge a platform whose harness broke: what there is on the disk, if it began at all."""
    files = ResultFiles(folder=plan.results, stages=plan.stages)
    if not files.record.events:
        return PlatformOutcome(result=not_run_result(plan, reason))
    facts = ExecutionFacts(engine=engine, image=image, lost=True, notes=(reason,))
    return judge_platform(plan, facts, files)


def not_judged(plan: RunPlan, reason: str, error: Exception) -> PlatformOutcome:
    """The row of a platform that this program has failed at; `--resume` tries again."""
    return PlatformOutcome(result=not_judged_result(plan, f"{reason}: {error_text(error)}"))


def error_text(error: Exception) -> str:
    """The message with its remedy, for a row of the table; of a fault of this program, its type."""
    if not isinstance(error, CiError | OSError):
        return f"{type(error).__name__}: {error}"
    remedy = error.remedy if isinstance(error, CiError) else None
    if remedy is None:
        return str(error)
    # Behind the end of a log nobody would find it.
    return f"{error}\n{remedy}" if "\n" in str(error) else f"{error} ({remedy})"
