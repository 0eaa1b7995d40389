"""What happens in a run: the events that the agent writes, and all of them together.

Each event is a line of ``events.jsonl``: its name, when it happened, and its fields. The bounds
beside the fields are those that ``ci.facts.events`` holds a line to when it reads one. The agent
imports this module: standard library only, Python >= 3.8.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Mapping, Tuple, TypeVar

from ci.util.lines import LARGEST_INTEGER, LONGEST_SECONDS

# As pydantic reads them, which otherwise takes "1" for a number and "yes" for a truth value.
_INTEGER = 1 << 31  # what a column of the store has room for
STRICT = {"strict": True}
SECONDS = {"strict": True, "ge": 0, "le": LONGEST_SECONDS}
COUNT = {"strict": True, "ge": 0, "lt": _INTEGER}
BYTES = {"strict": True, "ge": 0, "le": LARGEST_INTEGER}
EXIT_STATUS = {"strict": True, "gt": -_INTEGER, "lt": _INTEGER}

# Written only where they say something: no line has to deny them.
SPARSE = ("interrupted", "more", "pytest_status")


@dataclass(frozen=True)
class Event:
    """Something that the agent did or saw."""

    event: ClassVar[str]
    """The name of its kind in the log."""

    def to_json(self, **clocks: float) -> str:
        """The line of the log, without its end; ``clocks`` are seconds, by their names."""
        fields = {
            name: value
            for name, value in vars(self).items()
            if name not in SPARSE or value != getattr(type(self), name)  # its default
        }
        return json.dumps({"event": self.event, **clocks, **fields})


@dataclass(frozen=True)
class StageEvent(Event):
    """An event of one stage."""

    stage: str


@dataclass(frozen=True)
class RunStarted(Event):
    event = "run_started"
    protocol: int = field(metadata=COUNT)
    run_id: str
    platform: str
    pid: int = field(metadata=COUNT)
    machine: Mapping[str, str | int | float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class StageStarted(StageEvent):
    event = "stage_started"
    command: tuple[str, ...] = ()
    """As it was run, with the arguments that the agent adds."""


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended, and what it and all processes below it used."""

    seconds: float = field(metadata=SECONDS)
    exit_code: int = field(metadata=EXIT_STATUS)
    signal: int | None = field(default=None, metadata=COUNT)
    timed_out: bool = field(default=False, metadata=STRICT)
    cpu_user_s: float | None = field(default=None, metadata=SECONDS)
    cpu_system_s: float | None = field(default=None, metadata=SECONDS)
    peak_rss_bytes: int | None = field(default=None, metadata=BYTES)
    """Of the largest process."""
    interrupted: bool = field(default=False, metadata=STRICT)
    """Ended because the run was to end."""
    oom_kills: int | None = field(default=None, metadata=COUNT)
    """Of any cause: the group's own limit, or a machine without memory."""
    memory_limit_hits: int | None = field(default=None, metadata=COUNT)
    """How often the limit of the group itself was reached."""

    @property
    def ended_early(self) -> bool:
        """Whether the agent ended it."""
        return self.timed_out or self.interrupted

    @property
    def failed(self) -> bool:
        """A command that was ended has failed, also one that then says that all is well."""
        return self.exit_code != 0 or self.ended_early

    @property
    def crashed(self) -> bool:
        """Whether it died by itself."""
        return self.signal is not None and not self.ended_early


@dataclass(frozen=True)
class StageFinished(CommandEnd, StageEvent):
    event = "stage_finished"
    pytest_status: int | None = field(default=None, metadata=EXIT_STATUS)
    """What pytest ended with in a process below the stage's own; ``None``: not known."""


@dataclass(frozen=True)
class StageSkipped(StageEvent):
    event = "stage_skipped"
    reason: str


# What a probe said of a device: its ``uuid`` and ``health``, which are judged, and more.
Devices = Tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class LeaseWaiting(StageEvent):
    event = "lease_waiting"
    text: str
    waited_s: float = field(default=0.0, metadata=SECONDS)


@dataclass(frozen=True)
class LeaseTaken(StageEvent):
    event = "lease_taken"
    waited_s: float = field(metadata=SECONDS)
    devices: Devices = ()
    text: str = ""


@dataclass(frozen=True)
class LeaseReleased(Event):
    event = "lease_released"
    devices: Devices = ()
    text: str = ""


@dataclass(frozen=True)
class LeaseFailed(Event):
    """The devices of a stage, or of the whole run (``None``), could not be had."""

    event = "lease_failed"
    reason: str
    stage: str | None = None
    text: str = ""


@dataclass(frozen=True)
class ArtifactMissing(Event):
    event = "artifact_missing"
    name: str
    path: str


@dataclass(frozen=True)
class ArtifactCut(Event):
    """There was no room for all the files that match a pattern."""

    event = "artifact_cut"
    name: str
    path: str
    left_out: int = field(metadata=COUNT)


@dataclass(frozen=True)
class RerunEvent(StageEvent):
    """An event of one more attempt at the tests of a stage that failed."""

    attempt: int = field(metadata=COUNT)
    """From 1 on."""


@dataclass(frozen=True)
class RerunStarted(RerunEvent):
    event = "rerun_started"
    text: str


@dataclass(frozen=True)
class RerunFinished(CommandEnd, RerunEvent):
    event = "rerun_finished"


@dataclass(frozen=True)
class RerunsEnded(StageEvent):
    """Why there was no rerun, or none any more."""

    event = "reruns_ended"
    reason: str
    text: str = ""


@dataclass(frozen=True)
class RunFinished(Event):
    event = "run_finished"
    exit_code: int = field(metadata=EXIT_STATUS)
    interrupted: bool = field(default=False, metadata=STRICT)


@dataclass(frozen=True)
class Output(StageEvent):
    """What a stage has printed; it is only printed, and never in ``events.jsonl``."""

    event = "output"
    text: str
    """Of bytes that are no UTF-8 it has halves of characters."""
    more: bool = False
    """Whether more is to come at once."""


EVENTS: Mapping[str, type[Event]] = {
    kind.event: kind
    for kind in (
        *(RunStarted, StageStarted, StageFinished, StageSkipped, RunFinished, Output),
        *(LeaseWaiting, LeaseTaken, LeaseReleased, LeaseFailed, ArtifactMissing, ArtifactCut),
        *(RerunStarted, RerunFinished, RerunsEnded),
    )
}
AnyEvent = TypeVar("AnyEvent", bound=Event)


@dataclass(frozen=True)
class RunRecord:
    """What the agent wrote about one run; empty when it never started."""

    events: tuple[Event, ...] = ()
    unreadable_lines: int = 0
    longest_line: int = 0
    """Bytes of the longest of them, where one is longer than an event may be."""

    def every(self, kind: type[AnyEvent]) -> tuple[AnyEvent, ...]:
        """The events of a kind, in order."""
        return tuple(event for event in self.events if isinstance(event, kind))

    def first(self, kind: type[AnyEvent]) -> AnyEvent | None:
        return next(iter(self.every(kind)), None)

    @property
    def finished_stages(self) -> dict[str, StageFinished]:
        return {end.stage: end for end in self.every(StageFinished)}

    @property
    def unfinished_stages(self) -> tuple[str, ...]:
        """Stages that began and have no end: the agent died while they ran."""
        finished = self.finished_stages
        return tuple(e.stage for e in self.every(StageStarted) if e.stage not in finished)

    @property
    def changed_devices(self) -> tuple[tuple[str, str, str], ...]:
        """Devices of another health after a lease than before it: uuid, before and after."""
        return tuple(
            (before["uuid"], before["health"], after["health"])
            for taken, released in zip(self.every(LeaseTaken), self.every(LeaseReleased))
            for before, after in zip(taken.devices, released.devices)
            if before["health"] != after["health"]
        )

    @property
    def reruns(self) -> dict[int, RerunFinished]:
        """By attempt; one without an end is not there."""
        return {end.attempt: end for end in self.every(RerunFinished)}

    @property
    def run_finished(self) -> RunFinished | None:
        return self.first(RunFinished)
