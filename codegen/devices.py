"""The platforms of the library, defined only here.

``src/include/infini/ops/device_type.h`` is generated from this module (``python -m codegen
headers``). CMake reads its ``WITH_<PLATFORM>`` options from that header, and
``infini.ops.platforms()`` returns its contents. ``ci.model.platforms`` imports this module.
``docs/add-a-platform.md`` lists the other files that a new platform needs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Platform:
    """One platform. Its index in ``PLATFORMS`` is the value of its C++ enumerator."""

    name: str
    torch_device: str  # torch's device type
    torch_plugin: str | None = None  # module that registers the type in torch, if any

    @property
    def enumerator(self) -> str:
        """The enumerator of ``infini::ops::DeviceType``."""
        return f"k{self.name.capitalize()}"


# The torch forks of three vendors present their devices as `cuda`. A build therefore enables at
# most one accelerator.
PLATFORMS = (
    Platform(name="cpu", torch_device="cpu"),
    Platform(name="nvidia", torch_device="cuda"),
    Platform(name="iluvatar", torch_device="cuda"),
    Platform(name="metax", torch_device="cuda"),
    Platform(name="cambricon", torch_device="mlu", torch_plugin="torch_mlu"),
    Platform(name="moore", torch_device="musa", torch_plugin="torch_musa"),
    Platform(name="ascend", torch_device="npu", torch_plugin="torch_npu"),
)
