"""One platform of a run: prepare, execute or adopt, judge.

It runs in a process of its own (``ci.run.workers``) and knows nothing of the other platforms.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

from ci.engines import Engine, Observer, say
from ci.errors import CiError, ExitCode, InfrastructureError, PrerequisiteError, UsageError
from ci.facts.measures import IMAGE
from ci.facts.platform_result import judged_result, not_judged_result, not_run_result, with_kept
from ci.facts.result_files import ResultFiles
from ci.facts.shards import merge_files
from ci.gates.rules import exit_code
from ci.model.details import NO_DETAILS, Details
from ci.model.execution import ExecutionFacts, ImageFacts
from ci.model.plan import RunPlan
from ci.model.results import PlatformResult
from ci.model.verdicts import Product
from ci.plan.request import RunRequest, source_changes
from ci.protocol.job import PROTOCOL
from ci.run.locks import with_locks
from ci.run.status import ImagePrepared, ImageStarted, PlatformFailed
from ci.util.process import handle_interrupts
from ci.util.redaction import redact_folder

RESUMED = "resumed: the first caller's image and sync times are lost"


@dataclass(frozen=True, kw_only=True)
class PlatformOutcome:
    """The outcome of a platform: its row of the table, and its details for the store."""

    result: PlatformResult
    details: Details = NO_DETAILS
    interrupted: bool = False
    install: str | None = None
    """The command that installs missing prerequisites."""
    is_fault: bool = False
    """An infrastructure fault, which another attempt may not meet."""
    may_run: bool = False
    """A container may still run: the engine could not be asked for its end."""


@dataclass(frozen=True, kw_only=True)
class PlatformRun:
    """One platform in progress."""

    request: RunRequest
    plan: RunPlan
    engine: Engine
    observer: Observer
    resumed: bool
    judged: bool = False
    """An earlier attempt was judged: only what an engine still has can change its verdict."""

    def execute(self) -> PlatformOutcome:
        """Carry the plan out; a failure of the platform is an outcome, not an error."""
        try:
            if self.resumed:
                if outcome := self._adopt():
                    return outcome
                if changes := self._changes():
                    message = f"--resume: run {self.request.run_id} had other sources: {changes}"
                    raise UsageError(message, remedy="Undo the change, or start a new run.")
            image, changes = self._prepare()
        except UsageError:  # a mistake of the user, not an outcome of the platform
            raise
        except PrerequisiteError as error:  # one command for all platforms, shown once, at the end
            return replace(self._not_run(str(error)), install=error.remedy)
        except (CiError, OSError) as error:
            is_fault = isinstance(error, InfrastructureError | OSError)
            outcome = self._not_run(error_text(error))
            return replace(outcome, is_fault=is_fault, may_run=self.resumed)
        except KeyboardInterrupt:
            reason = f"the run was interrupted while the {self.engine.prepares} was prepared"
            return replace(self._not_run(reason), interrupted=True)
        return self._carry_out(image, changes)

    def _not_run(self, reason: str) -> PlatformOutcome:
        self.observer.event(PlatformFailed(reason))
        return PlatformOutcome(result=not_run_result(self.plan, reason))

    def _adopt(self) -> PlatformOutcome | None:
        """Judge the container or the unjudged results of an earlier attempt, if there are any."""
        facts = self.engine.resume(self.plan, self.observer)
        files = ResultFiles(folder=self.plan.results, stages=self.plan.stages)
        if facts is None:
            end = files.record.run_finished
            if self.judged or end is None or end.interrupted:
                return None
            facts = ExecutionFacts(engine=self.engine.name, exit_code=end.exit_code)
        facts = replace(facts, notes=(RESUMED, *facts.notes))
        with handle_interrupts(signal.SIG_IGN):  # the parent handles them; reading takes no time
            return self._settle(judge_platform(self.plan, facts, files))

    def _changes(self) -> str | None:
        return source_changes(self.request, self.plan.results.parent.parent)  # of all runs

    def _prepare(self) -> tuple[ImageFacts, str | None]:
        """Return the image, and how the sources changed until then."""
        folder = self.plan.results
        if folder.exists():  # of an earlier attempt: two attempts never share a log
            if self.plan.keep:
                self.engine.settle(self.plan, keep=False)
            taken = len(list(folder.parent.glob(f"{folder.name}.attempt-*")))
            folder.rename(folder.with_name(f"{folder.name}.attempt-{taken + 1}"))
        folder.mkdir(parents=True)
        image = prepare_image(self.engine, self.plan, self.observer)
        try:
            return image, self._changes()  # the build of the image may have taken long
        except BaseException:
            self._settle_environment(keep=False)
            raise

    def _carry_out(self, image: ImageFacts, changes: str | None) -> PlatformOutcome:
        try:
            facts = self.engine.execute(self.plan, image, self.observer)
            notes = self.request.notes
            if changes:
                what = f"the {self.engine.prepares} was prepared"
                notes += (f"the sources changed while {what}: {changes}",)
            facts = replace(facts, notes=(*notes, *facts.notes))
        except (CiError, OSError) as error:
            self.observer.event(PlatformFailed(error_text(error)))
            with handle_interrupts(signal.SIG_IGN):
                outcome = judge_lost(
                    self.plan, error_text(error), engine=self.engine.name, image=image
                )
            return replace(outcome, is_fault=isinstance(error, InfrastructureError), may_run=True)
        except KeyboardInterrupt:  # raised outside of the engine's own handling
            facts = ExecutionFacts(engine=self.engine.name, image=image, interrupted=True)
        with handle_interrupts(signal.SIG_IGN):
            return self._settle(judge_platform(self.plan, facts))

    def _settle(self, outcome: PlatformOutcome) -> PlatformOutcome:
        """Keep the environment of a judged platform that failed, if asked to, or remove it."""
        if not self.plan.keep or outcome.interrupted or outcome.may_run:
            return outcome
        keep = outcome.result.verdict.product is not Product.PASSED
        kept = self._settle_environment(keep=keep)
        return replace(outcome, result=with_kept(outcome.result, kept)) if kept else outcome

    def _settle_environment(self, *, keep: bool) -> str | None:
        try:
            return self.engine.settle(self.plan, keep=keep)
        except (CiError, OSError) as error:
            say(self.observer, f"its environment may remain: {error_text(error)}")
            return None


def prepare_image(engine: Engine, plan: RunPlan, observer: Observer) -> ImageFacts:
    """Prepare the image of ``plan``, and report it to the observer as a stage."""
    title = engine.prepares
    observer.event(ImageStarted(IMAGE, title=title))
    image = engine.prepare(plan, observer)
    prepared = ImagePrepared(IMAGE, seconds=image.seconds, exit_code=0, reason=image.reason)
    observer.event(replace(prepared, title=title))
    return image


def judge_platform(
    plan: RunPlan, facts: ExecutionFacts, files: ResultFiles | None = None
) -> PlatformOutcome:
    """Judge the platform's results folder; ``files``, if some of it was already read.

    Secret values are hidden in the folder first: what is read may be stored.
    """
    redacted = redact_folder(plan.results)
    merged = merge_files(plan.results, plan.pytest_stage)
    facts = replace(facts, notes=(*facts.notes, *redacted, *merged))
    files = files or ResultFiles(folder=plan.results, stages=plan.stages)
    if files.record.protocol not in (None, PROTOCOL):
        reason = f"the agent's events: got protocol {files.record.protocol}, expected {PROTOCOL}:"
        reason += " another version of this program started the run, so start a new one"
        return PlatformOutcome(result=not_judged_result(plan, reason))
    result = with_locks(plan, judged_result(plan, facts, files))
    return PlatformOutcome(
        result=result,
        details=files.details,
        interrupted=facts.interrupted,
        is_fault=exit_code([result]) is ExitCode.INFRASTRUCTURE,
        may_run=facts.may_run,
    )


def judge_lost(
    plan: RunPlan, reason: str, *, engine: str, image: ImageFacts | None = None
) -> PlatformOutcome:
    """Judge a platform whose harness failed, by its files, if any stage started."""
    files = ResultFiles(folder=plan.results, stages=plan.stages)
    if not files.record.events:
        redact_folder(plan.results)
        return PlatformOutcome(result=not_run_result(plan, reason))
    facts = ExecutionFacts(engine=engine, image=image, lost=True, notes=(reason,))
    return judge_platform(plan, facts, files)


def not_judged_outcome(plan: RunPlan, reason: str, error: Exception) -> PlatformOutcome:
    """Return the outcome of a platform that cannot be judged; `--resume` tries again."""
    return PlatformOutcome(result=not_judged_result(plan, f"{reason}: {error_text(error)}"))


def error_text(error: Exception) -> str:
    """Return the message with its remedy, for a row; an internal error is shown with its type."""
    if not isinstance(error, CiError | OSError):
        return f"{type(error).__name__}: {error}"
    remedy = error.remedy if isinstance(error, CiError) else None
    if remedy is None:
        return str(error)
    # A line of its own: after a quoted log the remedy would be overlooked.
    return f"{error}\n{remedy}" if "\n" in str(error) else f"{error} ({remedy})"
