"""What is kept of a platform's run beside its row of the table: tests, reruns, the build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ci.model.tests import Outcome, TestOutcome


class UnitKind(StrEnum):
    """What a command of the build made."""

    COMPILE = "compile"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """One command of the build, by what it made: a path in the build's folder."""

    output: str
    kind: UnitKind
    seconds: float
    cached: bool | None = None
    """Whether the compiler cache had it; ``None``: nobody can tell."""


@dataclass(frozen=True, kw_only=True)
class BuildDetails:
    """What the cost of a build is made of."""

    units: tuple[Unit, ...] = ()
    generated: Mapping[str, int] = field(default_factory=dict)
    """Lines of every generated file."""
    flags: tuple[str, ...] = ()
    """The compiler's options, sorted, each once; without paths of this one build."""
    traced: Mapping[str, float] = field(default_factory=dict)
    """Seconds by what the compiler's time traces name, the most expensive ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rerun:
    """One more attempt at a test of the run, for evidence; the verdict does not hang on it."""

    node_id: str
    attempt: int
    """From 1 on; the run itself was attempt 0."""
    outcome: Outcome
    seconds: float
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Details:
    """Everything of one platform that the store keeps beside its ``PlatformResult``."""

    tests: Sequence[TestOutcome] = ()
    reruns: Sequence[Rerun] = ()
    build: BuildDetails | None = None


NO_DETAILS = Details()
