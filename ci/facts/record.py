"""The record of one run: the events that its agent wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ci.protocol.events import (
    Event,
    LeaseReleased,
    LeaseTaken,
    RerunFinished,
    RunFinished,
    RunStarted,
    ShardFinished,
    StageFinished,
    StageStarted,
)

AnyEvent = TypeVar("AnyEvent", bound=Event)


class EventTime(NamedTuple):
    """When an event was written, in seconds of both of the agent's clocks."""

    epoch: float = 0.0
    monotonic: float = 0.0


@dataclass(frozen=True)
class RunRecord:
    """The agent's events of one run; empty if the agent did not start."""

    events: tuple[Event, ...] = ()
    times: tuple[EventTime, ...] = ()
    """Of each event."""
    unreadable_lines: int = 0
    longest_line: int = 0
    """Bytes of the longest of them, if it exceeds the limit for an event."""

    def every(self, kind: type[AnyEvent]) -> tuple[AnyEvent, ...]:
        """All events of a kind, in order."""
        return tuple(event for event in self.events if isinstance(event, kind))

    def first(self, kind: type[AnyEvent]) -> AnyEvent | None:
        return next(iter(self.every(kind)), None)

    @property
    def protocol(self) -> int | None:
        """Version of the agent's events, see ``ci.protocol.job``; ``None``: it did not start."""
        started = self.first(RunStarted)
        return started.protocol if started else None

    @property
    def folders(self) -> tuple[str, ...]:
        """The paths of the run's folder on the host engine; empty in a container."""
        started = self.first(RunStarted)
        return started.folders if started else ()

    @property
    def finished_stages(self) -> dict[str, StageFinished]:
        return {end.stage: end for end in self.every(StageFinished)}

    def shards(self, stage: str) -> dict[int, ShardFinished]:
        """The ends of the shards of a stage, by their numbers."""
        ends = {end.shard: end for end in self.every(ShardFinished) if end.stage == stage}
        return dict(sorted(ends.items()))

    @property
    def unfinished_stages(self) -> tuple[str, ...]:
        """Stages that began and did not end: the agent died while they ran."""
        finished = self.finished_stages
        return tuple(e.stage for e in self.every(StageStarted) if e.stage not in finished)

    @property
    def changed_devices(self) -> tuple[tuple[str, str, str], ...]:
        """Devices whose health changed during a lease: uuid, health before and after."""
        leases = zip(self.every(LeaseTaken), self.every(LeaseReleased), strict=False)
        return tuple(
            (before["uuid"], before["health"], after["health"])
            for taken, released in leases  # the last may have no end
            for before, after in zip(taken.devices, released.devices, strict=False)
            if before["health"] != after["health"]
        )

    @property
    def reruns(self) -> dict[int, RerunFinished]:
        """Finished reruns by attempt."""
        return {end.attempt: end for end in self.every(RerunFinished)}

    @property
    def run_finished(self) -> RunFinished | None:
        return self.first(RunFinished)
