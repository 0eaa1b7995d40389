"""Rows that queries return: runs, their measures and environments, accepted changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

LATEST = "latest"  # names the newest run, as the link beside the results does


@dataclass(frozen=True, kw_only=True)
class RunHead:
    """What a run says of itself, without its results."""

    run_id: str
    project: str
    commit: str | None
    dirty: bool
    started_at: datetime
    platforms: tuple[str, ...]
    """In order of their names."""
    begun: tuple[str, ...]
    """Those of them that ran, or are under way: a run has rows of all from its start."""


@dataclass(frozen=True, kw_only=True)
class SameEnvironment:
    """Runs of one commit in one environment, whose tests should end alike."""

    commit: str
    key: str
    run_ids: tuple[str, ...]
    """The oldest first."""
    rerun: tuple[str, ...]
    """Those of them that tried tests again."""
    differing: bool
    """Whether their tests, or the messages of these, are not all the same."""


@dataclass(frozen=True, kw_only=True)
class Acceptance:
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


@dataclass(frozen=True, kw_only=True)
class RunMeasures:
    """The measures of one platform of one run."""

    run_id: str
    commit: str | None
    dirty: bool
    started_at: datetime
    key: str
    """The digest of its environment key."""
    values: Mapping[str, float]
    """By names as ``ci.facts.measures`` makes them."""
