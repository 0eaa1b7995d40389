"""The rows that queries return: runs, their measures and environments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from ci.model.verdicts import Harness, Product

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
    asked_by: str | None = None
    """The command that searched a commit with it; ``None``: it is of the history."""

    @property
    def is_local(self) -> bool:
        """Whether the main branch of the remote did not have the commit when the run began."""
        return self.target is None and self.merge_base not in (None, self.commit)

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


class AlarmState(StrEnum):
    """The state of an alarm: what people said of it, or that its cost is back."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    FIXED = "fixed"  # by a commit, as someone says
    INVALID = "invalid"  # no regression, as someone says
    RESOLVED = "resolved"  # accepted, undone, or no longer found


class AlarmEvent(StrEnum):
    """What a message says of an alarm."""

    NEW = "new"
    CORRECTED = "corrected"  # it began elsewhere, is larger, or of another stage
    RESOLVED = "resolved"
    REOPENED = "reopened"


@dataclass(frozen=True, kw_only=True)
class AlarmRise:
    """A rise of one measure on one platform, as it was last found."""

    platform: str
    measure: str
    before_run_id: str | None
    """The last run before it; ``None`` if an older version stored the rise."""
    run_id: str
    """The first run with it."""
    before: float | None
    level: float
    """The levels before and since, in the unit of the measure; of an invalid alarm, those at the
    time of this statement."""


@dataclass(frozen=True, kw_only=True)
class AlarmRecord:
    """An alarm as the store knows it."""

    alarm_id: str
    kind: str
    """The judgment on its rises, see ``ci.gates.regression.Judgement``."""
    rises: tuple[AlarmRise, ...]
    """Sorted by platform and measure."""
    seen_run_id: str | None = None
    """The newest run of the line when the rises were last found."""
    state: AlarmState = AlarmState.OPEN
    who: str | None = None
    note: str | None = None
    commit: str | None = None
    """The commit that fixes it."""
    stated_at: datetime | None = None
    """Since when it has this state, who said so, and why; ``None`` if no one said anything."""
    link: str | None = None
    """The address of its issue."""

    @property
    def platforms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(it.platform for it in self.rises))


@dataclass(frozen=True, kw_only=True)
class AlarmMessage:
    """The last message of an alarm to an address."""

    alarm_id: str
    event: AlarmEvent
    before_run_id: str | None
    """The last run before the rise, as the message named it."""
    run_id: str
    """The first run with it."""
    latest_run_id: str | None
    """The newest run of the line at that time."""
    decided: bool
    """Whether it ended by what a person said: an acceptance, or a state."""
    sent_at: datetime
    measure: str | None = None
    size: float | None = None
    """The measure and the relative rise in its headline; ``None`` if an older version sent it."""


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
    executed_share: float | None = None
    """The share of the tests that were not skipped; ``None`` without tests."""
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
