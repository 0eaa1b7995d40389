"""The search for the first bad commit, with simulated values."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

import pytest

from ci.analysis.bisection import (
    MOST_RUNS,
    SURE,
    Bisection,
    ChangeModel,
    LevelModel,
    OutcomeModel,
)

COMMITS = [f"c{number:02}" for number in range(21)]
NEVER = len(COMMITS)  # the place of a change after all of them
Measure = Callable[[int], float]
Draw = Callable[[random.Random, int], tuple[Measure, ChangeModel]]


def search(
    measure: Measure, model: ChangeModel, skipped: Collection[str] = ()
) -> tuple[Bisection, int]:
    """Search to the end; also return the number of runs."""
    values: dict[str, list[float]] = {}
    for runs in range(MOST_RUNS * len(COMMITS) + 1):
        found = Bisection(commits=COMMITS, values=values, skipped=skipped, model=model)
        commit = found.next_commit()
        if commit is None:
            return found, runs
        assert commit not in skipped
        values.setdefault(commit, []).append(measure(COMMITS.index(commit)))
    pytest.fail("the search does not end")


def slower(first_bad: int, rise: float, noise: float, seed: float = 0) -> Measure:
    noisy = random.Random(seed)  # noqa: S311
    return lambda place: (1 + rise * (place >= first_bad)) * noisy.lognormvariate(2, noise)


def failing(first_bad: int, fails_good: float, fails_bad: float, seed: float = 0) -> Measure:
    noisy = random.Random(seed)  # noqa: S311
    return lambda place: float(noisy.random() < (fails_bad if place >= first_bad else fails_good))


@pytest.mark.parametrize("first_bad", [1, 2, 10, 19, 20])
def test_a_steady_stage_takes_few_runs(first_bad: int) -> None:
    found, runs = search(slower(first_bad, 0.2, 0.003), LevelModel())
    assert found.answer.first_bad == (COMMITS[first_bad],)
    assert found.answer.probability >= SURE
    assert runs <= 11  # 4 of the ends, 5 halvings, 2 repeats


@pytest.mark.parametrize("first_bad", [1, 2, 10, 19, 20])
def test_a_test_that_always_fails_takes_few_runs(first_bad: int) -> None:
    found, runs = search(failing(first_bad, 0, 1), OutcomeModel())
    assert found.answer.first_bad == (COMMITS[first_bad],)
    assert found.answer.probability >= SURE
    assert runs <= 14  # 4 of the ends, 5 halvings, 5 repeats


def draw_stage(noisy: random.Random, first_bad: int) -> tuple[Measure, ChangeModel]:
    rise, noise = noisy.uniform(0.03, 0.3), noisy.choice((0.003, 0.01, 0.02, 0.04, 0.08))
    return slower(first_bad, rise, noise, noisy.random()), LevelModel()


def draw_test(noisy: random.Random, first_bad: int) -> tuple[Measure, ChangeModel]:
    fails_good, fails_bad = noisy.choice((0, 0.05)), noisy.uniform(0.5, 1)
    return failing(first_bad, fails_good, fails_bad, noisy.random()), OutcomeModel()


@pytest.mark.parametrize("draw", [draw_stage, draw_test])
def test_the_probability_is_calibrated(draw: Draw) -> None:
    """Of the answers that are stated with 95 %, 95 % are right; mostly there is an answer."""
    noisy = random.Random(1)  # noqa: S311
    right, wrong, searches = 0, 0, 300
    for _ in range(searches):
        first_bad = noisy.randint(1, len(COMMITS) - 1)
        found, _ = search(*draw(noisy, first_bad))
        if found.ends_differ and found.answer.probability >= SURE:
            is_right = found.answer.first_bad == (COMMITS[first_bad],)
            right, wrong = right + is_right, wrong + (not is_right)
    assert right >= SURE * (right + wrong)
    assert right >= 0.8 * searches


@pytest.mark.parametrize("fails", [0.2, 0.5])
def test_a_flaky_test_without_a_change_has_no_first_bad_commit(fails: float) -> None:
    searches = 100
    found = [search(failing(NEVER, fails, 1, seed), OutcomeModel()) for seed in range(searches)]
    assert sum(it.is_hopeless for it, _ in found) >= SURE * searches


def test_a_noisy_stage_without_a_change_has_no_first_bad_commit() -> None:
    searches = 100
    found = [search(slower(NEVER, 0, 0.08, seed), LevelModel()) for seed in range(searches)]
    assert sum(it.is_hopeless for it, _ in found) >= SURE * searches


def test_commits_that_do_not_build_are_stepped_over() -> None:
    skipped = COMMITS[5:9]
    found, _ = search(lambda place: float(place >= 7), OutcomeModel(), skipped)
    assert found.answer.before == COMMITS[4]
    assert found.answer.first_bad == tuple(COMMITS[5:10])
    assert found.answer.probability >= SURE


def test_ends_that_do_not_differ() -> None:
    found, runs = search(lambda _: 1.0, OutcomeModel())
    assert found.is_hopeless
    assert runs == 2 * MOST_RUNS
    found, _ = search(slower(1, -0.2, 0.003), LevelModel())  # the bad end is faster
    assert found.is_hopeless


def test_neighbors() -> None:
    values = {"a": [1.0, 1.01], "b": [2.0, 2.02]}
    found = Bisection(commits="ab", values=values, skipped=(), model=LevelModel())
    assert found.next_commit() is None
    assert found.answer.first_bad == ("b",)
