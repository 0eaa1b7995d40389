"""The statistics of levels and steps in one series; everything here is NumPy.

SciPy would have the tests, but importing ``scipy.stats`` alone takes 0.75 s, and a command has
1 s. What is needed of it fits into a few lines, by published formulas.
"""

from __future__ import annotations

import math
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
# The standard deviation of normal noise, in units of its median absolute deviation.
_MAD = 1.4826


class Level:
    """A stretch of values around one level; ``clipped`` has its outliers drawn in."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.ordered: Values = np.sort(values)
        self.median = _middle(self.ordered)
        self.clipped = self._clipped()
        self.mean = float(self.clipped.sum()) / len(values)
        deviations = self.clipped - self.mean
        self.squares = float(deviations @ deviations)
        self.products = float(deviations[1:] @ deviations[:-1])  # of neighbours

    def __len__(self) -> int:
        return len(self.values)

    def _clipped(self) -> Values:
        """Unless there are too many of them to be outliers."""
        if len(self) < 3:
            return self.values
        distance = np.abs(self.values - self.median)
        usual = _MAD * _middle(np.sort(distance))
        reach = _OUTLIER * max(usual, least_noise(self.median))
        if np.count_nonzero(distance > reach) > max(1, len(self) // 10):
            return self.values
        low, high = self.median - reach, self.median + reach
        clipped: Values = np.minimum(np.maximum(self.values, low), high)
        return clipped


class Step:
    """Two levels, one after the other."""

    def __init__(self, before: Level, after: Level) -> None:
        self.before, self.after = before, after
        self.degrees = max(len(before) + len(after) - 2, 1)
        # The standard deviation of single values, pooled.
        pooled = math.sqrt((before.squares + after.squares) / self.degrees)
        self.noise = max(pooled, least_noise(before.median))
        self.deviate = self._deviate()

    def _deviate(self) -> float:
        """Student's t of the step, as the normal deviate that is as improbable."""
        difference = self.after.mean - self.before.mean
        if not difference:
            return 0.0
        if not self.noise:  # from nothing at all to something
            return math.copysign(math.inf, difference)
        error = self.noise * math.sqrt(1 / len(self.before) + 1 / len(self.after))
        inflated = error * inflation(self.before, self.after)
        return normal_of_student(difference / inflated, self.degrees)

    def welch_deviate(self) -> float:
        """Welch's t as a normal deviate: levels may have noise of their own, and are few."""
        least = least_noise(self.before.median) ** 2
        levels = [(level, max(len(level) - 1, 1)) for level in (self.before, self.after)]
        parts = [(max(it.squares / own, least) / len(it), own) for it, own in levels]
        if not (variance := sum(part for part, _ in parts)):
            return self.deviate
        degrees = variance**2 / sum(part**2 / own for part, own in parts)
        difference = self.after.mean - self.before.mean
        return normal_of_student(difference / math.sqrt(variance), degrees)

    @property
    def p_value(self) -> float:
        return two_sided(self.deviate)

    @property
    def effect(self) -> float:
        return relative(self.before.median, self.after.median)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Of the relative change, by the standard errors of the two medians' logarithms.

        What takes ten times as long has ten times the noise, and no less than nothing.
        """
        medians = self.before.median, self.after.median
        if min(medians) <= 0:
            return self.effect, self.effect
        quantile = student_of_normal(NORMAL.inv_cdf((1 + confidence) / 2), self.degrees)
        squares = self.before.squares / medians[0] ** 2 + self.after.squares / medians[1] ** 2
        noise = max(math.sqrt(squares / self.degrees), _LEAST_NOISE)
        variances = _median_variance(len(self.before)) + _median_variance(len(self.after))
        half = math.exp(quantile * noise * math.sqrt(variances))
        ratio = 1 + self.effect
        return ratio / half - 1, ratio * half - 1

    def rank_deviate(self) -> float:
        """Mann and Whitney's U as a normal deviate, with ties: blind to distances."""
        before, after = self.before.ordered, self.after.values
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


def _middle(ordered: Values) -> float:
    """The median, in a tenth of the time of ``numpy.median``, whose checks cost 20 us."""
    half = len(ordered) // 2
    return float(ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def _median_variance(count: int) -> float:
    """Of the median of normal values, in units of their variance: pi / 2 of the mean's for many.

    Exact for 3, 5 and 9 values: 0.449, 0.287 and 0.166; by the formula 0.440, 0.282 and 0.164.
    """
    return 1 / count * (1 if count < 3 else math.pi / 2 * count / (count + 0.57))


def inflation(*levels: Level) -> float:
    """How much larger a mean's standard error is, since values are like their neighbours.

    By their correlation, less its own standard error: it is 0 until there is more to see.
    """
    squares, count = sum(level.squares for level in levels), sum(map(len, levels))
    if not squares:
        return 1.0
    related = sum(level.products for level in levels) / squares - 1 / math.sqrt(count)
    related = min(max(related, 0.0), 0.9)  # errors grow 4.4 times at most: a drift is no noise
    return math.sqrt((1 + related) / (1 - related))


def least_noise(level: float) -> float:
    return _LEAST_NOISE * abs(level)


def relative(before: float, after: float) -> float:
    if before:
        return after / before - 1
    return math.copysign(math.inf, after) if after else 0.0


def two_sided(deviate: float) -> float:
    return math.erfc(abs(deviate) / math.sqrt(2))


def normal_of_student(t: float, degrees: float) -> float:
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
    return _MAD * _middle(np.sort(differences)) / math.sqrt(2)


def candidates(values: Values) -> list[int]:
    """Where levels may begin: too many places rather than too few, each to be tested.

    Seeded binary segmentation for changes of the mean: O(n log n), deterministic.
    """
    count = len(values)
    median = _middle(np.sort(values))
    noise = max(noise_of(values), least_noise(median))
    if count < 4 or not noise:
        return [int(place) + 1 for place in np.flatnonzero(np.diff(values))]
    normalised = (_without_spikes(values, noise) - median) / noise
    control = Control(
        minimal_relative_segment_length=1.5 / count, minimal_gain_to_split=_LEAST_GAIN, seed=0
    )
    found = changeforest(normalised.reshape(-1, 1), "change_in_mean", "sbs", control)
    return sorted(int(place) for place in found.split_points())


def _without_spikes(values: Values, noise: float) -> Values:
    padded = np.pad(values, _SMOOTHED // 2, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _SMOOTHED)
    # The medians of an odd count; `np.median` would import `numpy.ma` for them.
    smooth = np.sort(windows, axis=1)[:, _SMOOTHED // 2]
    return np.clip(values, smooth - _OUTLIER * noise, smooth + _OUTLIER * noise)
