"""From a platform's results folder and the engine's facts to a ``PlatformResult``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from ci.facts.build import Build, read_build
from ci.facts.case import TESTS_FAILED, UNFINISHED, Case
from ci.facts.events import parse_events
from ci.facts.files import lines_of as log_lines
from ci.facts.files import text_of
from ci.facts.notes import cache_notes, notes_of
from ci.facts.pytest_log import closing_summary, collected_tests, parse_log
from ci.facts.reruns import read_reruns
from ci.facts.verdict import judge, not_run
from ci.model.details import Details, Rerun
from ci.model.events import RunRecord, StageFinished
from ci.model.plan import Column, RunPlan, StageKind, StagePlan
from ci.model.results import (
    ExecutionFacts,
    PlatformResult,
    Product,
    PytestResult,
    StageResult,
    title,
)
from ci.model.tests import ClosingSummary, Outcome, PytestLog
from ci.util.lines import (
    LARGEST_DOCUMENT,
    LONGEST_EVENT,
    LONGEST_REPORT,
    lines_of_file,
    parse_object,
)
from ci.util.text import mask_credentials, printable, storable_json

EVENTS = "events.jsonl"
PYTEST_LOG = "pytest.jsonl"
ENVIRONMENT = "environment.json"
LAST_LINES = 5
LONGEST_LINE = 200  # characters
TAIL = 16 * 1024  # bytes in which the last lines are looked for


@dataclass(frozen=True, kw_only=True)
class Left:
    """What a run left in a platform's results folder, each read once."""

    record: RunRecord
    log: PytestLog | None
    """The per-test log, if pytest began one."""
    reruns: Sequence[Rerun]
    built: Build | None

    @property
    def details(self) -> Details:
        """What the store keeps of a platform beside its result."""
        return Details(
            tests=self.log.tests if self.log else (),
            reruns=self.reruns,
            build=self.built.details if self.built else None,
        )


def read_left(folder: Path, *, build_stages: Iterable[str] = ()) -> Left:
    """Read a platform's results folder; the logs of ``build_stages`` say more of the build."""
    log, record = read_log(folder), read_record(folder)
    return Left(
        record=record,
        log=log,
        reruns=read_reruns(folder, log, record),
        built=read_build(folder, stages=build_stages),
    )


def build_stages(plan: RunPlan) -> list[str]:
    """The names of the stages that build."""
    return [stage.name for stage in plan.stages if stage.column is Column.BUILD_INSTALL]


def judged(plan: RunPlan, facts: ExecutionFacts, left: Left) -> PlatformResult:
    """Judge a platform by what a run left in its results folder."""
    [tests] = (stage for stage in plan.stages if stage.kind is StageKind.PYTEST)
    output = plan.results / f"{tests.name}.log"
    case = Case(
        stages=plan.stages,
        record=left.record,
        tests=left.log,
        facts=facts,
        collected=collected_tests(log_lines(output)),
        summary=_summary(left, tests.name, output),
        last_lines=_last_lines(output),
        # The host engine has no way to set one.
        memory_limit_bytes=None if facts.engine == "host" else plan.container.memory_bytes,
        platform=plan.platform,
        torch_device=plan.torch_device,
        asked_simulated=plan.simulated,
        contract=plan.contract,
        selected=plan.selection.operators if plan.selection else None,
        reruns=left.reruns,
    )
    verdict = judge(case)
    environment = _environment(plan.results, facts)
    if left.log and left.log.processor:
        environment["processor"] = left.log.processor.facts
    if selected := case.selected or (case.selection and case.selection.asked):
        counts = case.selection.counts if case.selection else {}
        environment["selection"] = {"operators": selected, **counts}
    notes = (*notes_of(case, verdict), *cache_notes(environment))
    build, pytest = (_column_seconds(case, c) for c in (Column.BUILD_INSTALL, Column.PYTEST))
    return PlatformResult(
        platform=plan.platform,
        label=title(plan.label, simulated=case.simulated),
        simulated=case.simulated,
        built=_built(case),
        pytest=_pytest_result(case),
        overloads=case.overloads,
        stages=(*_engine_stages(facts), *(_stage_result(case, stage) for stage in plan.stages)),
        build=left.built.result if left.built else None,
        build_install_s=build,
        pytest_s=pytest,
        total_s=None if build is None or pytest is None else build + pytest,
        verdict=verdict,
        notes=tuple(map(mask_credentials, notes)),
        environment=environment,
        artifacts=_artifacts(plan.results),
    )


def not_run_result(plan: RunPlan, reason: str) -> PlatformResult:
    """The result of a platform whose stages never began."""
    reason = mask_credentials(reason)
    stages = tuple(
        StageResult(name=stage.name, seconds=None, exit_code=None, in_total=_in_total(stage))
        for stage in plan.stages
    )
    return PlatformResult(
        platform=plan.platform,
        label=title(plan.label, simulated=plan.simulated),
        simulated=plan.simulated,
        built=None,
        pytest=None,
        stages=stages,
        build_install_s=None,
        pytest_s=None,
        total_s=None,
        verdict=not_run(reason),
        notes=(f"not run: {reason.splitlines()[0]}",),
        environment={},
        artifacts=_artifacts(plan.results),
    )


def not_judged_result(plan: RunPlan, reason: str) -> PlatformResult:
    """Return the row of a platform that began and could not be judged."""
    result = not_run_result(plan, reason)
    verdict = result.verdict.model_copy(update={"product": Product.INCOMPLETE})
    note = f"not judged: {mask_credentials(reason).splitlines()[0]}"
    return result.model_copy(update={"verdict": verdict, "notes": (note,)})


def read_log(folder: Path) -> PytestLog | None:
    """The per-test log in a platform's results folder, if pytest began one."""
    path = folder / PYTEST_LOG
    if not path.is_file() or not path.stat().st_size:
        return None
    return parse_log(lines_of_file(path, LONGEST_REPORT))


def read_record(folder: Path) -> RunRecord:
    """The agent's record in a platform's results folder; empty if it never began."""
    path = folder / EVENTS
    return parse_events(lines_of_file(path, LONGEST_EVENT)) if path.is_file() else RunRecord()


def _summary(left: Left, stage: str, output: Path) -> ClosingSummary | None:
    """Return pytest's closing summary in the output of its stage.

    Before the end of the session, what looks like a summary is a test's own output. Where the
    per-test log is lost, or cut although pytest returned a code of its own, it is the only source.
    """
    log, end = left.log, left.record.finished_stages.get(stage)
    returned = end is not None and end.exit_code in (TESTS_FAILED, *UNFINISHED)
    if log is not None and log.tests and log.exit_status is None and not returned:
        return None
    return closing_summary(log_lines(output))


def _last_lines(output: Path) -> tuple[str, ...]:
    """The end of a stage's output, fit to be shown."""
    if not output.is_file():
        return ()
    with output.open("rb") as file:
        file.seek(max(output.stat().st_size - TAIL, 0))
        text = printable(mask_credentials(file.read().decode(errors="replace")))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return tuple(line[:LONGEST_LINE] for line in lines[-LAST_LINES:])


def _in_total(stage: StagePlan) -> bool:
    return stage.column is not Column.NONE


def _column_seconds(case: Case, column: Column) -> float | None:
    """Sum of the column's stages; ``None`` when one of them has no result."""
    ends = [case.finished(stage) for stage in case.stages if stage.column is column]
    finished = [end.seconds for end in ends if end is not None]
    return sum(finished) if finished and len(finished) == len(ends) else None


def _built(case: Case) -> bool | None:
    stages = [stage for stage in case.stages if stage.column is Column.BUILD_INSTALL]
    found = [case.finished(stage) for stage in stages]
    ends = [end for end in found if end is not None and not end.interrupted]
    if any(end.failed for end in ends):
        return False
    return True if stages and len(ends) == len(stages) else None


def _pytest_result(case: Case) -> PytestResult | None:
    """The counts of the per-test log; of the closing summary where that log is lost or cut."""
    tests, summary = case.tests, case.summary
    if summary is not None and not case.session_ended:
        return _from_summary(summary)
    if tests is None:
        return None
    return PytestResult(
        passed=tests.count(Outcome.PASSED),
        failed=tests.count(Outcome.FAILED),
        errors=tests.count(Outcome.ERROR),
        skipped=tests.count(Outcome.SKIPPED),
        xfailed=tests.count(Outcome.XFAILED),
        xpassed=tests.count(Outcome.XPASSED),
        warnings=tests.warnings,
        deselected=None,
        seconds=summary.seconds if summary else None,
        summary=summary.text if summary else None,
    )


def _from_summary(summary: ClosingSummary) -> PytestResult:
    return PytestResult(
        passed=summary.count("passed"),
        failed=summary.count("failed"),
        errors=summary.count("error", "errors"),
        skipped=summary.count("skipped"),
        xfailed=summary.count("xfailed"),
        xpassed=summary.count("xpassed"),
        warnings=summary.count("warning", "warnings"),
        deselected=None,
        seconds=summary.seconds,
        summary=summary.text,
    )


def _engine_stages(facts: ExecutionFacts) -> Iterator[StageResult]:
    """What the engine did itself; measured, never part of the total."""
    if facts.image is not None:
        seconds = facts.image.seconds
        yield StageResult(name="image", seconds=seconds, exit_code=0, in_total=False)
    if facts.sync_seconds:  # zero: another caller's, who did not live to tell
        yield StageResult(name="sync", seconds=facts.sync_seconds, exit_code=0, in_total=False)


def _stage_result(case: Case, stage: StagePlan) -> StageResult:
    end = case.finished(stage)
    if end is None:
        return StageResult(name=stage.name, seconds=None, exit_code=None, in_total=_in_total(stage))
    return _finished_stage(end, _in_total(stage))


def _finished_stage(end: StageFinished, in_total: bool) -> StageResult:
    return StageResult(
        name=end.stage,
        seconds=end.seconds,
        cpu_user_s=end.cpu_user_s,
        cpu_system_s=end.cpu_system_s,
        peak_rss_bytes=end.peak_rss_bytes,
        exit_code=end.exit_code,
        in_total=in_total,
    )


def _environment(folder: Path, facts: ExecutionFacts) -> dict[str, JsonValue]:
    """What the agent found inside, and how the engine got there."""
    engine: dict[str, JsonValue] = {
        "name": facts.engine,
        "version": facts.engine_version,
        "seconds": facts.wrapper_seconds,
    }
    if facts.image is not None:
        engine["image"] = {
            "reference": facts.image.reference,
            "digest": facts.image.digest,
            "built": facts.image.built,
            "reason": facts.image.reason,
            "base": facts.image.base,
            "base_digest": facts.image.base_digest,
        }
    return {**_agent_environment(folder / ENVIRONMENT), "engine": engine}


def _agent_environment(path: Path) -> dict[str, JsonValue]:
    """Return an empty mapping where the file is missing or invalid."""
    text = text_of(path, LARGEST_DOCUMENT)
    try:
        content: dict[str, JsonValue] = storable_json(text, parse_object(text)) if text else {}
    except ValueError:
        return {}
    return content


def _artifacts(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.glob("*") if path.is_file())
    return {path.name: f"{folder.name}/{path.name}" for path in files}
