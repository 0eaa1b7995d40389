"""The properties of operator tests; pytest-reportlog stores them for the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dispatcher import kernel_of
from evidence import is_absent, is_simulated
from platforms import ran_platform

import infini.ops


def origin(device: str) -> dict[str, bool]:
    """Returns the property of tests without a vendor's hardware; empty on hardware."""
    return {"simulated": True} if is_simulated(device) or is_absent(device) else {}


@dataclass(frozen=True, kw_only=True)
class Record:
    """Writes the properties of the running test."""

    property: Callable[[str, object], None]
    device: str  # the requested one
    platform: str

    def write_request(self, *, overload: str, dtype: str, slot: int, active: bool) -> None:
        self.property("overload", overload)
        self.property("dtype", dtype)
        self.property("slot", slot)
        self.property("device", self.device)
        self.property("platform", self.platform)
        self.property("active", active)
        for name, value in origin(self.device).items():
            self.property(name, value)

    def write_kernel(self, overload: Any) -> None:
        """Writes the kind of kernel on a simulated device; on a real one, calls are watched."""
        if is_simulated(self.device):
            self.property("kernel", kernel_of(overload, self.device))

    def write_missing_features(self, needs: str) -> None:
        """Writes the features that a skipped call needs: ``Processor.missing_features``."""
        self.property("needs", needs)

    def write_run(self, *, executed: int, device: str | None) -> None:
        """Writes how many samples ran, on which slot, and on which device if that is known."""
        self.property("executed", executed)
        ran = infini.ops.last_call()
        if executed and ran is not None:
            self.property("ran_slot", ran.slot)
        if device is not None:
            self.property("ran_device", device)
            self.property("ran_platform", ran_platform(device))
