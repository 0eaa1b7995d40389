"""Pure planning: configuration and request become one frozen ``RunPlan`` per platform.

This module does no I/O: facts about the machine (environment variables, file contents, hashes) are
passed in as values. The one exception is the path of this Python, from which the host engine
creates its environment.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from ci.errors import ConfigError, UsageError
from ci.model.plan import (
    BASE_IMAGE_INPUT,
    CONTAINER_FOLDER,
    DEFAULT_LIMITS,
    PLATFORM_VARIABLE,
    SIMULATED_VARIABLE,
    TORCH_DEVICE_VARIABLE,
    CachePlan,
    ContainerPlan,
    ContractPlan,
    DevicePlan,
    DistributionPlan,
    EnginePlan,
    GivenDistribution,
    HostPlan,
    ImagePlan,
    NetworkPlan,
    Priority,
    ResultLimits,
    RunPlan,
    SelectionPlan,
    SystemPackages,
)
from ci.model.platforms import OFFLINE_BASE_COMMAND, OFFLINE_BASE_IMAGE, Platform
from ci.model.trust import Trust
from ci.plan.config import Config, DevicePolicy, PlatformConfig, StageConfig
from ci.plan.given import MADE, GivenFile, stages_with
from ci.plan.source import TIMESTAMP
from ci.protocol.job import ArtifactPlan, Column, StageNetwork, StagePlan
from ci.protocol.stage_kind import StageKind

DOCKERFILE = "Dockerfile"
CA_BUNDLE_IN_CONTEXT = "site-ca-bundle.pem"
PACKAGES_IN_CONTEXT = "system-packages"
ENTRY_IN_CONTEXT = "enter"
ENTRY = "/opt/recipe/enter"  # its place in images of this program's own recipe
USER = "1000"  # the recipes create it; a number, as copied files get numeric owners
CACHE_PREFIX = "infini-ci-cache-"  # of the names of compiler caches
WORKSPACE = "/workspace"
# Below a folder that no image has: so it belongs to the user of the agent.
RESULTS = f"{CONTAINER_FOLDER}/results"
# With a read-only root: what the recipe creates for the stages, and what every tool may write to.
# The homes of all users, since some base images already have a user of our number.
WRITABLE = (WORKSPACE, CONTAINER_FOLDER, "/opt/venv", "/home", "/tmp", "/var/tmp")  # noqa: S108

SOURCE_DATE = "SOURCE_DATE_EPOCH"  # https://reproducible-builds.org/specs/source-date-epoch/

# Settings that are passed to image builds as arguments. Certificates are in the build context, as
# they are too long for an argument.
_BUILD_ARGUMENTS = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST"),
    *("PIP_FIND_LINKS", "PIP_NO_INDEX"),
)
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_PROXY_ARGUMENTS = (*_PROXIES, *(name.lower() for name in _PROXIES), "PIP_PROXY", "PIP_TIMEOUT")


class RunOptions(BaseModel):
    """Options of the command line that a resumed run keeps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: str = "auto"
    """`auto`: the site's setting."""
    engines: dict[str, str] = {}
    """The engine that each platform of a resumed run began on; overrides ``engine``."""
    cold: bool = False
    """Build without using the content of the compiler cache."""
    trust: Trust = Trust.BRANCH
    """How far the code is trusted; it selects the compiler caches."""
    reruns: int | None = None
    """Number of reruns of failed tests; ``None``: as configured."""
    shards: int = 1
    """Number of processes that share the tests of a platform."""
    selected: str | None = None
    """Operators to build and test; ``None``: all."""
    keep: bool = False
    """Keep the environments of failed platforms, for a shell."""
    ray_address: str | None = None
    """The head of the Ray cluster of the engine ``ray``; ``None``: from the environment."""
    priority: Priority = Priority.COMMIT
    """Which run gets a free host of a pool first."""
    asked_by: str | None = None
    """The command that asked for this run to search a commit; ``None``: it is of the history."""
    last_stage: str | None = None
    """The last stage to run, or a part of the build, such as `compile`; ``None``: all stages.

    Before benchmarks, neither the tests nor other benchmarks run.
    """
    given: tuple[GivenFile, ...] = ()
    """Wheels, or a source distribution, to install in place of what the stages build."""
    python: str | None = None
    """The Python of the host engine's environment; ``None``: the site's, or the engine chooses."""

    def engine_of(self, platform: str) -> str | None:
        """Return the requested engine; ``None``: the site's."""
        asked = self.engines.get(platform, self.engine)
        return None if asked == "auto" else asked


AS_CONFIGURED = RunOptions()


@dataclass(frozen=True, kw_only=True)
class PlanInputs:
    """Facts about files and this site that planning needs, read beforehand.

    ``context`` is the build context, requirements and recipe (as ``DOCKERFILE``) included.
    """

    run_id: str
    source: Path
    results: Path  # results/<run-id>
    context: Mapping[str, bytes]
    requirements: Path
    base_image: str | None  # the site's own
    network: NetworkPlan
    engine: EnginePlan
    devices: DevicePolicy
    brings_torch: bool = False  # the requirements
    interpreter: str | None = None  # of the host engine
    pass_environment: tuple[str, ...] = ()  # the site's
    contract: ContractPlan | None = None
    other_engines: tuple[EnginePlan, ...] = ()
    retries: int = 0
    options: RunOptions = AS_CONFIGURED
    subfolder: str = "."  # of the copied tree, which has the sources
    result_limits: ResultLimits = DEFAULT_LIMITS
    given: GivenDistribution | None = None


def make_plan(config: Config, platform: Platform, inputs: PlanInputs) -> RunPlan:
    """Plan one platform's run."""
    wanted = config.platforms[platform.name]
    packages = _system_packages(config, wanted)
    devices, selection = None, None
    has_vendor = platform.devices is not None and not wanted.simulated
    if platform.devices and inputs.devices.count and not wanted.simulated:
        devices = DevicePlan(facts=platform.devices, **inputs.devices.model_dump())
    if config.selection:
        variable = config.selection.variable
        selection = SelectionPlan(variable=variable, operators=inputs.options.selected)
    stages = tuple(
        _stage_plan(stage, wanted, inputs)
        for stage in config.stages
        if stage.platforms is None or platform.name in stage.platforms
    )
    distributions, folder = None, config.distributions or MADE
    if inputs.given or config.distributions:
        distributions = DistributionPlan(folder=folder, given=inputs.given)
    if inputs.given:
        stages = stages_with(inputs.given, stages, folder)
    return RunPlan(
        run_id=inputs.run_id,
        platform=platform.name,
        label=wanted.label or platform.label,
        torch_device=platform.torch_device,
        simulated=wanted.simulated,
        source=inputs.source,
        results=inputs.results / platform.name,
        stages=_up_to(stages, inputs.options.last_stage),
        asked_by=inputs.options.asked_by,
        distributions=distributions,
        artifacts=tuple(
            ArtifactPlan(name=name, path=path) for name, path in config.artifacts.items()
        ),
        environment={
            **wanted.environment,
            PLATFORM_VARIABLE: platform.name,
            TORCH_DEVICE_VARIABLE: platform.torch_device,
            **({SIMULATED_VARIABLE: "1"} if wanted.simulated else {}),
            # Set even if empty: otherwise a value of the caller or the image would count.
            **({selection.variable: selection.operators or ""} if selection else {}),
        },
        network=inputs.network,
        image=_image_plan(platform, wanted, packages, inputs),
        container=_container_plan(config, platform, wanted, inputs, devices),
        host=HostPlan(
            python=sys.executable,
            requirements=inputs.requirements,
            interpreter=inputs.interpreter,
            # Only a platform with devices has a vendor. For any other the user names a Python.
            sees_torch=not inputs.brings_torch and (has_vendor or inputs.interpreter is not None),
            pass_environment=(*config.pass_environment, *inputs.pass_environment),
        ),
        engine=inputs.engine,
        other_engines=inputs.other_engines,
        retries=inputs.retries,
        devices=devices,
        cache=_cache_plan(config.project, platform, wanted, inputs.options),
        trust=inputs.options.trust,
        contract=inputs.contract,
        selection=selection,
        system_packages=packages,
        result_limits=inputs.result_limits,
        keep=inputs.options.keep,
        subfolder=inputs.subfolder,
        priority=inputs.options.priority,
    )


def _cache_plan(
    project: str, platform: Platform, wanted: PlatformConfig, options: RunOptions
) -> CachePlan | None:
    if not wanted.compiler_cache:
        return None
    name = wanted.compiler_cache_of or platform.name
    return CachePlan(
        name=cache_name(project, name, options.trust),
        cold=options.cold,
        trusted=tuple(cache_name(project, name, level) for level in options.trust.higher),
    )


def cache_name(project: str, platform: str, trust: Trust) -> str:
    """Return the name of a platform's compiler cache of a level, the same on every engine."""
    return f"{old_cache_name(project, platform)}-{trust}"


def old_cache_name(project: str, platform: str) -> str:
    """Return the name of a cache from before there were trust levels; no run uses it."""
    return f"{CACHE_PREFIX}{project}-{platform}"


_COLUMNS = {
    StageKind.COMMAND: Column.BUILD_INSTALL,
    StageKind.PYTEST: Column.PYTEST,
    StageKind.BENCHMARK: Column.NONE,
}


def _stage_plan(stage: StageConfig, wanted: PlatformConfig, inputs: PlanInputs) -> StagePlan:
    tests = stage.kind is StageKind.PYTEST
    runs_product = stage.kind is not StageKind.COMMAND
    reruns = inputs.options.reruns
    withheld = runs_product if stage.credentials is None else not stage.credentials
    command = tuple(shlex.split(stage.command))
    shards = inputs.options.shards if tests else 1
    is_dated = runs_product or SOURCE_DATE in wanted.environment
    if shards > 1:
        _refuse_isolated_python(stage.name, command)
        _refuse_temporary_folder(stage.name, command)
    return StagePlan(
        name=stage.name,
        kind=stage.kind,
        command=command,
        column=stage.column or _COLUMNS[stage.kind],
        timeout_s=stage.timeout_s,
        environment={
            **(inputs.network.without_credentials if withheld else {}),
            # As the files of the sources: wheels of equal sources are equal.
            **({} if is_dated else {SOURCE_DATE: str(TIMESTAMP)}),
            **stage.environment,
        },
        device=runs_product if stage.device is None else stage.device,
        credentials=bool(inputs.network.credentials) and not withheld,
        reruns=reruns if tests and reruns is not None else stage.reruns,
        isolated=stage.network is StageNetwork.NONE,
        shards=shards,
        benchmarks=stage.benchmarks or "",
    )


def _up_to(stages: Sequence[StagePlan], last: str | None) -> tuple[StagePlan, ...]:
    """Leave out the stages after one; after the build, if ``last`` is no stage but a part of it."""
    if last is None:
        return tuple(stages)
    ends = [it for it in stages if it.name == last]
    ends = ends or [it for it in stages if it.column is Column.BUILD_INSTALL]
    end = stages.index(ends[-1]) if ends else len(stages)
    needs_none = StageKind.BENCHMARK in (it.kind for it in ends)
    return tuple(
        replace(it, left_out=True)
        if place > end or (needs_none and place < end and it.kind is not StageKind.COMMAND)
        else it
        for place, it in enumerate(stages)
    )


def _refuse_isolated_python(stage: str, command: Sequence[str]) -> None:
    """Raise ``UsageError`` for a Python that would not find the plugin of a shard."""
    options = takewhile(lambda word: word.startswith("-") and word != "-m", command[1:])
    found = next((word for word in options if re.match(r"-[a-zA-Z]*[IE]", word)), None)
    if found and Path(command[0]).name.startswith("python"):
        raise UsageError(
            f"--shards: stage {stage}: got `{command[0]} {found}`, expected a Python that reads"
            " PYTHONPATH, with which pytest finds the tests of a shard",
            remedy=f"Leave out {found} in the stage's command, or run without --shards.",
        )


def _refuse_temporary_folder(stage: str, command: Sequence[str]) -> None:
    """Raise ``UsageError`` for a folder that each shard would empty for the others."""
    if any(word.partition("=")[0] == "--basetemp" for word in command):
        raise UsageError(
            f"--shards: stage {stage}: got `--basetemp`, expected a folder for each shard",
            remedy="Leave out --basetemp in the stage's command, or run without --shards.",
        )


def _system_packages(config: Config, wanted: PlatformConfig) -> SystemPackages:
    """Merge the packages of the project and the platform, without duplicates."""
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
    # The offline base replaces only the platform's default base, never a configured one.
    stands_in = platform.offline_base and base_image == platform.base_image
    offline = stands_in or base_image == OFFLINE_BASE_IMAGE
    settings = inputs.network.build_environment
    arguments = {name: settings[name] for name in _BUILD_ARGUMENTS if name in settings}
    proxies = {name: settings[name] for name in _PROXY_ARGUMENTS if name in settings}
    context = inputs.context
    if packages:
        # COPY system-package[s] copies the file only if it exists, so the last letter may differ.
        if wanted.recipe and PACKAGES_IN_CONTEXT[:-1].encode() not in context[DOCKERFILE]:
            raise ConfigError(
                f"platforms.{platform.name}.recipe: {wanted.recipe} does not install the system"
                f" packages {', '.join(packages.apt or packages.dnf)}",
                remedy=f"COPY the file {PACKAGES_IN_CONTEXT} of the build context and install the"
                " names on its lines `apt NAME` or `dnf NAME`, or leave out `system_packages:`.",
            )
        of_each = asdict(packages).items()
        lines = [f"{manager} {name}\n" for manager, names in of_each for name in names]
        context = {**context, PACKAGES_IN_CONTEXT: "".join(lines).encode()}
    made_of = {
        BASE_IMAGE_INPUT: base_image,
        **{name: _digest(content) for name, content in context.items()},
        # Proxies are not inputs of the tag, as they do not change the downloads.
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


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _container_plan(
    config: Config,
    platform: Platform,
    wanted: PlatformConfig,
    inputs: PlanInputs,
    devices: DevicePlan | None,
) -> ContainerPlan:
    labels = {"run": inputs.run_id, "platform": platform.name, "project": config.project}
    # Without devices no driver needs raised limits, which not every engine permits.
    facts = devices.facts if devices else None
    return ContainerPlan(
        name=f"infini-ci-{inputs.run_id}-{platform.name}",
        labels={f"infini-ci.{name}": value for name, value in labels.items()},
        user=USER,
        workspace=WORKSPACE,
        results=RESULTS,
        shm_size_bytes=wanted.shm_size_bytes or (facts.shm_size_bytes if facts else None),
        memory_bytes=wanted.memory_bytes,
        processes=wanted.processes,
        ulimits=facts.ulimits if facts else {},
        writable=(*WRITABLE, *config.writable_folders) if config.read_only_root else None,
    )
