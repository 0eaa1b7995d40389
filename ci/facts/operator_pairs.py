"""The pairs of an operator overload and a dtype that a platform executes, by slot.

They come from the names and outcomes of tests alone. So a log, the store and a contract, which
lacks the records of operator tests, give the same pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ci.facts.sentences import on_tests
from ci.facts.suite import Outcomes, dtype_of, suite_from
from ci.model.outcomes import OperatorTest, State
from ci.model.verdicts import Product, Verdict

# Evidence on a suite that ran to the end where it should.
_OF_WHOLE_SUITES = {
    it.code
    for it in (
        on_tests.contract_broken,
        on_tests.failed_tests,
        on_tests.skipped_tests,
        on_tests.suite_passed,
        on_tests.torch_decided,
    )
}


class OperatorPair(NamedTuple):
    """An overload with a dtype on a slot: ``add.out``, ``float32``, 8."""

    overload: str
    dtype: str
    slot: int


@dataclass(frozen=True, kw_only=True)
class OperatorPairs:
    """The pairs of a platform, each in one of three sets."""

    passed: frozenset[OperatorPair]
    """At least one test passed, and none failed."""
    failed: frozenset[OperatorPair]
    """At least one test failed."""
    idle: Mapping[OperatorPair, State]
    """No test passed or failed; the state of one of them."""

    @property
    def executed(self) -> frozenset[OperatorPair]:
        """The pairs of which a test passed or failed; a failed test may not have got that far."""
        return self.passed | self.failed


def executed_pairs(outcomes: Outcomes) -> OperatorPairs:
    """Return the pairs of a run: ``store.outcomes(...)``, or ``outcomes_of(log.tests)``.

    Only tests for the main device of the run count. Whether they ran on this device, and on the
    slots in their names, their outcomes do not show: see ``is_proof``.
    """
    return pairs_of(suite_from(outcomes.states, outcomes.device).operators)


def is_proof(verdict: Verdict) -> bool:
    """Whether the outcomes of a run prove what its platform executes.

    They do not if the tests ran elsewhere, or if some may be missing. Older results without codes
    prove it only if they passed.
    """
    if verdict.product is Product.PASSED:
        return True
    codes = {it.code for it in verdict.evidence}
    return verdict.product is Product.FAILED and bool(codes) and codes <= _OF_WHOLE_SUITES


def pairs_of(operators: Mapping[OperatorTest, State]) -> OperatorPairs:
    """Return the pairs of operator tests, such as those of a contract's suite."""
    passed: set[OperatorPair] = set()
    failed: set[OperatorPair] = set()
    idle: dict[OperatorPair, State] = {}
    for test, state in operators.items():
        pair = OperatorPair(test.overload, dtype_of(test.variant), test.slot)
        if state.idle:
            idle.setdefault(pair, state)
        else:
            (failed if state.outcome.bad else passed).add(pair)
    executed = passed | failed
    return OperatorPairs(
        passed=frozenset(passed - failed),
        failed=frozenset(failed),
        idle={pair: state for pair, state in idle.items() if pair not in executed},
    )
