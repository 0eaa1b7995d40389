"""Which platform a run is for, and which hardware it ran on."""

from __future__ import annotations

import pytest
from platforms import DEVICES, PLATFORMS, default_platform, identify, ran_platform

import infini.ops
import torch

HARDWARE = [
    ("cuda", "NVIDIA H100 80GB HBM3", "nvidia"),
    ("cuda", "Tesla V100-SXM2-32GB", "nvidia"),
    ("cuda", "A100-SXM4-40GB", "nvidia"),
    ("cuda", "GeForce GTX 1080 Ti", "nvidia"),
    ("cuda", "Quadro RTX 8000", "nvidia"),
    ("cuda", "Iluvatar BI-V150", "iluvatar"),
    ("cuda", "Iluvatar MR-V100", "iluvatar"),
    ("cuda", "BI-V100", "iluvatar"),
    ("cuda", "MetaX C500", "metax"),
    ("cuda", "MXC500", "metax"),
    ("cuda", "C550", "metax"),
    ("mlu", "MLU370-X8", "cambricon"),
    ("mlu", "MLU590-M9", "cambricon"),
    ("musa", "MTT S4000", "moore"),
    ("musa", "Moore Threads MTT S80", "moore"),
    ("npu", "Ascend910B2", "ascend"),
    ("npu", "Ascend310P3", "ascend"),
]


@pytest.mark.parametrize(("device", "name", "platform"), HARDWARE)
def test_hardware_is_known_by_its_name(device: str, name: str, platform: str) -> None:
    assert identify(device, name) == platform


def test_unknown_hardware_has_no_platform() -> None:
    assert identify("cuda", "Radeon PRO") is None
    assert identify("cuda", "") is None
    assert identify("npu", "MLU370-X8") is None


def test_the_library_and_the_table_agree_on_platforms() -> None:
    for platform in infini.ops.devices():
        device = PLATFORMS[platform].torch_device
        assert infini.ops.Abs.active_implementation_indices(device), platform
        assert default_platform(device) == platform


def test_every_device_has_a_platform_and_most_name_a_plugin() -> None:
    assert DEVICES == ("cpu", "cuda", "mlu", "musa", "npu")
    assert [default_platform(device) for device in ("mlu", "musa", "npu")] == [
        "cambricon",
        "moore",
        "ascend",
    ]
    plugins = {platform.torch_device: platform.torch_plugin for platform in PLATFORMS.values()}
    own = {"cpu": None, "cuda": None}
    assert plugins == own | {"mlu": "torch_mlu", "musa": "torch_musa", "npu": "torch_npu"}


def test_the_cpu_is_the_cpu_and_a_device_that_is_not_there_is_unknown() -> None:
    assert ran_platform("cpu") == "cpu"
    if not torch.cuda.is_available():
        assert ran_platform("cuda") is None
    assert ran_platform("privateuseone") is None
