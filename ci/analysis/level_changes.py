"""The history of a platform: changes, the runs around them, and regressions. Pure.

Times are compared only within one environment key. A change of the key itself is only listed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ci.analysis.changes import ChangePoint, SeriesFinding, analyze, judge_step
from ci.analysis.conditions import Conditions, conditions
from ci.analysis.parts import group_by
from ci.facts.acceptance import Acceptance
from ci.facts.environment_key import ALL_OPERATORS, EnvironmentKey
from ci.facts.measures import (
    IMAGE,
    REFERENCE,
    TOTAL,
    Quantity,
    headline,
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
TOLERANCE = 0.05
"""Relative tolerance above an accepted level, since that was estimated from few runs."""

INSTALL = "install"
_PARTS_OF_INSTALL = ("generate", "configure", "compile", "link")
# In order of execution; other stages follow, then the total.
_ORDER = (IMAGE, "sync", *_PARTS_OF_INSTALL, INSTALL)
_PLACES = {**{stage: place for place, stage in enumerate(_ORDER)}, TOTAL: len(_ORDER) + 1}


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
    """The first run of a later level that is as low as the level before the change."""
    wall_alone: bool = False
    """Whether wall time rose without CPU seconds, although these would have shown the rise."""
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
        """Whether the value rose: a higher value of any measure is worse."""
        return self.point.after > self.point.before

    @property
    def is_rise(self) -> bool:
        """Whether the level rose, and the rise is neither accepted nor undone."""
        return self.is_worse and self.accepted is None and self.undone is None

    @property
    def is_small(self) -> bool:
        """Whether the change is certain, but too small for a regression."""
        return _is_exact(self.measure) and abs(self.point.relative) < EXACT_ALARM

    @property
    def judgement(self) -> Judgement:
        return judge_change(
            is_worse=self.is_worse,
            is_accepted=self.accepted is not None,
            is_undone=self.undone is not None,
            is_small=self.is_small,
            is_confirmed=self.point.confirmed,
            runs_of_wall_alone=self.runs_since if self.wall_alone else None,
            with_environment=self.with_environment,
        )


@dataclass(frozen=True, kw_only=True)
class Shift:
    """Changes at one place in one direction: one cause, reported once."""

    changes: tuple[LevelChange, ...]
    """The change of the most specific stage first."""

    @property
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
    """The first run of an environment, with the differences from an earlier environment."""

    run: RunMeasures
    changes: tuple[str, ...]
    rises: tuple[LevelChange, ...] = ()
    """Measures with a higher level since, while the environment is in use; the main one first."""

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

    def of(self, judgement: Judgement) -> list[Shift]:
        """The shifts of this judgment in all environments."""
        return [shift for _, shift in self.shifts if shift.judgement is judgement]

    @property
    def environment_rises(self) -> tuple[KeyChange, ...]:
        """The changes of the environment that came with a rise, newest first."""
        return tuple(change for change in self.key_changes if change.rises)


def history(
    rows: Sequence[RunMeasures],
    keys: Mapping[str, EnvironmentKey],
    accepted: Sequence[Acceptance] = (),
    *,
    stage: str | None = None,
) -> History:
    """Judge the runs of one platform, oldest first; ``accepted`` has its accepted changes.

    With ``stage``, report only the measures of that stage. Runs without any measure are left out:
    often they did not record their environment either.
    """
    rows = [row for row in rows if row.values]
    by_key = group_by(rows[::-1], lambda row: row.key)  # the key of the newest run comes first
    grouped = {key: tuple(runs[::-1]) for key, runs in by_key.items()}
    # Many runs of selected operators do not hide those of the whole suite.
    whole = [row for row in rows if keys[row.key].selection == ALL_OPERATORS]
    recent = {row.key for row in (*rows[-IN_USE:], *whole[-IN_USE:])}
    grouped = dict(sorted(grouped.items(), key=lambda it: keys[it[0]].selection != ALL_OPERATORS))
    environments = []
    for key, found in _findings({key: grouped[key] for key in grouped if key in recent}).items():
        judge = _Judge(grouped[key], found, accepted)
        shown = [name for name in found if stage in (None, stage_and_quantity(name)[0])]
        series, shifts = tuple(map(judge.series, shown)), tuple(judge.shifts(shown))
        environment = Environment(key=keys[key], runs=grouped[key], series=series, shifts=shifts)
        environments.append(environment)
    past = [Environment(key=keys[it], runs=grouped[it]) for it in grouped if it not in recent]
    changes = []
    for change, before in _key_changes(rows, keys):
        if change.run.key in recent and keys[change.run.key].is_comparable(keys[before]):
            order = {row.run_id: place for place, row in enumerate(rows)}
            first = order[change.run.run_id]
            earlier = [row for row in grouped[before] if order[row.run_id] < first]
            rises = [*_environment_rises(earlier, grouped[change.run.key], accepted, stage)]
            change = replace(change, rises=tuple(_sort_by_specificity(rises)))
        changes.append(change)
    return History(
        environments=tuple(environments), past=tuple(past), key_changes=tuple(changes)[::-1]
    )


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
    for name in sorted(set().union(*map(_containing_measures, found)) - set(found)):
        since = [row.values[name] for row in environment.runs[first.place :] if name in row.values]
        if since:
            yield name, first.run, median(since)


def _findings(grouped: Mapping[str, Sequence[RunMeasures]]) -> dict[str, dict[str, SeriesFinding]]:
    """Findings by key and measure. One analysis covers all, since each can raise a false alarm."""
    series: dict[tuple[str, str], list[float]] = defaultdict(list)
    given: dict[tuple[str, str], Conditions] = {}
    for key, rows in grouped.items():
        places: dict[str, list[int]] = defaultdict(list)
        for place, row in enumerate(rows):
            for name, value in row.values.items():
                if name != REFERENCE:
                    series[key, name].append(value)
                    places[name].append(place)
        speeds = [row.values.get(REFERENCE) for row in rows]
        all_runs = conditions([row.started_at for row in rows], speeds)
        given |= {(key, name): all_runs.take(some) for name, some in places.items()}
    found = analyze(series, {pair for pair in series if _is_exact(pair[1])}, given)
    ordered = sorted(series, key=lambda pair: _place_of(pair[1]))
    return {key: {name: found[it, name] for it, name in ordered if it == key} for key in grouped}


def _is_exact(name: str) -> bool:
    return not stage_and_quantity(name)[1].is_noisy


def _place_of(name: str) -> tuple[int, str, int]:
    """The sort key of a measure: stages in order of execution, the total last."""
    stage, quantity = stage_and_quantity(name)
    return _PLACES.get(stage, len(_ORDER)), stage, list(Quantity).index(quantity)


class _Judge:
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
        """Merge changes near each other and in the same direction; newest first."""
        found = (change for name in names for change in self._changes[name])
        groups: list[list[LevelChange]] = []
        for change in sorted(found, key=lambda it: (it.is_worse, it.place), reverse=True):
            newest = groups[-1][0] if groups else None
            is_alike = newest and newest.is_worse is change.is_worse
            if not newest or not is_alike or newest.place - change.place > TOGETHER:
                groups.append([])
            alone = self._is_wall_alone(change)
            groups[-1].append(replace(change, accepted=self._acceptance(change), wall_alone=alone))
        shifts = []
        for group in groups:
            # Noise shifts the place of a change: all take the place of the most certain one.
            best = min(group, key=uncertainty)
            moved = [self._move(change, best) for change in group]
            shifts.append(Shift(changes=tuple(_sort_by_specificity(moved))))
        return sorted(shifts, key=lambda shift: -max(change.place for change in shift.changes))

    def _changes_of(self, name: str) -> list[LevelChange]:
        """The changes of a measure; a rise also has the run that undid it within the noise."""
        finding, places = self._findings[name], self._places[name]
        found: list[LevelChange] = []
        # A stack with the next change last; each is lower than all between it and the change.
        later: list[LevelChange] = []
        for point in reversed(finding.changes):
            limit = point.before * (1 + (finding.detectable or 0.0))
            low = (it.run for it in reversed(later) if it.point.after <= limit)
            change = LevelChange(
                measure=name,
                before_run=self._runs[places[point.earliest - 1]],
                run=self._runs[places[point.latest]],
                place=places[point.index],
                point=point,
                runs_since=len(places) - point.index,
                undone=next(low, None) if point.after > point.before else None,
            )
            found.append(change)
            if point.confirmed:
                while later and later[-1].point.after >= point.after:
                    later.pop()
                later.append(change)
        return found[::-1]

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

    def _is_wall_alone(self, change: LevelChange) -> bool:
        """Whether wall time rose without CPU seconds, although these would have shown the rise."""
        stage, quantity = stage_and_quantity(change.measure)
        if quantity is not Quantity.WALL or not change.is_worse:
            return False
        # The CPU seconds of the stage, or of the stage that it is part of.
        stages = (stage, INSTALL) if stage in _PARTS_OF_INSTALL else (stage,)
        found = (it for it in stages if measure_key(it, Quantity.CPU) in self._findings)
        whole = next(found, None)
        if whole is None:
            return False  # nothing to compare with
        name = measure_key(whole, Quantity.CPU)
        detectable, level = self._findings[name].detectable, self._findings[name].level or 0.0
        # CPU seconds always vary: a constant series was not measured.
        varies = len({self._runs[at].values[name] for at in self._places[name]}) > 1
        if not varies or detectable is None:
            return False
        # The rise of a part may be too small to be detected in the whole stage. Relative sizes are
        # compared, since a parallel build takes many CPU seconds in one second of wall time.
        before = change.before_run.values.get(measure_key(whole, Quantity.WALL), level)
        shows = change.size >= detectable * before
        near = (it for it in self._changes[name] if abs(it.place - change.place) <= MOVES)
        return shows and not any(it.is_worse for it in near)

    def _move(self, change: LevelChange, best: LevelChange) -> LevelChange:
        """Move ``change`` to the place of ``best`` if the values of the runs between them agree."""
        name, is_late = change.measure, best.place < change.place
        places = self._places[name]
        begin, end = (bisect_left(places, at) for at in sorted((best.place, change.place)))
        between, latest = places[begin:end], places[max(begin - LATEST, 0) : begin]
        start = begin if is_late else end
        if not between or not latest or start == len(places):
            return change
        sign = 1 if change.is_worse else -1
        limit = max(sign * self._runs[at].values[name] for at in latest)
        if any((sign * self._runs[at].values[name] > limit) is not is_late for at in between):
            return change
        return replace(
            change,
            before_run=best.before_run,
            run=best.run,
            place=places[start],
            runs_since=change.runs_since + (len(between) if is_late else -len(between)),
        )


def uncertainty(change: LevelChange) -> tuple[bool, float]:
    """How uncertain the place of a change is; an uncertain size means an uncertain place."""
    point = change.point
    is_vague = change.is_small or not point.before
    return is_vague or not point.confirmed, (point.high - point.low) / abs(point.relative)


def _sort_by_specificity(changes: Sequence[LevelChange]) -> list[LevelChange]:
    """Sort changes: times first, a stage before the stages that contain it, then the largest."""
    found = {change.measure: change for change in changes}
    containing = set().union(*map(_containing_measures, found))

    def is_minor(change: LevelChange) -> bool:
        """Whether this change explains less than half of the change of a containing stage."""
        quantity = stage_and_quantity(change.measure)[1]
        for name in _containing_measures(change.measure) & found.keys():
            whole = change.before_run.values.get(measure_key(stage_and_quantity(name)[0], quantity))
            limit = abs(found[name].point.relative) / 2
            if found[name].place == change.place and whole and change.size / whole < limit:
                return True
        return False

    def order(change: LevelChange) -> tuple[bool, bool, bool, bool, int, float]:
        stage, quantity = stage_and_quantity(change.measure)
        contains, is_other = change.measure in containing, not quantity.is_time
        place = list(Quantity).index(quantity)
        return stage == TOTAL, is_other, is_minor(change), contains, place, -change.size

    return sorted(changes, key=order)


def _containing_measures(name: str) -> set[str]:
    """The time measures that include the time of a stage."""
    stage, quantity = stage_and_quantity(name)
    if not quantity.is_time or stage in (TOTAL, IMAGE):
        return set()
    stages = (INSTALL, TOTAL) if stage in _PARTS_OF_INSTALL else (TOTAL,)
    own = {measure_key(stage, Quantity.CPU)} - {name}
    return {measure_key(it, time) for it in stages for time in (Quantity.WALL, Quantity.CPU)} | own


def _key_changes(
    rows: Sequence[RunMeasures], keys: Mapping[str, EnvironmentKey]
) -> Iterator[tuple[KeyChange, str]]:
    """Compare each key, when it first appears, with the most similar earlier one.

    Yield the change with the digest of the earlier key.
    """
    known: dict[str, EnvironmentKey] = {}  # least recently used first
    for row in rows:
        now = keys[row.key]
        if known.pop(row.key, None) is None:
            # A simulated device is not a change of a real one, nor a selection one of the suite.
            alike = {
                it: key
                for it, key in known.items()
                if (key.platform, key.selection) == (now.platform, now.selection)
            }
            if alike:
                before = min(reversed(alike), key=lambda it: len(now.changes(alike[it])))
                changes = tuple(map(str, now.changes(alike[before])))
                yield KeyChange(run=row, changes=changes), before
        known[row.key] = now


def _environment_rises(
    earlier: Sequence[RunMeasures],
    since: Sequence[RunMeasures],
    accepted: Sequence[Acceptance],
    stage: str | None,
) -> Iterator[LevelChange]:
    """Yield the measures that rose from the last runs of one environment to the first of another.

    Counts and sizes are left out: a new version of a library brings its own.
    """
    names = [name for name in since[0].values if not _is_exact(name) and name != REFERENCE]
    taken = {it.measure: it for it in accepted if _begins_with(it, since[0])}
    for name in names:
        before = [row.values[name] for row in earlier if name in row.values][-LATEST:]
        after = [row.values[name] for row in since if name in row.values]
        point = judge_step(before, after[:LATEST], len(names))
        if point is None or point.after < point.before:
            continue
        known = taken.get(name)
        if stage in (None, stage_and_quantity(name)[0]):
            yield LevelChange(
                measure=name,
                before_run=earlier[-1],
                run=since[0],
                place=0,
                point=point,
                runs_since=len(after),
                accepted=known if known and known.covers(point.after, TOLERANCE) else None,
                with_environment=True,
            )


def _begins_with(accepted: Acceptance, run: RunMeasures) -> bool:
    return run.run_id == accepted.run or (run.commit is not None and run.commit == accepted.commit)
