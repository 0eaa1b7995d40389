"""Models of ``ci.yaml``; those of ``ci.site.yaml`` are in ``ci.plan.site``.

The docstring below a field is its description in the JSON schema (``python -m ci schema``).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from functools import reduce
from typing import Annotated, Self

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from ci.model.plan import Exposure
from ci.model.platforms import GROUPS, PLATFORMS
from ci.model.release import ReleasePolicy
from ci.plan.build_options import contradictions
from ci.plan.retention import RetentionConfig
from ci.plan.values import (
    ArtifactName,
    ArtifactPath,
    Command,
    ConfigPath,
    ContainerPath,
    Environment,
    GroupName,
    ImageReference,
    Model,
    Name,
    OwnerName,
    PackageName,
    PlatformName,
    PlatformOrGroup,
    ResultsPath,
    VariableName,
    VariablePattern,
    WorkspacePath,
    expected_value,
    members,
)
from ci.protocol.distributions import KEPT, WHEEL
from ci.protocol.job import Column, StageNetwork
from ci.protocol.stage_kind import StageKind

ENGINE_STAGES = ("image", "sync")
LONGEST_TIMEOUT_S = 1e7  # 116 days; far more overflows the timers of the kernel
MOST_RERUNS = 100  # reveal a test that fails in 3 % of its runs with a probability of 95 %
LEAST_MEMORY_BYTES = 6 * 2**20  # the minimum of a Docker Engine
MOST_BYTES = 2**63 - 1  # a Docker Engine counts in signed 64 bits
MOST_PROCESSES = 2**22  # the most that a Linux kernel can number


class PackagesByManager(Model):
    """Packages whose names differ between distributions."""

    apt: tuple[PackageName, ...]
    """Names on Debian, Ubuntu and their derivatives."""
    dnf: tuple[PackageName, ...]
    """Names for dnf and yum; an empty list if none are needed."""


# Tags of the two forms in pydantic's locations; they are not part of the place in the file.
LIST_FORM, MAPPING_FORM = "[list]", "[mapping]"


def _form_of(value: object) -> str:
    return MAPPING_FORM if isinstance(value, dict | PackagesByManager) else LIST_FORM


Packages = Annotated[
    Annotated[PackagesByManager, Tag(MAPPING_FORM)]
    | Annotated[tuple[PackageName, ...], Tag(LIST_FORM)],
    Discriminator(_form_of),
]


class NetworkConfig(Model):
    """Access to the package index; also read from the environment.

    Precedence: environment, then ``ci.site.yaml``, then ``ci.yaml``, then pip's own
    configuration files.
    """

    pip_index_url: str | None = None
    """The package index to use instead of PyPI (environment: PIP_INDEX_URL)."""
    pip_extra_index_url: str | None = None
    """Further package indexes, separated by spaces (PIP_EXTRA_INDEX_URL)."""
    pip_trusted_host: str | None = None
    """Hosts of mirrors without TLS, separated by spaces (PIP_TRUSTED_HOST)."""
    pip_find_links: str | None = None
    """A page of links to archives, or a folder of this machine. Containers then get its files as a
    volume, and image builds through a server at ``http://127.0.0.1:8421/`` (PIP_FIND_LINKS)."""
    pip_no_index: bool | None = None
    """Use no package index, only ``pip_find_links`` (PIP_NO_INDEX)."""
    pip_proxy: str | None = None
    """Proxy for pip alone (PIP_PROXY)."""
    pip_timeout: Annotated[float, Field(gt=0)] | None = None
    """Seconds that pip waits for an index (PIP_TIMEOUT, PIP_DEFAULT_TIMEOUT)."""
    ca_bundle: str | None = None
    """A PEM file with the certificates that this site trusts (PIP_CERT, SSL_CERT_FILE,
    REQUESTS_CA_BUNDLE)."""
    http_proxy: str | None = None
    """Proxy for http addresses (HTTP_PROXY)."""
    https_proxy: str | None = None
    """Proxy for https addresses (HTTPS_PROXY)."""
    no_proxy: str | None = None
    """Hosts to reach without a proxy, separated by commas (NO_PROXY)."""


class StageConfig(Model):
    """One measured command of a run."""

    name: Name
    """Name, unique on each platform; the stage's log is ``<name>.log``."""
    command: Command
    """Command line, split into words as a POSIX shell does; no shell runs it."""
    kind: StageKind = StageKind.COMMAND
    """``pytest`` adds the per-test log and JUnit options to the command. ``benchmark`` reads the
    results that the command writes to ``benchmarks``: each is measured over the runs."""
    column: Column | None = None
    """Column of the table that the seconds are added to: by default ``pytest`` for a stage of
    that kind, ``build_install`` for a command and ``none`` for benchmarks. ``none`` excludes them
    from the total."""
    # Three times the slowest known build: 35 minutes on two cores.
    timeout_s: Annotated[float, Field(gt=0, le=LONGEST_TIMEOUT_S)] = 7200.0
    """Seconds after which the stage's whole process group is ended."""
    environment: Environment = Field(default_factory=dict)
    """Environment variables of this stage only."""
    platforms: tuple[PlatformOrGroup, ...] | None = None
    """Platforms or groups that run this stage; by default all."""
    device: bool | None = None
    """Whether the stage needs the platform's devices. It then holds a lease on them while it runs.
    By default ``pytest`` and ``benchmark`` stages need them, and a command does not."""
    credentials: bool | None = None
    """Whether the stage gets the passwords in the addresses of ``network``. By default a command
    gets them, and a stage of another kind does not. In a container, pip and others find those of
    package indexes in the file that the variable NETRC names; it is removed with the end of the
    stage."""
    network: StageNetwork = StageNetwork.FULL
    """With ``none`` the engine disconnects the container from every network before the stage, which
    does not run if that fails. Later stages have no network either, so they must say ``none`` too.
    Stages of the host engine keep the network of this machine."""
    reruns: Annotated[int, Field(ge=0, le=MOST_RERUNS)] = 0
    """How often failed tests of a ``pytest`` stage are rerun, as evidence of flaky tests. Reruns
    come last, take at most ``timeout_s``, and change no verdict. ``--reruns`` overrides it."""
    benchmarks: ResultsPath | None = None
    """The file, or the folder of files, to which a ``benchmark`` stage writes its results. It is
    removed before the stage, and read after it."""
    on_request: bool = False
    """Leave the stage out of every run that does not name it: ``run --until NAME``, or the step of
    this name in a kit (``python -m ci kit``)."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        tests = self.kind is StageKind.PYTEST
        if self.reruns and not tests:
            raise expected_value("0, or 'kind: pytest' for the stage", "reruns")
        if self.on_request and tests:
            raise expected_value("false for a pytest stage: every run has its tests", "on_request")
        measured = self.kind is StageKind.BENCHMARK
        if (tests or measured) and self.column is Column.BUILD_INSTALL:
            raise expected_value(f"'pytest' or 'none' for a {self.kind} stage", "column")
        if measured and self.benchmarks is None:
            raise expected_value("the file of results of a benchmark stage", "benchmarks")
        if self.benchmarks is not None and not measured:
            raise expected_value("nothing, or 'kind: benchmark' for the stage", "benchmarks")
        return self


class DevicePolicy(Model):
    """The devices of a platform that a run uses. The platform ``cpu`` needs no such policy."""

    # No machine has 64; a larger number is a typing error.
    count: Annotated[int, Field(ge=0, le=64)] = 1
    """Number of devices that a run needs at once; with 0 it runs without devices."""
    uuids: tuple[str, ...] = ()
    """UUIDs of the only devices to use; by default any device of the platform."""
    exposure: Exposure = Exposure.AUTO
    """How devices are passed to a container: ``request`` (``--gpus``), ``cdi``, ``files`` (device
    files and folders of the driver), or ``auto``, the vendor's usual way."""
    privileged: bool = False
    """Run a privileged container, for drivers that do not work otherwise; a note reports it."""
    wait_s: Annotated[float, Field(ge=0, le=LONGEST_TIMEOUT_S)] = 3600.0
    """Seconds to wait for free devices."""
    # A driver uses some memory of an idle device too.
    busy_memory: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Fraction of its memory in use above which a device without a lease counts as busy."""

    @model_validator(mode="after")
    def _check_uuids(self) -> Self:
        if len(set(self.uuids)) < len(self.uuids):
            raise expected_value("each device once", "uuids")
        if self.uuids and len(self.uuids) < self.count:
            raise expected_value(f"at most {len(self.uuids)}, the number of 'uuids'", "count")
        return self


class PlatformConfig(Model):
    """This project's settings for a platform or a group, in place of the platform's defaults."""

    label: str | None = None
    """Name in the table; by default the platform's own."""
    owner: OwnerName | None = None
    """Who is responsible for the platform, such as ``@team``: named with its alarms of build cost,
    after the owners in ``CODEOWNERS``."""
    base_image: ImageReference | None = None
    """Image that the recipe starts from; by default the platform's usual one."""
    recipe: ConfigPath | None = None
    """Dockerfile, relative to this file; by default this program's own. ``BASE_IMAGE`` is a build
    argument. The build context holds ``requirements-<platform>.txt`` and, if the site has
    certificates, ``site-ca-bundle.pem``. If there are ``system_packages``, it also holds a file
    ``system-packages`` with the lines ``apt NAME`` and ``dnf NAME``."""
    requirements: ConfigPath | None = None
    """pip requirements of the image and of the host engine's environment, relative to this
    file. They must include pytest and pytest-reportlog; by default they are only these two. The
    ``pylock.toml`` of an earlier run, or of another tool, is also allowed: the environment then
    has the files that it lists."""
    system_packages: Packages = ()
    """Packages of the distribution in addition to the project's ``system_packages``."""
    environment: Environment = Field(default_factory=dict)
    """Environment variables of every stage. In the values of a group, ``{platform}`` is the name of
    each platform, and ``{PLATFORM}`` its name in upper case."""
    shm_size_bytes: Annotated[int, Field(gt=0, le=MOST_BYTES)] | None = None
    """Size of the container's /dev/shm; by default that of the engine."""
    memory_bytes: Annotated[int, Field(ge=LEAST_MEMORY_BYTES, le=MOST_BYTES)] | None = None
    """Memory limit of the container; by default 90 % of the memory of the engine's machine."""
    # On 4 processors the build and the tests of a selection have at most 34 at once.
    processes: Annotated[int, Field(ge=16, le=MOST_PROCESSES)] = 4096
    """Most processes and threads of the container at once."""
    simulated: bool = False
    """Run without the vendor's hardware: on a simulated device or, if the device cannot be
    simulated, only the tests that need no device. Every report marks the result as simulated, and
    it proves nothing about the hardware. Stages get the variable INFINI_CI_SIMULATED=1."""
    compiler_cache: bool = True
    """Keep a compiler cache between runs, if the image has ccache."""
    compiler_cache_of: PlatformName | None = None
    """Use the compiler cache of another platform, for platforms that compile mostly the same
    files; by default each has its own."""
    devices: DevicePolicy = DevicePolicy()
    """The devices that a run uses; a policy in ``ci.site.yaml`` replaces it."""

    def for_platform(self, name: str, *, is_own: bool) -> PlatformConfig:
        """Return what these settings, its own or a group's, are for a platform."""
        if is_own:
            return self
        environment = {
            variable: value.replace("{platform}", name).replace("{PLATFORM}", name.upper())
            for variable, value in self.environment.items()
        }
        return self.model_copy(update={"environment": environment})

    def replaced_by(self, settings: PlatformConfig) -> PlatformConfig:
        """Return these settings, with those that ``settings`` names in their place."""
        named = {key: getattr(settings, key) for key in settings.model_fields_set}
        environment = self.environment | settings.environment
        return self.model_copy(update={**named, "environment": environment})


class SelectionConfig(Model):
    """How ``run --select`` restricts the build and the tests to some operators."""

    variable: VariableName
    """Environment variable that passes the selection to every stage: names and patterns separated
    by commas, or a file of the source. It is empty if everything is built."""
    files: tuple[ArtifactPath, ...] = ()
    """Patterns of files of the source. Their names without the suffix can be selected, in addition
    to the operators of the platform's contract. Misspelled names are reported before the build."""
    smoke: str | None = None
    """A small selection, as for ``--select``: the first run of a kit (``python -m ci kit``)."""


WHAT_TO_INSTALL = "."
TEST_COMMAND = "python -m pytest"


# The project itself among the words of `pip install`, and the words that concern its build.
THIS_PROJECT = re.compile(r"\.(?P<extras>\[[^\]]*\])?")
BUILD_OPTIONS = re.compile(r"--no-build-isolation|-v+|(--config-settings=|-C).+")


def short_stages(
    install: str, groups: Iterable[str], test: str, distributions: str | None = None
) -> tuple[StageConfig, ...]:
    """Return the stages that ``install``, ``groups`` and ``test`` stand for.

    With ``distributions``, a wheel is built in that folder, and then installed. Raises
    ``PydanticCustomError`` if ``install`` has no project to build.
    """
    built: tuple[StageConfig, ...] = ()
    if distributions is not None:
        words = shlex.split(install)
        projects = [match for match in map(THIS_PROJECT.fullmatch, words) if match]
        if len(projects) != 1 or {"-e", "--editable"} & {*words}:
            raise expected_value("'.', or '.' with extras, of which 'distributions' has the wheel")
        options = shlex.join(word for word in words if BUILD_OPTIONS.fullmatch(word))
        folder = shlex.quote(f"--wheel-dir={distributions}")
        command = f"python -m pip wheel . --no-deps {folder} {options}".rstrip()
        built = (StageConfig(name="wheel", command=command),)
        [project] = projects
        named = f"{WHEEL}{project['extras'] or ''}"
        install = shlex.join(named if word == project[0] else word for word in words)
    command = shlex.join(f"--group={name}" for name in groups)
    return (
        *built,
        StageConfig(name="install", command=f"python -m pip install {install} {command}".rstrip()),
        StageConfig(name="pytest", command=test, kind=StageKind.PYTEST),
    )


DEFAULT_STAGES = short_stages(WHAT_TO_INSTALL, (), TEST_COMMAND)


class Config(Model):
    """Platforms and stages of one project."""

    project: Name
    """Name of the project in results and container labels."""
    source: ConfigPath = "."
    """Folder of the sources, relative to this file; ``--source`` overrides it."""
    platforms: dict[PlatformOrGroup, PlatformConfig]
    """The platforms on which this project is validated, by name. A group configures all its
    platforms: ``accelerators`` is every known platform but the CPU, and ``plugins`` those whose
    device a plug-in adds to torch. Settings of a platform replace those of a group, key by key and
    variable by variable."""
    system_packages: Packages = ()
    """Packages of the distribution that every platform's image installs with apt-get, dnf or yum: a
    list of names or, where names differ, a mapping with one list each for ``apt`` and ``dnf``. The
    host engine installs none; a note lists the missing ones."""
    install: Command = WHAT_TO_INSTALL
    """What the default stage ``install`` passes to ``pip install``: the project, with extras as in
    ``.[test]``, and further requirements, such as ``. -r requirements/test.txt``."""
    groups: tuple[GroupName, ...] = ()
    """Dependency groups of ``pyproject.toml`` that the default stage ``install`` installs too. They
    need pip 25.1 or newer, and thus Python 3.9."""
    test: Command = TEST_COMMAND
    """Command of the default stage ``pytest``."""
    distributions: ResultsPath | None = None
    """Folder of the workspace in which stages make wheels and source distributions. They are copied
    into the results, with their SHA-256. In commands, ``{wheel}`` is the path of each wheel, as in
    ``pip install {wheel}[test]``. The default stages then build a wheel of the project there, in a
    stage ``wheel``, and install it. By default no distributions are kept."""
    stages: Annotated[tuple[StageConfig, ...], Field(validate_default=True)] = DEFAULT_STAGES
    """Commands to run, in order, in place of ``install``, ``groups`` and ``test``; by default these
    make two stages, ``pip install .`` and ``pytest``. If a stage fails, the later stages do not
    run."""
    artifacts: dict[ArtifactName, ArtifactPath] = Field(default_factory=dict)
    """Files and folders of the workspace to copy into the results: name of the result to path. A
    folder becomes ``<name>.tar.gz``. So do all files that match a pattern with ``*``, ``?``, ``[]``
    or ``**``, the largest first, up to 64 MiB. Facts about the build are read from the artifacts
    ``ninja_log``, ``generated``, ``compile_commands.json`` and ``time_traces``."""
    contracts: WorkspacePath | None = None
    """Folder of the sources with a contract for each platform, ``<platform>.yaml``: the expected
    outcomes of its tests (``python -m ci contract``). By default there are no contracts."""
    network: NetworkConfig = NetworkConfig()
    """Access to the package index."""
    pass_environment: tuple[VariablePattern, ...] = ()
    """Variables of the caller's shell that stages of the host engine also get: names, or beginnings
    of names and a ``*``. By default they get only those that compilers, build tools and pytest are
    known to read, and none whose name marks a secret. Stages in containers get none."""
    read_only_root: bool = False
    """Make the root file system of containers read-only. Stages can then write only to the
    sources, ``/opt/venv``, ``/home``, ``/tmp``, ``/var/tmp`` and ``writable_folders``; these are
    volumes that are removed with the container. The image must have a folder ``/workspace`` of user
    1000, as the images of this program's own recipe do."""
    writable_folders: tuple[ContainerPath, ...] = ()
    """Further folders to which stages can write in spite of ``read_only_root``, such as the place
    of a recipe's own Python environment. A folder of the image keeps content and owner, and is
    copied for every container; a new folder belongs to root."""
    selection: SelectionConfig | None = None
    """How ``--select`` restricts a run to some operators. By default it cannot be used."""
    release: ReleasePolicy | None = None
    """What ``gate`` demands of a release. By default there is no such decision."""
    retention: RetentionConfig | None = None
    """Which runs ``gc`` removes from the store. By default all stay."""

    @field_validator("platforms")
    @classmethod
    def _check_platforms(cls, platforms: dict[str, PlatformConfig]) -> dict[str, PlatformConfig]:
        if not platforms:
            raise expected_value("at least one platform")
        expanded = {}
        for name in members(platforms):
            keys = [key for key in (*GROUPS, name) if key in platforms and name in members([key])]
            layers = (platforms[key].for_platform(name, is_own=key == name) for key in keys)
            expanded[name] = reduce(PlatformConfig.replaced_by, layers)
            for variable, what in contradictions(name, expanded[name].environment):
                at = next(key for key in reversed(keys) if variable in platforms[key].environment)
                raise expected_value(what, at, "environment", variable)
        return expanded

    @field_validator("stages")
    @classmethod
    def _check_stages(
        cls, stages: tuple[StageConfig, ...], info: ValidationInfo
    ) -> tuple[StageConfig, ...]:
        if stages == DEFAULT_STAGES:
            keys = ("install", "groups", "test", "distributions")
            if not all(key in info.data for key in keys):  # one of them is wrong
                return stages
            stages = short_stages(*(info.data[key] for key in keys))
        if info.data.get("distributions", "") is None:
            for index, stage in enumerate(stages):
                if WHEEL in stage.command:
                    what = f"no {WHEEL}, or 'distributions', the folder of the wheel"
                    raise expected_value(what, index, "command")
        taken = {(name, platform) for name in ENGINE_STAGES for platform in PLATFORMS}
        for index, stage in enumerate(stages):
            own = {(stage.name, platform) for platform in members(stage.platforms or PLATFORMS)}
            if own & taken:
                what = "a unique name ('image' and 'sync' are reserved for the engine)"
                raise expected_value(what, index, "name")
            taken |= own
        configured = info.data.get("platforms", PLATFORMS)
        without: dict[str, str] = {}  # stages without a network, by platform
        for index, stage in enumerate(stages):
            for name in members(stage.platforms or PLATFORMS):
                if stage.network is StageNetwork.NONE:
                    without.setdefault(name, stage.name)
                elif name in without:
                    what = f"'none', since stage {without[name]} before it has no network"
                    raise expected_value(what, index, "network")
        for index, stage in enumerate(stages):
            if stage.platforms == ():
                raise expected_value("at least one platform", index, "platforms")
            for place, name in enumerate(stage.platforms or ()):
                if not any(member in configured for member in members([name])):
                    what = f"one of this file's platforms: {', '.join(configured)}"
                    raise expected_value(what, index, "platforms", place)
        # Without a per-test log the run cannot be judged, and two logs would overwrite each other.
        suites = [stage for stage in stages if stage.kind is StageKind.PYTEST]
        for platform in info.data.get("platforms", ()):
            count = sum(platform in members(suite.platforms or [platform]) for suite in suites)
            if count != 1:
                where = f" on {platform}" if any(suite.platforms for suite in suites) else ""
                raise expected_value(f"exactly one stage with 'kind: pytest'{where}, found {count}")
        return tuple(
            stage.model_copy(update={"platforms": members(stage.platforms)})
            if stage.platforms
            else stage
            for stage in stages
        )

    @field_validator("artifacts")
    @classmethod
    def _check_artifacts(cls, artifacts: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if KEPT in artifacts and info.data.get("distributions"):
            raise expected_value("another name: 'distributions' are copied to it", KEPT)
        return artifacts

    @model_validator(mode="after")
    def _check_short_form(self) -> Self:
        short = [key for key in ("install", "groups", "test") if key in self.model_fields_set]
        if short and "stages" in self.model_fields_set:
            what = "nothing, as 'stages' has the commands: leave out one of the two"
            raise expected_value(what, short[0])
        return self

    @field_validator("selection")
    @classmethod
    def _check_selection(
        cls, selection: SelectionConfig | None, info: ValidationInfo
    ) -> SelectionConfig | None:
        parts = (*info.data.get("platforms", {}).values(), *info.data.get("stages", ()))
        if selection and any(selection.variable in part.environment for part in parts):
            raise expected_value("a variable that no 'environment' of this file sets", "variable")
        return selection

    @field_validator("release")
    @classmethod
    def _check_release(
        cls, release: ReleasePolicy | None, info: ValidationInfo
    ) -> ReleasePolicy | None:
        if release is None or "platforms" not in info.data:  # they are wrong themselves
            return release
        known = info.data["platforms"]
        for key in ("required", "informational"):
            for place, name in enumerate(getattr(release, key)):
                if not any(member in known for member in members([name])):
                    what = f"one of this file's platforms: {', '.join(known)}"
                    raise expected_value(what, key, place, known=known)
        required = tuple(it for it in members(release.required) if it in known)
        informational = tuple(it for it in members(release.informational) if it in known)
        if both := [it for it in release.informational if it in release.required]:
            what = "a platform that is not required, too"
            raise expected_value(what, "informational", release.informational.index(both[0]))
        others = tuple(it for it in informational if it not in required)
        return release.model_copy(update={"required": required, "informational": others})
