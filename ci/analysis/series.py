"""What a history is made of: the measures of one platform's runs, the oldest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The measures of one platform of one run."""

    run_id: str
    commit: str | None
    dirty: bool
    started_at: datetime
    key: str
    """The digest of its environment key."""
    values: Mapping[str, float]
    """By names as ``ci.analysis.measures`` makes them."""
