"""The conditions of runs: the hour, the weekday and the machine's speed, and what they explain.

A machine that other people use is slower at noon than at night, and one that cools badly has a slow
mode. Neither is a change of the code. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from ci.analysis.levels import NORMAL, Values, least_noise

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


@dataclass(frozen=True)
class Conditions:
    """One row per run, one column per condition; the columns of one group are judged together."""

    groups: tuple[Values, ...]
    cycles: tuple[float, ...]
    """The seconds in which the conditions of each group repeat."""
    seconds: Values
    """The time of each run; the oldest first."""

    @property
    def columns(self) -> Values:
        return np.concatenate(self.groups, axis=1)

    def take(self, places: Sequence[int]) -> Conditions:
        """The conditions of some of the runs."""
        at = np.asarray(places, dtype=int)
        groups = tuple(group[at] for group in self.groups)
        return Conditions(groups, self.cycles, self.seconds[at])


def conditions(moments: Sequence[datetime], speeds: Sequence[float | None] = ()) -> Conditions:
    """The hour and the weekday of each run, in UTC, and the machine's speed.

    ``speeds`` has the seconds of the reference job in each run, where it was recorded.
    """
    seconds = np.array([moment.timestamp() for moment in moments], dtype=float)
    day = 2 * math.pi * (seconds % _DAY) / _DAY
    in_week = (seconds + _FROM_MONDAY) % _WEEK
    week = 2 * math.pi * in_week / _WEEK
    weekend = (in_week >= 5 * _DAY).astype(float)
    groups: list[Values] = [
        np.column_stack((np.sin(day), np.cos(day))),
        np.column_stack((weekend, np.sin(week), np.cos(week))),
    ]
    if known := [speed for speed in speeds if speed]:
        usual = float(np.median(known))  # of runs that did not record it
        logs = [[math.log(speed or usual)] for speed in speeds]
        groups.append(np.array(logs))
    return Conditions(tuple(groups), (_DAY, _WEEK, 0.0)[: len(groups)], seconds)


def without_effects(values: Values, given: Conditions) -> Values:
    """The values as they would be under the average condition.

    The effects are proportional. They are estimated within weeks, so that a lasting change of level
    is not taken for one, and only the groups that differ beyond chance are removed.
    """
    count = len(values)
    if count < _LEAST_RUNS or values.min() <= 0:
        return values
    used = slice(0, count - _NEWEST)
    logs = np.log(values)
    removed = np.zeros(count)
    target = _within_weeks(logs[used].reshape(-1, 1), given.seconds[used])[:, 0]
    span = given.seconds[used][-1] - given.seconds[0]
    groups = [
        (group, _within_weeks(group[used], given.seconds[used]))
        for group, cycle in zip(given.groups, given.cycles, strict=True)
        if span >= _REPEATED * cycle
    ]
    groups = [(group, own) for group, own in groups if np.any(own.std(axis=0) > 1e-6)]
    while groups:
        design = np.concatenate([own for _, own in groups], axis=1)
        effects, covariance = _robust_fit(design, target)
        strengths, start = [], 0
        for _, own in groups:
            part = slice(start, start + own.shape[1])
            start += own.shape[1]
            effect = effects[part]
            wald = float(effect @ np.linalg.pinv(covariance[part, part]) @ effect)
            strengths.append(_chi_to_normal(wald, own.shape[1]))
        weakest = min(range(len(groups)), key=strengths.__getitem__)
        if strengths[weakest] >= -NORMAL.inv_cdf(_CHANCE):
            start = 0
            for group, own in groups:
                part = slice(start, start + own.shape[1])
                start += own.shape[1]
                removed += (group - group.mean(axis=0)) @ effects[part]
            break
        del groups[weakest]
    return values * np.exp(-removed)


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
        effects, *_ = np.linalg.lstsq(weighted.T @ design, weighted.T @ target, rcond=1e-9)
        rest = target - design @ effects
        noise = max(1.4826 * float(np.median(np.abs(rest))), least_noise(1.0))
        weights = np.minimum(1.0, _FAR / np.maximum(np.abs(rest) / noise, 1e-9))
    related = float(rest[1:] @ rest[:-1]) / max(float(rest @ rest), 1e-300)
    inflation = (1 + max(related, 0.0)) / (1 - min(max(related, 0.0), 0.9))
    covariance = noise**2 * inflation * np.linalg.pinv((design * weights[:, None]).T @ design)
    return effects, covariance


def _chi_to_normal(chi: float, degrees: int) -> float:
    """The normal deviate of a chi-square value (Wilson and Hilferty 1931)."""
    part = 2 / (9 * degrees)
    return float(((chi / degrees) ** (1 / 3) - (1 - part)) / math.sqrt(part))
