"""Models of ``ci.site.yaml``, the untracked settings of one site.

The docstring below a field is its description in the JSON schema (``python -m ci schema``).
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator

from ci.model.plan import DEFAULT_LIMITS, EngineKind
from ci.plan.config import MOST_BYTES, DevicePolicy, NetworkConfig
from ci.plan.values import (
    ImageReference,
    Model,
    Name,
    PlatformName,
    RunnerLabel,
    VariablePattern,
    expected_value,
)

ENGINES = tuple(EngineKind)  # engines without an entry in the site file


class SiteEngine(Model):
    """An engine of this site, to which platforms refer by its name."""

    docker_host: Annotated[str, StringConstraints(pattern=r"^(unix|tcp|ssh)://\S+$")] | None = None
    """Its address: ``unix:///var/run/docker.sock``, ``tcp://host:2376`` or
    ``ssh://user@host:port``, which uses a forwarded socket."""
    context: str | None = None
    """A Docker context of this machine, in place of an address."""
    podman_host: Annotated[str, StringConstraints(pattern=r"^(unix|tcp|ssh)://\S+$")] | None = None
    """Address of a Podman: ``unix:///run/user/1000/podman/podman.sock``, or
    ``ssh://user@host/run/user/1000/podman/podman.sock``."""
    ray_address: Annotated[str, StringConstraints(pattern=r"^[^\s/]+:\d{1,5}$")] | None = None
    """Address of the head of a Ray cluster, ``host:port``: its hosts run the platforms."""
    node_engine: Literal["auto", "docker", "host"] = "auto"
    """Engine that the hosts of the cluster use, each on its own machine."""
    # No engine has so many processors; a larger number is a typing error.
    capacity: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of platforms that run on it at once; by default the number of its processors."""

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        addresses = (self.docker_host, self.context, self.podman_host, self.ray_address)
        if addresses.count(None) != len(addresses) - 1:
            raise expected_value("one of 'docker_host', 'context', 'podman_host' and 'ray_address'")
        if self.ray_address is None and "node_engine" in self.model_fields_set:
            raise expected_value("no 'node_engine' without 'ray_address'", "node_engine")
        return self

    @property
    def kind(self) -> EngineKind:
        """The kind of the engine, which follows from its address."""
        if self.ray_address:
            return EngineKind.RAY
        return EngineKind.PODMAN if self.podman_host else EngineKind.DOCKER


# A DNS label, as names of objects in Kubernetes are.
ObjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
# A key of a label or the name of a resource: a domain, and a name with at most 63 characters.
QualifiedName = Annotated[
    str,
    StringConstraints(
        pattern=r"^([a-z0-9][a-z0-9.-]{0,251}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
    ),
]
LabelValue = Annotated[
    str, StringConstraints(pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$")
]
# A name, and optionally a type. The count is that of the devices.
GenericResource = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]\w*(:[A-Za-z][\w.-]*)?$")]
SlurmOption = Annotated[str, StringConstraints(pattern=r"^--[a-z][a-z-]*(=[\w.,:/@%+*&|-]+)?$")]


class KubernetesPlatform(Model):
    """How a Job of Kubernetes gets a platform's image and devices."""

    image: ImageReference | None = None
    """Image in a registry that the cluster can read. By default the image of the platform's own
    recipe, with its tag, in ``kubernetes.registry``."""
    resource: QualifiedName | None = None
    """Resource of the vendor's device plugin; by default the usual one, such as
    ``nvidia.com/gpu``."""
    node_selector: dict[QualifiedName, LabelValue] = Field(default_factory=dict)
    """Labels of the nodes that can run it."""


class SlurmPlatform(Model):
    """What a Slurm job of a platform requests."""

    gres: GenericResource | None = None
    """Generic resource of its devices, without their number: ``gpu`` or ``gpu:a100``. By default
    the vendor's usual one: ``gpu``, or for Ascend ``npu``."""
    options: tuple[SlurmOption, ...] = ()
    """Further options of sbatch, such as ``--partition=ascend``."""


class SiteKubernetes(Model):
    """The cluster for which ``python -m ci manifest`` prints Jobs."""

    registry: ImageReference | None = None
    """Registry, or a folder of it, to which you push the images: ``registry.lab:5000/ci``."""
    claim: ObjectName = "infini-ci"
    """PersistentVolumeClaim with the sources and the results."""
    namespace: ObjectName | None = None
    """Namespace of the Jobs; by default that of ``kubectl``."""


class SitePlatform(Model):
    """This site's settings for one platform."""

    base_image: ImageReference | None = None
    """Base image, such as one in this site's registry
    (environment: INFINI_CI_BASE_IMAGE_<PLATFORM>)."""
    engine: Name | None = None
    """Engine that runs it: one of ``engines``, or ``auto``, ``docker``, ``host``, ``podman`` or
    ``ray`` (INFINI_CI_ENGINE_<PLATFORM>). ``--engine`` overrides it."""
    python: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Python of the host engine's environment: a path, or a program on PATH
    (INFINI_CI_PYTHON_<PLATFORM>). ``--python`` overrides it. By default the first known one that
    has its vendor's torch, if the platform's requirements bring none, else that of this program."""
    other_engines: tuple[Name, ...] = ()
    """Engines that are tried in this order if ``engine`` does not answer. If it stops answering
    during a run, the next one is used only when the container has ended or must have: after the
    sum of the time limits. Not used with ``--engine``, ``--bundle`` or
    INFINI_CI_ENGINE_<PLATFORM>."""
    # More attempts hide a fault instead of surviving it.
    retries: Annotated[int, Field(ge=0, le=5)] | None = None
    """How often the platform is tried again after an infrastructure fault, such as a lost
    connection or a killed container. A failed build or test is never tried again. Every attempt is
    in the evidence. By default the number of ``other_engines``."""
    devices: DevicePolicy | None = None
    """The devices that a run uses here, in place of those in ``ci.yaml``."""
    runner_labels: tuple[RunnerLabel, ...] = ()
    """Labels of the CI runners that run this platform: a runner must have all of them. A platform
    without labels is not in the jobs that ``python -m ci matrix`` prints."""
    kubernetes: KubernetesPlatform = KubernetesPlatform()
    """Image and devices in a Kubernetes cluster."""
    slurm: SlurmPlatform = SlurmPlatform()
    """What its Slurm job requests."""


class SiteResults(Model):
    """Limits for what is copied out of a container: the code under test decides what that is.

    Files beyond a limit are left out, and a note of the row names them.
    """

    # Twenty times the largest known results; a log of a whole night has some 100 MB.
    total_bytes: Annotated[int, Field(ge=2**20, le=MOST_BYTES)] = DEFAULT_LIMITS.total_bytes
    """Bytes that the files take on the disk; holes in sparse files are free."""
    # A run leaves about 20, and 3 for each of at most 100 reruns.
    entries: Annotated[int, Field(ge=100, le=10**6)] = DEFAULT_LIMITS.entries
    """Number of files and folders."""
    # A run has no folders there. Python's functions run out of stack at some hundreds.
    depth: Annotated[int, Field(ge=1, le=100)] = DEFAULT_LIMITS.depth
    """Number of folders in each other."""
    # Linux allows 4,096 for a whole path, in which the folder of the results comes first.
    name_bytes: Annotated[int, Field(ge=255, le=3072)] = DEFAULT_LIMITS.name_bytes
    """Bytes of a file's name with its folders."""


class SiteConfig(Model):
    """``ci.site.yaml``: the untracked settings of one site."""

    network: NetworkConfig = NetworkConfig()
    """Access to the package index."""
    engines: dict[Name, SiteEngine] = Field(default_factory=dict)
    """Docker Engines in addition to the default one, Podmans, and Ray clusters."""
    pass_environment: tuple[VariablePattern, ...] = ()
    """Variables of the shell for stages of the host engine, in addition to those in ``ci.yaml``."""
    redact: tuple[VariablePattern, ...] = ()
    """Variables of the shell whose values are secrets: names, or beginnings of names and a ``*``.
    Their values are hidden in everything that is shown or kept. So are passwords in addresses, and
    the values of variables whose name marks a secret, such as ``DEPLOY_TOKEN``."""
    platforms: dict[PlatformName, SitePlatform] = Field(default_factory=dict)
    """Base image, engine and devices by platform."""
    results: SiteResults = SiteResults()
    """Limits for what is copied out of a container."""
    kubernetes: SiteKubernetes = SiteKubernetes()
    """The cluster for which ``python -m ci manifest`` prints Jobs."""

    def platform_settings(self, platform: str) -> SitePlatform:
        """Return this site's settings for a platform; empty if it has none."""
        return self.platforms.get(platform, SitePlatform())

    def keys_of_programs(self) -> list[str]:
        """Return the keys in use that choose what runs on this machine, without isolation."""
        keys = ["engines"] if self.engines else []
        for name, platform in self.platforms.items():
            chosen = {
                "engine": platform.engine,
                "other_engines": platform.other_engines,
                "python": platform.python,
                "devices.privileged": platform.devices and platform.devices.privileged,
            }
            keys += [f"platforms.{name}.{key}" for key, value in chosen.items() if value]
        return keys

    @field_validator("engines")
    @classmethod
    def _check_engine_names(cls, engines: dict[str, SiteEngine]) -> dict[str, SiteEngine]:
        for name in ENGINES:
            if name in engines:
                raise expected_value(f"another name: '{name}' is reserved", name)
        return engines

    @field_validator("platforms")
    @classmethod
    def _check_engine_references(
        cls, platforms: dict[str, SitePlatform], info: ValidationInfo
    ) -> dict[str, SitePlatform]:
        known = [*ENGINES, *info.data.get("engines", ())]
        for name, platform in platforms.items():
            # If `engines` itself has errors, report only those.
            what = f"one of {', '.join(known)}, or one defined under 'engines'"
            if "engines" not in info.data:
                continue
            if platform.engine and platform.engine not in known:
                raise expected_value(what, name, "engine", known=known)
            for index, other in enumerate(platform.other_engines):
                if other not in known:
                    raise expected_value(what, name, "other_engines", index, known=known)
        return platforms
