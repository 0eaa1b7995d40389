"""Climbs: levels that change along a straight line, as a leak changes a cost. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ci.analysis.levels import (
    UNCERTAIN,
    Values,
    clip_spikes_only,
    estimate_noise,
    least_noise,
    median_of,
    squares_around,
    student_to_normal,
)

_LEAST = 20
"""The values on the shortest way from one level to another that is a climb and no step."""
_PLACES = 30
"""The number of places at which a climb may begin or end."""


@dataclass(frozen=True, kw_only=True)
class Climb:
    """A straight line from one level to another."""

    earliest: int
    index: int
    latest: int
    """The index of the first value after the first level: at least, most likely and at most."""
    until: int
    """The index of the first value of the second level."""
    before: float
    after: float
    """The levels."""
    error: float
    """The standard error of their difference."""
    deviate: float
    """Student's t of their difference, converted to a normal deviate."""


@dataclass(frozen=True)
class _Lines:
    """Lines from one index to another, in columns: (values, lines); each has a mean of 0."""

    begins: Values
    ends: Values
    columns: Values
    means: Values
    """What was subtracted: each line went from 0 to 1."""
    squares: Values

    def parameters(self) -> Values:
        """Two levels, a begin, and an end unless the last value is the end."""
        return 4.0 - (self.ends == len(self.columns) - 1)


@lru_cache(maxsize=4)
def _lines(count: int) -> _Lines:
    stride = _stride(count)
    begins, ends = np.array(
        [
            (begin, until)
            for begin in range(0, count - _LEAST, stride)
            for until in (*range(begin + _LEAST, count - 1, stride), count - 1)
        ]
    ).T
    columns = np.clip((np.arange(count)[:, None] - begins) / (ends - begins), 0, 1)
    means = columns.mean(axis=0)
    columns -= means
    return _Lines(begins, ends, columns, means, np.square(columns).sum(axis=0))


def _stride(count: int) -> int:
    return -(-count // _PLACES)


def fit_climb(values: Values, starts: Sequence[int], related: float) -> Climb | None:
    """Fit a climb in place of steps at ``starts``, without these in place of one at any place.

    ``None`` if steps are as likely by the Bayesian information criterion, which counts their places
    as known, if there is a step beside the climb, or if outliers alone climb.
    """
    count = len(values)
    if count < 2 * _LEAST:
        return None
    least = least_noise(median_of(values))
    smooth = clip_spikes_only(values, max(estimate_noise(values), least))
    floor = max(count * least**2, np.finfo(float).tiny)
    independent = count * (1 - related) / (1 + related)  # values resemble their neighbors

    def cost(squares: Values | float, parameters: Values | int) -> Values:
        found: Values = independent * np.log(np.maximum(squares, floor))
        return found + parameters * math.log(count)

    lines, rest = _lines(count), smooth - smooth.mean()
    heights = (rest @ lines.columns) / lines.squares
    squares = np.maximum(rest @ rest - heights**2 * lines.squares, floor)
    costs = cost(squares, lines.parameters())
    best = int(costs.argmin())
    height, line = float(heights[best]), lines.columns[:, best]
    begin, until = int(lines.begins[best]), int(lines.ends[best])
    before = float(smooth.mean() - height * lines.means[best])

    places = _moved(smooth, starts or [1])
    beside = rest - height * line
    gain = _gain_of_steps(beside, line, [*places, _best_split(beside)])
    risen = median_of(values[(begin + until) // 2 : until + 1]) - before
    if (
        cost(squares_around(smooth, places), len(places) + 1) <= costs[best]
        or cost(squares[best] - gain, 6) < costs[best]
        or abs(risen) < abs(height) / 2
    ):
        return None
    near = lines.begins[costs <= costs[best] + UNCERTAIN]
    degrees = max(independent - 4, 1)
    weights = np.exp((costs[best] - costs) / 2)  # other ends have other heights
    variance = float(weights @ (heights - height) ** 2 / weights.sum())
    variance += float(squares[best] / degrees / lines.squares[best]) * count / independent
    error = math.sqrt(variance)
    return Climb(
        earliest=max(int(near.min()) - _stride(count) + 2, 1),
        index=begin + 1,
        latest=min(int(near.max()) + _stride(count), until),
        until=until,
        before=before,
        after=before + height,
        error=error,
        deviate=student_to_normal(height / error, degrees),
    )


def _moved(values: Values, starts: Sequence[int]) -> list[int]:
    """The best places of steps between their neighbors: the given ones may be one or two off."""
    bounds = [0, *starts, len(values)]
    between = zip(bounds, bounds[2:], strict=False)
    return sorted({begin + _best_split(values[begin:end]) for begin, end in between})


def _best_split(values: Values) -> int:
    """The index at which a second level reduces the sum of squares most."""
    count, at = len(values), np.arange(1, len(values))
    gains = np.cumsum(values - values.mean())[:-1] ** 2 / (at * (count - at))
    return int(gains.argmax()) + 1


def _gain_of_steps(rest: Values, line: Values, places: Sequence[int]) -> float:
    """By how much a step beside a line reduces the sum of squares, at the best of some places."""
    steps = (np.arange(len(rest))[:, None] >= places).astype(float)
    steps -= steps.mean(axis=0)
    steps -= np.outer(line, line @ steps / (line @ line))
    return float(((rest @ steps) ** 2 / np.maximum(np.square(steps).sum(axis=0), 1e-9)).max())
