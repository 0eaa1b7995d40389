"""Formats the results of a run as JSON, Markdown and terminal tables.

The results include the machine and the versions: figures are comparable only on one machine.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.context import ROOT
from bench.rows import FigureTable, Goal, Measurement
from ci.agent.machine import machine_facts, tool_facts, tool_output

SCHEMA_VERSION = 1
_TEXT_COLUMNS = (
    *("what", "note", "step", "module", "operator", "case", "implementation", "instruction set"),
)
_COLUMNS = ("what", "goal", "measured", "met", "note")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine, its load when the run began, and the versions of the tools."""

    cpu_model: str
    cores: int
    memory_mb: int
    load_average: tuple[float, float, float]
    system: str
    python: str
    torch: str
    compiler: str
    cmake: str


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Time, commit and machine of a run."""

    started_at: str
    commit: str
    """The measured commit; "" outside of git."""
    dirty: bool
    """True if the working tree has uncommitted changes."""
    machine: Machine


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """All measurements of one run."""

    conditions: Conditions
    measurements: tuple[Measurement, ...]

    def tables(self) -> list[FigureTable]:
        """One row per goal, then the detailed tables."""
        rows = tuple(map(summary_row, self.measurements))
        behind = [measurement.table for measurement in self.measurements if measurement.table]
        return [FigureTable(title="Cost", columns=_COLUMNS, rows=rows), *behind]


def summary_row(measurement: Measurement) -> tuple[str, ...]:
    """The cells of ``_COLUMNS``."""
    goal = measurement.goal
    limit = "" if goal.at_most is None else f"≤ {format_value(goal.at_most, goal)}"
    measured = "error" if measurement.error else ""
    if measurement.value is not None:
        measured = format_value(measurement.value, goal)
    met = {True: "yes", False: "no", None: ""}[measurement.met]
    notes = filter(None, (measurement.note, measurement.error.partition("\n")[0]))
    return (goal.title, limit, measured, met, "; ".join(notes))


def format_value(value: float, goal: Goal) -> str:
    """Format a value with its unit in three digits: "44.5 CPU-s"; a ratio has no unit."""
    number = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return number if goal.unit == "ratio" else f"{number} {goal.unit}"


def as_json(report: BenchReport) -> str:
    """The versioned JSON of a run; each row with its goal."""
    rows = [
        {
            "key": measurement.key,
            **asdict(measurement.goal),
            "value": measurement.value,
            "met": measurement.met,
            "note": measurement.note,
            "error": measurement.error or None,
            "detail": measurement.detail,
        }
        for measurement in report.measurements
    ]
    content = {"schema_version": SCHEMA_VERSION, **asdict(report.conditions), "rows": rows}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def as_markdown(report: BenchReport) -> str:
    """The tables of a run, with its conditions."""
    conditions, where = report.conditions, report.conditions.machine
    load = ", ".join(f"{value:.1f}" for value in where.load_average)
    commit = conditions.commit[:12] + (" with changes" if conditions.dirty else "")
    about = (
        f"{conditions.started_at}, commit {commit}; {where.cores} cores of {where.cpu_model}, "
        f"load average {load}; torch {where.torch}, Python {where.python}, "
        f"{where.compiler}, {where.cmake}."
    )
    return "\n".join([about, *map(_markdown_table, report.tables())])


def _markdown_table(table: FigureTable) -> str:
    alignment = ["---" if column in _TEXT_COLUMNS else "---:" for column in table.columns]
    lines = [table.columns, alignment, *table.rows]
    escaped = ([cell.replace("|", r"\|").replace("\n", " ") for cell in line] for line in lines)
    cells = (f"| {' | '.join(line)} |" for line in escaped)
    return "\n".join(["", f"## {table.title}", "", *cells, ""])


def print_report(report: BenchReport, console: Console) -> None:
    """Print tables that fit the terminal; Markdown if there is no terminal."""
    if not console.is_terminal:
        print(as_markdown(report), end="")
        return
    for table in report.tables():
        shape = Table(title=table.title, title_justify="left")
        for column in table.columns:
            shape.add_column(column, justify="left" if column in _TEXT_COLUMNS else "right")
        for row in table.rows:
            shape.add_row(*map(Text, row))
        console.print(shape)


def write_report(report: BenchReport, folder: Path) -> Sequence[Path]:
    """Write ``bench.json`` and ``bench.md`` and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {folder / "bench.json": as_json(report), folder / "bench.md": as_markdown(report)}
    for path, text in contents.items():
        path.write_text(text, encoding="utf-8")
    return list(contents)


def describe_conditions() -> Conditions:
    """Collect the conditions of this run; the commit is that of this working tree."""
    return Conditions(
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=describe_machine(),  # before git adds to the load
        commit=(tool_output(("git", "rev-parse", "HEAD"), os.environ, ROOT) or "").strip(),
        dirty=bool(tool_output(("git", "status", "--porcelain"), os.environ, ROOT)),
    )


def describe_machine() -> Machine:
    """Collect the machine's properties; a missing tool has an empty version."""
    facts = machine_facts()
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    # Programs beside this Python first, because pip installs CMake there.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    tools = tool_facts({**os.environ, "PATH": path}, ROOT)
    return Machine(
        cpu_model=str(facts["cpu_model"] or facts["architecture"]),
        cores=len(os.sched_getaffinity(0)),
        memory_mb=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e6),
        load_average=os.getloadavg(),
        system=platform.platform(),
        python=platform.python_version(),
        torch=torch,
        compiler=str(tools["compiler"] or ""),
        cmake=str(tools["cmake"] or ""),
    )
