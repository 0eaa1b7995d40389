"""The platforms this program knows: facts that hold for any project on them.

Their names and torch device types are those of ``codegen/devices.py``; a device that is added
there is a platform here, and what a project needs beside stands in its ``ci.yaml``.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from codegen import devices


@dataclass(frozen=True, kw_only=True)
class Platform:
    """Facts about one platform; a project overrides some of them in ``ci.yaml``.

    Attributes:
        name: on the command line and in ``ci.yaml``
        label: name in the results table
        base_image: image that the recipe starts from where a registry can be reached
        recipe: Dockerfile, relative to this repository
        offline_base_image: local stand-in for ``base_image`` where that is neither present nor
            pullable
        offline_base_command: command, relative to this repository, that makes the stand-in
    """

    name: str
    label: str
    base_image: str | None = None
    recipe: str | None = None
    offline_base_image: str | None = None
    offline_base_command: tuple[str, ...] | None = None

    @property
    def torch_device(self) -> str:
        """Device type of its tensors in torch."""
        return _TORCH_DEVICES[self.name]


_TORCH_DEVICES: Final = {device.name: device.torch_device for device in devices.PLATFORMS}

# The images are those that the vendors' users start from.
_KNOWN: Final = (
    Platform(
        name="cpu",
        label="CPU",
        base_image="python:3.11-slim-bookworm",
        recipe="docker/cpu.Dockerfile",
        offline_base_image="infini-ops-base:bookworm",
        offline_base_command=("docker/make-base-image",),
    ),
    Platform(name="nvidia", label="NVIDIA", base_image="nvcr.io/nvidia/pytorch:25.12-py3"),
    # The vendor hands out archives of corex, which no registry has.
    Platform(name="iluvatar", label="Iluvatar"),
    Platform(
        name="metax",
        label="MetaX",
        base_image="cr.metax-tech.com/public-library/"
        "maca-pytorch:3.2.1.4-torch2.4-py310-ubuntu22.04-amd64",
    ),
    Platform(
        name="cambricon",
        label="Cambricon",
        base_image="cambricon/pytorch:v1.25.3-torch2.1-anolisos8.8-py310",
    ),
    Platform(name="moore", label="Moore", base_image="sh-harbor.mthreads.com/mcctest/vllm_musa"),
    Platform(
        name="ascend",
        label="Ascend",
        base_image="quay.io/ascend/vllm-ascend:v0.18.0rc1-openeuler",
    ),
)

PLATFORMS: Final = MappingProxyType(
    {name: Platform(name=name, label=name.capitalize()) for name in _TORCH_DEVICES}
    | {platform.name: platform for platform in _KNOWN}
)
