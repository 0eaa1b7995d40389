"""A run as a tree of spans, by OpenTelemetry's conventions for CI/CD. Pure.

https://opentelemetry.io/docs/specs/semconv/cicd/cicd-spans/ describes the attributes.

Results have durations, and the start of the run alone. So all platforms begin with the run, and a
stage begins where the one before it ends: durations are measured, starts are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ci.model.results import PlatformResult, RunResult, StageResult
from ci.model.verdicts import Harness, Product

Attributes = Mapping[str, str | float | bool]
SUCCESS, FAILURE, ERROR, TIMEOUT, SKIP = ("success", "failure", "error", "timeout", "skip")
RESULTS = {Product.PASSED: SUCCESS, Product.FAILED: FAILURE, Product.NOT_RUN: SKIP}
ORDER = (TIMEOUT, ERROR, FAILURE, SKIP, SUCCESS)  # of the platforms' results, the worst first


@dataclass(frozen=True, kw_only=True)
class TraceSpan:
    """A part of a run, with the parts that it has itself."""

    name: str
    start: datetime
    seconds: float
    result: str
    """One of the values of ``cicd.pipeline.result``."""
    attributes: Attributes
    children: Sequence[TraceSpan] = ()

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds)


def trace_of_run(run: RunResult) -> TraceSpan:
    """Return the span of a run, with one for each platform, and in these one for each stage."""
    start = run.started_at.astimezone(UTC)
    platforms = [_platform_span(run, row, start) for row in run.platforms]
    results = {span.result for span in platforms}
    result = next(it for it in ORDER if it in results)
    seconds = (run.finished_at - run.started_at).total_seconds()
    attributes = {
        "cicd.pipeline.name": run.project,
        "cicd.pipeline.run.id": run.run_id,
        "cicd.pipeline.result": result,
        "infini_ci.engine": run.engine,
        **({"vcs.ref.head.revision": run.commit} if run.commit else {}),
        **({"vcs.ref.head.name": run.lineage.branch} if run.lineage.branch else {}),
    }
    return TraceSpan(
        name=f"RUN {run.project}",
        start=start,
        seconds=max(seconds, *(span.seconds for span in platforms)),
        result=result,
        attributes=attributes,
        children=platforms,
    )


def _platform_span(run: RunResult, row: PlatformResult, start: datetime) -> TraceSpan:
    begin, stages = start, list[TraceSpan]()
    for stage in row.stages:
        if stage.seconds is not None:  # it ran
            stages.append(_stage_span(run, row, stage, begin))
            begin = stages[-1].end
    result = RESULTS.get(row.verdict.product, ERROR)
    if row.verdict.harness is Harness.TIMED_OUT:
        result = TIMEOUT
    elif row.verdict.product is Product.NOT_RUN and row.verdict.harness is not Harness.CLEAN:
        result = ERROR
    columns = {
        "infini_ci.build_install_s": row.build_install_s,
        "infini_ci.pytest_s": row.pytest_s,
        "infini_ci.total_s": row.total_s,
    }
    attributes = {
        **_task(row.label, f"{run.run_id}/{row.platform}", result),
        "infini_ci.platform": row.platform,
        "infini_ci.verdict.product": row.verdict.product,
        "infini_ci.verdict.harness": row.verdict.harness,
        **{name: value for name, value in columns.items() if value is not None},
    }
    return TraceSpan(
        name=row.label,
        start=start,
        seconds=sum(span.seconds for span in stages),
        result=result,
        attributes=attributes,
        children=stages,
    )


def _stage_span(
    run: RunResult, row: PlatformResult, stage: StageResult, start: datetime
) -> TraceSpan:
    result = ERROR if stage.exit_code is None else SUCCESS if stage.exit_code == 0 else FAILURE
    attributes = {
        **_task(stage.name, f"{run.run_id}/{row.platform}/{stage.name}", result),
        "infini_ci.in_total": stage.in_total,
        **({} if stage.exit_code is None else {"process.exit.code": stage.exit_code}),
    }
    return TraceSpan(
        name=stage.name,
        start=start,
        seconds=stage.seconds or 0.0,
        result=result,
        attributes=attributes,
    )


def _task(name: str, task_id: str, result: str) -> dict[str, str | float | bool]:
    return {
        "cicd.pipeline.task.name": name,
        "cicd.pipeline.task.run.id": task_id,
        "cicd.pipeline.task.run.result": result,
    }
