"""Pure planning: configuration and request become one frozen ``RunPlan`` per platform.

Nothing here does any I/O; whatever must be known about the machine (environment
variables, file contents, hashes) comes in as values.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from ci.errors import ConfigError
from ci.platforms import OFFLINE_BASE_COMMAND, OFFLINE_BASE_IMAGE

if TYPE_CHECKING:
    from ci.analysis.suite import Suite
    from ci.config import Config, DevicePolicy, PlatformConfig, StageConfig
    from ci.platforms import DeviceFacts, Platform


# What every stage is told about the run; tests take their platform and device from these.
PLATFORM_VARIABLE = "INFINI_CI_PLATFORM"
TORCH_DEVICE_VARIABLE = "INFINI_CI_TORCH_DEVICE"
SIMULATED_VARIABLE = "INFINI_CI_SIMULATED"  # 1, or not there
RESERVED_VARIABLES = frozenset({PLATFORM_VARIABLE, TORCH_DEVICE_VARIABLE, SIMULATED_VARIABLE})


class StageKind(StrEnum):
    """How the agent treats a stage's command."""

    COMMAND = "command"
    PYTEST = "pytest"  # the agent adds --report-log and --junitxml


class Column(StrEnum):
    """The column of the results table that a stage's seconds are added to."""

    BUILD_INSTALL = "build_install"
    PYTEST = "pytest"
    NONE = "none"  # shown in the breakdown only


class Exposure(StrEnum):
    """How a container gets at the devices."""

    AUTO = "auto"  # what the vendor hands them out by
    REQUEST = "request"  # a DeviceRequest, as ``--gpus``
    CDI = "cdi"  # the Container Device Interface
    FILES = "files"  # device files and folders of the driver


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """One command that the agent runs and measures."""

    name: str
    kind: StageKind
    command: tuple[str, ...]
    column: Column
    timeout_s: float
    environment: Mapping[str, str]
    device: bool = False  # runs with the lease of the platform's devices, where it has any
    reruns: int = 0  # of the tests that failed, for evidence


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

    ``environment`` holds pip and proxy variables as they read inside the container,
    ``host_environment`` the same settings as they read on this machine.
    ``wheelhouse`` is a folder of this machine that the engine serves on loopback at
    ``wheelhouse_port`` while it builds or runs; the address is already in ``environment``.
    ``ca_bundle`` is a PEM file of this machine, copied to ``CONTAINER_CA_BUNDLE``, and ``wheels``
    a folder, of a bundle, copied to ``CONTAINER_WHEELS``.
    """

    environment: Mapping[str, str]
    ca_bundle: Path | None = None
    wheelhouse: Path | None = None
    wheelhouse_port: int | None = None
    host_environment: Mapping[str, str] = field(default_factory=dict)
    wheels: Path | None = None


CONTAINER_CA_BUNDLE = "/etc/ssl/certs/site-ca-bundle.pem"
CONTAINER_WHEELS = "/opt/infini-ci/wheels"


@dataclass(frozen=True, kw_only=True)
class ImageArchive:
    """An image in a bundle: the ``member`` of that tar file is what ``docker save`` wrote."""

    bundle: Path
    member: str
    id: str
    layers: tuple[str, ...]  # digests
    size: int  # bytes in an engine


@dataclass(frozen=True, kw_only=True)
class ImagePlan:
    """A container image: how to build it and the content-hash tag it gets.

    ``context`` maps names inside the build context to file contents, Dockerfile included,
    so that the tag can be computed, and the context sent, without touching the disk again.
    ``inputs`` names all that the tag is computed from, each with its digest (the base image with
    its reference), so that an image can be asked later what it was made from. ``entry`` goes before
    every command, for the environment that a vendor's tools need.
    ``offline_base_command`` is the command (an argument list, run from the repository root with
    ``offline_base_image`` appended) that makes a base image without any registry; used only when
    ``base_image`` is neither present nor pullable. With an ``archive`` nothing is built: the image
    comes from there.
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
    ulimits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SystemPackages:
    """Packages of the distribution, by the names that its package manager has for them."""

    apt: tuple[str, ...] = ()
    dnf: tuple[str, ...] = ()  # and yum

    def __bool__(self) -> bool:
        return bool(self.apt or self.dnf)


LEASES = "/run/lock/infini-ci"  # shared by all runs of all users, and gone with a restart


@dataclass(frozen=True, kw_only=True)
class DevicePlan:
    """The devices that a run needs, and how it gets at them."""

    facts: DeviceFacts
    count: int
    uuids: tuple[str, ...]  # the only ones to take; none: any
    exposure: Exposure
    privileged: bool
    wait_s: float  # longest wait for a free device
    busy_memory: float  # fraction of its memory in use above which a device is busy
    folder: str = LEASES  # of the machine that has the devices


@dataclass(frozen=True, kw_only=True)
class EnginePlan:
    """Where a platform runs.

    ``kind`` is what ``--engine`` says: auto, docker or host. ``docker_host`` is the address of a
    Docker Engine (unix, tcp, ssh) and ``context`` a Docker context; with neither it is the one that
    the environment says. Plans of one ``name`` share its ``capacity``, platforms at once; ``None``
    is as many as it has processors.
    """

    name: str
    kind: str
    docker_host: str | None = None
    context: str | None = None
    capacity: int | None = None


@dataclass(frozen=True, kw_only=True)
class CachePlan:
    """The compiler cache of a platform: a named volume, or a folder of the host engine's."""

    name: str
    cold: bool  # what is in it is not used, only replaced


@dataclass(frozen=True, kw_only=True)
class HostPlan:
    """What the host engine puts into its fresh virtual environment before the stages."""

    python: str
    requirements: Path  # a requirements file of the repository


@dataclass(frozen=True, kw_only=True)
class ContractPlan:
    """What the platform's tests are expected to do; ``None`` where no file says so yet."""

    suite: Suite | None
    config: str | None = None  # for the command that writes the file


@dataclass(frozen=True, kw_only=True)
class SelectionPlan:
    """The operators that a run builds and tests, and the variable that passes them on."""

    variable: str
    operators: str | None  # names and patterns, or a file; None: all


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

    @property
    def needed_image(self) -> ImagePlan:
        """The image, for an engine that needs one; raises ``ConfigError`` where it has none."""
        if self.image is None:
            raise ConfigError(
                f"platforms.{self.platform}: no base image is known, no public registry has one",
                remedy=f"{base_image_remedy(self.platform)}, or use --engine host.",
            )
        return self.image


def base_image_remedy(platform: str) -> str:
    """How to come by the base image of a platform."""
    return (
        "Load the vendor's archive (docker load) and name it in"
        f" INFINI_CI_BASE_IMAGE_{platform.upper()} or as platforms.{platform}.base_image in"
        " ci.site.yaml"
    )


@dataclass(frozen=True, kw_only=True)
class PlanInputs:
    """What planning has to know about files and this site, read beforehand.

    ``context`` is the build context, requirements and recipe (as ``DOCKERFILE``) included.
    """

    run_id: str
    source: Path
    results: Path  # results/<run-id>
    python: str
    context: Mapping[str, bytes]
    requirements: Path
    base_image: str | None  # the site's own
    network: NetworkPlan
    engine: EnginePlan
    devices: DevicePolicy
    cold: bool = False
    reruns: int | None = None  # None: what the stage says
    contract: ContractPlan | None = None
    selected: str | None = None  # operators; None: all


DOCKERFILE = "Dockerfile"
CA_BUNDLE_IN_CONTEXT = "site-ca-bundle.pem"
PACKAGES_IN_CONTEXT = "system-packages"
ENTRY_IN_CONTEXT = "enter"
ENTRY = "/opt/recipe/enter"  # where this program's own recipe puts it
BASE_IMAGE_INPUT = "base image"
USER = "1000"  # as the recipes make it; by number, as its files are put in by number
WORKSPACE = "/workspace"
RESULTS = "/results"

# Settings that an image build takes as arguments. The certificates come in the context: they
# are too long for an argument.
_BUILD_ARGUMENTS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_FIND_LINKS")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_PROXY_ARGUMENTS = (*_PROXIES, *(name.lower() for name in _PROXIES))


def make_plan(config: Config, platform: Platform, inputs: PlanInputs) -> RunPlan:
    """Plan one platform's run."""
    wanted = config.platforms[platform.name]
    packages = _system_packages(config, wanted)
    devices = _device_plan(platform, wanted, inputs.devices)
    selection = None
    if config.selection is not None:
        variable = config.selection.variable
        selection = SelectionPlan(variable=variable, operators=inputs.selected)
    return RunPlan(
        run_id=inputs.run_id,
        platform=platform.name,
        label=wanted.label or platform.label,
        torch_device=platform.torch_device,
        simulated=wanted.simulated,
        source=inputs.source,
        results=inputs.results / platform.name,
        stages=tuple(
            _stage_plan(stage, inputs.reruns)
            for stage in config.stages
            if stage.platforms is None or platform.name in stage.platforms
        ),
        artifacts=tuple(
            ArtifactPlan(name=name, path=path) for name, path in config.artifacts.items()
        ),
        environment={
            **wanted.environment,
            PLATFORM_VARIABLE: platform.name,
            TORCH_DEVICE_VARIABLE: platform.torch_device,
            **({SIMULATED_VARIABLE: "1"} if wanted.simulated else {}),
            # Empty rather than absent: otherwise the caller's, or the image's, would count.
            **({selection.variable: selection.operators or ""} if selection else {}),
        },
        network=inputs.network,
        image=_image_plan(platform, wanted, packages, inputs),
        container=_container_plan(config.project, platform, wanted, inputs, devices),
        host=HostPlan(python=inputs.python, requirements=inputs.requirements),
        engine=inputs.engine,
        devices=devices,
        cache=_cache_plan(config.project, platform.name, wanted, inputs),
        contract=inputs.contract,
        selection=selection,
        system_packages=packages,
    )


def _device_plan(
    platform: Platform, wanted: PlatformConfig, policy: DevicePolicy
) -> DevicePlan | None:
    if platform.devices is None or wanted.simulated or policy.count == 0:
        return None
    return DevicePlan(
        facts=platform.devices,
        count=policy.count,
        uuids=policy.uuids,
        exposure=policy.exposure,
        privileged=policy.privileged,
        wait_s=policy.wait_s,
        busy_memory=policy.busy_memory,
    )


def _cache_plan(
    project: str, platform: str, wanted: PlatformConfig, inputs: PlanInputs
) -> CachePlan | None:
    if not wanted.compiler_cache:
        return None
    owner = wanted.compiler_cache_of or platform
    return CachePlan(name=cache_name(project, owner), cold=inputs.cold)


def cache_name(project: str, platform: str) -> str:
    """What the compiler cache of a platform is called, on every engine."""
    return f"infini-ci-cache-{project}-{platform}"


def _stage_plan(stage: StageConfig, reruns: int | None) -> StagePlan:
    tests = stage.kind is StageKind.PYTEST
    by_kind = Column.PYTEST if tests else Column.BUILD_INSTALL
    return StagePlan(
        name=stage.name,
        kind=stage.kind,
        command=tuple(shlex.split(stage.command)),
        column=stage.column or by_kind,
        timeout_s=stage.timeout_s,
        environment=stage.environment,
        device=tests if stage.device is None else stage.device,
        reruns=reruns if tests and reruns is not None else stage.reruns,
    )


def _system_packages(config: Config, wanted: PlatformConfig) -> SystemPackages:
    """What the project and the platform ask for, each package once."""
    apt: list[str] = []
    dnf: list[str] = []
    for asked in (config.system_packages, wanted.system_packages):
        apt += asked if isinstance(asked, tuple) else asked.apt
        dnf += asked if isinstance(asked, tuple) else asked.dnf
    return SystemPackages(apt=tuple(dict.fromkeys(apt)), dnf=tuple(dict.fromkeys(dnf)))


def _image_plan(
    platform: Platform, wanted: PlatformConfig, packages: SystemPackages, inputs: PlanInputs
) -> ImagePlan | None:
    base_image = inputs.base_image or wanted.base_image or platform.base_image
    if base_image is None:
        return None
    # It stands in for the platform's own base only, never for another that somebody chose.
    stands_in = platform.offline_base and base_image == platform.base_image
    offline = stands_in or base_image == OFFLINE_BASE_IMAGE
    settings = inputs.network.environment
    arguments = {name: settings[name] for name in _BUILD_ARGUMENTS if name in settings}
    proxies = {name: settings[name] for name in _PROXY_ARGUMENTS if name in settings}
    context = inputs.context
    if packages:
        # Its last letter may be in brackets, for COPY to take the file or leave it.
        if wanted.recipe and PACKAGES_IN_CONTEXT[:-1].encode() not in context[DOCKERFILE]:
            raise ConfigError(
                f"platforms.{platform.name}.recipe: {wanted.recipe} does not install the system"
                f" packages {', '.join(packages.apt or packages.dnf)}",
                remedy=f"COPY the file {PACKAGES_IN_CONTEXT} of the build context and install the"
                " names on its lines `apt NAME` or `dnf NAME`, or leave out `system_packages:`.",
            )
        context = {**context, PACKAGES_IN_CONTEXT: _package_lines(packages).encode()}
    made_of = {
        BASE_IMAGE_INPUT: base_image,
        **{name: _digest(content) for name, content in context.items()},
        # A proxy is none of them, as it does not change what comes.
        **{f"argument {name}": _digest(value.encode()) for name, value in arguments.items()},
    }
    return ImagePlan(
        tag=f"infini-ci/{platform.name}:{_digest(json.dumps(made_of, sort_keys=True).encode())}",
        dockerfile=DOCKERFILE,
        context=context,
        build_arguments={**arguments, **proxies, "PLATFORM": platform.name},
        base_image=base_image,
        offline_base_image=OFFLINE_BASE_IMAGE if offline else None,
        offline_base_command=OFFLINE_BASE_COMMAND if offline else None,
        inputs=made_of,
        entry=(ENTRY,) if ENTRY_IN_CONTEXT in inputs.context else (),
    )


def _package_lines(packages: SystemPackages) -> str:
    return "".join(f"apt {name}\n" for name in packages.apt) + "".join(
        f"dnf {name}\n" for name in packages.dnf
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _container_plan(
    project: str,
    platform: Platform,
    wanted: PlatformConfig,
    inputs: PlanInputs,
    devices: DevicePlan | None,
) -> ContainerPlan:
    labels = {"run": inputs.run_id, "platform": platform.name, "project": project}
    # Without devices no driver needs anything, and not every engine may raise a limit.
    facts = devices.facts if devices else None
    return ContainerPlan(
        name=f"infini-ci-{inputs.run_id}-{platform.name}",
        labels={f"infini-ci.{name}": value for name, value in labels.items()},
        user=USER,
        workspace=WORKSPACE,
        results=RESULTS,
        shm_size_bytes=wanted.shm_size_bytes or (facts.shm_size_bytes if facts else None),
        memory_bytes=wanted.memory_bytes,
        # The wheelhouse is served on this machine's loopback.
        network_mode="host" if inputs.network.wheelhouse else None,
        ulimits=facts.ulimits if facts else {},
    )
