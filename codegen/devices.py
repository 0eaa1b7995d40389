"""The platforms of the library: the one place where they are named.

``src/include/infini/ops/device_type.h`` is generated from here (``python -m codegen headers``).
CMake takes its ``WITH_<PLATFORM>`` options from that header, and ``infini.ops.platforms()`` what
it says; ``ci.model.platforms`` imports this module. ``docs/add-a-platform.md`` lists what else a
platform needs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Platform:
    """One platform. Its place among ``PLATFORMS`` is the value of its C++ enumerator."""

    name: str
    torch_device: str  # torch's device type
    torch_plugin: str | None = None  # the module that brings torch the type; None if torch has it

    @property
    def enumerator(self) -> str:
        """The enumerator of ``infini::ops::DeviceType``."""
        return f"k{self.name.capitalize()}"


# Three vendors ship torch forks that present their devices as `cuda`, which is why a build enables
# at most one accelerator.
PLATFORMS = (
    Platform(name="cpu", torch_device="cpu"),
    Platform(name="nvidia", torch_device="cuda"),
    Platform(name="iluvatar", torch_device="cuda"),
    Platform(name="metax", torch_device="cuda"),
    Platform(name="cambricon", torch_device="mlu", torch_plugin="torch_mlu"),
    Platform(name="moore", torch_device="musa", torch_plugin="torch_musa"),
    Platform(name="ascend", torch_device="npu", torch_plugin="torch_npu"),
)
