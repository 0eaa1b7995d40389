"""Change points of series: what a series says, told from its noise. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """When a change is told. The defaults are chosen on data: see docs/regressions.md."""

    minimum: float = 0.03
    """The smallest relative change of a noisy measure that is worth a word."""
    exact_minimum: float = 0.01
    """The same of a measure without noise, where every change is real."""
    exact_alarm: float = 0.05
    """The smallest relative rise of such a measure that alarms: most commits add some lines."""
    confirm: int = 5
    """How many values have to stand by a change before it is confirmed."""
    window: int = 50
    """Levels are judged by at most so many values on either side of a change."""
    alarm: float = 5e-5
    """p-value of one look at one series below which a change is confirmed."""
    suspicion: float = 0.005
    """The same for young changes."""
    family: float = 0.01
    """The probability that one look at all series together has any false alarm."""
    welch: float = 2.2
    """Least normal deviate of Welch's test, for levels whose noise differs."""
    rank: float = 2.8
    """Least normal deviate of the rank test, which outliers and variance cannot move."""
    beyond_slope: float = 3.0
    """Least t of a step beside a straight line: a drift is not a staircase."""


POLICY = Policy()


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
    """A 95 % interval of ``after / before - 1``; infinite where ``before`` is 0."""
    probability: float
    """That the level has changed at all, corrected for all series that were looked at."""
    confirmed: bool
    """Enough later values stand by it; a young one may still be a spike."""

    @property
    def relative(self) -> float:
        return self.after / self.before - 1 if self.before else float("inf")


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A level that grows or shrinks little by little: nobody's single change."""

    index: int
    """Of the first value that drifts."""
    relative: float
    """From the first value to the last, along a straight line."""
    low: float
    high: float
    """A 95 % interval of ``relative``."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found in one series."""

    changes: tuple[ChangePoint, ...]
    level: float | None
    """The median since the last confirmed change; ``None``: no values."""
    detectable: float | None
    """The smallest relative change that would have been seen; ``None``: too few values."""
    drift: Drift | None = None
    """Of the level since the last confirmed change."""


def analyse(
    series: Mapping[Name, Sequence[float]],
    *,
    exact: Collection[Name] = (),
    policy: Policy = POLICY,
) -> dict[Name, Finding]:
    """What every series says, oldest value first; all are corrected together.

    ``exact`` names those without noise: numbers of files, lines, bytes.
    """
    # NumPy takes 0.15 s to import, and most commands look at no series.
    from ci.analysis import steps

    for name, values in series.items():
        _require_finite(name, values)
    noisy = [name for name in series if name not in exact]
    tests = steps.Tests(policy, len(noisy))
    return {
        name: steps.exact_finding(values, policy) if name in exact else tests.finding(values)
        for name, values in series.items()
    }


def _require_finite(name: Hashable, values: Sequence[float]) -> None:
    for place, value in enumerate(values):
        if not math.isfinite(value):
            raise ValueError(f"series {name!r}: value {place} is {value}; expected a number")
