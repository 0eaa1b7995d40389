"""How many reruns an alarm takes, and how often they are right, with simulated values."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from ci.analysis.reruns import (
    LEAST_RUNS,
    MOST_RUNS,
    RerunOutcome,
    judge_reruns,
    runs_needed,
    series_noise,
)

RISE = 0.08


def outcomes(true_rise: float, noise: float, *, is_busy: bool) -> Counter[RerunOutcome]:
    """Of 400 reruns of an alarm; busy: one run in ten takes 1.2 to 2 times as long."""
    runs, found = runs_needed(noise, RISE), Counter[RerunOutcome]()
    for seed in range(400):
        random = Random(seed)  # noqa: S311

        def run(level: float, random: Random = random) -> float:
            factor = random.uniform(1.2, 2) if is_busy and random.random() < 0.1 else 1
            return factor * level * random.lognormvariate(0, noise)

        before = [run(60) for _ in range(runs)]
        after = [run(60 * (1 + true_rise)) for _ in range(runs)]
        judged = judge_reruns(before, after, rise=RISE, noise=noise)
        assert judged
        found[judged.outcome] += 1
    return found


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.06])
@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize("true_rise", [RISE, 0.0])
def test_the_power_is_what_is_promised(true_rise: float, noise: float, *, is_busy: bool) -> None:
    found = outcomes(true_rise, noise, is_busy=is_busy)
    right = RerunOutcome.CONFIRMED if true_rise else RerunOutcome.NOT_CONFIRMED
    assert found[right] >= 400 * (0.8 if is_busy else 0.92)  # 0.95 but for chance
    wrong = found.total() - found[right] - found[RerunOutcome.UNDECIDED]
    assert wrong <= 400 * 0.03


def test_more_noise_takes_more_runs() -> None:
    needed = [runs_needed(noise, RISE) for noise in (0.01, 0.03, 0.06, 0.12, 1.0)]
    assert needed == sorted(needed)
    assert (needed[0], needed[-1]) == (LEAST_RUNS, MOST_RUNS)
    assert runs_needed(0.0, RISE) == 1


def test_the_noise_of_a_series_has_neither_its_changes_nor_its_outliers() -> None:
    random = Random(1)  # noqa: S311
    values = [level * random.gauss(1, 0.02) for level in (100.0, 150.0) for _ in range(30)]
    values[::10] = [it * 1.8 for it in values[::10]]
    assert 0.012 < series_noise(values) < 0.035


def test_counts_without_noise_need_one_run() -> None:
    found = judge_reruns([13.0], [14.0], rise=1 / 13, noise=0.0)
    assert found
    assert found.outcome is RerunOutcome.CONFIRMED
    assert found.low == found.high == pytest.approx(1 / 13)
    assert judge_reruns([13.0], [], rise=1 / 13, noise=0.0) is None


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        (1000.0, RerunOutcome.CONFIRMED),
        (1500.0, RerunOutcome.NOT_CONFIRMED),
        (2200.0, RerunOutcome.NOT_CONFIRMED),
    ],
)
def test_a_fall_of_what_should_be_high_is_judged_as_a_rise_is(
    after: float, outcome: RerunOutcome
) -> None:
    """Of a benchmark of images per second, a third of which is lost."""
    assert runs_needed(0.02, -1 / 3) == runs_needed(0.02, 0.5) == LEAST_RUNS
    assert runs_needed(0.02, -1.0) == LEAST_RUNS
    sides = [[level * (1 + 0.01 * place) for place in range(-2, 3)] for level in (1500.0, after)]
    found = judge_reruns(*sides, rise=-1 / 3, noise=0.02)
    assert found
    assert found.outcome is outcome
