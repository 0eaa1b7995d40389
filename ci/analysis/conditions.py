"""The conditions of runs, and what they explain: calendar, speed of the machine, compiler cache.

A machine that other people use is slower at noon than at night, one that cools badly has a slow
mode, and a warm build takes as long as what has to be compiled. None is a change of the code. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from statistics import median

import numpy as np

from ci.analysis.levels import (
    NORMAL,
    NORMAL_MAD,
    UNCERTAIN,
    Step,
    Values,
    estimate_noise,
    least_noise,
    median_of,
    squares_around,
)

_DAY = 86_400.0
_WEEK = 7 * _DAY
# 1970-01-01 was a Thursday: the seconds from Monday 00:00 UTC to it.
_FROM_MONDAY = 3 * _DAY
_LEAST_RUNS = 28
"""The smallest number of values that effects are estimated from."""
_NEWEST = 10
"""The newest values have no part in the estimate: a change among them is not to explain itself."""
_REPEATED = 2
"""The cycles that an effect of the calendar has to be seen in."""
_CHANCE = 1e-3
"""The p-value below which a condition counts as the cause of differences."""
_FAR = 2.0
"""In units of the noise: a residual further away has less weight."""
_ROUNDS = 4
_MOST_ELASTIC = 1.5
"""The largest relative change of a time for one of the reference job."""
_ALIKE = 1e-9
"""Below this share of the largest singular value, columns have no effects of their own: of two runs
a week, the hour and the weekday are one."""


@dataclass(frozen=True)
class Condition:
    """Columns that are judged together, with a row per run."""

    columns: Values
    cycle_s: float
    """The seconds in which the calendar repeats it; 0 for what the run recorded."""
    is_smooth: bool = False
    """Whether it needs a whole cycle to differ from a trend; a weekend begins like a change."""
    is_speed: bool = False
    """Whether a time grows as fast as it, at most ``_MOST_ELASTIC`` times as fast."""


@dataclass(frozen=True)
class Conditions:
    """The conditions of the runs of a series, which are in order of time."""

    all: tuple[Condition, ...]
    seconds: Values
    """The time of each run."""

    def take(self, places: Sequence[int] | slice) -> Conditions:
        """The conditions of some of the runs."""
        at = places if isinstance(places, slice) else np.asarray(places, dtype=int)
        kept = tuple(replace(it, columns=it.columns[at]) for it in self.all)
        return Conditions(kept, self.seconds[at])

    @property
    def span_s(self) -> float:
        return float(self.seconds[-1] - self.seconds[0])

    def columns(self, some: slice) -> Values:
        """All columns that differ from a trend in some of the runs: (runs, columns)."""
        seconds = self.seconds[some]
        span_s = seconds[-1] - seconds[0]
        seen = (it.columns[some] for it in self.all if not it.is_smooth or span_s >= it.cycle_s)
        return np.concatenate([*seen], axis=1)

    def speeds(self, some: slice) -> Values | None:
        """The logarithms of the seconds of the reference job in some runs, if these recorded it."""
        return next((it.columns[some, 0] for it in self.all if it.is_speed), None)

    @cached_property
    def designs(self) -> Mapping[int, Values]:
        """The columns of old runs by the place of their condition, if these can show its effect.

        Many series of one environment share them.
        """
        old = self.take(slice(0, len(self.seconds) - _NEWEST))
        repeated = (at for at, it in enumerate(old.all) if old.span_s >= _REPEATED * it.cycle_s)
        designs = {at: _within_weeks(old.all[at].columns, old.seconds) for at in repeated}
        return {at: own for at, own in designs.items() if np.any(own.std(axis=0) > 1e-6)}


def conditions(
    moments: Sequence[datetime],
    speeds: Sequence[float | None] = (),
    misses: Sequence[float | None] = (),
) -> Conditions:
    """The hour and the weekday of each run, in UTC, and what it recorded.

    ``speeds`` has the seconds of the reference job in each run, and ``misses`` the translation
    units that the compiler cache did not have.
    """
    seconds = np.array([moment.timestamp() for moment in moments], dtype=float)
    in_week = (seconds + _FROM_MONDAY) % _WEEK
    found = [
        Condition(_waves(seconds, _DAY), _DAY, is_smooth=True),
        Condition(_waves(in_week, _WEEK), _WEEK, is_smooth=True),
        Condition((in_week >= 5 * _DAY).astype(float).reshape(-1, 1), _WEEK),
    ]
    for recorded, least in ((speeds, 0), (misses, 1)):  # the logarithm of no unit
        logs = [None if it is None or it + least <= 0 else math.log(it + least) for it in recorded]
        if known := [it for it in logs if it is not None]:
            usual = median(known)  # of runs that did not record it
            columns = [[usual if it is None else it] for it in logs]
            found.append(Condition(np.array(columns), 0.0, is_speed=recorded is speeds))
    return Conditions(tuple(found), seconds)


def _waves(seconds: Values, cycle_s: float) -> Values:
    angle = 2 * math.pi * seconds / cycle_s
    return np.column_stack((np.sin(angle), np.cos(angle)))


def without_effects(values: Values, given: Conditions) -> Values:
    """The values as they would be under the average condition.

    The effects are proportional. They are estimated within weeks, so that a lasting change of level
    is not taken for one, and only the conditions that differ beyond chance are removed.
    """
    count = len(values)
    if count < _LEAST_RUNS or values.min() <= 0:
        return values
    designs = {**given.designs}
    old = slice(0, count - _NEWEST)
    target = _within_weeks(np.log(values[old]).reshape(-1, 1), given.seconds[old])[:, 0]
    while designs:
        effects, covariance = _robust_fit(np.concatenate([*designs.values()], axis=1), target)
        ends = np.cumsum([own.shape[1] for own in designs.values()])
        parts = {
            at: slice(end - designs[at].shape[1], end)
            for at, end in zip(designs, ends, strict=True)
        }
        strengths = {
            at: _strength(effects[part], covariance[part, part]) for at, part in parts.items()
        }
        weakest = min(strengths, key=strengths.__getitem__)
        if strengths[weakest] < -NORMAL.inv_cdf(_CHANCE):
            del designs[weakest]
            continue
        removed = np.zeros(count)
        for at, part in parts.items():
            columns = given.all[at].columns
            removed += (columns - columns.mean(axis=0)) @ effects[part]
        return values * np.exp(-removed)
    return values


def is_of_speed(step: Step) -> bool:
    """Whether the machine's speed explains a step about as well as a change of the code does.

    A machine that was replaced by a slower one is no change of the code. Regression on the speed
    takes its noise into account, without which a step always explains more.
    """
    values = np.concatenate((step.before.clipped, step.after.clipped))
    if step.speeds is None or values.min() <= 0:
        return False
    times, speeds = np.log(values), step.speeds - step.speeds.mean()
    times -= times.mean()
    own = float(speeds @ speeds) - len(speeds) * estimate_noise(speeds) ** 2
    together = float(speeds @ times)
    if own <= 0 or together <= 0:
        return False
    slope = min(together / own, _MOST_ELASTIC)
    of_speed = float(times @ times) - 2 * slope * together + slope**2 * own
    of_step = squares_around(times, [len(step.before)])
    least = len(values) * least_noise(1.0) ** 2
    return len(values) * math.log(max(of_speed, least) / max(of_step, least)) < 2 * UNCERTAIN


def _within_weeks(columns: Values, seconds: Values) -> Values:
    """Subtract from each row the mean of the week around it."""
    first = np.searchsorted(seconds, seconds - _WEEK / 2)
    last = np.searchsorted(seconds, seconds + _WEEK / 2)
    sums = np.concatenate((np.zeros((1, columns.shape[1])), np.cumsum(columns, axis=0)))
    means = (sums[last] - sums[first]) / (last - first)[:, None]
    centred: Values = columns - means
    return centred


def _robust_fit(design: Values, target: Values) -> tuple[Values, Values]:
    """Effects and their covariance, by least squares in which outliers weigh less."""
    weights = np.ones(len(target))
    rest = target
    noise = least_noise(1.0)
    for _ in range(_ROUNDS):
        weighted = design * weights[:, None]
        effects, *_ = np.linalg.lstsq(weighted.T @ design, weighted.T @ target, rcond=_ALIKE)
        rest = target - design @ effects
        noise = max(NORMAL_MAD * median_of(np.abs(rest)), least_noise(1.0))
        weights = np.minimum(1.0, _FAR / np.maximum(np.abs(rest) / noise, 1e-9))
    related = float(rest[1:] @ rest[:-1]) / max(float(rest @ rest), 1e-300)
    inflation = (1 + max(related, 0.0)) / (1 - min(max(related, 0.0), 0.9))
    squares = (design * weights[:, None]).T @ design
    covariance = noise**2 * inflation * np.linalg.pinv(squares, rcond=_ALIKE)
    return effects, covariance


def _strength(effects: Values, covariance: Values) -> float:
    """The normal deviate of Wald's chi-square, with which no effect differs from 0.

    Wilson and Hilferty 1931.
    """
    chi = max(float(effects @ np.linalg.pinv(covariance, rcond=_ALIKE) @ effects), 0.0)
    part = 2 / (9 * len(effects))
    return float((chi / len(effects)) ** (1 / 3) - (1 - part)) / math.sqrt(part)
