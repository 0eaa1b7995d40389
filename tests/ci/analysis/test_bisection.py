"""The search for the first bad commit, with simulated values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from bench.bisection import COMMITS, Measure, busy, failing, search, slower
from ci.analysis.bisection import (
    MOST_RUNS,
    SURE,
    Bisection,
    LogLikelihood,
    likelihood_of_outcomes,
    likelihood_of_times,
)

NEVER = len(COMMITS)  # the place of a change after all of them
Draw = Callable[[Random, int], tuple[Measure, LogLikelihood]]


def seeded(seed: int = 0) -> Random:
    return Random(seed)  # noqa: S311


@pytest.mark.parametrize("first_bad", [1, 2, 10, 19, 20])
def test_a_steady_stage_takes_few_runs(first_bad: int) -> None:
    found, runs = search(slower(first_bad, seeded(), rise=0.2, noise=0.003), likelihood_of_times)
    assert found.answer.first_bad == (COMMITS[first_bad],)
    assert found.answer.is_sure
    assert runs <= 12  # 4 of the ends, 5 halvings, 3 repeats


@pytest.mark.parametrize("first_bad", [1, 2, 10, 19, 20])
def test_a_test_that_always_fails_takes_few_runs(first_bad: int) -> None:
    found, runs = search(failing(first_bad, seeded(), rate=1), likelihood_of_outcomes)
    assert found.answer.first_bad == (COMMITS[first_bad],)
    assert found.answer.is_sure
    assert runs <= 16  # 4 of the ends, 5 halvings, 7 repeats


def draw_stage(noisy: Random, first_bad: int) -> tuple[Measure, LogLikelihood]:
    rise, noise = noisy.uniform(0.03, 0.3), noisy.choice((0.003, 0.01, 0.02, 0.04, 0.08))
    return slower(first_bad, noisy, rise=rise, noise=noise), likelihood_of_times


def draw_test(noisy: Random, first_bad: int) -> tuple[Measure, LogLikelihood]:
    fails_good, fails_bad = noisy.choice((0, 0.05)), noisy.uniform(0.5, 1)
    return failing(first_bad, noisy, rate=fails_bad, before=fails_good), likelihood_of_outcomes


@pytest.mark.parametrize("draw", [draw_stage, draw_test])
def test_the_probability_is_calibrated(draw: Draw) -> None:
    """Of the answers that are stated with 98 %, 98 % are right; mostly there is an answer."""
    noisy = seeded(1)
    right, wrong, searches = 0, 0, 200
    for _ in range(searches):
        first_bad = noisy.randint(1, len(COMMITS) - 1)
        found, _ = search(*draw(noisy, first_bad))
        if found.ends_differ and found.answer.is_sure:
            is_right = found.answer.first_bad == (COMMITS[first_bad],)
            right, wrong = right + is_right, wrong + (not is_right)
    assert right >= SURE * (right + wrong)
    assert right >= 0.8 * searches


def busy_stage(first_bad: int, noisy: Random, *, rise: float) -> Measure:
    return busy(slower(first_bad, noisy, rise=rise, noise=0.03), noisy)


@pytest.mark.parametrize("is_busy", [False, True])
def test_noisy_neighbors_hide_no_commit(is_busy: bool) -> None:
    """One run in ten takes up to twice as long, which hides 8 % from any mean."""
    right, wrong = 0, 0
    for seed in range(100):
        noisy = seeded(seed)
        first_bad = noisy.randrange(1, len(COMMITS))
        draw = partial(busy_stage, rise=0.08) if is_busy else partial(slower, rise=0.08, noise=0.03)
        found, _ = search(draw(first_bad, noisy), likelihood_of_times)
        if found.ends_differ and found.answer.is_sure:
            is_right = found.answer.first_bad == (COMMITS[first_bad],)
            right, wrong = right + is_right, wrong + (not is_right)
    assert right >= (95 if is_busy else 99)
    assert wrong <= 1


def test_one_outlier_is_no_change() -> None:
    values = {"a": [60.0, 61.0, 60.5, 59.5], "b": [60.2, 90.0, 60.7, 59.8]}
    found = Bisection(commits="ab", values=values, skipped=(), log_likelihood=likelihood_of_times)
    assert not found.ends_differ
    assert found.probabilities[0] < 0.3


@pytest.mark.parametrize(
    ("measure", "likelihood"),
    [
        (partial(busy_stage, rise=0), likelihood_of_times),
        (partial(failing, rate=1, before=0.2), likelihood_of_outcomes),
        (partial(failing, rate=1, before=0.5), likelihood_of_outcomes),
        (partial(slower, rise=0, noise=0.08), likelihood_of_times),
    ],
)
def test_noise_without_a_change_has_no_first_bad_commit(
    measure: Callable[[int, Random], Measure], likelihood: LogLikelihood
) -> None:
    found = [search(measure(NEVER, seeded(seed)), likelihood)[0] for seed in range(100)]
    assert sum(it.is_hopeless for it in found) >= SURE * len(found)


def test_commits_that_do_not_build_are_stepped_over() -> None:
    skipped = COMMITS[5:9]
    found, _ = search(lambda place: float(place >= 7), likelihood_of_outcomes, skipped)
    assert not found.values.keys() & {*skipped}
    assert found.answer.before == COMMITS[4]
    assert found.answer.first_bad == COMMITS[5:10]
    assert found.answer.is_sure


def test_ends_that_do_not_differ() -> None:
    found, runs = search(lambda _: 1.0, likelihood_of_outcomes)
    assert found.is_hopeless
    assert runs == 2 * MOST_RUNS
    faster = slower(1, seeded(), rise=-0.2, noise=0.003)
    found, _ = search(faster, likelihood_of_times)
    assert found.is_hopeless


def test_neighbors() -> None:
    values = {"a": [1.0, 1.01], "b": [2.0, 2.02]}
    found = Bisection(commits="ab", values=values, skipped=(), log_likelihood=likelihood_of_times)
    assert found.next_commit() is None
    assert found.answer.first_bad == ("b",)
