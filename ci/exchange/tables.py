"""Flat tables of runs, for whoever has pandas or DuckDB: what their columns are, and their rows.

Units stand in the columns' names: ``_s`` seconds, ``_bytes`` bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TypeAlias

from ci.analysis.environment_key import EnvironmentKey, environment_key
from ci.analysis.measures import measures_of
from ci.pytest_log import TestOutcome
from ci.results import BuildResult, PlatformResult, PytestResult, RunResult

Row: TypeAlias = tuple[object, ...]
Tests: TypeAlias = Callable[[str], Sequence[TestOutcome]]  # of a platform of the run


class Kind(StrEnum):
    """What a column holds; any of it can be missing."""

    WORD = "word"  # one of few texts
    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "flag"
    TIME = "time"  # with a zone


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table: its columns in order, and the rows that a run adds to it."""

    columns: Mapping[str, Kind]
    rows: Callable[[RunResult, Tests], Iterator[Row]]


_PLATFORM = {"run_id": Kind.WORD, "platform": Kind.WORD}
_COUNTS = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed", "warnings")
_BUILD = {
    name: Kind.NUMBER if name.endswith("_s") else Kind.INTEGER for name in BuildResult.model_fields
}
_KEY = [part.name for part in fields(EnvironmentKey) if part.name != "platform"]
_NO_COUNTS = dict.fromkeys(PytestResult.model_fields)


def _run_rows(run: RunResult, _tests: Tests) -> Iterator[Row]:
    yield (
        run.run_id,
        run.project,
        run.commit,
        run.dirty,
        run.started_at,
        run.finished_at,
        run.engine,
    )


def _platform_rows(run: RunResult, _tests: Tests) -> Iterator[Row]:
    for result in run.platforms:
        key = environment_key(result)
        counts = result.pytest.model_dump() if result.pytest else _NO_COUNTS
        build = result.build or BuildResult()
        yield (
            run.run_id,
            result.platform,
            result.label,
            result.simulated,
            result.built,
            result.verdict.product.value,
            result.verdict.harness.value,
            *(counts[name] for name in _COUNTS),
            counts["summary"],
            result.build_install_s,
            result.pytest_s,
            result.total_s,
            *(getattr(build, name) for name in _BUILD),
            key.digest,
            *(getattr(key, name) for name in _KEY),
            "\n".join(evidence.text for evidence in result.verdict.evidence),
            "\n".join(result.notes),
        )


def _stage_rows(run: RunResult, _tests: Tests) -> Iterator[Row]:
    for result in run.platforms:
        for position, stage in enumerate(result.stages):
            yield (
                run.run_id,
                result.platform,
                position,
                stage.name,
                stage.seconds,
                stage.cpu_user_s,
                stage.cpu_system_s,
                stage.peak_rss_bytes,
                stage.exit_code,
                stage.in_total,
            )


def _measure_rows(run: RunResult, _tests: Tests) -> Iterator[Row]:
    for result in run.platforms:
        key = environment_key(result).digest
        for name, value in measures_of(result).items():
            yield (run.run_id, result.platform, key, name, value)


def _test_rows(run: RunResult, tests: Tests) -> Iterator[Row]:
    for result in run.platforms:
        for test in tests(result.platform):
            yield (
                run.run_id,
                result.platform,
                test.node_id,
                test.outcome.value,
                test.seconds,
                test.reason,
                test.skip_reason,
            )


TABLES: Mapping[str, Table] = {
    "runs": Table(
        columns={
            "run_id": Kind.TEXT,
            "project": Kind.WORD,
            "commit": Kind.TEXT,
            "dirty": Kind.FLAG,
            "started_at": Kind.TIME,
            "finished_at": Kind.TIME,
            "engine": Kind.WORD,
        },
        rows=_run_rows,
    ),
    "platforms": Table(
        columns={
            **_PLATFORM,
            "label": Kind.WORD,
            "simulated": Kind.FLAG,
            "built": Kind.FLAG,
            "product": Kind.WORD,
            "harness": Kind.WORD,
            **dict.fromkeys(_COUNTS, Kind.INTEGER),
            "pytest_summary": Kind.TEXT,
            "build_install_s": Kind.NUMBER,
            "pytest_s": Kind.NUMBER,
            "total_s": Kind.NUMBER,
            **_BUILD,
            "environment_key": Kind.WORD,
            **dict.fromkeys(_KEY, Kind.WORD),
            "evidence": Kind.TEXT,
            "notes": Kind.TEXT,
        },
        rows=_platform_rows,
    ),
    "stages": Table(
        columns={
            **_PLATFORM,
            "position": Kind.INTEGER,
            "stage": Kind.WORD,
            "wall_s": Kind.NUMBER,
            "cpu_user_s": Kind.NUMBER,
            "cpu_system_s": Kind.NUMBER,
            "peak_memory_bytes": Kind.INTEGER,
            "exit_code": Kind.INTEGER,
            "in_total": Kind.FLAG,
        },
        rows=_stage_rows,
    ),
    "measures": Table(
        columns={
            **_PLATFORM,
            "environment_key": Kind.WORD,
            "measure": Kind.WORD,
            "value": Kind.NUMBER,
        },
        rows=_measure_rows,
    ),
    "tests": Table(
        columns={
            **_PLATFORM,
            "test": Kind.WORD,
            "outcome": Kind.WORD,
            "duration_s": Kind.NUMBER,
            "reason": Kind.WORD,
            "skip_reason": Kind.WORD,
        },
        rows=_test_rows,
    ),
}


def of_platforms(run: RunResult, wanted: Sequence[str]) -> RunResult:
    """The run as if it had been of these platforms alone."""
    kept: tuple[PlatformResult, ...] = tuple(
        result for result in run.platforms if result.platform in wanted
    )
    return run.model_copy(update={"platforms": kept})
