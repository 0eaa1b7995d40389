"""The statistics of levels and steps in one series; everything here is NumPy.

SciPy would have the tests, but importing ``scipy.stats`` alone takes 0.75 s, and a command has
1 s. What is needed of it fits into a few lines, by published formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from changeforest import Control, changeforest
from numpy.typing import NDArray

Values: TypeAlias = NDArray[np.float64]

NORMAL = NormalDist()
# Clocks and caches make every measure vary by this much, however calm a few values look.
_LEAST_NOISE = 0.002
# In units of the noise: what lies further from its level is an outlier and weighs no more.
_OUTLIER = 4.0
# Wide enough that three odd values in a row are no level of their own.
_SMOOTHED = 7
# Gain of a split in units of the noise's variance; 4 standard errors of a known change.
_LEAST_GAIN = 16.0


@dataclass(frozen=True)
class Level:
    """A stretch of values around one level."""

    values: Values

    @cached_property
    def median(self) -> float:
        return float(np.median(self.values))

    @cached_property
    def clipped(self) -> Values:
        """The values with outliers drawn in, unless there are too many of them to be outliers."""
        if len(self.values) < 3:
            return self.values
        distance = np.abs(self.values - self.median)
        reach = _OUTLIER * max(1.4826 * float(np.median(distance)), least_noise(self.median))
        if np.count_nonzero(distance > reach) > max(1, len(self.values) // 10):
            return self.values
        return np.clip(self.values, self.median - reach, self.median + reach)

    @cached_property
    def mean(self) -> float:
        return float(self.clipped.mean())

    @cached_property
    def squares(self) -> float:
        """Sum of squared deviations."""
        return float(np.square(self.clipped - self.mean).sum())

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Step:
    """Two levels, one after the other."""

    before: Level
    after: Level

    @cached_property
    def degrees(self) -> int:
        return max(len(self.before) + len(self.after) - 2, 1)

    @cached_property
    def noise(self) -> float:
        """The standard deviation of single values, pooled."""
        squares = self.before.squares + self.after.squares
        return max(math.sqrt(squares / self.degrees), least_noise(self.before.median))

    @cached_property
    def error(self) -> float:
        """The standard error of the difference between the two means."""
        return self.noise * math.sqrt(1 / len(self.before) + 1 / len(self.after))

    @cached_property
    def deviate(self) -> float:
        """Student's t of the step, as the normal deviate that is as improbable."""
        difference = self.after.mean - self.before.mean
        if not difference:
            return 0.0
        if not self.error:  # from nothing at all to something
            return math.copysign(math.inf, difference)
        return normal_of_student(difference / self.error, self.degrees)

    @property
    def p_value(self) -> float:
        return two_sided(self.deviate)

    @property
    def effect(self) -> float:
        return relative(self.before.median, self.after.median)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Of the relative change, by the standard errors of the two medians."""
        if not self.before.median:
            return self.effect, self.effect
        quantile = student_of_normal(NORMAL.inv_cdf((1 + confidence) / 2), self.degrees)
        ratio = 1 + self.effect
        error = self.noise * math.sqrt(
            _median_variance(len(self.after)) + ratio**2 * _median_variance(len(self.before))
        )
        half = quantile * error / abs(self.before.median)
        return self.effect - half, self.effect + half

    def rank_deviate(self) -> float:
        """Mann and Whitney's U as a normal deviate, with ties: blind to distances."""
        before, after = np.sort(self.before.values), self.after.values
        below = np.searchsorted(before, after, "left") + np.searchsorted(before, after, "right")
        pairs, count = len(before) * len(after), len(before) + len(after)
        ties = np.unique(np.concatenate((before, after)), return_counts=True)[1].astype(float)
        tied = float((ties**3 - ties).sum()) / (count * (count - 1))
        variance = pairs / 12 * (count + 1 - tied)
        return (float(below.sum()) / 2 - pairs / 2) / math.sqrt(variance) if variance > 0 else 0.0

    def beyond_slope(self) -> float:
        """Student's t of the step beside a straight line through both levels."""
        values = np.concatenate((self.before.clipped, self.after.clipped))
        place: Values = np.arange(len(values), dtype=float)
        place -= place.mean()
        step = np.zeros(len(values))
        step[len(self.before) :] = 1.0
        step, values = _without_line(step, place), _without_line(values, place)
        own = float(step @ step)
        if own < 1e-9 or len(values) < 4:
            return math.inf
        height = float(step @ values) / own
        rest = values - height * step
        noise = math.sqrt(float(rest @ rest) / (len(values) - 3))
        return height * math.sqrt(own) / max(noise, least_noise(self.before.median), 1e-300)


def _without_line(values: Values, place: Values) -> Values:
    """What a straight line leaves over; ``place`` has the mean 0."""
    centred = values - values.mean()
    remainder: Values = centred - place * (float(place @ centred) / float(place @ place))
    return remainder


def _median_variance(count: int) -> float:
    """Of the median of normal values, in units of their variance: pi / 2 of the mean's for many."""
    return 1 / count * (1 if count < 3 else math.pi / 2 * count / (count + 0.57))


def least_noise(level: float) -> float:
    return _LEAST_NOISE * abs(level)


def relative(before: float, after: float) -> float:
    if before:
        return after / before - 1
    return math.copysign(math.inf, after) if after else 0.0


def two_sided(deviate: float) -> float:
    return math.erfc(abs(deviate) / math.sqrt(2))


def normal_of_student(t: float, degrees: int) -> float:
    """The normal deviate as improbable as Student's t (Wallace 1959, off by less than 0.02)."""
    scale = (8 * degrees + 1) / (8 * degrees + 3)
    return math.copysign(scale * math.sqrt(degrees * math.log1p(t * t / degrees)), t)


def student_of_normal(deviate: float, degrees: int) -> float:
    """The inverse of ``normal_of_student``."""
    unscaled = deviate * (8 * degrees + 3) / (8 * degrees + 1)
    return math.copysign(math.sqrt(degrees * math.expm1(unscaled**2 / degrees)), deviate)


def noise_of(values: Values) -> float:
    """The standard deviation around levels that may change, from how neighbours differ."""
    if len(values) < 2:
        return 0.0
    differences = np.abs(np.diff(values))
    return 1.4826 * float(np.median(differences)) / math.sqrt(2)


def candidates(values: Values) -> list[int]:
    """Where levels may begin: too many places rather than too few, each to be tested.

    Seeded binary segmentation for changes of the mean: O(n log n), deterministic.
    """
    count = len(values)
    noise = max(noise_of(values), least_noise(float(np.median(values))))
    if count < 4 or not noise:
        return [int(place) + 1 for place in np.flatnonzero(np.diff(values))]
    normalised = (_without_spikes(values, noise) - np.median(values)) / noise
    control = Control(
        minimal_relative_segment_length=1.5 / count, minimal_gain_to_split=_LEAST_GAIN, seed=0
    )
    found = changeforest(normalised.reshape(-1, 1), "change_in_mean", "sbs", control)
    return sorted(int(place) for place in found.split_points())


def _without_spikes(values: Values, noise: float) -> Values:
    padded = np.pad(values, _SMOOTHED // 2, mode="edge")
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(padded, _SMOOTHED), axis=1)
    return np.clip(values, smooth - _OUTLIER * noise, smooth + _OUTLIER * noise)
