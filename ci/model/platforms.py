"""The platforms this program knows: facts that hold for any project on them.

Each platform is a file ``ci/platforms/<name>.toml``. Everything else that a project needs is set in
its ``ci.yaml``. ``docs/add-a-platform.md`` describes the file. ``codegen.devices`` and the operator
suite of this repository read the same files.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ci.errors import ConfigError
from ci.util.files import IS_INSTALLED, PROGRAM_ROOT, RECIPES

FOLDER: Final = Path(__file__).parents[1] / "platforms"


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """How to detect one vendor's devices, give them to a container, and distinguish them.

    Attributes:
        manufacturer: gpustack-runtime's name of the vendor
        files: device files, as patterns; the first must match, the others are passed to the
            container if they match
        mounts: folders and files of the driver; those that exist are mounted read-only at the
            same place
        request: the vendor's devices are passed by a Docker ``DeviceRequest`` (``--gpus``)
        cdi: kind of its devices in the Container Device Interface
        resource: name that its device plugin gives its devices in Kubernetes
        gres: usual name of its devices as generic resources in Slurm
        visible: environment variable that restricts a process to some devices
        visible_by: what that variable lists, ``uuid`` or ``index``
        shm_size_bytes: size of /dev/shm that its frameworks need
        ulimits: resource limits that its driver needs, -1 for none
        management: the vendor's command line tool
        compiler: the vendor's compiler, if known
        ray_resource: Ray's own name of the devices, if it detects them
    """

    manufacturer: str
    files: tuple[str, ...]
    mounts: tuple[str, ...] = ()
    request: bool = False
    cdi: str | None = None
    resource: str
    gres: str = "gpu"
    visible: str
    visible_by: str = "index"
    shm_size_bytes: int | None = None
    ulimits: Mapping[str, int] = field(default_factory=dict)
    management: str
    compiler: str | None = None
    ray_resource: str | None = None


@dataclass(frozen=True, kw_only=True)
class Platform:
    """Facts about one platform; a project overrides some of them in ``ci.yaml``.

    Attributes:
        name: on the command line and in ``ci.yaml``
        order: its place among the platforms, and the value of its C++ enumerator; it never changes
        label: name in the results table
        torch_device: device type of its tensors in torch
        torch_plugin: module that adds this type to torch; ``None`` if torch has it itself
        base_image: image that the recipe starts from if a registry can be reached
        offline_base: ``OFFLINE_BASE_IMAGE`` replaces ``base_image`` if that is neither present
            nor pullable
        devices: the vendor's devices; ``None`` if the processor is the device
    """

    name: str
    order: int
    label: str
    torch_device: str
    torch_plugin: str | None = None
    base_image: str | None = None
    offline_base: bool = False
    devices: DeviceFacts | None = None

    @property
    def is_simulable(self) -> bool:
        """Whether software can simulate its devices; false for devices that torch itself drives."""
        return self.torch_device == "cpu" or self.torch_plugin is not None


# A base image that a command of this repository makes from Debian packages, without a registry.
OFFLINE_BASE_IMAGE: Final = "infini-ops-base:bookworm"
_MAKE = RECIPES / "make-base-image"
OFFLINE_BASE_COMMAND: Final = (str(_MAKE if IS_INSTALLED else _MAKE.relative_to(PROGRAM_ROOT)),)


def read_platform(path: Path) -> Platform:
    """Read the file of a platform; raises ``ConfigError`` if it has other fields."""
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
        fields.pop("library", None)  # for codegen and the operator suite
        if "devices" in fields:
            fields["devices"] = DeviceFacts(**_frozen(fields["devices"]))
        return Platform(name=path.stem, **fields)
    except (TypeError, ValueError) as error:
        remedy = "docs/add-a-platform.md describes its fields."
        raise ConfigError(f"{path}: {error}", remedy=remedy) from error


def _frozen(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }


_READ: Final = sorted(map(read_platform, FOLDER.glob("*.toml")), key=lambda each: each.order)
PLATFORMS: Final = MappingProxyType({platform.name: platform for platform in _READ})

# Names of several platforms in ``ci.yaml``. Settings of a later group replace those of an earlier.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "accelerators": tuple(name for name, each in PLATFORMS.items() if each.devices),
        "plugins": tuple(name for name, each in PLATFORMS.items() if each.torch_plugin),
    }
)
