"""The history of a platform: what changed, between which runs, and what is a regression. Pure.

Times are compared only within one environment key. A change of the key itself is only listed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ci.analysis.changes import POLICY, ChangePoint, SeriesFinding, analyse
from ci.analysis.parts import grouped_by
from ci.facts.environment_key import EnvironmentKey
from ci.facts.measures import IMAGE, TOTAL, Quantity, measure_key, stage_and_quantity
from ci.store.rows import Acceptance, RunMeasures

IN_USE = 20
"""Latest runs of a platform: an environment that none of them had is a thing of the past."""
WALL_ALONE = 20
"""Runs that a rise of wall time alone has to last: what keeps a machine busy goes away, code does
not; and what waits, for a device or a lock, burns no CPU seconds when it gets slower."""
TOGETHER = 3
"""Runs between the changes of one cause: noise moves the place where one is found."""
LATEST = 10
"""Runs before a change that what followed is compared with, to find where it began."""
MOVES = 8
"""Runs that a change which was accepted may have moved by since."""
TOLERANCE = 0.05
"""How far above the accepted level a level may be: that was measured by few runs, this by many."""

INSTALL = "install"
_PARTS_OF_INSTALL = ("generate", "configure", "compile", "link")
_ORDER = (IMAGE, "sync", *_PARTS_OF_INSTALL, INSTALL)  # as they run; then the others, and the total
_PLACES = {**{stage: place for place, stage in enumerate(_ORDER)}, TOTAL: len(_ORDER) + 1}


@dataclass(frozen=True, kw_only=True)
class LevelChange:
    """A level of one measure that changed."""

    measure: str
    before_run: RunMeasures
    """The last run before the change."""
    run: RunMeasures
    """The first run after it."""
    place: int
    """Of ``run``, among the runs of the environment."""
    point: ChangePoint
    runs_since: int
    """Values that the new level was seen in, or what came after it."""
    accepted: Acceptance | None = None
    undone: RunMeasures | None = None
    """The first run of a later level that is as low as the one before."""
    wall_alone: bool = False
    """Wall time rose, and CPU seconds, which would have shown as much, did not."""

    @property
    def size(self) -> float:
        return abs(self.point.after - self.point.before)

    @property
    def is_worse(self) -> bool:
        """A higher value of any measure is."""
        return self.point.after > self.point.before

    @property
    def is_rise(self) -> bool:
        """Whether it made things worse, still does, and no one accepted it."""
        return self.is_worse and self.accepted is None and self.undone is None

    @property
    def is_small(self) -> bool:
        """Whether it is certain, and too little to alarm."""
        return _is_exact(self.measure) and abs(self.point.relative) < POLICY.exact_alarm

    @property
    def is_open(self) -> bool:
        """Whether it alarms."""
        waits = self.wall_alone and self.runs_since < WALL_ALONE
        return self.is_rise and self.point.confirmed and not waits and not self.is_small


@dataclass(frozen=True, kw_only=True)
class Shift:
    """What got worse, or better, at one place: one cause, reported once."""

    changes: tuple[LevelChange, ...]
    """The most specific stage first."""

    @property
    def headline(self) -> LevelChange:
        """What alarms; else what made things worse and still does; else the most specific."""
        return min(self.changes, key=lambda change: (not change.is_open, not change.is_rise))

    @property
    def others(self) -> tuple[LevelChange, ...]:
        return tuple(change for change in self.changes if change is not self.headline)

    @property
    def is_open(self) -> bool:
        return any(change.is_open for change in self.changes)


@dataclass(frozen=True, kw_only=True)
class Series:
    """One measure within one environment."""

    measure: str
    runs: int
    finding: SeriesFinding
    drifts_since: RunMeasures | None
    """The first run of a drift, where there is one."""

    @property
    def level(self) -> float:
        """What it is now; a series has values."""
        return self.finding.level or 0.0

    @property
    def first(self) -> float:
        """The level that it began with."""
        return self.finding.changes[0].before if self.finding.changes else self.level


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The runs that had one environment key, the oldest first."""

    key: EnvironmentKey
    runs: tuple[RunMeasures, ...]
    series: tuple[Series, ...] = ()
    """None for an environment of the past."""
    shifts: tuple[Shift, ...] = ()
    """The newest first."""

    @property
    def open(self) -> tuple[Shift, ...]:
        return tuple(shift for shift in self.shifts if shift.is_open)


@dataclass(frozen=True, kw_only=True)
class KeyChange:
    """The first run of an environment, and what is new in it."""

    run: RunMeasures
    changes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class History:
    """A platform's runs by environment, that of the newest run first."""

    environments: tuple[Environment, ...]
    past: tuple[Environment, ...]
    key_changes: tuple[KeyChange, ...]
    """The newest first."""

    @property
    def open(self) -> tuple[Shift, ...]:
        """The regressions that alarm."""
        return tuple(shift for environment in self.environments for shift in environment.open)


def history(
    rows: Sequence[RunMeasures],
    keys: Mapping[str, EnvironmentKey],
    accepted: Sequence[Acceptance] = (),
    *,
    stage: str | None = None,
) -> History:
    """The history of one platform: of ``rows``, the oldest first, and what was ``accepted`` there.

    With ``stage``, only its own measures are reported. A run without any measure often did not
    record its environment either, and is left out.
    """
    rows = [row for row in rows if row.values]
    by_key = grouped_by(rows[::-1], lambda row: row.key)  # that of the newest run first
    grouped = {key: tuple(runs[::-1]) for key, runs in by_key.items()}
    recent = {row.key for row in rows[-IN_USE:]}
    environments = []
    for key, found in _findings({key: grouped[key] for key in grouped if key in recent}).items():
        judge = _Judge(grouped[key], found, accepted)
        shown = [name for name in found if stage in (None, stage_and_quantity(name)[0])]
        series, shifts = tuple(map(judge.series, shown)), tuple(judge.shifts(shown))
        environment = Environment(key=keys[key], runs=grouped[key], series=series, shifts=shifts)
        environments.append(environment)
    past = [Environment(key=keys[it], runs=grouped[it]) for it in grouped if it not in recent]
    return History(
        environments=tuple(environments),
        past=tuple(past),
        key_changes=tuple(_key_changes(rows, keys))[::-1],
    )


def accepted_levels(
    environment: Environment, shift: Shift
) -> Iterator[tuple[str, RunMeasures, float]]:
    """The measures, runs and levels that are accepted with a shift.

    The stages that contain it rise with it, be it too little to be seen yet, and are accepted as
    they are now.
    """
    found = {change.measure: change for change in shift.changes if change.is_rise}
    for name, change in found.items():
        yield name, change.run, change.point.after
    first = min(found.values(), key=lambda change: change.place)
    for name in sorted(set().union(*map(_containing, found)) - set(found)):
        since = [row.values[name] for row in environment.runs[first.place :] if name in row.values]
        if since:
            yield name, first.run, median(since)


def _findings(grouped: Mapping[str, Sequence[RunMeasures]]) -> dict[str, dict[str, SeriesFinding]]:
    """By key and measure; all are analysed at once, since all of them can raise an alarm."""
    series: dict[tuple[str, str], list[float]] = defaultdict(list)
    for key, rows in grouped.items():
        for row in rows:
            for name, value in row.values.items():
                series[key, name].append(value)
    found = analyse(series, exact={pair for pair in series if _is_exact(pair[1])})
    ordered = sorted(series, key=lambda pair: _place_of(pair[1]))
    return {key: {name: found[it, name] for it, name in ordered if it == key} for key in grouped}


def _is_exact(name: str) -> bool:
    return not stage_and_quantity(name)[1].is_noisy


def _place_of(name: str) -> tuple[int, str, int]:
    """The place of a measure in a list: stages as they run, the total last."""
    stage, quantity = stage_and_quantity(name)
    return _PLACES.get(stage, len(_ORDER)), stage, list(Quantity).index(quantity)


class _Judge:
    """Judges the series of one environment by its runs, the oldest first."""

    def __init__(
        self,
        runs: Sequence[RunMeasures],
        findings: Mapping[str, SeriesFinding],
        accepted: Sequence[Acceptance],
    ) -> None:
        self._runs, self._findings = runs, findings
        # By its run, or by its commit where that run is not kept any more.
        places = {run.run_id: place for place, run in enumerate(runs)}
        commits = {run.commit: place for place, run in reversed([*enumerate(runs)]) if run.commit}
        known = [(places.get(it.run_id, commits.get(it.commit or "")), it) for it in accepted]
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
        """Changes near each other, and in the same direction, as one; the newest first."""
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
            # Noise moves the place where a change is found: that of the steadiest is taken for all.
            place = min(group, key=_doubt).place
            moved = [self._moved(change, place) for change in group]
            shifts.append(Shift(changes=tuple(_specific_first(moved))))
        return sorted(shifts, key=lambda shift: -max(change.place for change in shift.changes))

    def _changes_of(self, name: str) -> list[LevelChange]:
        """The changes of a measure; of a rise also the run that took it back, but for what no one
        sees."""
        finding, places = self._findings[name], self._places[name]
        found: list[LevelChange] = []
        # The next one last; each lower than all between it and the change.
        later: list[LevelChange] = []
        for point in reversed(finding.changes):
            limit = point.before * (1 + (finding.detectable or 0.0))
            low = (it.run for it in reversed(later) if it.point.after <= limit)
            change = LevelChange(
                measure=name,
                before_run=self._runs[places[point.index - 1]],
                run=self._runs[places[point.index]],
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
        """The acceptance that covers a rise: near it, and of a level as high."""
        margin = 1 + max(self._findings[change.measure].detectable or 0.0, TOLERANCE)
        covering = (
            it
            for place, it in self._accepted
            if it.measure == change.measure
            and abs(place - change.place) <= MOVES
            and change.point.after <= it.level * margin
        )
        return next(covering, None) if change.is_worse else None

    def _is_wall_alone(self, change: LevelChange) -> bool:
        """Whether wall time rose, and CPU seconds, which would have shown as much, did not."""
        stage, quantity = stage_and_quantity(change.measure)
        if quantity is not Quantity.WALL or not change.is_worse:
            return False
        # The CPU seconds of the stage, or of the stage that it is part of.
        stages = (stage, INSTALL) if stage in _PARTS_OF_INSTALL else (stage,)
        names = (measure_key(it, Quantity.CPU) for it in stages)
        name = next((it for it in names if it in self._findings), None)
        if name is None:
            return False  # nothing to compare with
        finding = self._findings[name]
        # Nothing takes the same CPU seconds twice: such a series was not measured.
        varies = len({self._runs[at].values[name] for at in self._places[name]}) > 1
        if not varies or finding.detectable is None or finding.level is None:
            return False
        # The seconds of a part are few of the whole.
        shows = change.size >= finding.detectable * finding.level
        near = (it for it in self._changes[name] if abs(it.place - change.place) <= MOVES)
        return shows and not any(it.is_worse for it in near)

    def _moved(self, change: LevelChange, place: int) -> LevelChange:
        """``change`` at ``place``, if the runs between the two are on that side of it."""
        name, is_late = change.measure, place < change.place
        places = self._places[name]
        begin, end = (bisect_left(places, at) for at in sorted((place, change.place)))
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
            before_run=self._runs[latest[-1] if is_late else between[-1]],
            run=self._runs[places[start]],
            place=places[start],
            runs_since=change.runs_since + (len(between) if is_late else -len(between)),
        )


def _doubt(change: LevelChange) -> tuple[bool, float]:
    """How little a change says of where it was: its size is known as well as its place."""
    point = change.point
    is_vague = change.is_small or not point.before
    return is_vague or not point.confirmed, (point.high - point.low) / abs(point.relative)


def _specific_first(changes: Sequence[LevelChange]) -> list[LevelChange]:
    """Times first, of a stage before the stages that contain it, wall time first; the largest."""
    found = {change.measure: change for change in changes}
    containing = set().union(*map(_containing, found))

    def is_minor(change: LevelChange) -> bool:
        """Whether a stage that contains this one changed by more than twice what this explains."""
        quantity = stage_and_quantity(change.measure)[1]
        for name in _containing(change.measure) & found.keys():
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


def _containing(name: str) -> set[str]:
    """The times that the time of a stage is part of."""
    stage, quantity = stage_and_quantity(name)
    if not quantity.is_time or stage in (TOTAL, IMAGE):
        return set()
    stages = (INSTALL, TOTAL) if stage in _PARTS_OF_INSTALL else (TOTAL,)
    own = {measure_key(stage, Quantity.CPU)} - {name}
    return {measure_key(it, time) for it in stages for time in (Quantity.WALL, Quantity.CPU)} | own


def _key_changes(
    rows: Sequence[RunMeasures], keys: Mapping[str, EnvironmentKey]
) -> Iterator[KeyChange]:
    """Each key once, when it first appears, against the most similar one before it."""
    known: dict[str, EnvironmentKey] = {}  # the latest used last
    for row in rows:
        now = keys[row.key]
        if known.pop(row.key, None) is None:
            alike = [it for it in reversed(known.values()) if it.platform == now.platform]
            if alike:  # a simulated device is no change of a real one
                fewest = min((now.changes(it) for it in alike), key=len)
                yield KeyChange(run=row, changes=tuple(fewest))
        known[row.key] = now
