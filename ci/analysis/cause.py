"""Why the cost of a build changed between two runs. Pure.

Nothing is claimed that the data does not show: what was counted is a fact, what merely changed at
the same time is likely, and what is left over is said to be unexplained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ci.analysis.environment_key import environment_key
from ci.analysis.measures import Quantity, measures_of, stage_and_quantity
from ci.details import BuildDetails
from ci.pytest_log import TestOutcome
from ci.results import Grade, PlatformResult


class Kind(StrEnum):
    """What a contributor is."""

    ADDED = "added"
    REMOVED = "removed"
    GREW = "grew"
    SHRANK = "shrank"
    UNIFORM = "uniform"  # all alike: no single one is the cause
    CACHE = "cache"
    STAGE = "stage"  # another part of the same total
    TRACE = "trace"
    FLAGS = "flags"
    ENVIRONMENT = "environment"
    REST = "rest"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, kw_only=True)
class BuildSide:
    """One of the two that are compared: a run, or several of the same sources and environment."""

    result: PlatformResult
    builds: tuple[BuildDetails, ...] = ()
    """Of one run or of several; the medians of several are steadier."""
    tests: Sequence[TestOutcome] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    """Measures that are known better than by the one run: levels of a series."""

    def value(self, measure: str) -> float | None:
        return self.values.get(measure, measures_of(self.result).get(measure))


@dataclass(frozen=True, kw_only=True)
class Contributor:
    """One reason of a change."""

    kind: Kind
    text: str
    share: float | None
    """Of the change, in the measure's own unit; ``None``: the data gives it no number."""
    grade: Grade
    names: tuple[str, ...] = ()
    """Units, files, tests, flags, parts of the environment."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A change of one measure, and what it is made of, the largest first."""

    measure: str
    before: float | None
    after: float | None
    contributors: tuple[Contributor, ...]

    @property
    def headline(self) -> str:
        """``compile +38 s (+21 %)``."""
        if self.before is None or self.after is None:
            return f"{self.measure}: not measured on both sides"
        change = self.after - self.before
        relative = f" ({change / self.before:+.0%})".replace("%", " %") if self.before else ""
        stage, quantity = stage_and_quantity(self.measure)
        return f"{stage} {signed(change, quantity)}{relative}"

    @property
    def causes(self) -> str:
        """What comes behind the headline; empty where there is nothing to say."""
        return "; ".join(contributor.text for contributor in self.contributors)

    @property
    def text(self) -> str:
        return f"{self.headline}, {self.causes}" if self.causes else self.headline


def explain(measure: str, before: BuildSide, after: BuildSide) -> Explanation:
    """Why ``measure`` (``compile.wall_s``) is not what it was."""
    return Explanation(
        measure=measure,
        before=before.value(measure),
        after=after.value(measure),
        contributors=tuple(_environment(before, after)),
    )


def _environment(before: BuildSide, after: BuildSide) -> Iterator[Contributor]:
    then = environment_key(before.result)
    for change in environment_key(after.result).changes(then):
        name = change.partition(" changed")[0]
        yield Contributor(
            kind=Kind.ENVIRONMENT, text=change, share=None, grade=Grade.LIKELY, names=(name,)
        )


_UNITS = {Quantity.WALL: " s", Quantity.CPU: " CPU-s", Quantity.LINES: " lines"}


def signed(value: float, quantity: Quantity) -> str:
    """``+38 s``."""
    if quantity in (Quantity.PEAK_MEMORY, Quantity.WHEEL):
        return f"{value / 1e6:+,.1f} MB"
    digits = 0 if abs(value) >= 10 else 1
    return f"{value:+,.{digits}f}{_UNITS.get(quantity, ' units')}"
