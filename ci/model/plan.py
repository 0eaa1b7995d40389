"""The plan of a run: frozen values that planning produces and engines execute.

Stages and artifacts, which are passed to the agent unchanged, are in ``ci.protocol.job``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ci.errors import ConfigError
from ci.model.outcomes import Suite
from ci.model.platforms import OFFLINE_BASE_COMMAND, OFFLINE_BASE_IMAGE, PLATFORMS, DeviceFacts
from ci.model.results import selected_title, title
from ci.model.trust import Trust
from ci.protocol.job import ArtifactPlan, StagePlan
from ci.protocol.stage_kind import StageKind

# Environment variables of every stage; tests read their platform and device from them.
PLATFORM_VARIABLE = "INFINI_CI_PLATFORM"
TORCH_DEVICE_VARIABLE = "INFINI_CI_TORCH_DEVICE"
SIMULATED_VARIABLE = "INFINI_CI_SIMULATED"  # 1, or not set
RESERVED_VARIABLES = frozenset({PLATFORM_VARIABLE, TORCH_DEVICE_VARIABLE, SIMULATED_VARIABLE})


class Exposure(StrEnum):
    """How devices are passed to a container."""

    AUTO = "auto"  # the vendor's usual way
    REQUEST = "request"  # a DeviceRequest, like ``--gpus``
    CDI = "cdi"  # the Container Device Interface
    FILES = "files"  # device files and folders of the driver


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """How image builds and runs reach the site's package index.

    ``environment`` holds the pip and proxy variables with their values inside the container,
    without passwords. ``credentials`` holds those that differ for stages that get the passwords;
    the value of ``NETRC`` is the content of the file that the variable names there.
    ``build_environment`` has the same settings with all passwords, for image builds, and
    ``host_environment`` with their values on this machine. ``without_credentials`` holds the
    variables whose addresses have passwords, without these.
    ``wheelhouse`` is a folder of this machine: a container has its files in ``CONTAINER_WHEELS``, a
    build reads them from ``WHEELHOUSE_URL``. These are already in the variables.
    ``ca_bundle`` is a PEM file of this machine, copied to ``CONTAINER_CA_BUNDLE``.
    ``wheels`` is a folder of a bundle, copied to ``CONTAINER_WHEELS``.
    """

    environment: Mapping[str, str]
    ca_bundle: Path | None = None
    wheelhouse: Path | None = None
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    build_environment: Mapping[str, str] = field(default_factory=dict)
    host_environment: Mapping[str, str] = field(default_factory=dict)
    without_credentials: Mapping[str, str] = field(default_factory=dict)
    wheels: Path | None = None


CONTAINER_FOLDER = "/opt/infini-ci"  # everything that a run copies in beside the sources
CONTAINER_CA_BUNDLE = f"{CONTAINER_FOLDER}/site-ca-bundle.pem"
CONTAINER_WHEELS = f"{CONTAINER_FOLDER}/wheels"
CONTAINER_GIVEN = f"{CONTAINER_FOLDER}/given"  # a distribution that was made elsewhere
# The agent's alone, which reads the file and removes it.
CONTAINER_CREDENTIALS = f"{CONTAINER_FOLDER}/private/credentials"
LOOPBACK = "127.0.0.1"
# Fixed, since the address is part of the build, and another one would miss the layer cache. It is
# in a network namespace of the build's own, where nothing else listens.
WHEELHOUSE_PORT = 8421
WHEELHOUSE_URL = f"http://{LOOPBACK}:{WHEELHOUSE_PORT}/"
BASE_IMAGE_INPUT = "base image"  # key in ``ImagePlan.inputs``


@dataclass(frozen=True, kw_only=True)
class ImageArchive:
    """An image in a bundle; ``member`` names the output of ``docker save`` in the tar file."""

    bundle: Path
    member: str
    id: str
    layers: tuple[str, ...]  # digests
    size: int  # bytes in an engine


@dataclass(frozen=True, kw_only=True)
class ImagePlan:
    """A container image: how to build it and the content-hash tag it gets.

    ``context`` maps names inside the build context to file contents, Dockerfile included,
    so that the tag can be computed, and the context sent, without reading the disk again.
    ``inputs`` maps every input of the tag to its digest (the base image to its reference), and is
    stored with the image. ``entry`` is put before every command, to set up the environment that a
    vendor's tools need.
    ``offline_base_command`` is the command (an argument list, run from the repository root with
    ``offline_base_image`` appended) that makes a base image without any registry. It is used only
    if ``base_image`` is neither present nor pullable. With an ``archive`` nothing is built: the
    image is loaded from it.
    """

    tag: str
    dockerfile: str
    context: Mapping[str, bytes]
    build_arguments: Mapping[str, str]
    base_image: str
    offline_base_image: str | None
    offline_base_command: tuple[str, ...] | None
    inputs: Mapping[str, str] = field(default_factory=dict)
    entry: tuple[str, ...] = ()
    archive: ImageArchive | None = None


RUN_LABEL = "infini-ci.run"
PLATFORM_LABEL = "infini-ci.platform"
HELPER_LABEL = "infini-ci.helper"  # of a container beside the run's own: the id of the run
SESSION_LABEL = "infini-ci.session"  # of a container for a shell, which no later caller adopts
# End of the name of a failed run's container that stays for a shell. An engine can rename a
# container, but not change its labels.
KEPT = "-kept"


@dataclass(frozen=True, kw_only=True)
class ContainerPlan:
    """The container specification of a run; unprivileged unless its device policy differs.

    ``writable`` are the only folders that can be written to; each is a volume that is removed with
    the container. ``None``: the whole root file system can be.
    """

    name: str
    labels: Mapping[str, str]
    user: str
    workspace: str
    results: str
    shm_size_bytes: int | None
    memory_bytes: int | None  # None: most of the memory of the engine's machine
    processes: int
    ulimits: Mapping[str, int] = field(default_factory=dict)
    writable: tuple[str, ...] | None = None

    @property
    def kept_name(self) -> str:
        """The name of the container once it is judged and stays, for a shell."""
        return self.name + KEPT

    @property
    def shared_labels(self) -> dict[str, str]:
        """The labels of what outlives the run."""
        own = (RUN_LABEL, SESSION_LABEL)
        return {name: value for name, value in self.labels.items() if name not in own}

    @property
    def helper_labels(self) -> dict[str, str]:
        """The labels of a container beside the run's own, for which no caller takes it."""
        return {**self.shared_labels, HELPER_LABEL: self.labels[RUN_LABEL]}


@dataclass(frozen=True, kw_only=True)
class SystemPackages:
    """Packages of the distribution, by their names for each package manager."""

    apt: tuple[str, ...] = ()
    dnf: tuple[str, ...] = ()  # and yum

    def __bool__(self) -> bool:
        return bool(self.apt or self.dnf)


@dataclass(frozen=True, kw_only=True)
class ResultLimits:
    """How much is copied out of a container; the fields are those of ``results:`` of a site."""

    total_bytes: int = 4 << 30
    entries: int = 10_000
    depth: int = 32
    name_bytes: int = 1024


DEFAULT_LIMITS = ResultLimits()


LEASES = "/run/lock/infini-ci"  # shared by all runs of all users; emptied by a restart


@dataclass(frozen=True, kw_only=True)
class DevicePlan:
    """The devices that a run needs, and how it gets them."""

    facts: DeviceFacts
    count: int
    uuids: tuple[str, ...]  # the only devices to use; empty: any
    exposure: Exposure
    privileged: bool
    wait_s: float  # longest wait for a free device
    busy_memory: float  # fraction of its memory in use above which a device is busy
    folder: str = LEASES  # on the machine that has the devices


class Priority(StrEnum):
    """Which run gets a free host of a pool first: in this order."""

    RELEASE = "release"
    NIGHTLY = "nightly"
    COMMIT = "commit"


class EngineKind(StrEnum):
    """The kinds of engines; each but the first is a room of ``ci.engines``."""

    AUTO = "auto"  # Docker where an engine answers, else this machine
    DOCKER = "docker"
    HOST = "host"
    PODMAN = "podman"
    RAY = "ray"


@dataclass(frozen=True, kw_only=True)
class EnginePlan:
    """Where a platform runs.

    ``docker_host`` is the address of a Docker Engine (unix, tcp, ssh) and ``context`` a Docker
    context, and ``podman_host`` the address of a Podman; without these, the environment selects the
    engine. ``ray_address`` is the address of a
    Ray cluster, on whose hosts an engine of kind ``node_engine`` runs the platform. Plans with the
    same ``name`` share its ``capacity``, the number of platforms at once; ``None`` is the number of
    its processors.
    """

    name: str
    kind: EngineKind
    docker_host: str | None = None
    context: str | None = None
    podman_host: str | None = None
    ray_address: str | None = None
    node_engine: EngineKind = EngineKind.AUTO
    capacity: int | None = None

    @property
    def host(self) -> str | None:
        """The address of the engine, if the plan has one."""
        return self.docker_host or self.podman_host


@dataclass(frozen=True, kw_only=True)
class CachePlan:
    """The compiler cache of a platform: a named volume, or a folder of the host engine.

    ``trusted`` names the caches of higher trust levels, the highest first; they are only read.
    """

    name: str
    cold: bool  # do not use its content, only replace it
    trusted: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HostPlan:
    """The virtual environment that the host engine creates before the stages.

    ``python`` is this program's own, which runs virtualenv. ``interpreter`` names the Python of the
    environment; ``None``: the engine chooses it. ``sees_torch``: the requirements bring no torch,
    so the environment sees that of its Python, if it has one.
    """

    python: str
    requirements: Path  # a requirements file of the repository
    interpreter: str | None = None
    sees_torch: bool = False
    pass_environment: tuple[str, ...] = ()  # variables of the caller for the stages, as patterns


@dataclass(frozen=True, kw_only=True)
class ContractPlan:
    """The expected outcomes of the platform's tests; ``suite`` is ``None`` without a file."""

    suite: Suite | None
    torch: str | None = None  # the version that the contract was made with
    config: str | None = None  # for the command that writes the file
    file: str | None = None  # for the command that compares a run with it


@dataclass(frozen=True, kw_only=True)
class GivenDistribution:
    """A wheel or a source distribution of this machine, which was made elsewhere."""

    path: Path
    sha256: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class DistributionPlan:
    """The folder of the workspace in which stages make distributions, or one made elsewhere."""

    folder: str
    given: GivenDistribution | None = None


@dataclass(frozen=True, kw_only=True)
class SelectionPlan:
    """The operators that a run builds and tests, and the variable that passes them on."""

    variable: str
    operators: str | None  # names and patterns, or a file; None: all


# Limits of an agent's work beside its stages. It gives processes 10 s to end and then waits for
# killed ones for 30 s.
END_OF_STAGE_S = 40.0
REST_S = 600.0  # for artifacts and facts of the machine, which take seconds to minutes
# Before the stages, to pull or make an image or an environment: added to the limit of a job of
# another system, which includes it.
PREPARATION_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """Everything an engine needs to carry out one platform's run."""

    run_id: str
    platform: str
    label: str
    torch_device: str
    source: Path
    results: Path  # results/<run-id>/<platform> on this machine
    stages: tuple[StagePlan, ...]
    artifacts: tuple[ArtifactPlan, ...]
    environment: Mapping[str, str]
    network: NetworkPlan
    image: ImagePlan | None  # None: no base image is known
    container: ContainerPlan
    host: HostPlan
    engine: EnginePlan
    devices: DevicePlan | None = None
    cache: CachePlan | None = None
    contract: ContractPlan | None = None
    simulated: bool = False
    selection: SelectionPlan | None = None  # None: the project has no way to select
    system_packages: SystemPackages = SystemPackages()
    result_limits: ResultLimits = DEFAULT_LIMITS
    other_engines: tuple[EnginePlan, ...] = ()  # in order, if ``engine`` does not answer
    retries: int = 0  # attempts after an infrastructure fault
    trust: Trust = Trust.BRANCH
    keep: bool = False  # the container, or the work folder, stays if the platform fails
    packed: bool = False  # the sources are only the files to copy: there is nothing to leave out
    subfolder: str = "."  # of the copied tree, in which the stages run
    priority: Priority = Priority.COMMIT
    asked_by: str | None = None  # the command that searches a commit with it
    distributions: DistributionPlan | None = None  # None: none are kept

    @property
    def pytest_stage(self) -> StagePlan:
        """The stage that runs the tests."""
        return next(stage for stage in self.stages if stage.kind is StageKind.PYTEST)

    @property
    def given(self) -> GivenDistribution | None:
        """The distribution that is installed in place of what stages build; ``None``: none."""
        return self.distributions.given if self.distributions else None

    @property
    def selected(self) -> str | None:
        """The operators that the run is narrowed to; ``None``: all."""
        return self.selection.operators if self.selection else None

    @property
    def expected_suite(self) -> Suite | None:
        """The suite that the contract states; ``None`` if there is none yet."""
        return self.contract.suite if self.contract else None

    @property
    def shards(self) -> int:
        """Number of processes that share the tests, each with devices of its own."""
        return max(stage.shards for stage in self.stages)

    @property
    def longest_s(self) -> float:
        """Seconds after which the container has ended, by the limits of all its parts."""
        total = REST_S
        for stage in self.stages:
            total += stage.timeout_s * (2 if stage.reruns else 1) + END_OF_STAGE_S
            total += stage.timeout_s if stage.isolated else 0.0  # to wait for the engine
            total += self.devices.wait_s if self.devices and stage.device else 0.0
        return total

    @property
    def title(self) -> str:
        """The display name of the platform, or of a result of it."""
        name = title(self.label, self.platform, simulated=self.simulated)
        return selected_title(name, self.selected)

    @property
    def needed_image(self) -> ImagePlan:
        """The image, for an engine that needs one; raises ``ConfigError`` if there is none."""
        if self.image is None:
            raise ConfigError(
                f"platforms.{self.platform}: no base image is configured, and no public registry"
                " has one",
                remedy=f"{base_image_remedy(self.platform, None)}, or use --engine host.",
            )
        return self.image


def base_image_remedy(platform: str, image: ImagePlan | None) -> str:
    """How to get the base image of a platform; ``image`` is the one to build, if a base is known.

    A platform without a vendor can start from a base that this repository makes.
    """
    if image and image.offline_base_image and image.offline_base_command:
        make = " ".join([*image.offline_base_command, image.offline_base_image])
        return f"To make the offline base before a run does: {make}"
    names = (
        f"INFINI_CI_BASE_IMAGE_{platform.upper()} or as platforms.{platform}.base_image in"
        " ci.site.yaml"
    )
    if image and PLATFORMS[platform].offline_base:
        make = " ".join([*OFFLINE_BASE_COMMAND, OFFLINE_BASE_IMAGE])
        return f"Make a base without a registry ({make}) and name {OFFLINE_BASE_IMAGE} in {names}"
    return f"Load the vendor's archive (docker load) and name it in {names}"
