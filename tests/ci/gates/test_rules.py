"""The gates: every rule decides, and a more important one decides first."""

from __future__ import annotations

import pytest

from ci.errors import ExitCode
from ci.gates.regression import Judgement, Standing, judge_change, standing
from ci.gates.rules import COMPARISON, GATES, HISTORY, RESULTS, RULES, Subject, exit_code
from ci.model.results import PlatformResult
from ci.model.verdicts import Harness, Product
from tests.ci.made_results import made_verdict
from tests.ci.published import platform_result

BUILD = (1, 1, 0, "1.00s", 100.0, 50.0, 150.0)


def result(product: Product, harness: Harness = Harness.CLEAN, **changes: bool) -> PlatformResult:
    verdict = made_verdict(product, harness=harness)
    return platform_result("cpu", BUILD, verdict=verdict, **changes)


PASSED, FAILED = result(Product.PASSED), result(Product.FAILED)
CRASHED = result(Product.INCOMPLETE, Harness.CRASHED)
LOST = result(Product.INCOMPLETE, Harness.LOST)
NOT_RUN = result(Product.NOT_RUN, Harness.INFRASTRUCTURE)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([PASSED, PASSED], ExitCode.PASSED),
        ([PASSED, FAILED, LOST], ExitCode.PRODUCT_FAILURE),
        ([CRASHED, LOST], ExitCode.INFRASTRUCTURE),
        ([PASSED, NOT_RUN], ExitCode.INFRASTRUCTURE),
        ([PASSED, CRASHED], ExitCode.PRODUCT_FAILURE),
        ([result(Product.PASSED, Harness.EXIT_AFTER_SUMMARY)], ExitCode.PASSED),
        ([result(Product.INCOMPLETE)], ExitCode.PRODUCT_FAILURE),
        ([result(Product.INCOMPLETE, Harness.TIMED_OUT)], ExitCode.PRODUCT_FAILURE),
        ([result(Product.INCOMPLETE, Harness.OOM_KILLED)], ExitCode.INFRASTRUCTURE),
        ([result(Product.FAILED, Harness.OOM_KILLED)], ExitCode.PRODUCT_FAILURE),
        ([result(Product.INCOMPLETE, Harness.INFRASTRUCTURE)], ExitCode.INFRASTRUCTURE),
        ([result(Product.FAILED, Harness.INFRASTRUCTURE)], ExitCode.PRODUCT_FAILURE),
        ([], ExitCode.INFRASTRUCTURE),
    ],
)
def test_the_exit_code_of_a_run(rows: list[PlatformResult], expected: ExitCode) -> None:
    assert exit_code(rows) is expected


@pytest.mark.parametrize("found", [it for it in Product if it is not Product.PASSED])
@pytest.mark.parametrize("harness", list(Harness))
def test_a_platform_that_did_not_pass_is_never_a_success(found: Product, harness: Harness) -> None:
    assert exit_code([PASSED, result(found, harness)]) is not ExitCode.PASSED


@pytest.mark.parametrize(
    ("judgements", "gaps", "fail_on", "expected"),
    [
        ([Judgement.IMPROVEMENT, Judgement.ACCEPTED, Judgement.SMALL_RISE], [], "suspected", 0),
        ([Judgement.SUSPECTED], [], "regression", 0),
        ([Judgement.SUSPECTED], [], "suspected", 4),
        ([Judgement.REGRESSION], ["no tests"], "regression", 4),
        ([Judgement.SUSPECTED], ["no tests"], "regression", 2),
    ],
)
def test_the_exit_code_of_a_comparison(
    judgements: list[Judgement], gaps: list[str], fail_on: str, expected: int
) -> None:
    subject = Subject(judgements=judgements, gaps=gaps)
    assert COMPARISON.exit_code(subject, fail_on) == expected


@pytest.mark.parametrize(
    ("judgements", "gaps", "fail_on", "expected"),
    [
        ([Judgement.SUSPECTED, Judgement.ENVIRONMENT], [], None, 0),
        ([Judgement.ENVIRONMENT], [], "environment", 4),
        ([Judgement.REGRESSION], ["cpu"], None, 4),
        ([], ["cpu"], "environment", 1),
    ],
)
def test_the_exit_code_of_a_history(
    judgements: list[Judgement], gaps: list[str], fail_on: str | None, expected: int
) -> None:
    assert HISTORY.exit_code(Subject(judgements=judgements, gaps=gaps), fail_on) == expected


def test_every_rule_is_in_a_gate_and_every_name_is_a_rule() -> None:
    assert {name for gate in GATES for name in (*gate.always, *gate.choices)} == {*RULES}
    assert [rule.name for rule in RESULTS.rules()] == [*RESULTS.always]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, Judgement.REGRESSION),
        ({"is_worse": False, "is_confirmed": False}, Judgement.IMPROVEMENT),
        ({"is_accepted": True, "is_undone": True}, Judgement.ACCEPTED),
        ({"is_undone": True}, Judgement.UNDONE),
        ({"is_small": True}, Judgement.SMALL_RISE),
        ({"is_confirmed": False}, Judgement.SUSPECTED),
        ({"runs_of_wall_alone": 19}, Judgement.SUSPECTED),
        ({"runs_of_wall_alone": 20}, Judgement.REGRESSION),
        ({"with_environment": True}, Judgement.ENVIRONMENT),
        ({"with_environment": True, "is_confirmed": False}, Judgement.SUSPECTED),
    ],
)
def test_what_a_regression_of_cost_is(change: dict[str, bool], expected: Judgement) -> None:
    assert judge_change(**{"is_worse": True, "is_accepted": False, **change}) is expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (PASSED, Standing.PASSED),
        (FAILED, Standing.FAILED),
        (CRASHED, Standing.INCOMPLETE),
        (result(Product.FAILED, built=False), Standing.NOT_BUILT),
        (LOST, None),
        (NOT_RUN, None),
    ],
)
def test_how_a_platform_stands(found: PlatformResult, expected: Standing | None) -> None:
    assert standing(found) is expected
