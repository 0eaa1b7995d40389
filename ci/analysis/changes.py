"""Change points of series: what a series says, told from its noise. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ChangePoint:
    """A level that changed for good, as far as can be seen."""

    index: int
    """Of the first value after the change."""
    before: float
    after: float
    """Medians of the two levels."""
    low: float
    high: float
    """A 95 % interval of ``after / before - 1``."""
    probability: float
    """That the level has changed at all, corrected for all series that were looked at."""
    confirmed: bool
    """Enough later values stand by it; a young one may still be a spike."""

    @property
    def relative(self) -> float:
        return self.after / self.before - 1 if self.before else float("inf")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found in one series."""

    changes: tuple[ChangePoint, ...]
    level: float
    """The median since the last confirmed change."""
    detectable: float | None
    """The smallest relative change that would have been seen; ``None``: too few values."""
