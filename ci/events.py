"""Typed reading of ``events.jsonl``, the agent's append-only record of a run.

The writer may have died in the middle of a line, so an unreadable line is counted and left
out; fields and events that a newer agent may add are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ci.text import parse_json


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    time: float
    """Seconds since 1970."""
    monotonic: float
    """Seconds on the agent's monotonic clock."""


class RunStarted(_Event):
    event: Literal["run_started"]
    run_id: str
    platform: str
    machine: dict[str, str | int | float | None] = Field(default_factory=dict)


class StageStarted(_Event):
    event: Literal["stage_started"]
    stage: str


class StageFinished(_Event):
    event: Literal["stage_finished"]
    stage: str
    seconds: float
    cpu_user_s: float | None = None
    cpu_system_s: float | None = None
    peak_rss_bytes: int | None = None
    exit_code: int
    signal: int | None = None
    timed_out: bool = False
    oom_kills: int | None = None
    interrupted: bool = False
    pytest_status: int | None = None
    """What pytest ended with in a process below the stage's own; ``None``: not known."""

    @property
    def failed(self) -> bool:
        """A command that was ended has failed, also one that then says that all is well."""
        return self.exit_code != 0 or self.timed_out or self.interrupted


class StageSkipped(_Event):
    event: Literal["stage_skipped"]
    stage: str
    reason: str


class DeviceState(BaseModel):
    """What a probe said of a device, as far as it is judged."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    uuid: str
    health: str


class LeaseTaken(_Event):
    event: Literal["lease_taken"]
    stage: str
    waited_s: float
    devices: tuple[DeviceState, ...] = ()


class LeaseReleased(_Event):
    event: Literal["lease_released"]
    devices: tuple[DeviceState, ...] = ()


class LeaseFailed(_Event):
    """The devices of a stage, or of the whole run, could not be had."""

    event: Literal["lease_failed"]
    stage: str | None = None
    reason: str


class ArtifactMissing(_Event):
    event: Literal["artifact_missing"]
    name: str
    path: str


class RerunFinished(_Event):
    """One more attempt at the tests of a stage that failed; no stage of its own."""

    event: Literal["rerun_finished"]
    stage: str
    attempt: int
    signal: int | None = None
    timed_out: bool = False
    interrupted: bool = False
    oom_kills: int | None = None

    @property
    def crashed(self) -> bool:
        """Whether pytest died by itself."""
        return self.signal is not None and not self.timed_out and not self.interrupted


class RerunsEnded(_Event):
    """Why there was no rerun, or none any more."""

    event: Literal["reruns_ended"]
    stage: str
    reason: str


class ArtifactCut(_Event):
    """There was no room for all the files that match a pattern."""

    event: Literal["artifact_cut"]
    name: str
    path: str
    left_out: int


class RunFinished(_Event):
    event: Literal["run_finished"]
    exit_code: int
    interrupted: bool = False


Event = Annotated[
    RunStarted
    | StageStarted
    | StageFinished
    | StageSkipped
    | LeaseTaken
    | LeaseReleased
    | LeaseFailed
    | ArtifactMissing
    | ArtifactCut
    | RerunFinished
    | RerunsEnded
    | RunFinished,
    Field(discriminator="event"),
]
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


class _Named(BaseModel):
    """The least an event must be: an object with a name. Unknown names are a newer agent's."""

    event: str


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What the agent wrote about one run; empty when it never started."""

    events: tuple[Event, ...] = ()
    unreadable_lines: int = 0

    @property
    def finished_stages(self) -> dict[str, StageFinished]:
        return {e.stage: e for e in self.events if isinstance(e, StageFinished)}

    @property
    def unfinished_stages(self) -> tuple[str, ...]:
        """Stages that began and have no end: the agent died while they ran."""
        started = [e.stage for e in self.events if isinstance(e, StageStarted)]
        return tuple(stage for stage in started if stage not in self.finished_stages)

    @property
    def missing_artifacts(self) -> tuple[ArtifactMissing, ...]:
        return tuple(e for e in self.events if isinstance(e, ArtifactMissing))

    @property
    def cut_artifacts(self) -> tuple[ArtifactCut, ...]:
        return tuple(e for e in self.events if isinstance(e, ArtifactCut))

    @property
    def lease_wait_s(self) -> float:
        """Seconds in which stages waited for devices."""
        return sum(e.waited_s for e in self.events if isinstance(e, LeaseTaken))

    @property
    def lease_failed(self) -> LeaseFailed | None:
        return next((e for e in self.events if isinstance(e, LeaseFailed)), None)

    @property
    def changed_devices(self) -> tuple[tuple[DeviceState, DeviceState], ...]:
        """Devices that were of another health after a lease than before it."""
        taken = [e.devices for e in self.events if isinstance(e, LeaseTaken)]
        given = [e.devices for e in self.events if isinstance(e, LeaseReleased)]
        pairs = [pair for two in zip(taken, given, strict=False) for pair in zip(*two, strict=True)]
        return tuple((before, after) for before, after in pairs if before.health != after.health)

    @property
    def reruns(self) -> dict[int, RerunFinished]:
        """By attempt; one without an end is not there."""
        return {e.attempt: e for e in self.events if isinstance(e, RerunFinished)}

    @property
    def reruns_ended(self) -> RerunsEnded | None:
        return next((e for e in self.events if isinstance(e, RerunsEnded)), None)

    @property
    def run_finished(self) -> RunFinished | None:
        return next((e for e in self.events if isinstance(e, RunFinished)), None)


def parse_events(lines: Iterable[str]) -> RunRecord:
    """Read the lines of ``events.jsonl``."""
    events: list[Event] = []
    unreadable = 0
    for line in filter(str.strip, lines):
        try:
            event = parse_json(line)
            events.append(_EVENT.validate_python(event))
        except ValidationError:
            unreadable += not _is_unknown(event)
        except ValueError:
            unreadable += 1
    return RunRecord(events=tuple(events), unreadable_lines=unreadable)


def _is_unknown(event: object) -> bool:
    known = {"run_started", "stage_started", "stage_finished", "stage_skipped"}
    known |= {"lease_taken", "lease_released", "lease_failed", "run_finished"}
    known |= {"artifact_missing", "artifact_cut"}
    known |= {"rerun_finished", "reruns_ended"}
    try:
        return _Named.model_validate(event).event not in known
    except ValidationError:
        return False
