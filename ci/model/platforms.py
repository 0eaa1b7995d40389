"""The platforms this program knows: facts that hold for any project on them.

Names and torch device types come from ``codegen/devices.py``: a device that is added there is a
platform here. Everything else that a project needs is set in its ``ci.yaml``. All steps to add a
platform are listed in ``docs/add-a-platform.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from codegen import devices


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
    shm_size_bytes: int | None = 16 * 2**30
    ulimits: Mapping[str, int] = field(default_factory=dict)
    management: str
    compiler: str | None = None
    ray_resource: str | None = None


@dataclass(frozen=True, kw_only=True)
class Platform:
    """Facts about one platform; a project overrides some of them in ``ci.yaml``.

    Attributes:
        name: on the command line and in ``ci.yaml``
        label: name in the results table
        base_image: image that the recipe starts from if a registry can be reached
        offline_base: ``OFFLINE_BASE_IMAGE`` replaces ``base_image`` if that is neither present
            nor pullable
        devices: the vendor's devices; ``None`` if the processor is the device
    """

    name: str
    label: str
    base_image: str | None = None
    offline_base: bool = False
    devices: DeviceFacts | None = None

    @property
    def torch_device(self) -> str:
        """Device type of its tensors in torch."""
        return _DEVICES[self.name].torch_device

    @property
    def is_simulable(self) -> bool:
        """Whether software can simulate its devices; false for devices that torch itself drives."""
        return self.torch_device == "cpu" or _DEVICES[self.name].torch_plugin is not None


_DEVICES: Final = {device.name: device for device in devices.PLATFORMS}

# A base image that a command of this repository makes from Debian packages, without a registry.
OFFLINE_BASE_IMAGE: Final = "infini-ops-base:bookworm"
OFFLINE_BASE_COMMAND: Final = ("docker/make-base-image",)

# Base images are the vendors' public images for users.
_KNOWN: Final = (
    Platform(name="cpu", label="CPU", base_image="python:3.11-slim-bookworm", offline_base=True),
    Platform(
        name="nvidia",
        label="NVIDIA",
        base_image="nvcr.io/nvidia/pytorch:25.12-py3",
        devices=DeviceFacts(
            manufacturer="nvidia",
            files=("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm*", "/dev/nvidia-caps/*"),
            request=True,
            cdi="nvidia.com/gpu",
            resource="nvidia.com/gpu",
            visible="CUDA_VISIBLE_DEVICES",
            visible_by="uuid",
            management="nvidia-smi",
            compiler="nvcc",
            ray_resource="GPU",
        ),
    ),
    # The vendor distributes corex as image archives; no registry has it.
    Platform(
        name="iluvatar",
        label="Iluvatar",
        devices=DeviceFacts(
            manufacturer="iluvatar",
            files=("/dev/iluvatar*", "/dev/itrctl"),
            cdi="iluvatar.com/gpu",
            resource="iluvatar.com/gpu",
            visible="CUDA_VISIBLE_DEVICES",
            management="ixsmi",
            compiler="clang++",
        ),
    ),
    Platform(
        name="metax",
        label="MetaX",
        base_image="cr.metax-tech.com/public-library/"
        "maca-pytorch:3.2.1.4-torch2.4-py310-ubuntu22.04-amd64",
        devices=DeviceFacts(
            manufacturer="metax",
            files=("/dev/mxcd", "/dev/mxnd", "/dev/mxgd", "/dev/dri/card*", "/dev/dri/renderD*"),
            cdi="metax-tech.com/gpu",
            resource="metax-tech.com/gpu",
            visible="CUDA_VISIBLE_DEVICES",
            shm_size_bytes=None,
            ulimits={"memlock": -1, "stack": 64 * 2**20},
            management="mx-smi",
            compiler="mxcc",
        ),
    ),
    Platform(
        name="cambricon",
        label="Cambricon",
        base_image="cambricon/pytorch:v1.25.3-torch2.1-anolisos8.8-py310",
        devices=DeviceFacts(
            manufacturer="cambricon",
            files=("/dev/cambricon*",),
            mounts=("/usr/bin/cnmon",),
            cdi="cambricon.com/mlu",
            resource="cambricon.com/mlu",
            gres="mlu",
            visible="MLU_VISIBLE_DEVICES",
            management="cnmon",
            compiler="cncc",
        ),
    ),
    Platform(
        name="moore",
        label="Moore",
        base_image="sh-harbor.mthreads.com/mcctest/vllm_musa",
        devices=DeviceFacts(
            manufacturer="mthreads",
            files=("/dev/mtgpu*", "/dev/dri/card*", "/dev/dri/renderD*"),
            cdi="mthreads.com/gpu",
            resource="mthreads.com/gpu",
            visible="MUSA_VISIBLE_DEVICES",
            management="mthreads-gmi",
            compiler="mcc",
        ),
    ),
    Platform(
        name="ascend",
        label="Ascend",
        base_image="quay.io/ascend/vllm-ascend:v0.18.0rc1-openeuler",
        devices=DeviceFacts(
            manufacturer="ascend",
            files=(
                "/dev/davinci[0-9]*",
                "/dev/davinci_manager",
                "/dev/devmm_svm",
                "/dev/hisi_hdc",
                "/dev/dvpp_cmdlist",
            ),
            mounts=(
                "/usr/local/Ascend/driver",
                "/usr/local/dcmi",
                "/usr/local/bin/npu-smi",
                "/etc/ascend_install.info",
            ),
            cdi="huawei.com/npu",
            resource="huawei.com/Ascend910",
            gres="npu",
            visible="ASCEND_RT_VISIBLE_DEVICES",
            management="npu-smi",
            ray_resource="NPU",
            compiler="ccec",
        ),
    ),
)

PLATFORMS: Final = MappingProxyType(
    {name: Platform(name=name, label=name.capitalize()) for name in _DEVICES}
    | {platform.name: platform for platform in _KNOWN}
)
