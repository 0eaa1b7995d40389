"""Results to rows and back, without loss."""

from __future__ import annotations

from ci.analysis import operators
from ci.pytest_log import Outcome, TestOutcome
from ci.results import (
    Evidence,
    Harness,
    OverloadCount,
    PlatformResult,
    Product,
    PytestResult,
    RunResult,
    StageResult,
    Verdict,
)
from ci.store.tables import OutcomeRow, PlatformRow, RunRow, StageRow

_RUN = ("run_id", "project", "commit", "dirty", "started_at", "finished_at", "engine")
_PLATFORM = ("platform", "label", "simulated", "built", "build_install_s", "pytest_s", "total_s")
_COUNTS = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed", "warnings", "deselected")
_STAGE = tuple(StageResult.model_fields)
# Without objects of their rows: 200,000 tests are read in 2.4 s instead of 9.6.
TEST_COLUMNS = (
    OutcomeRow.node_id,
    OutcomeRow.outcome,
    OutcomeRow.seconds,
    OutcomeRow.reason,
    OutcomeRow.skip_reason,
)


def set_run(row: RunRow, run: RunResult) -> None:
    """Take over what a run says of itself, its platforms apart."""
    for name in _RUN:
        setattr(row, name, getattr(run, name))


def platform_row(result: PlatformResult, position: int) -> PlatformRow:
    """The rows of a platform and its stages."""
    pytest, verdict = result.pytest, result.verdict
    return PlatformRow(
        position=position,
        **{name: getattr(result, name) for name in _PLATFORM},
        **{name: getattr(pytest, name) if pytest else None for name in _COUNTS},
        pytest_seconds=pytest and pytest.seconds,
        pytest_summary=pytest and pytest.summary,
        product=verdict.product,
        harness=verdict.harness,
        evidence=[evidence.model_dump(mode="json") for evidence in verdict.evidence],
        notes=list(result.notes),
        overloads=[count.model_dump() for count in result.overloads],
        environment=result.environment,
        artifacts=result.artifacts,
        stages=[
            StageRow(position=n, **stage.model_dump()) for n, stage in enumerate(result.stages)
        ],
    )


def run_result(row: RunRow) -> RunResult:
    """The run that these rows were made of."""
    fields = {name: getattr(row, name) for name in _RUN}
    return RunResult(**fields, platforms=tuple(map(platform_result, row.platforms)))


def platform_result(row: PlatformRow) -> PlatformResult:
    """The result that ``platform_row`` was given."""
    return PlatformResult(
        **{name: getattr(row, name) for name in _PLATFORM},
        pytest=_pytest_result(row),
        overloads=tuple(map(OverloadCount.model_validate, row.overloads or ())),
        stages=tuple(
            StageResult(**{name: getattr(stage, name) for name in _STAGE}) for stage in row.stages
        ),
        verdict=Verdict(
            product=Product(row.product),
            harness=Harness(row.harness),
            evidence=tuple(Evidence.model_validate(evidence) for evidence in row.evidence),
        ),
        notes=tuple(row.notes),
        environment=row.environment,
        artifacts=row.artifacts,
    )


def test_outcome(
    node_id: str, outcome: str, seconds: float, reason: str | None, skip_reason: str | None
) -> TestOutcome:
    """What ``TEST_COLUMNS`` hold; a run of old kept no skip reason but in its message."""
    if skip_reason is None and outcome == Outcome.SKIPPED:
        skip_reason = operators.skip_reason(None, reason)
    return TestOutcome(
        node_id=node_id,
        outcome=Outcome(outcome),
        seconds=seconds,
        reason=reason,
        skip_reason=skip_reason,
    )


def _pytest_result(row: PlatformRow) -> PytestResult | None:
    if row.passed is None:
        return None
    counts = {name: getattr(row, name) for name in _COUNTS}
    return PytestResult(**counts, seconds=row.pytest_seconds, summary=row.pytest_summary)
