"""Change points of series: changes of level, separated from noise. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ci.analysis import levels
from ci.analysis.levels import Level, Step, Values

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """When a change is reported.

    The defaults are chosen on data: see docs/change-point-measurements.md.
    """

    minimum: float = 0.03
    """The smallest relative change of a noisy measure that is worth a word."""
    exact_minimum: float = 0.01
    """The same of a measure without noise, where every change is real."""
    exact_alarm: float = 0.05
    """The smallest relative rise of such a measure that alarms: most commits add some lines."""
    confirm: int = 5
    """How many values a new level needs before its change is confirmed."""
    window: int = 50
    """Levels are judged by at most so many values on either side of a change."""
    alarm: float = 5e-5
    """p-value of one look at one series below which a change is confirmed."""
    suspicion: float = 0.005
    """The same for young changes."""
    family: float = 0.01
    """The probability that one look at all series together has any false alarm."""
    welch: float = 2.2
    """Least normal deviate of Welch's test, for levels whose noise differs."""
    rank: float = 2.8
    """Least normal deviate of the rank test, which outliers and variance cannot move."""
    beyond_slope: float = 3.0
    """Least t of a step beside a straight line: a drift is not a staircase."""


POLICY = Policy()


@dataclass(frozen=True, kw_only=True)
class ChangePoint:
    """A level that changed for good, as far as can be seen."""

    index: int
    """Of the first value after the change."""
    before: float
    after: float
    """Medians of the two levels."""
    low: float
    high: float
    """A 95 % interval of ``after / before - 1``; infinite where ``before`` is 0."""
    probability: float
    """That the level has changed at all, corrected for all series that were looked at."""
    confirmed: bool
    """Enough later values support it; a young one may still be a spike."""

    @property
    def relative(self) -> float:
        return self.after / self.before - 1 if self.before else float("inf")


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A level that grows or shrinks little by little: no single change is the cause."""

    index: int
    """Of the first value that drifts."""
    relative: float
    """From the first value to the last, along a straight line."""
    low: float
    high: float
    """A 95 % interval of ``relative``."""


@dataclass(frozen=True, kw_only=True)
class SeriesFinding:
    """What was found in one series."""

    changes: tuple[ChangePoint, ...]
    level: float | None
    """The median since the last confirmed change; ``None``: no values."""
    detectable: float | None
    """The smallest relative change that would have been seen; ``None``: too few values."""
    drift: Drift | None = None
    """Of the level since the last confirmed change."""


def analyse(
    series: Mapping[Name, Sequence[float]], exact: Collection[Name] = ()
) -> dict[Name, SeriesFinding]:
    """What every series says, oldest value first; all are corrected together.

    ``exact`` names those without noise: numbers of files, lines, bytes.
    """
    for name, values in series.items():
        for place, value in enumerate(values):
            if not math.isfinite(value):
                raise ValueError(f"series {name!r}: value {place} is {value}; expected a number")
    noisy = sum(name not in exact for name in series)
    return {
        name: _exact_finding(values)
        if name in exact
        else _Look(np.asarray(values, dtype=float), noisy).finding()
        for name, values in series.items()
    }


_CONFIDENCE = 0.95  # of the intervals that reports show
_POWER = levels.NORMAL.inv_cdf(0.95)  # of 20 changes of the detectable size, 19 are found
# A step that came one run later reaches 0.90 of its own deviate here, two runs later 0.77.
_AS_LIKELY = 0.9
# A step has to pass the other tests as well: measured on normal noise.
_ALL_TESTS = 1.1
_LEAST_DRIFT = 10
"""Values below which a straight line is no drift."""


@dataclass(frozen=True)
class _Look:
    """One look at the values of a series, one of ``series`` noisy ones."""

    values: Values
    series: int

    @property
    def tightened(self) -> float:
        """How much stricter each test is, since there are so many series."""
        return min(1.0, POLICY.family / (max(self.series, 1) * POLICY.alarm))

    def finding(self) -> SeriesFinding:
        if not len(self.values):
            return SeriesFinding(changes=(), level=None, detectable=None)
        starts = self.confirmed()
        bounds = [0, *starts, len(self.values)]
        changes = [
            self.change(self.step(*bounds[place : place + 3]), index, confirmed=True)
            for place, index in enumerate(starts)
        ]
        start = bounds[-2]
        latest = Level(self.values[start:])
        return SeriesFinding(
            changes=(*changes, *self.young(start)),
            level=latest.median,
            detectable=self.detectable(latest),
            drift=self.drift(latest, start),
        )

    def confirmed(self) -> list[int]:
        """Where the levels begin: the weakest candidate goes until all that are left hold."""
        starts = levels.candidates(self.values)
        steps: dict[int, Step] = {}
        while True:
            bounds = [0, *starts, len(self.values)]
            for place, index in enumerate(starts):
                if index not in steps:
                    steps[index] = self.step(*bounds[place : place + 3])
            weak = [index for index in starts if not self.holds(steps[index])]
            if not weak:
                return [*starts, *self.latest([0, *starts][-1])]
            strength = {it: (self._whole(steps[it]), abs(steps[it].deviate)) for it in weak}
            place = starts.index(min(weak, key=strength.__getitem__))
            for neighbour in starts[max(place - 1, 0) : place + 2]:
                del steps[neighbour]
            del starts[place]

    def latest(self, start: int) -> Iterator[int]:
        """The youngest place there can be: the library may put it one too late to be confirmed."""
        end = len(self.values)
        index = end - POLICY.confirm
        if index < start + POLICY.confirm:
            return
        step = self.step(start, index, end)
        if self.holds(step):
            younger = (self.step(start, at, end) for at in range(index + 1, end))
            if abs(step.deviate) >= _AS_LIKELY * max(abs(other.deviate) for other in younger):
                yield index

    def _whole(self, step: Step) -> bool:
        return min(len(step.before), len(step.after)) >= POLICY.confirm

    def holds(self, step: Step) -> bool:
        return (
            self._whole(step)
            and abs(step.effect) >= POLICY.minimum
            and step.p_value <= POLICY.alarm * self.tightened
            and abs(step.welch_deviate()) >= POLICY.welch
            and abs(step.rank_deviate()) >= POLICY.rank
            and abs(step.beyond_slope()) >= POLICY.beyond_slope
        )

    def step(self, start: int, index: int, end: int) -> Step:
        before = self.values[max(start, index - POLICY.window) : index]
        return Step(Level(before), Level(self.values[index : min(end, index + POLICY.window)]))

    def young(self, start: int) -> Iterator[ChangePoint]:
        """The likeliest change among the last values, too few to be sure of it."""
        end = len(self.values)
        first = max(start + POLICY.confirm, end - POLICY.confirm + 1)
        steps = ((self.step(start, at, end), at) for at in range(first, end))
        limit = POLICY.suspicion * self.tightened
        suspects = [
            (step, at)
            for step, at in steps
            if abs(step.effect) >= POLICY.minimum and step.p_value <= limit
        ]
        if suspects:
            step, index = max(suspects, key=lambda pair: abs(pair[0].deviate))
            yield self.change(step, index, confirmed=False)

    def change(self, step: Step, index: int, *, confirmed: bool) -> ChangePoint:
        low, high = step.interval(_CONFIDENCE)
        return ChangePoint(
            index=index,
            before=step.before.median,
            after=step.after.median,
            low=low,
            high=high,
            probability=1 - min(1.0, step.p_value * max(self.series, 1)),
            confirmed=confirmed,
        )

    def detectable(self, latest: Level) -> float | None:
        """Of a change that is confirmed as soon as it can be, with a power of 95 %."""
        level = Level(latest.values[-POLICY.window :])
        if len(level) < POLICY.confirm or not level.median:
            return None
        noise = max(math.sqrt(level.squares / (len(level) - 1)), levels.least_noise(level.median))
        error = noise * math.sqrt(1 / len(level) + 1 / POLICY.confirm) * levels.inflation(level)
        deviate = -levels.NORMAL.inv_cdf(POLICY.alarm * self.tightened / 2)
        limit = levels.student_of_normal(deviate, len(level) + POLICY.confirm - 2) * error
        seen = max(limit, POLICY.minimum * abs(level.median)) + _POWER * error
        return _ALL_TESTS * seen / abs(level.median)

    def drift(self, level: Level, start: int) -> Drift | None:
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
        limit = POLICY.alarm * self.tightened
        if not error or levels.two_sided(levels.normal_of_student(slope / error, degrees)) > limit:
            return None
        first = level.mean + slope * float(place[0])
        length = float(place[-1] - place[0])
        change = slope * length / first if first else math.inf
        half = (
            levels.student_of_normal(-levels.NORMAL.inv_cdf((1 - _CONFIDENCE) / 2), degrees)
            * error
            * length
        )
        if abs(change) < POLICY.minimum:
            return None
        half = abs(half / first) if first else math.inf
        return Drift(index=start, relative=change, low=change - half, high=change + half)


def _exact_finding(values: Sequence[float]) -> SeriesFinding:
    """Every value that differs from its level is a change, and the next level."""
    changes: list[ChangePoint] = []
    level = values[0] if values else 0.0
    for index, value in enumerate(values):
        size = levels.relative(level, value)
        if abs(size) >= POLICY.exact_minimum:
            change = ChangePoint(
                index=index,
                before=level,
                after=value,
                low=size,
                high=size,
                probability=1.0,
                confirmed=True,
            )
            changes.append(change)
            level = value
    detectable = max(POLICY.exact_minimum, 1 / abs(level)) if level else None
    known = level if values else None
    return SeriesFinding(changes=tuple(changes), level=known, detectable=detectable)
