"""Results as the strings of the table; seconds are rounded here and nowhere before."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from ci.facts.measures import Quantity, amount
from ci.model.results import (
    BuildResult,
    PlatformResult,
    Product,
    PytestResult,
    RunResult,
    StageResult,
)
from ci.report.console import plain, text_table
from ci.util.text import commit_name, counted, printable

MISSING = "-"
NOT_RUN = "not run"
NO_RESULT = "no result"  # it began, or may have begun
LAUNCHER = "launcher"


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
    commit = commit_name(run.commit, dirty=run.dirty)
    started = f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"{commit}, {run.engine} engine, {started}"


def table_rows(platforms: Sequence[PlatformResult]) -> list[Row]:
    """The rows of the results table."""
    return [_row(platform) for platform in platforms]


def _row(result: PlatformResult) -> Row:
    return Row(
        platform=result.label,
        built={True: "Yes", False: "No", None: MISSING}[result.built],
        pytest_result=_pytest(result.pytest) if result.pytest else _without_log(result),
        build_install=whole_seconds(result.build_install_s),
        pytest=whole_seconds(result.pytest_s),
        total=whole_seconds(result.total_s),
        notes=_sentence("; ".join(result.notes)),
    )


def _pytest(result: PytestResult) -> str:
    if result.summary is not None:
        return result.summary
    counts = {name: getattr(result, name) for name in ("failed", "passed", "skipped", "errors")}
    parts = [f"{count} {name}" for name, count in counts.items() if count]
    return f"no summary; until its end: {', '.join(parts) or 'no test'}"


def _without_log(result: PlatformResult) -> str:
    return NOT_RUN if result.pytest_s is None and _not_begun(result) else NO_RESULT


def _sentence(text: str) -> str:
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def whole_seconds(seconds: float | None) -> str:
    """``889s``."""
    return MISSING if seconds is None else f"{seconds:.0f}s"


def stage_rows(result: PlatformResult) -> list[StageRow]:
    """The rows of the breakdown: the stages, and what the engine took beside them."""
    not_begun = _not_begun(result)
    rows = [
        StageRow(
            stage=stage.name,
            seconds=_seconds(stage.seconds),
            cpu_user=_seconds(stage.cpu_user_s),
            cpu_system=_seconds(stage.cpu_system_s),
            peak_memory=_mebibytes(stage.peak_rss_bytes),
            exit_code=_exit(stage, NOT_RUN if stage.name in not_begun else NO_RESULT),
            in_total="yes" if stage.in_total else "no",
        )
        for stage in result.stages
    ]
    overhead = _launcher_seconds(result)
    if overhead is not None:
        rows.append(
            StageRow(LAUNCHER, _seconds(overhead), MISSING, MISSING, MISSING, MISSING, "no")
        )
    return rows


def build_text(build: BuildResult) -> str:
    """What the build was made of, on one line; all of it lies within the stages."""
    units = build.translation_units
    compiled = "" if units is None else f" ({counted(units, 'translation unit')})"
    parts = [
        None if build.configure_s is None else f"configure {_seconds(build.configure_s)}",
        None if build.compile_s is None else f"compile {_seconds(build.compile_s)}{compiled}",
        None if build.link_s is None else f"link {_seconds(build.link_s)}",
        None if build.generated_lines is None else f"{build.generated_lines:,} generated lines",
        None if build.wheel_bytes is None else f"wheel {amount(build.wheel_bytes, Quantity.WHEEL)}",
    ]
    return f"build, within the stages: {', '.join(filter(None, parts))}"


def _launcher_seconds(result: PlatformResult) -> float | None:
    """What the engine's call took beyond the stages: create, start, follow, collect, remove."""
    whole = result.facts("engine").get("seconds")
    if not isinstance(whole, int | float) or any(s.seconds is None for s in result.stages):
        return None
    inside = sum(stage.seconds or 0.0 for stage in result.stages if stage.name != "image")
    return whole - inside if whole >= inside else None  # an adopted run was followed in part


def _not_begun(result: PlatformResult) -> list[str]:
    """The stages that surely did not begin: all, or those after the first that failed."""
    names, ended = [], result.verdict.product is Product.NOT_RUN
    for stage in result.stages:
        if ended and stage.seconds is None:
            names.append(stage.name)
        ended = ended or bool(stage.exit_code)
    return names


def _exit(stage: StageResult, without_end: str) -> str:
    if stage.seconds is None:
        return without_end
    return MISSING if stage.exit_code is None else str(stage.exit_code)


def _seconds(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{seconds:.1f} s"


def _mebibytes(count: int | None) -> str:
    return MISSING if count is None else f"{count / 2**20:.0f} MiB"


COLORS = {
    Product.PASSED: "green",
    Product.FAILED: "red",
    Product.INCOMPLETE: "yellow",
    Product.NOT_RUN: "yellow",
}


def print_results(run: RunResult, console: Console) -> None:
    """Print the table, and below it for each platform its stages and evidence."""
    console.print(f"{run.project}: {origin(run)}", highlight=False, markup=False)
    console.print()
    console.print(text_table(HEADINGS, table_rows(run.platforms)))
    for platform in run.platforms:
        console.print()
        console.print(text_table(STAGE_HEADINGS, stage_rows(platform), title=platform.label))
        if platform.build is not None:
            console.print(plain(build_text(platform.build)))
        for line in _verdict_lines(platform):
            console.print(line)


def _verdict_lines(platform: PlatformResult) -> Iterator[Text]:
    verdict = platform.verdict
    product = (verdict.product, COLORS[verdict.product])
    yield Text.assemble("product ", product, f", harness {verdict.harness}")
    for evidence in verdict.evidence:
        yield plain(f"  {evidence.grade}: {evidence.text}")


# An underscore inside of a word, as most test names have it, marks nothing up.
_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])")


def table_markdown(platforms: Sequence[PlatformResult]) -> str:
    """The results table."""
    return table(HEADINGS, table_rows(platforms))


def results_markdown(run: RunResult) -> str:
    """``results.md``: the table, then evidence and stages per platform."""
    parts = [f"# {run.project}: {run.run_id}", origin(run), table_markdown(run.platforms)]
    parts += [_platform(platform) for platform in run.platforms]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _platform(result: PlatformResult) -> str:
    verdict = result.verdict
    lines = [f"## {escape(result.label)}", ""]
    lines += [f"Product: **{verdict.product}**. Harness: **{verdict.harness}**.", ""]
    lines += [f"* {evidence.grade}: {escape(evidence.text)}" for evidence in verdict.evidence]
    lines += ["", table(STAGE_HEADINGS, stage_rows(result))]
    if result.build is not None:
        text = build_text(result.build)
        lines.append(f"{text[0].upper()}{text[1:]}.")
    return "\n".join(lines)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [_line(headings), "|" + "---|" * len(headings)]
    lines += [_line([escape(text) for text in row]) for row in rows]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """One line that reads as it is, in a cell too: neither markup nor HTML."""
    line = " ".join(printable(text).split())
    return _MARKUP.sub(r"\\\g<0>", html.escape(line, quote=False))
