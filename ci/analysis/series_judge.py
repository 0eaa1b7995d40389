"""The judge of the series of one environment: its level changes, and which have one cause. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from ci.analysis.changes import SeriesFinding
from ci.analysis.level_changes import (
    IN_DOUBT,
    LATEST,
    MOVES,
    TOGETHER,
    TOLERANCE,
    LevelChange,
    Series,
    Shift,
    sort_by_specificity,
    spread,
    uncertainty,
)
from ci.analysis.stage_order import stages_around
from ci.facts.acceptance import Acceptance
from ci.facts.measures import Quantity, is_worse, measure_key, stage_and_quantity
from ci.store.rows import RunMeasures

AT_ONCE = 3.0
"""The relative rise of wall time that waits for no CPU seconds: no busy machine is so slow."""


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
        self._order = places = {run.run_id: place for place, run in enumerate(runs)}
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
        drifts, outliers = (
            self._runs[places[it.index]] if it else None for it in (finding.drift, finding.outliers)
        )
        return Series(
            measure=name,
            runs=len(places),
            finding=finding,
            drifts_since=drifts,
            outliers_since=outliers,
        )

    def shifts(self, names: Iterable[str]) -> list[Shift]:
        """Merge changes near each other and in the same direction; newest first.

        Those of cost and those of executed tests are apart: one acceptance does not cover both.
        """
        found = (change for name in names for change in self._changes[name])

        def kind(change: LevelChange) -> tuple[bool, bool, bool]:
            return change.is_of_executed_share, change.is_worse, change.is_gradual

        groups: list[list[LevelChange]] = []
        for change in sorted(found, key=lambda it: (kind(it), it.place), reverse=True):
            alike = (it for it in groups if kind(it[0]) == kind(change))
            group = next((it for it in alike if self._distance(it[0], change) <= TOGETHER), [])
            if not group:
                groups.append(group)
            group.append(replace(change, runs_alone=self._runs_alone(change)))
        shifts = []
        for group in groups:
            # Noise shifts the place of a change: all take the place of the most certain one.
            best = min(group, key=uncertainty)
            moved = (self._move(change, best) for change in group)
            known = [replace(it, accepted=self._acceptance(it)) for it in moved]
            shifts.append(Shift(changes=tuple(sort_by_specificity(known))))
        return sorted(shifts, key=lambda shift: -max(change.place for change in shift.changes))

    def _distance(self, one: LevelChange, other: LevelChange) -> int:
        """The runs from one change to another; 0 for a step within a gradual change."""
        first, second = sorted((one, other), key=lambda it: it.place)
        if one.is_gradual and other.is_gradual:
            return max(self._order[second.before_run.run_id] - self._order[first.run.run_id], 0)
        is_within = first.reached and second.place <= self._order[first.reached.run_id]
        return 0 if is_within else second.place - first.place

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
                reached=self._runs[places[point.until]] if point.is_gradual else None,
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
        if not change.is_in_one_commit or change.is_gradual:
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
        end = self._order[change.reached.run_id] if change.reached else change.place
        covering = (
            it
            for place, it in self._accepted
            if it.measure == change.measure
            and change.place - MOVES <= place <= end + MOVES
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
        rises = [it for it in self._changes[name] if it.is_worse]
        # Steps of CPU seconds are no climb: noise of wall time joined them.
        alike = (it for it in rises if it.is_gradual or not change.is_gradual)
        is_shown = any(self._distance(it, change) <= MOVES for it in alike)
        if is_shown or not (shows or self._rose_with(whole, change)):
            return None
        own = [it.place for it in self._changes[change.measure] if it.is_worse]
        later = (
            it.place
            for it in rises
            if it.place > change.place and all(abs(it.place - place) > MOVES for place in own)
        )
        end = next(later, len(self._runs))
        begin = self._order[change.reached.run_id] if change.reached else change.place
        return sum(begin <= place < end for place in self._places[change.measure])

    def _rose_with(self, whole: str, part: LevelChange) -> bool:
        """Whether the wall time of the stage with the part rose with it, at least half as much."""
        name = measure_key(whole, Quantity.WALL)
        return name != part.measure and any(
            it.is_worse
            and self._distance(it, part) <= MOVES
            and it.point.relative >= part.point.relative / 2
            for it in self._changes.get(name, ())
        )

    def _move(self, change: LevelChange, best: LevelChange) -> LevelChange:
        """Move ``change`` to the place of ``best`` if the values of the runs between them agree.

        All changes of one climb have its place.
        """
        if best.reached:
            return replace(
                change,
                before_run=best.before_run,
                run=best.run,
                place=best.place,
                runs_since=best.runs_since,
                reached=best.reached,
            )
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
