"""The search for the first bad commit, with simulated values."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

import pytest

from ci.analysis.bisection import (
    MOST_RUNS,
    SURE,
    Bisection,
    Evidence,
    LevelEvidence,
    OutcomeEvidence,
)

COMMITS = [f"c{number:02}" for number in range(21)]
Measure = Callable[[int], float]


def search(
    measure: Measure, evidence: Evidence, skipped: Collection[str] = ()
) -> tuple[Bisection, int]:
    """Search to the end; also return the number of runs."""
    values: dict[str, list[float]] = {}
    for runs in range(MOST_RUNS * len(COMMITS) + 1):
        found = Bisection(commits=COMMITS, values=values, skipped=skipped, evidence=evidence)
        commit = found.next_commit()
        if commit is None:
            return found, runs
        assert commit not in skipped
        values.setdefault(commit, []).append(measure(COMMITS.index(commit)))
    pytest.fail("the search does not end")


def slower(first_bad: int, rise: float, noise: float, seed: int = 0) -> Measure:
    noisy = random.Random(seed)  # noqa: S311
    return lambda place: (1 + rise * (place >= first_bad)) * noisy.lognormvariate(2, noise)


@pytest.mark.parametrize("first_bad", [1, 2, 10, 19, 20])
def test_a_steady_stage_takes_few_runs(first_bad: int) -> None:
    found, runs = search(slower(first_bad, 0.2, 0.003), LevelEvidence())
    assert found.answer.first_bad == (COMMITS[first_bad],)
    assert found.answer.probability >= SURE
    assert runs <= 11  # 4 of the ends, 5 halvings, 2 repeats


def test_noise_takes_more_runs_and_the_probability_is_honest() -> None:
    right, steady, noisy = 0, 0, 0
    searches = 100
    for seed in range(searches):
        place = 1 + seed % 20
        steady += search(slower(place, 0.2, 0.01, seed), LevelEvidence())[1]
        found, runs = search(slower(place, 0.2, 0.08, seed), LevelEvidence())
        noisy += runs
        right += found.answer.first_bad == (COMMITS[place],)
    assert right >= 0.9 * searches
    assert noisy > 1.3 * steady


def test_a_failing_test() -> None:
    found, runs = search(lambda place: float(place >= 7), OutcomeEvidence())
    assert found.answer.first_bad == (COMMITS[7],)
    assert runs <= 11


def test_a_test_that_fails_half_of_the_time() -> None:
    wrong, undecided = 0, 0
    for seed in range(50):
        flaky = random.Random(seed)  # noqa: S311

        def fails(place: int, flaky: random.Random = flaky) -> float:
            return float(place >= 7 and flaky.random() < 0.5)

        found, _ = search(fails, OutcomeEvidence())
        undecided += found.is_hopeless
        wrong += not found.is_hopeless and found.answer.first_bad != (COMMITS[7],)
    assert wrong <= 5
    assert undecided <= 10


def test_commits_that_do_not_build_are_stepped_over() -> None:
    skipped = COMMITS[5:9]
    found, _ = search(lambda place: float(place >= 7), OutcomeEvidence(), skipped)
    assert found.answer.before == COMMITS[4]
    assert found.answer.first_bad == tuple(COMMITS[5:10])
    assert found.answer.probability >= SURE


def test_ends_that_do_not_differ() -> None:
    found, runs = search(lambda _: 1.0, OutcomeEvidence())
    assert found.is_hopeless
    assert runs == 2 * MOST_RUNS
    found, _ = search(slower(1, -0.2, 0.003), LevelEvidence())  # the bad end is faster
    assert found.is_hopeless


def test_neighbors() -> None:
    values = {"a": [1.0, 1.01], "b": [2.0, 2.02]}
    found = Bisection(commits="ab", values=values, skipped=(), evidence=LevelEvidence())
    assert found.next_commit() is None
    assert found.answer.first_bad == ("b",)
