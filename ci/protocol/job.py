"""The job that an engine passes to the agent, and its parts, which plans share.

The agent reads the engine's JSON back into the same types. Its Python may be old: standard library
only, Python >= 3.8.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ci.protocol.stage_kind import StageKind, StringEnum

PROTOCOL = 7  # version of the job's document; the agent refuses any other
# What the agent gets instead of a document: to open a shell in its environment, and to fill the
# folders of a pod.
ENTER, UNPACK = "enter", "unpack"
DISK_FULL = 74  # the agent's exit code if a stage, or it itself, met a full disk: EX_IOERR
INTERACTIVE = "--interactive"  # of ``ENTER``: the shell has a terminal
NETRC = "NETRC"  # the variable that names a file of passwords, to pip and other programs


class Column(StringEnum):
    """The column of the results table that a stage's seconds are added to."""

    BUILD_INSTALL = "build_install"
    PYTEST = "pytest"
    NONE = "none"  # shown in the breakdown only


class StageNetwork(StringEnum):
    """The network of a stage in a container."""

    FULL = "full"
    NONE = "none"


@dataclass(frozen=True)
class StagePlan:
    """One command that the agent runs and measures."""

    name: str
    kind: StageKind
    command: tuple[str, ...]
    environment: Mapping[str, str]
    timeout_s: float
    column: Column
    device: bool = False  # runs with a lease on the platform's devices, if it has any
    credentials: bool = False  # gets the variables with passwords
    reruns: int = 0  # how often failed tests are run again, as evidence of flaky tests
    isolated: bool = False  # begins when the engine has disconnected the container
    only: tuple[str, ...] = ()  # the only tests that pytest runs; empty: all
    # Instead of a command, an environment that a shell enters, also after a stage that failed.
    hold: bool = False
    shards: int = 1  # processes that share the tests, side by side, each with devices of its own
    benchmarks: str = ""  # where the stage writes the results of its benchmarks, in the workspace
    seconds: Mapping[str, float] = field(default_factory=dict)  # of earlier runs, by node id
    left_out: bool = False  # the run is to end before it


@dataclass(frozen=True)
class ArtifactPlan:
    """A file or folder of the workspace that the agent copies into the results folder.

    A folder becomes ``<name>.tar.gz``; a file keeps the name given.
    """

    name: str
    path: str


@dataclass(frozen=True)
class DistributionJob:
    """Where the wheels and source distributions of a run are.

    Attributes:
        folder: folder of the workspace in which stages make them
        given: paths of files that were made elsewhere
    """

    folder: str
    given: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeviceJob:
    """The devices that the agent leases, and how it finds them.

    Attributes:
        count: number of devices to lease, for each shard
        uuids: the only devices to lease; empty: any
        wait_s: longest wait for a free device
        busy_memory: fraction of its memory in use above which a device is busy
        folder: folder of the lease files, on the machine that has the devices
        probe: command that prints the devices
        visible: environment variable that restricts a process to some devices
        visible_by: what that variable lists, ``uuid`` or ``index``
        user: holder of the lease, shown to other users
        shards: number of processes that run the tests side by side
    """

    count: int
    uuids: tuple[str, ...]
    wait_s: float
    busy_memory: float
    folder: str
    probe: tuple[str, ...]
    visible: str
    visible_by: str
    user: str
    shards: int = 1


@dataclass(frozen=True)
class CacheJob:
    """The compiler cache on the agent's machine."""

    folder: str
    base: str  # folder of the sources; paths below it are the same in every run
    cold: bool  # do not use its content, only replace it
    trusted: tuple[str, ...] = ()  # folders of more trusted caches, the most trusted first


@dataclass(frozen=True)
class Job:
    """Everything that the agent needs for a run.

    Attributes:
        workspace: folder of the sources, in which the stages run
        results: folder to which the agent writes
        environment: variables added to the agent's own environment
        printed_bytes_per_s: limit for printed output; a faster stage is printed in part, and its
            log is complete
        devices: ``None`` if the platform has none, or the run does not use them
        device_compiler: the vendor's compiler, whose version is recorded
        compiler_cache: ``None`` if none is kept
        credentials: file with variables that hold passwords, ``NAME=VALUE`` in each line, which
            the agent reads and removes
        user: number of the user that runs the stages; ``None``: the agent's own
        distributions: ``None`` if none are kept
    """

    run_id: str
    platform: str
    workspace: str
    results: str
    environment: Mapping[str, str]
    printed_bytes_per_s: int
    stages: tuple[StagePlan, ...]
    artifacts: tuple[ArtifactPlan, ...] = ()
    devices: DeviceJob | None = None
    device_compiler: str | None = None
    compiler_cache: CacheJob | None = None
    credentials: str | None = None
    user: int | None = None
    distributions: DistributionJob | None = None

    def to_json(self) -> str:
        return json.dumps({"protocol": PROTOCOL, **asdict(self)}, indent=2)


def read_job(document: Mapping[str, Any]) -> Job:
    """Make a job from the decoded document, whose protocol must be ``PROTOCOL``."""
    fields = {name: value for name, value in document.items() if name != "protocol"}
    devices, cache = fields["devices"], fields["compiler_cache"]
    fields["stages"] = tuple(
        StagePlan(**{**stage, "kind": StageKind(stage["kind"]), "column": Column(stage["column"])})
        for stage in fields["stages"]
    )
    fields["artifacts"] = tuple(ArtifactPlan(**artifact) for artifact in fields["artifacts"])
    fields["devices"] = devices and DeviceJob(**devices)
    made = fields["distributions"]
    fields["distributions"] = made and DistributionJob(made["folder"], tuple(made["given"]))
    fields["compiler_cache"] = cache and CacheJob(**{**cache, "trusted": tuple(cache["trusted"])})
    return Job(**fields)
