"""The events of a run, as the agent writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, Strict

from ci.util.lines import LARGEST_INTEGER, LONGEST_SECONDS

_INTEGER = 1 << 31  # what a column of the store has room for
Seconds = Annotated[float, Field(ge=0, le=LONGEST_SECONDS)]
Number = Annotated[int, Field(ge=0, lt=_INTEGER)]
ExitStatus = Annotated[int, Field(gt=-_INTEGER, lt=_INTEGER)]


def _raw(value: object) -> str:
    """Text of a log: of bytes that are no UTF-8 it has halves of characters."""
    if isinstance(value, str):
        return value
    raise ValueError("expected text")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


class _Event(_Model):
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
    seconds: Seconds
    cpu_user_s: Seconds | None = None
    cpu_system_s: Seconds | None = None
    peak_rss_bytes: Annotated[int, Field(ge=0, le=LARGEST_INTEGER)] | None = None
    exit_code: ExitStatus
    signal: Number | None = None
    timed_out: bool = False
    oom_kills: Number | None = None
    """Of any cause: the group's own limit, or a machine without memory."""
    memory_limit_hits: Number | None = None
    """How often the limit of the group itself was reached."""
    interrupted: bool = False
    pytest_status: ExitStatus | None = None
    """What pytest ended with in a process below the stage's own; ``None``: not known."""

    @property
    def failed(self) -> bool:
        """A command that was ended has failed, also one that then says that all is well."""
        return self.exit_code != 0 or self.timed_out or self.interrupted


class StageSkipped(_Event):
    event: Literal["stage_skipped"]
    stage: str
    reason: str


class DeviceState(_Model):
    """What a probe said of a device, as far as it is judged."""

    uuid: str
    health: str


Devices = Annotated[tuple[DeviceState, ...], Strict(strict=False)]  # lists, in JSON


class LeaseWaiting(_Event):
    event: Literal["lease_waiting"]
    stage: str
    text: str


class LeaseTaken(_Event):
    event: Literal["lease_taken"]
    stage: str
    waited_s: Seconds
    devices: Devices = ()
    text: str = ""


class LeaseReleased(_Event):
    event: Literal["lease_released"]
    devices: Devices = ()
    text: str = ""


class LeaseFailed(_Event):
    """The devices of a stage, or of the whole run, could not be had."""

    event: Literal["lease_failed"]
    stage: str | None = None
    reason: str
    text: str = ""


class ArtifactMissing(_Event):
    event: Literal["artifact_missing"]
    name: str
    path: str


class RerunStarted(_Event):
    event: Literal["rerun_started"]
    stage: str
    attempt: Number
    text: str


class RerunFinished(_Event):
    """One more attempt at the tests of a stage that failed; no stage of its own."""

    event: Literal["rerun_finished"]
    stage: str
    attempt: Number
    signal: Number | None = None
    timed_out: bool = False
    interrupted: bool = False
    oom_kills: Number | None = None

    @property
    def crashed(self) -> bool:
        """Whether pytest died by itself."""
        return self.signal is not None and not self.timed_out and not self.interrupted


class RerunsEnded(_Event):
    """Why there was no rerun, or none any more."""

    event: Literal["reruns_ended"]
    stage: str
    reason: str
    text: str = ""


class ArtifactCut(_Event):
    """There was no room for all the files that match a pattern."""

    event: Literal["artifact_cut"]
    name: str
    path: str
    left_out: Number


class RunFinished(_Event):
    event: Literal["run_finished"]
    exit_code: ExitStatus
    interrupted: bool = False


class Output(_Model):
    """What a stage has printed; it is only printed."""

    event: Literal["output"]
    stage: Annotated[str, PlainValidator(_raw)]
    text: Annotated[str, PlainValidator(_raw)]
    more: bool = False
    """Whether more is to come at once."""


Event = Annotated[
    RunStarted
    | StageStarted
    | StageFinished
    | StageSkipped
    | LeaseWaiting
    | LeaseTaken
    | LeaseReleased
    | LeaseFailed
    | ArtifactMissing
    | ArtifactCut
    | RerunStarted
    | RerunFinished
    | RerunsEnded
    | RunFinished
    | Output,
    Field(discriminator="event"),
]


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What the agent wrote about one run; empty when it never started."""

    events: tuple[Event, ...] = ()
    unreadable_lines: int = 0
    longest_line: int = 0
    """Bytes of the longest of them, where one is longer than an event may be."""

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
        pairs = [
            (before, after)
            for befores, afters in zip(taken, given, strict=False)
            for before, after in zip(befores, afters, strict=False)
        ]
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
