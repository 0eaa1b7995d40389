"""All faults, in the order of the table."""

from __future__ import annotations

from tools.faults import (
    changes,
    clocks,
    crashes,
    disks,
    endings,
    engines,
    killed,
    memory,
    networks,
    output,
    own_engine,
    permissions,
    signals,
    stores,
    together,
)
from tools.faults.model import Fault

FAULTS: tuple[Fault, ...] = (
    *signals.FAULTS,
    *memory.FAULTS,
    *endings.FAULTS,
    *crashes.FAULTS,
    *output.FAULTS,
    *engines.FAULTS,
    *own_engine.FAULTS,
    *networks.FAULTS,
    *disks.FAULTS,
    *permissions.FAULTS,
    *clocks.FAULTS,
    *together.FAULTS,
    *changes.FAULTS,
    *stores.FAULTS,
    *killed.FAULTS,
)


def selection() -> list[Fault]:
    """Return the first fault of each kind, for a run of few minutes."""
    return list({fault.kind: fault for fault in reversed(FAULTS)}.values())[::-1]
