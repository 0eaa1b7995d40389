"""Details of a platform's run that the table does not show: tests, reruns, the build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ci.model.outcomes import Outcome, TestOutcome


class UnitKind(StrEnum):
    """The kind of a build command, by its output."""

    COMPILE = "compile"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """One command of the build; ``output`` is a path in the build folder."""

    output: str
    kind: UnitKind
    seconds: float
    cached: bool | None = None
    """Whether the compiler cache had it; ``None``: unknown."""


@dataclass(frozen=True, kw_only=True)
class BuildDetails:
    """The parts of a build's cost."""

    units: tuple[Unit, ...] = ()
    generated: Mapping[str, int] = field(default_factory=dict)
    """Number of lines of every generated file."""
    flags: tuple[str, ...] = ()
    """The compiler's options, sorted, without duplicates and without this build's paths."""
    traced: Mapping[str, float] = field(default_factory=dict)
    """Seconds by entry of the compiler's time traces; only the most expensive entries."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rerun:
    """One more attempt at a failed test, as evidence; the verdict does not depend on it."""

    node_id: str
    attempt: int
    """From 1 on; attempt 0 is the run itself."""
    outcome: Outcome
    seconds: float
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Details:
    """Everything that the store keeps of a platform in addition to its ``PlatformResult``."""

    tests: Sequence[TestOutcome] = ()
    reruns: Sequence[Rerun] = ()
    build: BuildDetails | None = None


NO_DETAILS = Details()
