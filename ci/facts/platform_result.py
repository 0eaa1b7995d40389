"""Make a ``PlatformResult`` from a platform's results folder and the engine's facts.

The steps: ``ResultFiles`` -> ``Case`` -> ``Verdict`` -> notes -> the row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import accumulate
from typing import TypeVar

from pydantic import BaseModel, JsonValue

from ci.facts.benchmarks import within_limits
from ci.facts.case import UNFINISHED, Case
from ci.facts.failures import failures_of
from ci.facts.notes import cache_notes, notes_of, requirement_notes, source_notes, tool_notes
from ci.facts.result_files import ResultFiles
from ci.facts.sentences import on_artifacts, on_rows, on_stages
from ci.facts.shards import shard_results
from ci.facts.verdict import judge, not_run
from ci.model.execution import ExecutionFacts
from ci.model.outcomes import Outcome
from ci.model.plan import RunPlan
from ci.model.results import PlatformResult, PytestResult, StageResult, selected_title, title
from ci.model.verdicts import Evidence, Product
from ci.protocol.events import StageFinished
from ci.protocol.job import Column, StagePlan
from ci.protocol.pytest_status import TESTS_FAILED
from ci.util.text import mask_credentials

Item = TypeVar("Item")

# Bytes of JSON, so that results.json of seven platforms can be read again whatever a log holds: see
# `LARGEST_DOCUMENT` in ci.model.fields. Evidence of a broken contract has some hundred lines.
LARGEST_PART = 1 << 17
MOST_OVERLOADS = 200  # counts: ten slots on the devices of all platforms are 70
LONGEST_TEXT = 4000  # characters of evidence or a note

_COUNTS = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed")


def judged_result(plan: RunPlan, facts: ExecutionFacts, files: ResultFiles) -> PlatformResult:
    """Judge a platform by the files in its results folder."""
    case = _case(plan, facts, files)
    verdict = judge(case)
    environment = {**_environment(case, files), "trust": plan.trust.value}
    measured = [it for reading in case.benchmarks.values() for it in reading.results]
    benchmarks = within_limits(measured)
    notes = (
        *notes_of(case, verdict),
        *_benchmark_notes(case, len(measured) - len(benchmarks)),
        *requirement_notes(environment, case.failed_commands),
        *source_notes(environment, case.pytest_stage),
        *tool_notes(environment),
        *cache_notes(environment),
    )
    build, pytest = (_column_seconds(case, c) for c in (Column.BUILD_INSTALL, Column.PYTEST))
    stages = (_stage_result(stage, case.end_of(stage)) for stage in plan.stages)
    result = PlatformResult(
        platform=plan.platform,
        label=selected_title(
            title(plan.label, plan.platform, simulated=case.simulated), _selected(case)
        ),
        simulated=case.simulated,
        built=_built(case),
        pytest=_pytest_result(case),
        overloads=case.overloads,
        stages=(*_engine_stages(facts), *stages),
        build=files.build.result if files.build else None,
        build_install_s=build,
        pytest_s=pytest,
        total_s=None if build is None or pytest is None else build + pytest,
        verdict=verdict,
        findings=tuple(_changed(it, mask_credentials) for it in notes),
        environment=environment,
        artifacts=files.artifacts,
        failures=failures_of(case, verdict, files),
        shards=tuple(shard_results(case.pytest_stage, case.shards)),
        benchmarks=benchmarks,
        distributions=tuple(case.distributions),
    )
    return _within_bounds(result)


def _benchmark_notes(case: Case, left_out: int) -> Iterator[Evidence]:
    for stage, reading in case.benchmarks.items():
        if reading.without_value:
            yield on_artifacts.benchmarks_without_value(stage, reading.without_value)
    if left_out:
        yield on_artifacts.benchmarks_left_out(left_out)


def _within_bounds(result: PlatformResult) -> PlatformResult:
    """Cut what only a hostile log makes long; notes count what is then missing."""
    evidence = _fitting([*map(_cut, result.verdict.evidence)], BaseModel.model_dump)
    artifacts = _fitting([*result.artifacts.items()], lambda it: it)
    missing = {
        "reason": len(result.verdict.evidence) - len(evidence),
        "overload count": len(result.overloads) - MOST_OVERLOADS,
        "file": len(result.artifacts) - len(artifacts),
    }
    notes = (
        *_fitting([*map(_cut, result.findings)], BaseModel.model_dump),
        *(on_rows.not_listed(count, what) for what, count in missing.items() if count > 0),
    )
    verdict = result.verdict.model_copy(update={"evidence": tuple(evidence)})
    changes = {
        "verdict": verdict,
        "findings": notes,
        "artifacts": dict(artifacts),
        "failures": tuple(_fitting(result.failures, BaseModel.model_dump)),
        "overloads": result.overloads[:MOST_OVERLOADS],
    }
    return result.model_copy(update=changes)


def _cut(it: Evidence) -> Evidence:
    """Cut the text and the parameters of a finding."""
    return _changed(it, lambda text: text[:LONGEST_TEXT])


def _changed(it: Evidence, change: Callable[[str], str]) -> Evidence:
    """Change each text of a finding."""

    def changed(value: JsonValue) -> JsonValue:
        if isinstance(value, list):
            return [*map(changed, value)]
        return change(value) if isinstance(value, str) else value

    parameters = {name: changed(value) for name, value in it.parameters.items()}
    return it.model_copy(update={"text": change(it.text), "parameters": parameters})


def _fitting(items: Sequence[Item], content: Callable[[Item], object]) -> Sequence[Item]:
    """Return the first items, as many as a part of ``results.json`` may have."""
    sizes = accumulate(len(json.dumps(content(item))) for item in items)
    return items[: sum(size <= LARGEST_PART for size in sizes)]


def not_run_result(plan: RunPlan, reason: str) -> PlatformResult:
    """Return the result of a platform whose stages did not start."""
    reason = mask_credentials(reason)
    result = PlatformResult(
        platform=plan.platform,
        label=plan.title,
        simulated=plan.simulated,
        built=None,
        pytest=None,
        stages=tuple(_stage_result(stage, None) for stage in plan.stages),
        build_install_s=None,
        pytest_s=None,
        total_s=None,
        verdict=not_run(reason),
        findings=(on_stages.not_run(reason),),
        environment={
            **({"selection": {"operators": plan.selected}} if plan.selected else {}),
            **_search(plan),
        },
        artifacts=ResultFiles(folder=plan.results).artifacts,
    )
    return _within_bounds(result)


def _search(plan: RunPlan) -> dict[str, JsonValue]:
    """The mark of a run that searches a commit: its command."""
    return {"search": {"command": plan.asked_by}} if plan.asked_by else {}


def not_judged_result(plan: RunPlan, reason: str) -> PlatformResult:
    """Return the result of a platform that started but could not be judged."""
    result = not_run_result(plan, reason)
    verdict = result.verdict.model_copy(update={"product": Product.INCOMPLETE})
    findings = (on_stages.not_judged(mask_credentials(reason)), *result.findings[1:])
    return result.model_copy(update={"verdict": verdict, "findings": findings})


def with_kept(result: PlatformResult, name: str) -> PlatformResult:
    """Return the result of a platform whose container, or work folder, ``name`` stays."""
    engine = {**result.facts("engine"), "kept": name}
    return result.model_copy(
        update={
            "environment": {**result.environment, "engine": engine},
            "findings": (*result.findings, on_rows.kept(name)),
        }
    )


def _case(plan: RunPlan, facts: ExecutionFacts, files: ResultFiles) -> Case:
    stage = plan.pytest_stage
    output, log = files.output(stage), files.log
    end = files.record.finished_stages.get(stage.name)
    # Before the session ends, a line like a summary is a test's own output. But the summary is the
    # only source if the per-test log is lost, or truncated although pytest returned an exit code.
    returned = end is not None and end.exit_code in (TESTS_FAILED, *UNFINISHED)
    is_cut = log is not None and log.tests and log.exit_status is None and not returned
    return Case(
        plan=plan,
        record=files.record,
        tests=log,
        output=replace(output, summary=None, ending=None) if is_cut else output,
        facts=facts,
        torch=_torch_version(files),
        reruns=files.reruns,
        benchmarks=files.benchmarks,
        agent_file=files.agent_file,
        distributions=files.distributions(plan.given),
    )


def _torch_version(files: ResultFiles) -> str | None:
    packages = files.environment.get("packages")
    version = packages.get("torch") if isinstance(packages, dict) else None
    return version if isinstance(version, str) else None


def _environment(case: Case, files: ResultFiles) -> dict[str, JsonValue]:
    """Return the records of the agent, of the engine and of the tests."""
    facts, image = case.facts, case.facts.image
    engine: dict[str, JsonValue] = {
        "name": facts.engine,
        "version": facts.engine_version,
        "seconds": facts.wrapper_seconds,
    }
    if image is not None:
        # Its seconds are those of the stage `image`.
        engine["image"] = {k: value for k, value in asdict(image).items() if k != "seconds"}
    environment = {**files.environment, "engine": engine, **_search(case.plan)}
    if case.tests and case.tests.processor:
        environment["processor"] = case.tests.processor.facts
    if selected := _selected(case):
        counts = case.selection.counts if case.selection else {}
        environment["selection"] = {"operators": selected, **counts}
    return environment


def _selected(case: Case) -> str | None:
    """Return the operators that were requested or that the library has; ``None``: all."""
    return case.plan.selected or (case.selection.asked if case.selection else None)


def _column_seconds(case: Case, column: Column) -> float | None:
    """Return the seconds of the column's stages; ``None`` if one of them has no result."""
    ends = [case.end_of(stage) for stage in case.plan.stages if stage.column is column]
    finished = [end.seconds for end in ends if end is not None]
    return sum(finished) if finished and len(finished) == len(ends) else None


def _built(case: Case) -> bool | None:
    stages = [stage for stage in case.plan.stages if stage.column is Column.BUILD_INSTALL]
    found = [case.end_of(stage) for stage in stages]
    ends = [end for end in found if end is not None and not end.interrupted]
    if any(end.failed for end in ends):
        return False
    return True if stages and len(ends) == len(stages) else None


def _pytest_result(case: Case) -> PytestResult | None:
    """Return the counts of the per-test log; of the summary if the log is lost or truncated."""
    tests = case.tests
    summary = case.output.summary if case.pytest_runs <= 1 else None  # that of one run
    # The summary has "1 error" or "2 errors".
    if summary is not None and not case.session_ended:
        counts = {name: summary.count(name, name.removesuffix("s")) for name in _COUNTS}
        warnings = summary.count("warning", "warnings")
    elif tests is not None:
        counts = {name: tests.count(Outcome(name.removesuffix("s"))) for name in _COUNTS}
        warnings = tests.warnings
    else:
        return None
    return PytestResult(
        **counts,
        warnings=warnings,
        deselected=None,
        seconds=summary.seconds if summary else None,
        summary=summary.text if summary else None,
    )


def _engine_stages(facts: ExecutionFacts) -> Iterator[StageResult]:
    """Yield the engine's own steps; measured, but not part of the total."""
    if facts.image is not None:
        seconds = facts.image.seconds
        yield StageResult(name="image", seconds=seconds, exit_code=0, in_total=False)
    if facts.sync_seconds:  # zero: an earlier process copied them, and its time is lost
        yield StageResult(name="sync", seconds=facts.sync_seconds, exit_code=0, in_total=False)


def _stage_result(stage: StagePlan, end: StageFinished | None) -> StageResult:
    """Return the cost of a stage; its fields have the same names in the agent's event."""
    measured = StageResult.model_fields.keys() - {"name", "in_total"}
    return StageResult(
        name=stage.name,
        in_total=stage.column is not Column.NONE,
        **{name: getattr(end, name, None) for name in measured},
    )
