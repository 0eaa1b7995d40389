"""What every operator test records; pytest-reportlog carries it to whoever judges the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dispatcher import kernel_of
from evidence import is_absent, is_simulated
from platforms import ran_platform

import infini.ops


def origin(device: str) -> dict[str, bool]:
    """Returns what every test without a vendor's hardware records, and none on it."""
    return {"simulated": True} if is_simulated(device) or is_absent(device) else {}


@dataclass(frozen=True, kw_only=True)
class Record:
    """Writes the properties of the running test."""

    property: Callable[[str, object], None]
    device: str  # that was asked for
    platform: str

    def asked(self, *, overload: str, dtype: str, slot: int, active: bool) -> None:
        self.property("overload", overload)
        self.property("dtype", dtype)
        self.property("slot", slot)
        self.property("device", self.device)
        self.property("platform", self.platform)
        self.property("active", active)
        for name, value in origin(self.device).items():
            self.property(name, value)

    def kernel(self, overload: Any) -> None:
        """Says what a simulated device has for an ATen overload; a real one's calls are watched."""
        if is_simulated(self.device):
            self.property("kernel", kernel_of(overload, self.device))

    def lacks(self, needs: str) -> None:
        """Names the features that a skipped call needs: see ``processor.Processor.lacks``."""
        self.property("needs", needs)

    def ran(self, *, executed: int, device: str | None) -> None:
        """Says how many samples ran, where if that is known, and on which slot."""
        self.property("executed", executed)
        ran = infini.ops.last_call()
        if executed and ran is not None:
            self.property("ran_slot", ran.slot)
        if device is not None:
            self.property("ran_device", device)
            self.property("ran_platform", ran_platform(device))
