"""Pure planning: configuration and request become one frozen ``RunPlan`` per platform.

Nothing here does any I/O; whatever must be known about the machine (environment
variables, file contents, hashes) comes in as values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class StageKind(StrEnum):
    """How the agent treats a stage's command."""

    COMMAND = "command"
    PYTEST = "pytest"  # the agent adds --report-log and --junitxml


class Column(StrEnum):
    """The column of the results table that a stage's seconds are added to."""

    BUILD_INSTALL = "build_install"
    PYTEST = "pytest"
    NONE = "none"  # shown in the breakdown only


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """One command that the agent runs and measures."""

    name: str
    kind: StageKind
    command: tuple[str, ...]
    column: Column
    timeout_s: float
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ArtifactPlan:
    """A file or folder of the workspace that the agent copies into the results folder.

    A folder becomes ``<name>.tar.gz``; a file keeps the name given.
    """

    name: str
    path: str


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """What a site needs to reach its package index, in image builds and in runs.

    ``environment`` holds pip and proxy variables as they read inside the container.
    ``wheelhouse`` is a folder of this machine that the engine serves on loopback at
    ``wheelhouse_port`` while it builds or runs; the address is already in ``environment``.
    ``ca_bundle`` is a PEM file of this machine, copied to ``CONTAINER_CA_BUNDLE``.
    """

    environment: Mapping[str, str]
    ca_bundle: Path | None = None
    wheelhouse: Path | None = None
    wheelhouse_port: int | None = None


CONTAINER_CA_BUNDLE = "/etc/ssl/certs/site-ca-bundle.pem"


@dataclass(frozen=True, kw_only=True)
class ImagePlan:
    """A container image: how to build it and the content-hash tag it gets.

    ``context`` maps names inside the build context to file contents, Dockerfile included,
    so that the tag can be computed, and the context sent, without touching the disk again.
    ``offline_base`` is the command (an argument list, run from the repository root with
    ``base_image`` appended) that makes a base image without any registry; used only when
    ``base_image`` is neither present nor pullable.
    """

    tag: str
    dockerfile: str
    context: Mapping[str, bytes]
    build_arguments: Mapping[str, str]
    base_image: str
    offline_base_image: str | None
    offline_base_command: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class ContainerPlan:
    """The container specification of a run; unprivileged unless a platform says otherwise."""

    name: str
    labels: Mapping[str, str]
    user: str
    workspace: str
    results: str
    shm_size_bytes: int | None
    memory_bytes: int | None
    network_mode: str | None


@dataclass(frozen=True, kw_only=True)
class HostPlan:
    """What the host engine puts into its fresh virtual environment before the stages."""

    python: str
    requirements: Path  # a requirements file of the repository


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """Everything an engine needs to carry out one platform's run."""

    run_id: str
    platform: str
    label: str
    source: Path
    results: Path  # results/<run-id>/<platform> on this machine
    stages: tuple[StagePlan, ...]
    artifacts: tuple[ArtifactPlan, ...]
    environment: Mapping[str, str]
    network: NetworkPlan
    image: ImagePlan
    container: ContainerPlan
    host: HostPlan
