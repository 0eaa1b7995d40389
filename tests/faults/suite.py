"""All faults, in the order of the table."""

from __future__ import annotations

from tests.faults import crashes, endings, memory, output, signals
from tests.faults.model import Fault

FAULTS: tuple[Fault, ...] = (
    *signals.FAULTS,
    *memory.FAULTS,
    *endings.FAULTS,
    *crashes.FAULTS,
    *output.FAULTS,
)


def selection() -> list[Fault]:
    """Return the first fault of each kind, for a run of few minutes."""
    return list({fault.kind: fault for fault in reversed(FAULTS)}.values())[::-1]
