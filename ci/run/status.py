"""The state of a run in progress, from the events of its platforms.

It has no clock: each method gets the time, in seconds of any monotonic clock.
"""

from __future__ import annotations

import heapq
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ci.engines import EngineMessage
from ci.engines.logs import SHOWN_LINES
from ci.facts.measures import IMAGE, percent
from ci.model.results import PlatformResult
from ci.model.verdicts import Harness
from ci.protocol import events

TAIL_LINES = SHOWN_LINES  # of a failed stage's log; no more lines are passed on
FAILURES = 5  # names of the tests that failed last
LONG_STEP_S = 15.0  # after which the time since the last step is shown
ALMOST = 0.99  # a stage that takes longer than estimated has not ended

_IMAGE_STEP = re.compile(r"Step (\d{1,6})/(\d{1,6}) : ")


@dataclass(frozen=True)
class PlatformFailed(events.Event):
    """Why a platform cannot go on; its result may still come."""

    reason: str


@dataclass(frozen=True)
class ImageStarted(events.StageStarted):
    """The start of the stage in which an engine prepares the image."""

    title: str = IMAGE
    """What the engine calls it."""


@dataclass(frozen=True)
class ImagePrepared(events.StageFinished):
    """The end of that stage."""

    reason: str = ""
    """Why the image was built, or which one was found."""
    title: str = IMAGE


class Phase(StrEnum):
    """Where a platform is."""

    WAITING = "waiting"  # for its turn on an engine
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What is known of a platform before it runs.

    Attributes:
        stages: the names of its stages, in order
        tests: the number of tests that the contract expects, by stage
    """

    stages: tuple[str, ...] = ()
    tests: Mapping[str, int] = field(default_factory=dict)


@dataclass(kw_only=True)
class PlatformStatus:
    """The state of one platform."""

    label: str
    expected: Expectation = Expectation()
    estimates: Mapping[str, float] = field(default_factory=dict)
    """The seconds that the stages usually take, as far as they are known."""
    phase: Phase = Phase.WAITING
    began: float = 0.0
    stage: str = ""
    """The running stage; empty between two stages."""
    stage_began: float = 0.0
    image_title: str = IMAGE
    ended: float = 0.0
    done: int = 0
    """Steps of the build or tests of the stage, of ``total``."""
    total: int | None = None
    step_at: float = 0.0
    """When the last of them ended, or the stage began."""
    failed: int = 0
    """Tests."""
    failures: deque[str] = field(default_factory=lambda: deque(maxlen=FAILURES))
    broken: bool = False
    """A stage failed, or the platform did."""
    problem: str = ""
    """The first reason of that."""
    outcome: str = ""
    waits: str = ""
    """What the next stage waits for, such as a device."""
    device: str = ""
    cache: str = ""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    _finished: set[str] = field(default_factory=set)

    def apply(self, event: events.Event, now: float) -> None:
        """Change with an event of the agent or the engine."""
        if self.phase is Phase.WAITING:
            self.phase, self.began, self.stage_began = Phase.RUNNING, now, now
        match event:
            case events.StageStarted():
                if event.stage == IMAGE:  # of the first attempt, or of another one
                    self._finished.clear()
                    self.failures.clear()
                    self.failed, self.broken, self.problem = 0, False, ""
                    self.image_title = stage_title(event)
                self._begin_stage(event.stage, now)
            case events.StageFinished():
                if event.exit_code:
                    self._break(f"{event.stage} failed with exit code {event.exit_code}")
                self._begin_stage("", now)
            case (
                events.StageLost()
                | events.StageSkipped()
                | events.LeaseFailed()
                | events.NetworkRemained()
            ):
                self._break(event.reason)
                self._begin_stage("", now)
            case events.RerunStarted():
                self._begin_stage(f"rerun {event.attempt}", now)
            case events.RerunFinished():
                self._begin_stage("", now)
            case events.StageProgress(stage=self.stage):
                self._count(event, now)
            case events.LeaseWaiting() | events.NetworkWaiting() if event.text:
                self.waits = event.text
            case events.LeaseTaken():
                self.waits, self.device = "", device_names(event.devices)
            case events.LeaseReleased():
                self.device = ""
            case PlatformFailed():
                self.fail(event.reason, now)
            case events.Output():
                self._read_line(event.text, now)
            case EngineMessage() if not self.stage:  # else it is not of the stage's log
                self._read_line(event.text, now)

    def wait(self) -> None:
        """The platform waits for its turn on an engine."""
        self.phase, self.waits = Phase.WAITING, ""

    def fail(self, reason: str, now: float) -> None:
        """The platform cannot go on; its result may still come."""
        self._break(reason)
        self._begin_stage("", now)

    def end(self, outcome: str, now: float, *, passed: bool) -> None:
        """The platform has ended."""
        self.began = now if self.phase is Phase.WAITING else self.began
        self.phase, self.ended, self.outcome = Phase.DONE, now, outcome
        self.stage, self.waits, self.device = "", "", ""
        self.broken = not passed

    def _break(self, reason: str) -> None:
        self.broken, self.problem = True, self.problem or reason

    def _begin_stage(self, stage: str, now: float) -> None:
        self._finished.add(self.stage)
        self.stage, self.stage_began, self.step_at, self.waits = stage, now, now, ""
        self.done, self.total = 0, self.expected.tests.get(stage)
        if stage:
            self.tail.clear()

    def _count(self, event: events.StageProgress, now: float) -> None:
        if event.done != self.done:
            self.done, self.step_at = event.done, now
        # Tests that vanished leave the bar incomplete, new ones do not complete it early.
        totals = (self.expected.tests.get(self.stage), event.total)
        self.total = max(filter(None, totals), default=None)
        if event.failed:
            self.failed = event.failed
            if event.failing and event.failing not in self.failures:
                self.failures.append(event.failing)
        hits, misses = event.cache_hits, event.cache_misses
        self.cache = f"cache {percent(hits / (hits + misses))}" if hits + misses else ""

    def _read_line(self, line: str, now: float) -> None:
        self.tail.append(line.rstrip("\n"))
        if self.stage == IMAGE and (step := _IMAGE_STEP.match(line)):
            self.done, self.total, self.step_at = int(step[1]) - 1, int(step[2]), now

    @property
    def activity(self) -> str:
        """The running stage, or what is done between stages."""
        if self.phase is Phase.WAITING or self.waits:
            return "waiting"
        if self.stage:
            return self.image_title if self.stage == IMAGE else self.stage
        if not self.expected.stages:  # it is no run: its image is packed
            return "working"
        is_last = self.broken or self._finished.issuperset(self.expected.stages)
        return "finishing" if is_last else "starting"

    @property
    def latest(self) -> str:
        """The latest line of output that is not empty; not of a stage that failed."""
        lines = () if self.broken else reversed(self.tail)
        return next((line for line in lines if line.strip()), "")

    @property
    def log_tail(self) -> Sequence[str]:
        """What shows why the platform fails: tests that failed, or the end of the log."""
        if not (self.broken or self.failed):
            return ()
        return [*self.failures] or [line for line in self.tail if line.strip()]

    def elapsed(self, now: float) -> float:
        """Return the time of the running stage; of the platform, once it has ended."""
        if self.phase is Phase.WAITING:
            return 0.0
        return self.ended - self.began if self.phase is Phase.DONE else now - self.stage_began

    def counts(self) -> str:
        """``18/33``, ``18/?``; empty if nothing is counted."""
        if self.total is not None:
            return f"{self.done:,}/{self.total:,}"
        return f"{self.done:,}/?" if self.done else ""

    def fraction(self, now: float) -> float | None:
        """Return the share of the stage that is done, by its counts or else by its estimate."""
        if self.total:
            return min(self.done / self.total, 1.0)
        known = self.estimates.get(self.stage)
        return min(self.elapsed(now) / known, ALMOST) if known else None

    def long_step(self, now: float) -> float | None:
        """Return the time since the last step of a stage with counts, once it is long."""
        since = now - self.step_at
        running = self.phase is Phase.RUNNING and self.counts() and not self.waits
        return since if running and since >= LONG_STEP_S else None

    def remaining(self, now: float) -> float | None:
        """Estimate the time until all stages have ended; ``None``: nothing is known."""
        if self.phase is Phase.DONE or self.broken:
            return 0.0
        stages = [it for it in self.expected.stages if it not in self._finished]
        estimates = [
            self.remaining_of_stage(now) if it == self.stage else self.estimates.get(it)
            for it in stages
        ]
        known = [it for it in estimates if it is not None]
        return sum(known) if self.expected.stages and len(known) == len(estimates) else None

    def remaining_of_stage(self, now: float) -> float | None:
        elapsed, known = self.elapsed(now), self.estimates.get(self.stage)
        if known is not None and elapsed < known:
            return known - elapsed
        if self.total and self.done:  # slower than ever before, or for the first time
            return elapsed * max(self.total - self.done, 0) / self.done
        return None if known is None else 0.0


@dataclass(kw_only=True)
class RunStatus:
    """The state of all platforms of a run, by label."""

    began: float
    platforms: dict[str, PlatformStatus] = field(default_factory=dict)

    def platform(self, label: str) -> PlatformStatus:
        """Return the state of a platform, a new one for a new label."""
        return self.platforms.setdefault(label, PlatformStatus(label=label))

    def among(self, phase: Phase) -> list[PlatformStatus]:
        return [it for it in self.platforms.values() if it.phase is phase]

    def remaining(self, now: float) -> float | None:
        """Estimate the time until all have ended; ``None``: not known of every platform.

        A platform that waits begins when a running one has ended.
        """
        running = [it.remaining(now) for it in self.among(Phase.RUNNING)]
        waiting = [it.remaining(now) for it in self.among(Phase.WAITING)]
        ends = [it for it in running if it is not None] or [0.0]
        heapq.heapify(ends)
        for seconds in waiting:
            heapq.heapreplace(ends, ends[0] + (seconds or 0.0))
        return None if None in running or None in waiting else max(ends)


def stage_title(event: events.StageStarted | events.StageFinished) -> str:
    """Return the name of a stage for people."""
    return event.title if isinstance(event, ImageStarted | ImagePrepared) else event.stage


def device_names(devices: Sequence[Mapping[str, Any]]) -> str:
    """``H100 #0``, ``2 x H100 #0 #1``; a device without a name has its identifier."""
    names = list(dict.fromkeys(str(it.get("name") or it["uuid"]) for it in devices))
    indices = [f"#{it['index']}" for it in devices if it.get("index") is not None]
    count = f"{len(devices)} x " if len(devices) > len(names) else ""
    return " ".join([count + ", ".join(names), *indices]).strip()


def outcome_of(result: PlatformResult) -> str:
    """``passed, exit after summary, 9206 passed in 178.0s``."""
    verdict, counts = result.verdict, result.pytest and result.pytest.summary
    words = [verdict.product.shown]
    if verdict.harness is not Harness.CLEAN:
        words.append(verdict.harness.shown)
    return ", ".join([*words, *([counts] if counts else [])])
