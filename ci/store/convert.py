"""Results to rows and back, without loss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row

from ci.results import (
    BuildResult,
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

_RUN = ("run_id", "project", "commit", "dirty", "started_at", "finished_at", "engine")
_PLATFORM = ("platform", "label", "simulated", "built", "build_install_s", "pytest_s", "total_s")
_COUNTS = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed", "warnings", "deselected")
_STAGE = tuple(StageResult.model_fields)


def run_values(run: RunResult) -> dict[str, Any]:
    """What a run says of itself, its platforms apart."""
    return {name: getattr(run, name) for name in _RUN}


def platform_values(result: PlatformResult) -> dict[str, Any]:
    """What a platform's result says, its stages apart."""
    pytest, verdict = result.pytest, result.verdict
    return dict(
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
        build=result.build and result.build.model_dump(),
    )


def stage_values(result: PlatformResult) -> list[dict[str, Any]]:
    """The stages of a platform, in their order."""
    return [{"position": n, **stage.model_dump()} for n, stage in enumerate(result.stages)]


def run_result(row: Row[Any], platforms: Iterable[PlatformResult]) -> RunResult:
    """The run that these rows were made of."""
    fields = {name: getattr(row, name) for name in _RUN}
    return RunResult(**fields, platforms=tuple(platforms))


def platform_result(row: Row[Any], stages: Iterable[Row[Any]]) -> PlatformResult:
    """The result that ``platform_values`` and ``stage_values`` were given."""
    return PlatformResult(
        **{name: getattr(row, name) for name in _PLATFORM},
        pytest=_pytest_result(row),
        overloads=tuple(map(OverloadCount.model_validate, row.overloads or ())),
        stages=tuple(
            StageResult(**{name: getattr(stage, name) for name in _STAGE}) for stage in stages
        ),
        build=None if row.build is None else BuildResult.model_validate(row.build),
        verdict=Verdict(
            product=Product(row.product),
            harness=Harness(row.harness),
            evidence=tuple(Evidence.model_validate(evidence) for evidence in row.evidence),
        ),
        notes=tuple(row.notes),
        environment=row.environment,
        artifacts=row.artifacts,
    )


def _pytest_result(row: Row[Any]) -> PytestResult | None:
    if row.passed is None:
        return None
    counts = {name: getattr(row, name) for name in _COUNTS}
    return PytestResult(**counts, seconds=row.pytest_seconds, summary=row.pytest_summary)
