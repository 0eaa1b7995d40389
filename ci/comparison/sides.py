"""The tests of the two that are compared: those of a run, or those that a contract expects."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ci.comparison.references import Runs
from ci.pytest_log import Outcome
from ci.results import PlatformResult, Product, PytestResult, title

if TYPE_CHECKING:
    from ci.analysis.contract import Contract
    from ci.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two that are compared, on one platform."""

    name: str
    platform: str
    counts: Counter[Outcome]
    simulated: bool = False
    run_id: str | None = None
    """``None``: a contract."""
    origin: str = ""
    """How the run follows from what was named."""
    missing: str | None = None
    """Why there are no tests."""
    is_broken: bool = False
    """Its build failed."""
    selected: str | None = None
    """The only operators that it has; ``None``: it has all."""

    @property
    def title(self) -> str:
        return title(self.name, simulated=self.simulated)


def contract_side(name: str, contract: Contract) -> Side:
    return Side(
        name=name,
        platform=contract.platform,
        counts=contract.suite.counts(),
        simulated=contract.simulated,
    )


def run_side(store: Store, runs: Runs, result: PlatformResult) -> Side:
    run_id, pytest = runs.runs[result.platform].run_id, result.pytest
    counts = _counts(pytest) if pytest else Counter()
    # Where the per-test log is lost, the counts are those of pytest's closing summary.
    lost = (
        counts.total() > 0
        and result.verdict.product is not Product.PASSED
        and not store.outcomes(run_id, result.platform).names
    )
    incomplete = pytest is not None and not pytest.summary
    note = " (its tests did not get to their end)" if incomplete else ""
    return Side(
        name=f"{run_id}/{result.platform}{note}",
        platform=result.platform,
        counts=counts,
        simulated=result.simulated,
        run_id=run_id,
        origin=runs.origin(result.platform),
        missing=None if pytest and not lost else result.verdict.evidence[0].text,
        is_broken=result.built is False,
        selected=result.facts("selection").get("operators"),
    )


def _counts(pytest: PytestResult) -> Counter[Outcome]:
    return Counter(
        {
            Outcome.PASSED: pytest.passed,
            Outcome.FAILED: pytest.failed,
            Outcome.ERROR: pytest.errors,
            Outcome.SKIPPED: pytest.skipped,
            Outcome.XFAILED: pytest.xfailed,
            Outcome.XPASSED: pytest.xpassed,
        }
    )
