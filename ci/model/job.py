"""The job that an engine hands to the agent, and the parts of a plan that it is made of.

The agent reads back what the engine writes into the same types. Its Python may be old: standard
library only, Python >= 3.8.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

PROTOCOL = 3  # of the job's document; the agent refuses any other


class Word(str, Enum):
    """A word of a plan: a string that prints as its value (``enum.StrEnum``, from 3.11 on)."""

    __str__ = str.__str__


class StageKind(Word):
    """How the agent treats a stage's command."""

    COMMAND = "command"
    PYTEST = "pytest"  # the agent adds --report-log and --junitxml


class Column(Word):
    """The column of the results table that a stage's seconds are added to."""

    BUILD_INSTALL = "build_install"
    PYTEST = "pytest"
    NONE = "none"  # shown in the breakdown only


@dataclass(frozen=True)
class StagePlan:
    """One command that the agent runs and measures."""

    name: str
    kind: StageKind
    command: tuple[str, ...]
    environment: Mapping[str, str]
    timeout_s: float
    column: Column
    device: bool = False  # runs with the lease of the platform's devices, where it has any
    reruns: int = 0  # of the tests that failed, for evidence


@dataclass(frozen=True)
class ArtifactPlan:
    """A file or folder of the workspace that the agent copies into the results folder.

    A folder becomes ``<name>.tar.gz``; a file keeps the name given.
    """

    name: str
    path: str


@dataclass(frozen=True)
class DeviceJob:
    """The devices that the agent leases, and how it finds them.

    Attributes:
        count: how many it takes
        uuids: the only ones to take; none: any
        wait_s: longest wait for a free device
        busy_memory: fraction of its memory in use above which a device is busy
        folder: of the leases, on the machine that has the devices
        probe: command that prints what devices there are
        visible: environment variable that narrows a process to some devices
        visible_by: what that variable lists, ``uuid`` or ``index``
        user: who holds the lease, as others are shown it
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


@dataclass(frozen=True)
class CacheJob:
    """Where a compiler cache lies, where the agent is."""

    folder: str
    base: str  # of the sources; paths below it are the same in every run
    cold: bool  # what is in it is not used, only replaced


@dataclass(frozen=True)
class Job:
    """Everything that the agent is told.

    Attributes:
        workspace: folder of the sources, in which the stages run
        results: folder that the agent fills
        environment: goes on top of the agent's own
        printed_bytes_per_s: of output that comes faster a part is printed; the logs have it all
        devices: ``None`` where the platform has none, or the run does without
        device_compiler: the vendor's compiler, whose version is recorded
        compiler_cache: ``None`` where none is kept
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

    def to_json(self) -> str:
        return json.dumps({"protocol": PROTOCOL, **asdict(self)}, indent=2)


def read_job(document: Mapping[str, Any]) -> Job:
    """Make a job of the decoded document; of this ``PROTOCOL``, so that all fields are known."""
    fields = {name: value for name, value in document.items() if name != "protocol"}
    devices, cache = fields["devices"], fields["compiler_cache"]
    fields["stages"] = tuple(
        StagePlan(**{**stage, "kind": StageKind(stage["kind"]), "column": Column(stage["column"])})
        for stage in fields["stages"]
    )
    fields["artifacts"] = tuple(ArtifactPlan(**artifact) for artifact in fields["artifacts"])
    fields["devices"] = devices and DeviceJob(**devices)
    fields["compiler_cache"] = cache and CacheJob(**cache)
    return Job(**fields)
