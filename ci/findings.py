"""A finding of a check: its subject, its level and the remedy. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    UNKNOWN = "unknown"  # no check could decide, which is not ok
    WARNING = "warning"
    PROBLEM = "problem"  # a run would fail


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One answer of a check: what was found and, unless it is ok, what to do.

    ``package`` names what the distribution's packages would add, as in ``prerequisites.PACKAGES``.
    ``configuration``: a problem is one of the configuration, not of the infrastructure.
    """

    level: Level
    subject: str
    found: str
    expected: str | None = None
    remedy: str | None = None
    package: str | None = None
    configuration: bool = False


def ok(subject: str, found: str) -> Finding:
    return Finding(level=Level.OK, subject=subject, found=found)


def unknown(subject: str, found: str, *, remedy: str | None = None) -> Finding:
    return Finding(level=Level.UNKNOWN, subject=subject, found=found, remedy=remedy)


def warning(subject: str, found: str, *, expected: str, remedy: str) -> Finding:
    return Finding(
        level=Level.WARNING, subject=subject, found=found, expected=expected, remedy=remedy
    )


def problem(
    subject: str, found: str, *, expected: str | None = None, remedy: str | None
) -> Finding:
    return Finding(
        level=Level.PROBLEM, subject=subject, found=found, expected=expected, remedy=remedy
    )
