"""Pairs of overload and dtype: the same from a log, the store and a contract."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.facts.contract import load_contract
from ci.facts.operator_pairs import OperatorPair, OperatorPairs, executed_pairs, pairs_of
from ci.facts.operators import overload_counts
from ci.facts.pytest_log import parse_log
from ci.facts.suite import outcomes_of
from ci.model.outcomes import OperatorTest, Outcome, State
from ci.util.invocation import REPOSITORY
from tests.ci.operator_log import FINISH, lines

PASSED, FAILED = State(Outcome.PASSED), State(Outcome.FAILED)
SKIPPED, XFAILED = State(Outcome.SKIPPED, "no sample"), State(Outcome.XFAILED)


def pair(overload: str, dtype: str = "float32", slot: int = 8) -> OperatorPair:
    return OperatorPair(overload, dtype, slot)


def of_log(*tests: list[str]) -> OperatorPairs:
    log = parse_log([line for test in tests for line in test] + [FINISH])
    return executed_pairs(outcomes_of(log.tests))


def test_a_log_has_the_pairs_of_its_main_device() -> None:
    cuda = {"device": "cuda", "platform": "nvidia"}
    found = of_log(
        lines("add.out", **cuda),
        lines("add.out", dtype="int64", slot=0, **cuda),
        lines("mul.out", "failed", **cuda),
        lines("div.out", "skipped", executed=0, reason="no sample", **cuda),
        lines("sub.out", device="cpu"),
    )
    assert found.passed == {pair("add.out"), pair("add.out", "int64", 0)}
    assert found.failed == {pair("mul.out")}
    assert found.executed == found.passed | found.failed
    assert found.idle == {pair("div.out"): SKIPPED}


def test_a_suite_without_operator_tests_has_none() -> None:
    assert executed_pairs(outcomes_of(())).executed == frozenset()


@pytest.mark.parametrize(
    ("states", "where"),
    [
        ([PASSED, SKIPPED], "passed"),
        ([SKIPPED, PASSED], "passed"),
        ([State(Outcome.XPASSED)], "passed"),
        ([PASSED, FAILED, SKIPPED], "failed"),
        ([State(Outcome.ERROR)], "failed"),
        ([XFAILED], "idle"),
    ],
)
def test_one_failed_test_fails_its_pair(states: list[State], where: str) -> None:
    functions = {OperatorTest(f"f{i}", 8, "add.out", "float32"): it for i, it in enumerate(states)}
    found = vars(pairs_of(functions))
    assert [name for name in ("passed", "failed", "idle") if pair("add.out") in found[name]] == [
        where
    ]


def test_the_dtype_is_the_last_part_of_a_variant() -> None:
    tests = {OperatorTest("f", 0, "add", "strided-float16"): PASSED}
    assert pairs_of(tests).passed == {pair("add", "float16", 0)}


def test_a_contract_has_the_pairs_of_its_run() -> None:
    contract = load_contract(REPOSITORY / "tests/ops/contracts/cpu.yaml")
    found = pairs_of(contract.suite.operators)
    assert pair("add", "int8", 0) in found.passed
    assert pair("__iand__.Scalar", "bool") in found.passed
    assert pair("_compute_linear_combination.out", "nosample") in found.idle
    assert len({it.overload for it in found.passed if it.slot == 8}) > 1_000


def test_names_count_the_same_overloads_as_records() -> None:
    """The records of a log give its counts; the names must give the same ones."""
    names = ["add.out", "mul.out", "sub.out"]
    tests = [lines(name, dtype=dtype) for name in names for dtype in ("int8", "int64")]
    tests.append(lines("div.out", "failed"))
    log = parse_log([line for test in tests for line in test] + [FINISH])
    found, [count] = executed_pairs(outcomes_of(log.tests)), overload_counts(log.tests)
    assert len({it.overload for it in found.executed}) == count.executed
    assert len({it.overload for it in found.passed}) == count.passed


TESTS = st.builds(
    OperatorTest,
    st.sampled_from(["f", "g"]),
    st.sampled_from([0, 8]),
    st.sampled_from(["add", "abs.out"]),
    st.sampled_from(["int8", "strided-int8"]),
)


@given(st.dictionaries(TESTS, st.sampled_from([PASSED, FAILED, SKIPPED, XFAILED])))
def test_every_pair_is_in_exactly_one_set(operators: dict[OperatorTest, State]) -> None:
    found = pairs_of(operators)
    sets = [found.passed, found.failed, frozenset(found.idle)]
    assert sum(map(len, sets)) == len(frozenset().union(*sets))
    assert len(frozenset().union(*sets)) == len({(it.overload, it.slot) for it in operators})
