"""The attempts of one platform: again after an infrastructure fault, here or on another engine.

A platform never runs twice at once. After a fault the same engine is asked first: if it still has
the container, the next attempt adopts it. Another engine is used only if the first one does not
answer, and its container has ended or has reached its time limits.
"""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass, field, replace
from time import monotonic, sleep

from ci.engines import EngineMessage
from ci.engines.select import Connect
from ci.errors import CiError, InfrastructureError, PrerequisiteError
from ci.facts.sentences.on_stages import attempt_failed, earlier_attempts, no_further_attempt
from ci.model.plan import EnginePlan, RunPlan
from ci.model.verdicts import Evidence
from ci.plan.request import RunRequest
from ci.run.platform import PlatformOutcome, PlatformRun, error_text
from ci.run.workers import Caller, Message, Readiness

ASK_AGAIN_S = 10.0  # between two questions whether an engine answers again
SAY_AGAIN_S = 60.0  # between two messages about it


@dataclass(kw_only=True)
class PlatformAttempts:
    """The attempts of a platform, in its worker."""

    plan: RunPlan
    caller: Caller
    request: RunRequest
    connect: Connect
    resumed: bool
    judged: bool
    _may_run_until: float = 0.0
    """When the platform's container has surely ended."""
    _failed: list[Evidence] = field(default_factory=list)
    _last: PlatformOutcome | None = None
    _said_at: float = -math.inf

    def __post_init__(self) -> None:
        if self.resumed:  # an earlier caller may have started a container
            self._may_run_until = monotonic() + self.plan.longest_s

    def carry_out(self) -> Message:
        """Return the outcome of the last attempt, with evidence of those before it."""
        engines = [self.plan.engine, *self.plan.other_engines]
        while True:
            try:
                message = self._attempt(engines[0])
                if not self._is_worth_another(message, engines):
                    return self._conclude(message)
                self._record(engines[0], message)
                while len(engines) > 1 and not self._answers(engines[0]):
                    if self._has_ended(engines[0], engines[1]):
                        del engines[0]
                        break
            except KeyboardInterrupt:
                if self._last is None:
                    raise
                return self._conclude(replace(self._last, interrupted=True))

    def _attempt(self, engine_plan: EnginePlan) -> Message:
        """Carry the plan out on one engine, once the parent starts it there."""
        plan = replace(self.plan, engine=engine_plan)
        try:
            with closing(self.connect(engine_plan)) as engine:
                engine.check(plan)
                name = engine.name if engine_plan.name == "auto" else engine_plan.name
                machine = engine.machine()
                capacity = engine_plan.capacity or machine.processors
                self.caller.send(
                    Readiness(engine=name, identity=machine.identity, capacity=capacity)
                )
                self.caller.connection.recv()
                return PlatformRun(
                    request=self.request,
                    plan=plan,
                    engine=engine,
                    observer=self.caller,
                    resumed=self.resumed,
                    judged=self.judged,
                ).execute()
        except CiError as error:
            return error

    def _is_worth_another(self, message: Message, engines: list[EnginePlan]) -> bool:
        """Whether another attempt is left, and may end better than this one."""
        if len(self._failed) >= self.plan.retries:
            return False
        if isinstance(message, PlatformOutcome):
            return message.is_fault and not message.interrupted
        is_fault = isinstance(message, InfrastructureError)
        return is_fault and not isinstance(message, PrerequisiteError) and len(engines) > 1

    def _record(self, engine: EnginePlan, message: Message) -> None:
        """Keep the reason of a failed attempt, and what it left behind."""
        if isinstance(message, PlatformOutcome):
            verdict = message.result.verdict
            reasons = "; ".join(evidence.text for evidence in verdict.evidence)
            why = f"{verdict.product}, {verdict.harness}: {reasons}"
            self._last, self.resumed, self.judged = message, True, True
            self._may_run_until = monotonic() + self.plan.longest_s if message.may_run else 0.0
        else:
            why = str(message)
        failed = attempt_failed(len(self._failed) + 1, engine.name, why)
        self._failed.append(failed)
        self._say(failed.text)

    def _answers(self, engine_plan: EnginePlan) -> bool:
        try:
            with closing(self.connect(engine_plan)) as engine:
                engine.machine()
        except CiError:
            return False
        return True

    def _has_ended(self, engine: EnginePlan, other: EnginePlan) -> bool:
        """Whether no container of this platform can run on ``engine``; waits a while if not."""
        remaining = self._may_run_until - monotonic()
        if remaining <= 0:
            return True
        if monotonic() - self._said_at > SAY_AGAIN_S:
            name = self.plan.container.name
            self._say(
                f"engine {engine.name} does not answer, and container {name} may still run on it."
                f" Engine {other.name} is used when it has reached its time limits, in"
                f" {remaining:.0f} s"
            )
            self._said_at = monotonic()
        sleep(min(ASK_AGAIN_S, remaining))
        return False

    def _say(self, text: str) -> None:
        self.caller.event(EngineMessage(text))

    def _conclude(self, message: Message) -> Message:
        """Add the failed attempts to the evidence of the last one."""
        if not self._failed:
            return message
        failed, outcome = [*self._failed], message
        if isinstance(message, CiError):
            if self._last is None:
                return InfrastructureError(
                    "\n".join([*(it.text for it in failed), str(message)]), remedy=message.remedy
                )
            failed.append(no_further_attempt(error_text(message)))
            outcome = self._last
        if not isinstance(outcome, PlatformOutcome):
            return message
        verdict = outcome.result.verdict
        evidence = (*verdict.evidence, *failed)
        result = outcome.result.model_copy(
            update={
                "verdict": verdict.model_copy(update={"evidence": evidence}),
                "findings": (*outcome.result.findings, earlier_attempts(len(self._failed))),
            }
        )
        return replace(outcome, result=result)
