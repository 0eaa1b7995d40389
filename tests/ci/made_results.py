"""Parts of results."""

from __future__ import annotations

from ci.model.outcomes import Outcome, TestOutcome
from ci.model.verdicts import Evidence, Grade, Harness, Product, Verdict


def made_test(
    name: str,
    outcome: Outcome = Outcome.PASSED,
    *,
    seconds: float = 0.5,
    reason: str | None = None,
    skip_reason: str | None = None,
) -> TestOutcome:
    """A test that has ended, by its node id."""
    return TestOutcome(
        node_id=name, outcome=outcome, seconds=seconds, reason=reason, skip_reason=skip_reason
    )


def made_verdict(product: Product, *facts: str, harness: Harness = Harness.CLEAN) -> Verdict:
    """A verdict with facts as its evidence."""
    evidence = tuple(Evidence(grade=Grade.FACT, text=text) for text in facts)
    return Verdict(product=product, harness=harness, evidence=evidence)
