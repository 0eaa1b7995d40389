"""The search for the first bad commit, with simulated values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from bench.bisection import COMMITS, Measure, failing, search, slower
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
    assert runs <= 11  # 4 of the ends, 5 halvings, 2 repeats


@pytest.mark.parametrize("first_bad", [1, 2, 10, 19, 20])
def test_a_test_that_always_fails_takes_few_runs(first_bad: int) -> None:
    found, runs = search(failing(first_bad, seeded(), rate=1), likelihood_of_outcomes)
    assert found.answer.first_bad == (COMMITS[first_bad],)
    assert found.answer.is_sure
    assert runs <= 14  # 4 of the ends, 5 halvings, 5 repeats


def draw_stage(noisy: Random, first_bad: int) -> tuple[Measure, LogLikelihood]:
    rise, noise = noisy.uniform(0.03, 0.3), noisy.choice((0.003, 0.01, 0.02, 0.04, 0.08))
    return slower(first_bad, noisy, rise=rise, noise=noise), likelihood_of_times


def draw_test(noisy: Random, first_bad: int) -> tuple[Measure, LogLikelihood]:
    fails_good, fails_bad = noisy.choice((0, 0.05)), noisy.uniform(0.5, 1)
    return failing(first_bad, noisy, rate=fails_bad, before=fails_good), likelihood_of_outcomes


@pytest.mark.parametrize("draw", [draw_stage, draw_test])
def test_the_probability_is_calibrated(draw: Draw) -> None:
    """Of the answers that are stated with 95 %, 95 % are right; mostly there is an answer."""
    noisy = seeded(1)
    right, wrong, searches = 0, 0, 300
    for _ in range(searches):
        first_bad = noisy.randint(1, len(COMMITS) - 1)
        found, _ = search(*draw(noisy, first_bad))
        if found.ends_differ and found.answer.is_sure:
            is_right = found.answer.first_bad == (COMMITS[first_bad],)
            right, wrong = right + is_right, wrong + (not is_right)
    assert right >= SURE * (right + wrong)
    assert right >= 0.8 * searches


@pytest.mark.parametrize(
    ("measure", "likelihood"),
    [
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
