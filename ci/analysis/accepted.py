"""Changes that people have looked at and accepted: they alarm no more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """One measure of one platform that changed with one run, and why that is all right."""

    project: str
    platform: str
    measure: str
    run_id: str
    """The first run after the change, as it was seen when it was accepted."""
    commit: str | None
    level: float
    """The level that was accepted: what rises above it later is another change."""
    reason: str
    accepted_at: datetime
