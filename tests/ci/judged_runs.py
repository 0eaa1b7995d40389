"""Runs to judge: events, per-test logs and execution facts, as an engine leaves them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ci.facts.case import Case
from ci.facts.pytest_log import parse_log
from ci.facts.pytest_output import PytestOutput
from ci.facts.record import RunRecord
from ci.facts.suite import suite_of
from ci.model.execution import ExecutionFacts
from ci.model.outcomes import ClosingSummary, Outcome, PytestLog
from ci.model.plan import ContractPlan
from ci.protocol.events import Event, RunFinished, StageFinished, StageStarted
from ci.protocol.job import Column, StagePlan
from ci.protocol.stage_kind import StageKind
from tests.ci import made_plans, operator_log
from tests.ci.made_results import made_test


def stage(name: str, kind: StageKind = StageKind.COMMAND) -> StagePlan:
    column = Column.PYTEST if kind is StageKind.PYTEST else Column.BUILD_INSTALL
    return StagePlan(
        name=name, kind=kind, command=("pytest",), column=column, timeout_s=10.0, environment={}
    )


STAGES = (stage("install"), stage("pytest", StageKind.PYTEST))
FACTS = ExecutionFacts(engine="docker", engine_version="20.10", sync_seconds=0.1)


def end(name: str, exit_code: int = 0, **more: Any) -> StageFinished:
    fields = {"oom_kills": 0, "seconds": 12.0, **more}
    return StageFinished(stage=name, exit_code=exit_code, **fields)


def begin(name: str) -> StageStarted:
    return StageStarted(stage=name)


def last(exit_code: int = 0) -> RunFinished:
    return RunFinished(exit_code=exit_code)


def log(*outcomes: Outcome, status: int | None = 0, **more: Any) -> PytestLog:
    tests = tuple(
        made_test(f"t.py::test_{n}", outcome, seconds=0.1) for n, outcome in enumerate(outcomes)
    )
    fields = {"warnings": 0, "running": (), "crashed": (), "exit_status": status, **more}
    return PytestLog(tests=tests, **fields)


INSTALLED = end("install")
SUMMARY = ClosingSummary(text="2 passed in 0.1s", seconds=0.1)
PASSING = log(Outcome.PASSED, Outcome.PASSED, Outcome.SKIPPED)
FAILING = log(Outcome.PASSED, Outcome.FAILED, Outcome.ERROR, status=1)


PLAN = replace(made_plans.plan({**made_plans.CONFIG, "platforms": {"cpu": {}}}), stages=STAGES)


def case(tests: PytestLog | None, *events: Event, **facts: Any) -> Case:
    has_ended = tests is not None and tests.exit_status is not None
    return Case(
        plan=PLAN,
        record=RunRecord(events=events),
        tests=tests,
        output=PytestOutput(collected=None, summary=SUMMARY if has_ended else None),
        facts=replace(FACTS, **facts),
    )


def changed(given: Case, **changes: Any) -> Case:
    """The same run with other fields: of its plan, of pytest's output, or its own."""
    for name in ("plan", "output"):
        part = getattr(given, name)
        own = {it.name: changes.pop(it.name) for it in fields(part) if it.name in changes}
        changes[name] = replace(part, **own)
    return replace(given, **changes)


def limited(given: Case, memory_bytes: int | None) -> Case:
    """The same run with a memory limit."""
    return changed(given, container=replace(PLAN.container, memory_bytes=memory_bytes))


def operators(*tests: list[str]) -> PytestLog:
    return parse_log([line for test in tests for line in test] + [operator_log.FINISH])


def ran(tests: PytestLog | None, code: int = 0, **pytest_end: Any) -> Case:
    """A run of all stages, of which the agent reported everything."""
    failed = int(code != 0)
    pytest = end("pytest", code, **pytest_end)
    return case(tests, INSTALLED, pytest, last(failed), exit_code=failed)


def ended(tests: PytestLog, **changes: Any) -> Case:
    """A run in which nothing but the tests can be wrong."""
    return changed(ran(tests, tests.exit_status or 0), **changes)


def in_wrapper(given: Case, *command: str) -> Case:
    """The same run, whose test command is not pytest itself."""
    install, pytest, *others = given.plan.stages
    return changed(given, stages=(install, replace(pytest, command=command), *others))


def contract(*tests: list[str]) -> ContractPlan:
    expected = suite_of(operators(*tests).tests)
    return ContractPlan(suite=expected)


ADD, MUL = (operator_log.lines(name) for name in ("add.out", "mul.out"))
