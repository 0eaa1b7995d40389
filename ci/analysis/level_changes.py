"""The changes in the history of a platform, the runs around them, and regressions. Pure.

Times are compared only within one environment key. A change of the key itself is only listed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, median

from ci.analysis.changes import ChangePoint, SeriesFinding
from ci.analysis.levels import NORMAL_MAD
from ci.analysis.stage_order import containing_measures, stages_around
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
AT_ONCE = 3.0
"""The relative rise of wall time that waits for no CPU seconds: no busy machine is so slow."""
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
        return headline(self.measure, self.point.before, self.point.after)

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
        before, after = self.before_run, self.run
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
        since = [row.values[name] for row in environment.runs[first.place :] if name in row.values]
        if since:
            yield name, first.run, median(since)


def is_exact(name: str) -> bool:
    return not stage_and_quantity(name)[1].is_noisy


def is_small(measure: str, relative: float) -> bool:
    """Whether a rise is no regression, since most commits raise the measure a little."""
    return stage_and_quantity(measure)[1].grows and abs(relative) < EXACT_ALARM


class SeriesJudge:
    """Judges the series of one environment by its runs, oldest first."""

    def __init__(
        self,
        runs: Sequence[RunMeasures],
        findings: Mapping[str, SeriesFinding],
        accepted: Sequence[Acceptance],
    ) -> None:
        self._runs, self._findings = runs, findings
        # Find an accepted change by its run, or by its commit if the run is no longer stored.
        places = {run.run_id: place for place, run in enumerate(runs)}
        commits = {run.commit: place for place, run in reversed([*enumerate(runs)]) if run.commit}
        known = [(places.get(it.run or "", commits.get(it.commit or "")), it) for it in accepted]
        self._accepted = [(place, it) for place, it in known if place is not None]
        self._places = {
            name: [place for place, run in enumerate(runs) if name in run.values]
            for name in findings
        }
        self._changes = {name: self._changes_of(name) for name in findings}

    def series(self, name: str) -> Series:
        finding, places = self._findings[name], self._places[name]
        since = self._runs[places[finding.drift.index]] if finding.drift else None
        return Series(measure=name, runs=len(places), finding=finding, drifts_since=since)

    def shifts(self, names: Iterable[str]) -> list[Shift]:
        """Merge changes near each other and in the same direction; newest first.

        Those of cost and those of executed tests are apart: one acceptance does not cover both.
        """
        found = (change for name in names for change in self._changes[name])

        def kind(change: LevelChange) -> tuple[bool, bool]:
            return change.is_of_executed_share, change.is_worse

        groups: list[list[LevelChange]] = []
        for change in sorted(found, key=lambda it: (kind(it), it.place), reverse=True):
            newest = groups[-1][0] if groups else None
            is_alike = newest and kind(newest) == kind(change)
            if not newest or not is_alike or newest.place - change.place > TOGETHER:
                groups.append([])
            alone = self._runs_alone(change)
            groups[-1].append(replace(change, accepted=self._acceptance(change), runs_alone=alone))
        shifts = []
        for group in groups:
            # Noise shifts the place of a change: all take the place of the most certain one.
            best = min(group, key=uncertainty)
            moved = [self._move(change, best) for change in group]
            shifts.append(Shift(changes=tuple(sort_by_specificity(moved))))
        return sorted(shifts, key=lambda shift: -max(change.place for change in shift.changes))

    def _changes_of(self, name: str) -> list[LevelChange]:
        """The changes of a measure; a loss also has the run that undid it within the noise."""
        finding, places = self._findings[name], self._places[name]
        found: list[LevelChange] = []
        # A stack with the next change last; each is better than all between it and the change.
        later: list[LevelChange] = []
        for point in reversed(finding.changes):
            is_loss = is_worse(name, point.before, point.after)
            # Little is detectable at a level of few runs. Yet what undoes a rise is nearer to the
            # level before it than to the level after it.
            margin = min(finding.detectable or 0.0, abs(point.relative) / 2)
            limit = point.before * (1 + (margin if point.after > point.before else -margin))
            good = (it.run for it in reversed(later) if not is_worse(name, limit, it.point.after))
            change = LevelChange(
                measure=name,
                before_run=self._runs[places[point.earliest - 1]],
                run=self._runs[places[point.latest]],
                place=places[point.index],
                point=point,
                runs_since=len(places) - point.index,
                undone=next(good, None) if is_loss else None,
            )
            change = self._between_commits(change, point.index)
            found.append(change)
            if point.confirmed:
                while later and not is_worse(name, later[-1].point.after, point.after):
                    later.pop()
                later.append(change)
        return found[::-1]

    def _between_commits(self, change: LevelChange, index: int) -> LevelChange:
        """Move a change between two runs of one commit to that commit, or to the next one.

        It stays where it is if the runs between are certainly not of the other level: then the
        sources are not the cause. ``index`` is that of the change among the values.
        """
        if not change.is_in_one_commit:
            return change
        runs = [self._runs[place] for place in self._places[change.measure]]
        values = [run.values[change.measure] for run in runs]
        is_other = [run.commit != change.run.commit or run.dirty for run in runs]
        begin = max((at + 1 for at in range(index) if is_other[at]), default=0)
        end = next((at for at in range(index, len(runs)) if is_other[at]), len(runs))
        noise = max(map(spread, (values[max(index - LATEST, 0) : index], values[index:][:LATEST])))
        point = change.point
        for place, some, level in (
            (begin, values[begin:index], point.after),
            (end, values[index:end], point.before),
        ):
            doubt = IN_DOUBT * noise / len(some) ** 0.5
            is_near = 0 < place < len(runs) and len(some) <= TOGETHER
            if is_near and abs(fmean(some) - level) <= doubt:
                return self._replace(change, self._places[change.measure], place)
        return change

    def _acceptance(self, change: LevelChange) -> Acceptance | None:
        """The acceptance that covers a rise: near it, and of a level at least as high."""
        margin = max(self._findings[change.measure].detectable or 0.0, TOLERANCE)
        covering = (
            it
            for place, it in self._accepted
            if it.measure == change.measure
            and abs(place - change.place) <= MOVES
            and it.covers(change.point.after, margin)
        )
        return next(covering, None) if change.is_worse else None

    def _runs_alone(self, change: LevelChange) -> int | None:
        """Runs in which wall time was higher without CPU seconds, if these would have shown it.

        They end with a later rise of CPU seconds that wall time does not show for a second time:
        both are one rise, of which noise of wall time shifted the place.
        """
        stage, quantity = stage_and_quantity(change.measure)
        is_slower = quantity is Quantity.WALL and change.is_worse
        if not is_slower or change.point.relative >= AT_ONCE:
            return None
        # The CPU seconds of the stage, or of the stage that it is part of.
        found = (
            it for it in stages_around(stage) if measure_key(it, Quantity.CPU) in self._findings
        )
        whole = next(found, None)
        if whole is None:
            return None  # nothing to compare with
        name = measure_key(whole, Quantity.CPU)
        detectable, level = self._findings[name].detectable, self._findings[name].level or 0.0
        # CPU seconds always vary: a constant series was not measured.
        varies = len({self._runs[at].values[name] for at in self._places[name]}) > 1
        if not varies or detectable is None:
            return None
        # The rise of a part may be too small to be detected in the whole stage. Relative sizes are
        # compared, since a parallel build takes many CPU seconds in one second of wall time.
        before = change.before_run.values.get(measure_key(whole, Quantity.WALL), level)
        shows = change.size >= detectable * before
        rises = [it.place for it in self._changes[name] if it.is_worse]
        is_shown = any(abs(place - change.place) <= MOVES for place in rises)
        if is_shown or not (shows or self._rose_with(whole, change)):
            return None
        own = [it.place for it in self._changes[change.measure] if it.is_worse]
        later = (
            place
            for place in rises
            if place > change.place and all(abs(place - it) > MOVES for it in own)
        )
        end = next(later, len(self._runs))
        return sum(change.place <= place < end for place in self._places[change.measure])

    def _rose_with(self, whole: str, part: LevelChange) -> bool:
        """Whether the wall time of the stage with the part rose with it, at least half as much."""
        name = measure_key(whole, Quantity.WALL)
        return name != part.measure and any(
            it.is_worse
            and abs(it.place - part.place) <= MOVES
            and it.point.relative >= part.point.relative / 2
            for it in self._changes.get(name, ())
        )

    def _move(self, change: LevelChange, best: LevelChange) -> LevelChange:
        """Move ``change`` to the place of ``best`` if the values of the runs between them agree."""
        name, is_late = change.measure, best.place < change.place
        places = self._places[name]
        begin, end = (bisect_left(places, at) for at in sorted((best.place, change.place)))
        between, latest = places[begin:end], places[max(begin - LATEST, 0) : begin]
        start = begin if is_late else end
        if not between or not latest or start == len(places):
            return change
        sign = 1 if change.point.after > change.point.before else -1
        limit = max(sign * self._runs[at].values[name] for at in latest)
        if any((sign * self._runs[at].values[name] > limit) is not is_late for at in between):
            return change
        moved = self._replace(change, places, start)
        return replace(moved, before_run=best.before_run, run=best.run)

    def _replace(self, change: LevelChange, places: Sequence[int], index: int) -> LevelChange:
        """A change of the measure with values at ``places``, but begun with another of them."""
        return replace(
            change,
            before_run=self._runs[places[index - 1]],
            run=self._runs[places[index]],
            place=places[index],
            runs_since=len(places) - index,
        )


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
