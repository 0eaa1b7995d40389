"""The rows that queries return: runs, their measures and environments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from ci.model.results import Harness, Product

LATEST = "latest"  # a name of the newest run, like the link in the folder of results


@dataclass(frozen=True, kw_only=True)
class RunHead:
    """The identity of a run, without its results."""

    run_id: str
    project: str
    commit: str | None
    dirty: bool
    started_at: datetime
    finished_at: datetime
    platforms: tuple[str, ...]
    """Sorted by name."""
    begun: tuple[str, ...]
    """The platforms that have begun. ``platforms`` has all of them from the start of the run."""
    selected: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The operators of each platform that was narrowed to some: no result of the whole suite."""
    branch: str | None = None
    main_branch: str | None = None
    target: str | None = None
    tip: str | None = None
    """The commit of a pull request, if ``commit`` merges it only to test it."""
    depth: int | None = None
    merge_base: str | None = None
    """These are as in ``ci.model.results.Lineage``; ``None`` where it was not recorded."""

    @property
    def tested(self) -> str | None:
        """The commit of the branch that was tested."""
        return self.tip or self.commit

    @property
    def whole(self) -> tuple[str, ...]:
        """The platforms that have begun with all operators."""
        return tuple(it for it in self.begun if it not in self.selected)


class CommitParents(NamedTuple):
    """The commits before that of a run, as far as the run recorded them."""

    ancestors: tuple[str, ...] = ()
    """First parents, nearest first."""
    merged: tuple[str, ...] = ()
    """The parents of the commit but the first."""


@dataclass(frozen=True, kw_only=True)
class RepeatedRuns:
    """Runs of one commit in one environment: their tests should have the same outcomes."""

    commit: str
    key: str
    run_ids: tuple[str, ...]
    """Oldest first."""
    rerun: tuple[str, ...]
    """The runs that reran tests."""
    differing: bool
    """Whether their tests, outcomes or messages differ."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A rise of one measure on one platform that was sent to someone."""

    platform: str
    measure: str
    run_id: str
    """The first run after the rise, as known then."""
    level: float
    sent_at: datetime


class RunMeasures(NamedTuple):
    """The measures of one platform of one run.

    Not a dataclass: `history` makes 10,000 of them, each in a quarter of the time.
    """

    run_id: str
    commit: str | None
    dirty: bool
    started_at: datetime
    key: str
    """The digest of its environment key."""
    values: Mapping[str, float]
    """By measure name, see ``ci.facts.measures``."""


@dataclass(frozen=True, kw_only=True)
class ResultHead:
    """The result of one platform of a run, without its stages, evidence and environment."""

    run_id: str
    platform: str
    label: str
    product: Product
    harness: Harness
    built: bool | None
    counts: Mapping[str, int]
    """Tests by outcome, as ``PytestResult`` names them; empty without a per-test log."""
    active: int
    executed: int
    """Overloads, summed over slots and devices."""
    build_install_s: float | None
    selected: str | None = None
    """The operators that the run was narrowed to; ``None``: all."""
    is_pending: bool = False
    """Whether there was no result of the platform yet."""
    engine: str = ""
    host: str = ""
    """Both are empty where they were not recorded."""

    @property
    def tests(self) -> int:
        return sum(self.counts.values())

    @property
    def executed_share(self) -> float | None:
        """The share of the tests that were not skipped; ``None`` without tests."""
        return 1 - self.counts["skipped"] / self.tests if self.tests else None
