"""The changes in the history of a platform, the runs around them, and regressions. Pure.

Times are compared only within one environment key. A change of the key itself is only listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from ci.analysis.changes import ChangePoint, SeriesFinding
from ci.analysis.levels import NORMAL_MAD
from ci.analysis.stage_order import containing_measures
from ci.facts.acceptance import Acceptance
from ci.facts.environment_key import EnvironmentKey
from ci.facts.measures import (
    TOTAL,
    Quantity,
    headline,
    is_benchmark,
    is_worse,
    measure_key,
    stage_and_quantity,
)
from ci.gates.regression import EXACT_ALARM, Judgement, judge_change
from ci.store.rows import RunMeasures

IN_USE = 20
"""The latest runs of a platform; an environment that none of them had is no longer in use."""
TOGETHER = 3
"""The largest distance in runs between changes of one cause: noise shifts the found places."""
LATEST = 10
"""Runs before a change that later runs are compared with, to find its exact start."""
MOVES = 8
"""Runs by which the place of an accepted change may have moved since."""
IN_DOUBT = 3.0
"""Standard errors within which runs may be of a level, so that noise may have shifted the place."""
TOLERANCE = 0.05
"""Relative tolerance above an accepted level, since that was estimated from few runs."""


@dataclass(frozen=True, kw_only=True)
class LevelChange:
    """A change of the level of one measure."""

    measure: str
    before_run: RunMeasures
    """The last run that is certainly before the change."""
    run: RunMeasures
    """The first run that is certainly after it."""
    place: int
    """The most likely index of the first run after it, among the runs of the environment."""
    point: ChangePoint
    runs_since: int
    """The number of values from ``run`` on."""
    reached: RunMeasures | None = None
    """The first run at the new level of a gradual change, which begins with ``run``."""
    accepted: Acceptance | None = None
    undone: RunMeasures | None = None
    """The first run of a later level that is as good as the level before the change."""
    runs_alone: int | None = None
    """Runs in which wall time was higher without CPU seconds, although these would have shown the
    rise; ``None``: it is no such rise."""
    with_environment: bool = False
    """Whether the environment changed with it."""

    @property
    def size(self) -> float:
        return abs(self.point.after - self.point.before)

    @property
    def text(self) -> str:
        """``compile +38 s (+21 %)``."""
        text = headline(self.measure, self.point.before, self.point.after)
        return f"{text} gradually" if self.is_gradual else text

    @property
    def is_gradual(self) -> bool:
        """Whether it came bit by bit, so that no single commit is the cause."""
        return self.reached is not None

    @property
    def is_worse(self) -> bool:
        """Whether the new level is worse: mostly the higher one, of some benchmarks the lower."""
        return is_worse(self.measure, self.point.before, self.point.after)

    @property
    def is_rise(self) -> bool:
        """Whether the level got worse, which is neither accepted nor undone."""
        return self.is_worse and self.accepted is None and self.undone is None

    @property
    def wall_alone(self) -> bool:
        """Whether wall time rose without CPU seconds, although these would have shown the rise."""
        return self.runs_alone is not None

    @property
    def is_small(self) -> bool:
        """Whether the change is certain, but too small for a regression."""
        return is_small(self.measure, self.point.relative)

    @property
    def is_of_executed_share(self) -> bool:
        """Whether it is of the share of executed tests, which is no cost."""
        return stage_and_quantity(self.measure)[1] is Quantity.EXECUTED

    @property
    def is_in_one_commit(self) -> bool:
        """Whether the runs around it are of the same sources, so that these cannot be the cause."""
        before, after = self.before_run, self.reached or self.run
        is_clean = not before.dirty and not after.dirty
        return is_clean and before.commit is not None and before.commit == after.commit

    @cached_property
    def judgement(self) -> Judgement:
        return judge_change(
            is_worse=self.is_worse,
            is_accepted=self.accepted is not None,
            is_undone=self.undone is not None,
            is_small=self.is_small,
            is_confirmed=self.point.confirmed,
            runs_of_wall_alone=self.runs_alone,
            with_environment=self.with_environment or self.is_in_one_commit,
        )


@dataclass(frozen=True, kw_only=True)
class Shift:
    """Changes at one place in one direction: one cause, reported once."""

    changes: tuple[LevelChange, ...]
    """The change of the most specific stage first."""

    @cached_property
    def headline(self) -> LevelChange:
        """The first open regression; else the first rise; else the most specific change."""
        return min(self.changes, key=lambda it: (not it.judgement.is_open, not it.is_rise))

    @property
    def others(self) -> tuple[LevelChange, ...]:
        return tuple(change for change in self.changes if change is not self.headline)

    @property
    def judgement(self) -> Judgement:
        return self.headline.judgement


@dataclass(frozen=True, kw_only=True)
class Series:
    """The values of one measure within one environment, analyzed."""

    measure: str
    runs: int
    finding: SeriesFinding
    drifts_since: RunMeasures | None
    """The first run of a drift, if there is one."""
    outliers_since: RunMeasures | None
    """The first run since which outliers are more frequent, if there is one."""

    @property
    def level(self) -> float:
        """The current level; a series always has values."""
        return self.finding.level or 0.0

    @property
    def first(self) -> float:
        """The first level of the series."""
        return self.finding.changes[0].before if self.finding.changes else self.level


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The runs with one environment key, oldest first."""

    key: EnvironmentKey
    runs: tuple[RunMeasures, ...]
    series: tuple[Series, ...] = ()
    """Empty for an environment that is no longer in use."""
    shifts: tuple[Shift, ...] = ()
    """Newest first."""


@dataclass(frozen=True, kw_only=True)
class KeyChange:
    """The first run of an environment, with the differences from an earlier environment.

    Also the first run of a rise between two runs of one commit, although the key is the same.
    """

    run: RunMeasures
    changes: tuple[str, ...]
    rises: tuple[LevelChange, ...] = ()
    """Measures with a worse level since, while the environment is in use; the main one first."""

    @property
    def is_open(self) -> bool:
        """Whether a rise is confirmed and not accepted."""
        return any(rise.judgement.is_open for rise in self.rises)


@dataclass(frozen=True, kw_only=True)
class History:
    """A platform's runs by environment; that of the newest run comes first.

    Environments with all operators come before those of selected ones.
    """

    environments: tuple[Environment, ...]
    past: tuple[Environment, ...]
    key_changes: tuple[KeyChange, ...]
    """Newest first."""

    @property
    def shifts(self) -> list[tuple[Environment, Shift]]:
        """Every shift with its environment."""
        return [(it, shift) for it in self.environments for shift in it.shifts]

    def move_to_environment(self, shift: Shift, *changes: str) -> History:
        """Make a shift one of the environment, of which these ``changes`` are known."""
        environments = (
            replace(it, shifts=tuple(own for own in it.shifts if own is not shift))
            for it in self.environments
        )
        rises = (replace(it, with_environment=True) for it in (shift.headline, *shift.others))
        change = KeyChange(run=shift.headline.run, changes=changes, rises=tuple(rises))
        later = [it for it in self.key_changes if it.run.started_at > change.run.started_at]
        now = (*later, change, *self.key_changes[len(later) :])
        return replace(self, environments=tuple(environments), key_changes=now)

    def of(self, judgement: Judgement) -> list[Shift]:
        """The shifts of this judgment in all environments."""
        return [shift for _, shift in self.shifts if shift.judgement is judgement]

    @property
    def environment_rises(self) -> tuple[KeyChange, ...]:
        """The changes of the environment that came with a rise, newest first."""
        return tuple(change for change in self.key_changes if change.rises)


def accepted_levels(
    environment: Environment, shift: Shift
) -> Iterator[tuple[str, RunMeasures, float]]:
    """Yield the measures, runs and levels to accept with a shift.

    Stages that contain the changed stage rise with it, although the rise may be too small to be
    detected yet. They are accepted at their current level.
    """
    found = {change.measure: change for change in shift.changes if change.is_rise}
    for name, change in found.items():
        yield name, change.run, change.point.after
    first = min(found.values(), key=lambda change: change.place)
    for name in sorted(set().union(*map(containing_measures, found)) - set(found)):
        begin = environment.runs.index(first.reached) if first.reached else first.place
        since = [row.values[name] for row in environment.runs[begin:] if name in row.values]
        if since:
            yield name, first.run, median(since)


def is_exact(name: str) -> bool:
    return not stage_and_quantity(name)[1].is_noisy


def is_small(measure: str, relative: float) -> bool:
    """Whether a rise is no regression, since most commits raise the measure a little."""
    return stage_and_quantity(measure)[1].grows and abs(relative) < EXACT_ALARM


def spread(values: Sequence[float]) -> float:
    """The standard deviation of values, as their median deviation shows it: outliers do not."""
    middle = median(values)
    return NORMAL_MAD * median(abs(value - middle) for value in values)


def uncertainty(change: LevelChange) -> tuple[bool, float]:
    """How uncertain the place of a change is; an uncertain size means an uncertain place."""
    point = change.point
    is_vague = change.is_small or not point.before
    return is_vague or not point.confirmed, (point.high - point.low) / abs(point.relative)


def sort_by_specificity(changes: Sequence[LevelChange]) -> list[LevelChange]:
    """Sort changes: times first, a stage before the stages that contain it, then the largest."""
    found = {change.measure: change for change in changes}
    containing = set().union(*map(containing_measures, found))

    def is_minor(change: LevelChange) -> bool:
        """Whether this change explains less than half of the change of a containing stage."""
        quantity = stage_and_quantity(change.measure)[1]
        for name in containing_measures(change.measure) & found.keys():
            whole = change.before_run.values.get(measure_key(stage_and_quantity(name)[0], quantity))
            limit = abs(found[name].point.relative) / 2
            if found[name].place == change.place and whole and change.size / whole < limit:
                return True
        return False

    def order(change: LevelChange) -> tuple[bool, bool, bool, bool, int, float]:
        stage, quantity = stage_and_quantity(change.measure)
        contains, is_other = change.measure in containing, not quantity.is_time
        # Benchmarks have different units.
        size = abs(change.point.relative) if is_benchmark(change.measure) else change.size
        return stage == TOTAL, is_other, is_minor(change), contains, quantity.place, -size

    return sorted(changes, key=order)
