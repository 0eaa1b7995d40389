"""Tests that take longer than single tests do by chance."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from ci.analysis.durations import MANY, find_slower_tests
from ci.facts.suite import Outcomes, outcomes_of
from ci.gates.regression import ChangeKind
from ci.model.outcomes import OperatorTest, Outcome
from tests.ci.made_results import made_test
from tests.ci.operator_log import FUNCTION, node_id

NAMES = [node_id(f"op{n}") for n in range(1000)]


def run(seconds: Mapping[str, float], outcome: Outcome = Outcome.PASSED) -> Outcomes:
    return outcomes_of(made_test(name, outcome, seconds=took) for name, took in seconds.items())


def noisy(seed: int, pace: float = 1.0, **longer: float) -> dict[str, float]:
    """Tests of milliseconds; one in 100 took a hundred times as long as the others."""
    random = Random(seed)  # noqa: S311
    took = {name: 0.005 * random.lognormvariate(0, 0.5) for name in NAMES}
    took |= {name: 0.5 * random.random() for name in random.sample(NAMES, 8)}
    took |= {node_id(name): seconds for name, seconds in longer.items()}
    return {name: pace * seconds for name, seconds in took.items()}


def names(head: Mapping[str, float], *before: Mapping[str, float]) -> list[str]:
    base, *earlier = map(run, before)
    found = find_slower_tests(base, run(head), lambda: earlier)
    return [change.test.overload for change in found if isinstance(change.test, OperatorTest)]


BEFORE = [noisy(seed) for seed in range(MANY)]


@pytest.mark.parametrize("seed", range(10, 15))
@pytest.mark.parametrize("pace", [0.2, 1.0, 18.0])
def test_noise_stalls_and_another_pace_are_not_reported(seed: int, pace: float) -> None:
    assert names(noisy(seed, pace), *BEFORE) == []
    assert names(noisy(seed, pace), BEFORE[0]) == []


def test_of_few_tests_the_one_that_grew_is_no_pace() -> None:
    short = {node_id(f"op{n}"): 0.0004 for n in range(30)}
    before = [{**short, node_id("slow"): 0.3, node_id("other"): 0.004} for _ in range(MANY)]
    assert names({**before[0], node_id("slow"): 2.5}, *before) == ["slow"]


def test_a_test_that_grew_beyond_all_runs_before_it() -> None:
    head = noisy(20, op7=3.0)
    assert names(head, *BEFORE) == ["op7"]
    assert names(head, *BEFORE[:-1]) == []  # fewer runs: only very large changes
    assert names(noisy(20, op7=9.0), BEFORE[0]) == ["op7"]


def test_one_run_before_it_that_took_as_long_is_enough() -> None:
    once = noisy(30, op7=2.0)
    assert names(noisy(20, op7=3.0), BEFORE[0], once, *BEFORE[1:]) == []


def test_stalls_of_the_whole_run_hide_smaller_changes() -> None:
    stalled = {f"op{n}": 0.3 for n in range(100, 120)}
    assert names(noisy(20, op7=3.0, **stalled), *BEFORE) == []
    assert names(noisy(20, op7=30.0, **stalled), *BEFORE) == ["op7"]


def test_what_is_said_of_it() -> None:
    [change] = find_slower_tests(run(BEFORE[0]), run(noisy(20, op7=30.0)), list)
    assert change.kind is ChangeKind.SLOWER
    assert not change.kind.regression
    assert change.test == OperatorTest(FUNCTION, 8, "op7", "float32")
    assert change.seconds is not None
    assert change.seconds[1] == 30.0


def test_only_what_passed_both_times_took_its_whole_time() -> None:
    failing = run(noisy(20, op7=30.0), Outcome.FAILED)
    assert find_slower_tests(run(BEFORE[0]), failing, list) == ()
    assert find_slower_tests(run({}), run(BEFORE[0]), list) == ()
