"""Reruns of both sides of an alarm: how many it takes, and what they show. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

import numpy as np

from ci.analysis import levels
from ci.analysis.alarms import Alarm
from ci.analysis.platform_history import PlatformHistory
from ci.facts.environment_key import EnvironmentKey
from ci.facts.measures import stage_and_quantity

CONFIDENCE = 0.95  # of the interval, as in all reports
POWER = 0.95  # of 20 alarms that are true, 19 are confirmed; of 20 false ones, 19 are not
LEAST_RUNS = 5  # of each side, as `history` needs: two outliers do not move the median of five
MOST_RUNS = 50  # of each side; a rise of a fifth of the noise needs more
# The variance of a median, in units of that of a mean; it costs runs, but an outlier costs more.
_OF_MEDIANS = math.pi / 2


@dataclass(frozen=True, kw_only=True)
class RerunPlan:
    """What to run again for a row of an alarm."""

    platform: str
    measure: str
    environment: EnvironmentKey
    """That of the runs which raised the alarm."""
    rise: float
    """The relative rise; infinite from 0. Negative where a fall is the regression."""
    before: float
    after: float
    """The levels in the history."""
    noise: float
    """That of a single run, relative; 0 for a measure without any."""
    runs: int
    """Of each side."""

    @property
    def stage(self) -> str:
        return stage_and_quantity(self.measure)[0]


def plan_reruns(alarm: Alarm, histories: Sequence[PlatformHistory]) -> list[RerunPlan]:
    """Plan the reruns of the rows of an alarm, by the noise of their series."""
    environments = {
        (record.platform, it.runs[0].key): it
        for record in histories
        for it in record.history.environments
    }
    plans = []
    for row in alarm.rows:
        measure, point = row.change.measure, row.change.point
        environment = environments[row.platform, row.change.run.key]
        values = [run.values[measure] for run in environment.runs if measure in run.values]
        noise = series_noise(values) if stage_and_quantity(measure)[1].is_noisy else 0.0
        plan = RerunPlan(
            platform=row.platform,
            measure=measure,
            environment=environment.key,
            rise=point.relative,
            before=point.before,
            after=point.after,
            noise=noise,
            runs=runs_needed(noise, point.relative),
        )
        plans.append(plan)
    return plans


class RerunOutcome(StrEnum):
    """What reruns say of an alarm."""

    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not confirmed"
    UNDECIDED = "cannot be decided"


@dataclass(frozen=True, kw_only=True)
class RerunFinding:
    """The change between both sides, as reruns show it."""

    before: float
    after: float
    """Medians."""
    low: float
    high: float
    """The 95 % interval of ``after / before - 1``."""
    outcome: RerunOutcome


def series_noise(values: Sequence[float]) -> float:
    """The relative noise of single values of a series, whatever the changes of its level.

    Outliers do not count: up to half of the differences between neighbors may be some.
    """
    logs = np.log([value for value in values if value > 0])
    return max(levels.estimate_noise(logs), levels.least_noise(1.0))


def runs_needed(noise: float, rise: float) -> int:
    """The runs of each side that confirm a relative ``rise``, or its absence, with ``POWER``.

    That is the usual size of a two-sample test, for medians. It is limited to ``MOST_RUNS``. One
    run of each side if there is no ``noise``.
    """
    if not noise:
        return 1
    deviate = levels.NORMAL.inv_cdf(POWER)
    size = abs(math.log1p(rise)) if rise > -1 else math.inf
    enough = (
        runs
        for runs in range(LEAST_RUNS, MOST_RUNS)
        if _half_width(noise, runs, runs) + deviate * _error(noise, runs, runs) <= size
    )
    return next(enough, MOST_RUNS)


def judge_reruns(
    before: Sequence[float], after: Sequence[float], *, rise: float, noise: float
) -> RerunFinding | None:
    """Judge an alarm of a relative ``rise``; ``None`` if a side has no run.

    It is confirmed if the level rose for certain, and by at least half of that. It is not if the
    level rose for certain by less than ``rise``, and probably by less than half of it. A negative
    ``rise`` is a fall, which is judged in the same way. ``noise`` is that of the series, 0 for a
    measure without any. A larger one of the reruns counts instead.
    """
    if not before or not after:
        return None
    good, bad = median(before), median(after)
    effect = levels.relative_change(good, bad)
    low = high = effect
    if noise and min(good, bad) > 0:
        rest = [abs(math.log(it / good)) for it in before] + [
            abs(math.log(it / bad)) for it in after
        ]
        noise = max(noise, levels.NORMAL_MAD * median(rest))
        few = min(len(before), len(after)) < LEAST_RUNS
        half = math.inf if few else _half_width(noise, len(before), len(after))
        low, high = (1 + effect) * math.exp(-half) - 1, (1 + effect) * math.exp(half) - 1
    sign = math.copysign(1, rise)
    least, most = sorted((sign * low, sign * high))
    is_large = sign * effect >= abs(rise) / 2
    outcome = RerunOutcome.UNDECIDED
    if least > 0 and is_large:
        outcome = RerunOutcome.CONFIRMED
    elif most < abs(rise) and not is_large:
        outcome = RerunOutcome.NOT_CONFIRMED
    return RerunFinding(before=good, after=bad, low=low, high=high, outcome=outcome)


def _error(noise: float, before: int, after: int) -> float:
    """The standard error of the difference of two medians."""
    return noise * math.sqrt(_OF_MEDIANS * (1 / before + 1 / after))


def _half_width(noise: float, before: int, after: int) -> float:
    """Half the width of the interval of that difference."""
    deviate = levels.NORMAL.inv_cdf((1 + CONFIDENCE) / 2)
    return levels.normal_to_student(deviate, before + after - 2) * _error(noise, before, after)
