"""The events of a run that the agent writes.

Each event is a line of ``events.jsonl``: its name, its time, and its fields. ``ci.facts.events``
checks the bounds in the fields' metadata when it reads a line. From there up to the row of the
table an event is one of the types below.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Mapping, Tuple

from ci.util.lines import LARGEST_INTEGER, LONGEST_SECONDS

# Options of pydantic's fields. Without "strict" pydantic accepts "1" as a number and "yes" as a
# bool.
_INTEGER = 1 << 31  # limit of the store's integer columns
STRICT = {"strict": True}
SECONDS = {"strict": True, "ge": 0, "le": LONGEST_SECONDS}
COUNT = {"strict": True, "ge": 0, "lt": _INTEGER}
BYTES = {"strict": True, "ge": 0, "le": LARGEST_INTEGER}
EXIT_STATUS = {"strict": True, "gt": -_INTEGER, "lt": _INTEGER}

# Fields that are written only if they differ from their defaults.
SPARSE = ("folders", "interrupted", "more", "pytest_runs", "pytest_status", "signal_received")


@dataclass(frozen=True)
class Event:
    """Something that happened in a run."""

    event: ClassVar[str]
    """The name of its kind in the log."""

    def to_json(self, **clocks: float) -> str:
        """The line of the log, without line end; ``clocks`` are named times in seconds."""
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
    folders: tuple[str, ...] = ()
    """The paths of the folder that the run has on the host engine, which names of tests may hold:
    see ``ci.protocol.stable_names``."""


@dataclass(frozen=True)
class StageStarted(StageEvent):
    event = "stage_started"
    command: tuple[str, ...] = ()
    """The command as it was run, with the arguments that the agent adds."""


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended, and the resources that it and its descendants used."""

    seconds: float = field(metadata=SECONDS)
    exit_code: int = field(metadata=EXIT_STATUS)
    signal: int | None = field(default=None, metadata=COUNT)
    timed_out: bool = field(default=False, metadata=STRICT)
    cpu_user_s: float | None = field(default=None, metadata=SECONDS)
    cpu_system_s: float | None = field(default=None, metadata=SECONDS)
    peak_rss_bytes: int | None = field(default=None, metadata=BYTES)
    """Peak memory of the largest process."""
    interrupted: bool = field(default=False, metadata=STRICT)
    """The agent ended the command because the run was interrupted."""
    oom_kills: int | None = field(default=None, metadata=COUNT)
    """Out-of-memory kills by any cause: the group's own limit, or a machine without memory."""
    memory_limit_hits: int | None = field(default=None, metadata=COUNT)
    """How often the limit of the group itself was reached."""

    @property
    def ended_early(self) -> bool:
        """Whether the agent ended the command."""
        return self.timed_out or self.interrupted

    @property
    def failed(self) -> bool:
        """Whether the command failed; one that the agent ended failed even with exit code 0."""
        return self.exit_code != 0 or self.ended_early

    @property
    def crashed(self) -> bool:
        """Whether a signal killed the command that the agent did not send."""
        return self.signal is not None and not self.ended_early


@dataclass(frozen=True)
class PytestEnd(CommandEnd):
    """How a command ended that may have run pytest."""

    pytest_status: int | None = field(default=None, metadata=EXIT_STATUS)
    """pytest's exit status, if it ran in a child process of the stage; ``None``: unknown."""
    pytest_runs: int | None = field(default=None, metadata=COUNT)
    """Runs of pytest in a wrapper, without those that tests start; ``None``: unknown."""


@dataclass(frozen=True)
class StageFinished(PytestEnd, StageEvent):
    event = "stage_finished"


@dataclass(frozen=True)
class ShardEvent(StageEvent):
    """An event of one of the processes that share the tests of a stage."""

    shard: int = field(metadata=COUNT)
    """From 1 on."""


@dataclass(frozen=True)
class ShardFinished(PytestEnd, ShardEvent):
    """The end of a shard, and the tests that it collected and selected; ``None``: unknown."""

    event = "shard_finished"
    collected: int | None = field(default=None, metadata=COUNT)
    """Tests that pytest would run without shards."""
    selected: int | None = field(default=None, metadata=COUNT)
    """Those of this shard."""
    digest: str | None = None
    """Of the node ids of all collected tests."""


@dataclass(frozen=True)
class StageLost(StageEvent):
    """The supervisor of a stage died, so how the stage ended is unknown."""

    event = "stage_lost"
    reason: str


@dataclass(frozen=True)
class DiskFull(StageEvent):
    """A stage did not succeed on a disk without space, which need not be its own fault."""

    event = "disk_full"
    text: str


@dataclass(frozen=True)
class StageSkipped(StageEvent):
    event = "stage_skipped"
    reason: str


# A probe's record of each device: ``uuid`` and ``health``, which are checked, and more.
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
    """The devices for a stage, or for the whole run (``None``), could not be leased."""

    event = "lease_failed"
    reason: str
    stage: str | None = None
    text: str = ""


@dataclass(frozen=True)
class NetworkWaiting(StageEvent):
    """A stage needs a container without a network: a request to the engine, which repeats."""

    event = "network_waiting"
    interfaces: tuple[str, ...]
    text: str = ""
    """For a reader, if it takes long."""
    waited_s: float = field(default=0.0, metadata=SECONDS)


@dataclass(frozen=True)
class NetworkRemoved(StageEvent):
    """The agent has verified that only the loopback interface is left."""

    event = "network_removed"
    waited_s: float = field(metadata=SECONDS)


@dataclass(frozen=True)
class NetworkRemained(StageEvent):
    """No one disconnected the container in time, so the stage did not run."""

    event = "network_remained"
    reason: str
    text: str = ""


@dataclass(frozen=True)
class ArtifactMissing(Event):
    event = "artifact_missing"
    name: str
    path: str


@dataclass(frozen=True)
class ArtifactCut(Event):
    """The files that match a pattern exceeded the size limit; some were left out."""

    event = "artifact_cut"
    name: str
    path: str
    left_out: int = field(metadata=COUNT)


@dataclass(frozen=True)
class SourcesRemoved(StageEvent):
    """Modules of a wheel that was made elsewhere are no longer in the sources."""

    event = "sources_removed"
    files: int = field(default=0, metadata=COUNT)


@dataclass(frozen=True)
class RerunEvent(StageEvent):
    """An event of one rerun of a stage's failed tests."""

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
    """Why there was no rerun, or no further one."""

    event = "reruns_ended"
    reason: str
    text: str = ""


@dataclass(frozen=True)
class RunFinished(Event):
    event = "run_finished"
    exit_code: int = field(metadata=EXIT_STATUS)
    interrupted: bool = field(default=False, metadata=STRICT)
    signal_received: int | None = field(default=None, metadata=COUNT)
    """The signal that interrupted the run."""


@dataclass(frozen=True)
class AgentRestarted(Event):
    """The agent was started again in a container in which it had already run stages."""

    event = "agent_restarted"


@dataclass(frozen=True)
class PrintedEvent(StageEvent):
    """An event that is only printed, never written to ``events.jsonl``."""


@dataclass(frozen=True)
class StageProgress(PrintedEvent):
    """How far a running stage is, every few seconds at most; only for a display.

    Older readers skip it, as they skip any unknown event.
    """

    event = "progress"
    done: int = field(default=0, metadata=COUNT)
    """Steps of the build, or tests."""
    total: int | None = field(default=None, metadata=COUNT)
    """Of the same; ``None``: unknown."""
    failed: int = field(default=0, metadata=COUNT)
    """Tests."""
    failing: str = ""
    """The test that failed last."""
    cache_hits: int = field(default=0, metadata=COUNT)
    """Compilations of the run so far that the compiler cache had."""
    cache_misses: int = field(default=0, metadata=COUNT)


@dataclass(frozen=True)
class Output(PrintedEvent):
    """Output of a stage."""

    event = "output"
    text: str
    """The output; bytes that are not UTF-8 are unpaired surrogates."""
    more: bool = False
    """Whether more output follows at once."""


EVENTS: Mapping[str, type[Event]] = {
    kind.event: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, Event) and "event" in vars(kind)
}
