"""Results as the strings of the table; seconds are rounded here and nowhere before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ci.results import PlatformResult, PytestResult, RunResult, StageResult

MISSING = "-"


class Row(NamedTuple):
    """One platform."""

    platform: str
    built: str
    pytest_result: str
    build_install: str
    pytest: str
    total: str
    notes: str


HEADINGS = Row(
    platform="Platform",
    built="Built",
    pytest_result="`pytest` Result",
    build_install="build/install",
    pytest="pytest",
    total="total",
    notes="Notes",
)


class StageRow(NamedTuple):
    """One stage of a platform."""

    stage: str
    seconds: str
    cpu_user: str
    cpu_system: str
    peak_memory: str
    exit_code: str
    in_total: str


STAGE_HEADINGS = StageRow(
    stage="Stage",
    seconds="wall",
    cpu_user="CPU user",
    cpu_system="CPU system",
    peak_memory="peak memory",
    exit_code="exit code",
    in_total="in total",
)


def origin(run: RunResult) -> str:
    """Where the results come from, on one line."""
    commit = f"commit {run.commit[:12]}" if run.commit else "no commit"
    changes = " with uncommitted changes" if run.dirty else ""
    return f"{commit}{changes}, {run.engine} engine, {run.started_at:%Y-%m-%d %H:%M:%S} UTC"


def table_rows(platforms: Sequence[PlatformResult]) -> list[Row]:
    """The rows of the results table."""
    return [_row(platform) for platform in platforms]


def _row(result: PlatformResult) -> Row:
    return Row(
        platform=result.label,
        built={True: "Yes", False: "No", None: MISSING}[result.built],
        pytest_result=_pytest(result.pytest),
        build_install=whole_seconds(result.build_install_s),
        pytest=whole_seconds(result.pytest_s),
        total=whole_seconds(result.total_s),
        notes=_sentence("; ".join(result.notes)),
    )


def _pytest(result: PytestResult | None) -> str:
    if result is None:
        return "not run"
    if result.summary is not None:
        return result.summary
    counts = {name: getattr(result, name) for name in ("failed", "passed", "skipped", "errors")}
    parts = [f"{count} {name}" for name, count in counts.items() if count]
    return f"no summary; until its end: {', '.join(parts) or 'no test'}"


def _sentence(text: str) -> str:
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def whole_seconds(seconds: float | None) -> str:
    """``889s``."""
    return MISSING if seconds is None else f"{seconds:.0f}s"


def stage_rows(stages: Sequence[StageResult]) -> list[StageRow]:
    """The rows of the breakdown."""
    return [
        StageRow(
            stage=stage.name,
            seconds=_seconds(stage.seconds),
            cpu_user=_seconds(stage.cpu_user_s),
            cpu_system=_seconds(stage.cpu_system_s),
            peak_memory=_mebibytes(stage.peak_rss_bytes),
            exit_code="not run" if stage.seconds is None else _or_missing(stage.exit_code),
            in_total="yes" if stage.in_total else "no",
        )
        for stage in stages
    ]


def _seconds(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{seconds:.1f} s"


def _mebibytes(count: int | None) -> str:
    return MISSING if count is None else f"{count / 2**20:.0f} MiB"


def _or_missing(value: int | None) -> str:
    return MISSING if value is None else str(value)
