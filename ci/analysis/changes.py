"""Find change points in series: changes of level, separated from noise. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TypeVar

import numpy as np

from ci.analysis import levels
from ci.analysis.climbs import Climb, fit_climb
from ci.analysis.conditions import Conditions, is_of_speed, without_effects
from ci.analysis.levels import Differences, Level, Step, Values

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The limits for reporting a change.

    The defaults are chosen on data: see docs/change-point-measurements.md.
    """

    minimum: float = 0.03
    """The smallest relative change of a noisy measure that is reported."""
    exact_minimum: float = 0.01
    """The same for a measure without noise, where every change is real."""
    confirm: int = 5
    """The number of values that a new level needs before its change is confirmed."""
    window: int = 50
    """The largest number of values on either side of a change that levels are judged by."""
    alarm: float = 5e-5
    """The p-value, in one analysis of one series, below which a change is confirmed."""
    suspicion: float = 0.005
    """The same for changes that have too few values to be confirmed."""
    family: float = 5e-4
    """The p-value for all series of one analysis together: more than 10 lower that of each."""
    search: float = 1.2
    """The power of their number by which they lower it. Each series is searched for a change at any
    place and after each run: the chance of any false alarm falls more slowly than the p-value."""
    welch: float = 2.2
    """The smallest normal deviate of Welch's test, for levels whose noise differs."""
    rank: float = 2.8
    """The smallest normal deviate of the rank test, which outliers and variance cannot move."""
    detrended_t: float = 3.0
    """The smallest Student's t of a step besides a linear trend: a drift is not a staircase."""
    conditional_t: float = 3.0
    """The same besides the hour, the weekday and the machine's speed: a weekend is no change."""
    conditional_most: float = 0.5
    """The largest relative change that they may explain."""


POLICY = Policy()


@dataclass(frozen=True, kw_only=True)
class ChangePoint:
    """A lasting change of level, as far as the values show."""

    index: int
    """The index of the first value after the change, where that is most likely."""
    earliest: int
    """The index before which the change certainly was not: at most ``index``."""
    latest: int
    """The index of the first value that is certainly after the change."""
    until: int
    """The index of the first value of the new level: ``index``, unless the change is gradual."""
    before: float
    after: float
    """The medians of the two levels."""
    low: float
    high: float
    """A 95 % interval of ``after / before - 1``; infinite if ``before`` is 0."""
    probability: float
    """The probability that the level has changed, corrected for the number of series."""
    confirmed: bool
    """Whether enough later values support it; otherwise it may be a spike."""

    @property
    def relative(self) -> float:
        return self.after / self.before - 1 if self.before else float("inf")

    @property
    def is_gradual(self) -> bool:
        """Whether the level changed bit by bit, so that no single place is the cause."""
        return self.until > self.index


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A level that grows or shrinks gradually from its first value on, without a level before."""

    index: int
    """The index of the first value of the drift."""
    relative: float
    """The relative change from the first value to the last, along a straight line."""
    low: float
    high: float
    """A 95 % interval of ``relative``."""


@dataclass(frozen=True, kw_only=True)
class SeriesFinding:
    """The changes, level and drift of one series."""

    changes: tuple[ChangePoint, ...]
    level: float | None
    """The median since the last confirmed change, or where a gradual one is now; ``None`` without
    values."""
    detectable: float | None
    """The smallest detectable relative change; ``None`` with too few values."""
    drift: Drift | None = None
    """The drift since the last confirmed change."""
    outliers: levels.Outliers | None = None
    """Where outliers became more frequent since then, although the level is the same."""


def analyze(
    series: Mapping[Name, Sequence[float]],
    exact: Collection[Name] = (),
    given: Mapping[Name, Conditions] | None = None,
    families: int = 1,
) -> dict[Name, SeriesFinding]:
    """Analyze all series, each with its oldest value first.

    Limits are corrected for the number of noisy series. ``exact`` names series without noise:
    numbers of files, lines or bytes. ``given`` has the conditions of the values, where known.
    With several ``families``, of which each is analyzed by itself, each has an equal share of the
    probability of a false alarm.
    """
    for name, values in series.items():
        if not all(map(math.isfinite, values)):
            place = next(at for at, it in enumerate(values) if not math.isfinite(it))
            message = f"series {name!r}: value {place} is {values[place]}; expected a number"
            raise ValueError(message)
    noisy = families * sum(name not in exact for name in series)
    return {
        name: _exact_finding(values)
        if name in exact
        else _analysis(values, noisy, (given or {}).get(name)).finding()
        for name, values in series.items()
    }


def correction(series: int) -> float:
    """The factor by which that many series make the limit of each test stricter."""
    share = POLICY.family / (max(series, 1) * POLICY.alarm)
    return min(1.0, math.pow(share, POLICY.search))


def _analysis(values: Sequence[float], series: int, given: Conditions | None) -> _SeriesAnalysis:
    array = np.asarray(values, dtype=float)
    if given is None or not len(array):
        return _SeriesAnalysis(array, series)
    return _SeriesAnalysis(without_effects(array, given), series, given)


def judge_step(before: Sequence[float], after: Sequence[float], series: int) -> ChangePoint | None:
    """Judge a change of level at a known place; ``None`` if there is none to report.

    ``series`` is the number of noisy series that are judged together.
    """
    values = np.asarray([*before, *after], dtype=float)
    analysis, index = _SeriesAnalysis(values, series), len(before)
    if index < POLICY.confirm or not len(after):
        return None
    step = analysis.step(0, index, len(values))
    confirmed = analysis.passes_tests(step)
    if confirmed or analysis.is_suspected(step):
        return analysis.change_point(0, index, len(values), confirmed=confirmed)
    return None


_CONFIDENCE = 0.95  # of the intervals in reports
_POWER = levels.NORMAL.inv_cdf(0.95)  # of 20 changes of the detectable size, 19 are found
_NEAR = 8
"""The largest distance in values at which the place of a change is looked for."""
_CLIMBING = 100
"""The values before and after the steps of a climb that show where it begins and ends."""
_TAILS = 5
"""The degrees of freedom of the noise when a place is looked for: an outlier decides none."""
# A margin, because a step has to pass the other tests as well; measured on normal noise.
_ALL_TESTS = 1.1
_OUTLIER = 0.2
"""The relative distance from its level from which a value counts as an outlier."""
_LEAST_DRIFT = 10
"""The smallest number of values that a line is a drift in, or that outliers are frequent in."""


@dataclass(frozen=True)
class _SeriesAnalysis:
    """The analysis of one series; ``series`` is the number of noisy series."""

    values: Values
    series: int
    given: Conditions | None = None

    @cached_property
    def limit(self) -> float:
        """The p-value below which something is certain."""
        return POLICY.alarm * correction(self.series)

    def probability(self, p_value: float) -> float:
        """1 minus a bound of the p-value over all series."""
        return 1 - min(1.0, p_value * max(self.series, 1))

    @cached_property
    def differences(self) -> Differences:
        return Differences(self.values)

    def finding(self) -> SeriesFinding:
        if not len(self.values):
            return SeriesFinding(changes=(), level=None, detectable=None)
        changes, start = self.with_climbs(self.find_confirmed())
        latest = Level(self.values[start:])
        if changes and changes[-1].is_gradual and changes[-1].index == start:
            climb = changes[-1]
            share = np.arange(1, len(latest) + 1) / (climb.until - climb.index + 1)
            missing = (climb.after - climb.before) * (1 - np.minimum(share, 1))
            latest = Level(latest.values + missing)  # as if all had the level that it has reached
            return SeriesFinding(
                changes=tuple(changes), level=latest.median, detectable=self.detectable(latest)
            )
        drift = self.find_drift(latest, start)
        return SeriesFinding(
            changes=(*changes, *self.find_suspected(start)),
            level=latest.median,
            detectable=self.detectable(latest),
            drift=drift,
            outliers=None if drift else self.find_outliers(start),
        )

    def with_climbs(self, starts: Sequence[int]) -> tuple[list[ChangePoint], int]:
        """The changes to the levels that begin at ``starts``, and where the last level begins.

        Steps in one direction that a straight line explains better are one gradual change. What
        climbs from the first value on is no change.
        """
        bounds = [0, *starts, len(self.values)]
        medians = [Level(self.values[begin:end]).median for begin, end in pairwise(bounds)]
        is_fall = [after < before for before, after in pairwise(medians)]
        changes: list[ChangePoint] = []
        level, begin, least = 0, 0, 0
        while level < len(bounds) - 1:
            climb, steps = self.find_climb(bounds[level:], is_fall[level:], least)
            if climb is not None:
                begin = bounds[level]
                if begin or climb.earliest >= POLICY.confirm:
                    changes.append(climb)
                    begin = climb.index
                level, least = level + steps, 1
            elif level < len(starts):
                changes.append(self.change_point(*bounds[level : level + 3], confirmed=True))
                level, least, begin = level + 1, 0, bounds[level + 1]
            else:
                break
        return changes, begin

    def find_climb(
        self, bounds: Sequence[int], is_fall: Sequence[bool], least: int
    ) -> tuple[ChangePoint | None, int]:
        """The climb over the first levels of ``bounds``, of as many as possible, and their steps.

        ``is_fall`` has the direction of each step, and ``least`` the number of steps to replace.
        """
        alike = next((at for at, it in enumerate(is_fall) if it is not is_fall[0]), len(is_fall))
        for steps in range(alike, least - 1, -1):
            starts = bounds[1 : steps + 1]
            begin = max(bounds[0], starts[0] - _CLIMBING) if starts else bounds[0]
            end = min(bounds[steps + 1], starts[-1] + _CLIMBING) if starts else bounds[1]
            level = Level(self.values[begin:end])
            if not starts and self.find_drift(level, begin) is None:
                continue
            related = self.differences.correlation(begin)
            climb = fit_climb(level.values, [it - begin for it in starts], related)
            if climb is None or not self.is_certain(climb):
                continue
            middle = begin + (climb.index + climb.until) // 2
            if not is_of_speed(self.step(begin, middle, end)):
                return self.gradual_change(climb, begin), steps
        return None, 0

    def is_certain(self, climb: Climb) -> bool:
        return (
            climb.before > 0
            and abs(climb.after / climb.before - 1) >= POLICY.minimum
            and levels.two_sided_p_value(climb.deviate) <= self.limit
        )

    def gradual_change(self, climb: Climb, begin: int) -> ChangePoint:
        """A climb among the values from ``begin`` on."""
        relative = climb.after / climb.before - 1
        half = levels.NORMAL.inv_cdf((1 + _CONFIDENCE) / 2) * climb.error / climb.before
        return ChangePoint(
            index=begin + climb.index,
            earliest=begin + climb.earliest,
            latest=begin + climb.latest,
            until=begin + climb.until,
            before=climb.before,
            after=climb.after,
            low=relative - half,
            high=relative + half,
            probability=self.probability(levels.two_sided_p_value(climb.deviate)),
            confirmed=True,
        )

    def find_confirmed(self) -> list[int]:
        """Find where levels begin: drop the weakest candidate until all remaining ones hold."""
        starts = levels.find_level_starts(self.values)
        steps: dict[int, Step] = {}
        passed: dict[int, bool] = {}  # the tests take nearly all the time of an analysis
        while True:
            bounds = [0, *starts, len(self.values)]
            for place, index in enumerate(starts):
                if index not in steps:
                    steps[index] = self.step(*bounds[place : place + 3])
                    passed[index] = self.passes_tests(steps[index])
            weak = [index for index in starts if not passed[index]]
            if not weak:
                return [*starts, *self.find_latest([0, *starts][-1])]
            short = [index for index in weak if not self._is_long_enough(steps[index])]
            place = starts.index(min(short or weak, key=lambda it: abs(steps[it].deviate)))
            for neighbour in starts[max(place - 1, 0) : place + 2]:
                del steps[neighbour]
            del starts[place]

    def find_latest(self, start: int) -> Iterator[int]:
        """Test the last place that can be confirmed: candidates may come one place too late."""
        end = len(self.values)
        index = end - POLICY.confirm
        if index < start + POLICY.confirm:
            return
        step = self.step(start, index, end)
        if self.passes_tests(step) and index >= self.places(step, start, index, end)[0]:
            yield index

    def places(self, step: Step, start: int, index: int, end: int) -> tuple[int, int, int]:
        """The earliest, the most likely and the latest place of a step near ``index``."""
        first, last = max(start + 1, index - _NEAR), min(end - 1, index + _NEAR)
        places = np.arange(first, last + 1)
        values = self.values[first - 1 : last + 1]
        is_after = np.arange(first - 1, last + 1) >= places[:, None]
        rest = values - np.where(is_after, step.after.median, step.before.median)
        rest /= step.noise or 1.0
        surprises = (rest[:, 1:] - step.related * rest[:, :-1]) ** 2 / (1 - step.related**2)
        costs = (_TAILS + 1) * np.log1p(surprises / _TAILS).sum(axis=1)
        likely = first + np.flatnonzero(costs <= costs.min() + levels.UNCERTAIN)
        return int(likely[0]), first + int(costs.argmin()), int(likely[-1])

    def _is_long_enough(self, step: Step) -> bool:
        return min(len(step.before), len(step.after)) >= POLICY.confirm

    def passes_tests(self, step: Step) -> bool:
        return (
            self._is_long_enough(step)
            and abs(step.effect) >= POLICY.minimum
            and step.p_value <= self.limit
            and abs(step.welch_deviate()) >= POLICY.welch
            and abs(step.rank_deviate()) >= POLICY.rank
            and abs(step.detrended_t()) >= POLICY.detrended_t
            and (
                abs(step.effect) > POLICY.conditional_most
                or abs(step.conditional_t()) >= POLICY.conditional_t
            )
            and not is_of_speed(step)
        )

    def is_suspected(self, step: Step) -> bool:
        limit = POLICY.suspicion * correction(self.series)
        return abs(step.effect) >= POLICY.minimum and step.p_value <= limit

    def step(self, start: int, index: int, end: int) -> Step:
        start, end = max(start, index - POLICY.window), min(end, index + POLICY.window)
        return Step(
            Level(self.values[start:index]),
            Level(self.values[index:end]),
            related=self.differences.correlation(index),
            conditions=partial(self.given.columns, slice(start, end)) if self.given else None,
            speeds=self.given.speeds(slice(start, end)) if self.given else None,
        )

    def find_suspected(self, start: int) -> Iterator[ChangePoint]:
        """Find the most likely change among the last values, which are too few to confirm it."""
        end = len(self.values)
        first = max(start + POLICY.confirm, end - POLICY.confirm + 1)
        steps = ((self.step(start, at, end), at) for at in range(first, end))
        if suspects := [(step, at) for step, at in steps if self.is_suspected(step)]:
            _, index = max(suspects, key=lambda pair: abs(pair[0].deviate))
            yield self.change_point(start, index, end, confirmed=False)

    def change_point(self, start: int, index: int, end: int, *, confirmed: bool) -> ChangePoint:
        step = self.step(start, index, end)
        low, high = step.interval(_CONFIDENCE)
        earliest, index, latest = self.places(step, start, index, end)
        return ChangePoint(
            index=index,
            earliest=earliest,
            latest=latest,
            until=index,
            before=step.before.median,
            after=step.after.median,
            low=low,
            high=high,
            probability=self.probability(step.p_value),
            confirmed=confirmed,
        )

    def detectable(self, latest: Level) -> float | None:
        """The relative change that is confirmed as early as possible with a power of 95 %."""
        level = Level(latest.values[-POLICY.window :])
        if len(level) < POLICY.confirm or not level.median:
            return None
        noise = max(math.sqrt(level.squares / (len(level) - 1)), levels.least_noise(level.median))
        related = self.differences.correlation(len(self.values))
        error = noise * levels.step_error(len(level), POLICY.confirm, related)
        deviate = -levels.NORMAL.inv_cdf(self.limit / 2)
        limit = levels.normal_to_student(deviate, len(level) + POLICY.confirm - 2) * error
        seen = max(limit, POLICY.minimum * abs(level.median)) + _POWER * error
        return _ALL_TESTS * seen / abs(level.median)

    def find_outliers(self, start: int) -> levels.Outliers | None:
        found = levels.fit_outliers(self.values[start:], _OUTLIER, _LEAST_DRIFT)
        if found is None or levels.two_sided_p_value(found.deviate) > self.limit:
            return None
        return replace(found, index=start + found.index)

    def find_drift(self, level: Level, start: int) -> Drift | None:
        if len(level) < _LEAST_DRIFT or not level.median:
            return None
        place: Values = np.arange(len(level), dtype=float)
        place -= place.mean()
        own = float(place @ place)
        slope = float(place @ level.clipped) / own
        rest = level.clipped - level.mean - slope * place
        degrees = len(level) - 2
        noise = max(math.sqrt(float(rest @ rest) / degrees), levels.least_noise(level.median))
        error = noise / math.sqrt(own)
        deviate = levels.student_to_normal(slope / error, degrees) if error else 0.0
        if levels.two_sided_p_value(deviate) > self.limit:
            return None
        first = level.mean + slope * float(place[0])
        length = float(place[-1] - place[0])
        change = slope * length / first if first else math.inf
        low, high = map(levels.median_of, np.split(level.values, [len(level) // 2]))
        # Of a line, the halves differ by half of its height; outliers at its end move no median.
        if abs(change) < POLICY.minimum or abs(high - low) < abs(slope * length) / 4:
            return None
        quantile = levels.normal_to_student(levels.NORMAL.inv_cdf((1 + _CONFIDENCE) / 2), degrees)
        half = abs(quantile * error * length / first) if first else math.inf
        return Drift(index=start, relative=change, low=change - half, high=change + half)


def _exact_finding(values: Sequence[float]) -> SeriesFinding:
    """Take every value that differs from its level as a change and as the next level."""
    changes: list[ChangePoint] = []
    level = values[0] if values else 0.0
    for index, value in enumerate(values):
        size = levels.relative_change(level, value)
        if abs(size) >= POLICY.exact_minimum:
            change = ChangePoint(
                index=index,
                earliest=index,
                latest=index,
                until=index,
                before=level,
                after=value,
                low=size,
                high=size,
                probability=1.0,
                confirmed=True,
            )
            changes.append(change)
            level = value
    least = 1 / abs(level) if abs(level) > 1 else 0.0  # of counts; a share has no unit
    detectable = max(POLICY.exact_minimum, least) if level else None
    known = level if values else None
    return SeriesFinding(changes=tuple(changes), level=known, detectable=detectable)
