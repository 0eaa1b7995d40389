"""The table of a run: JSON, Markdown and the terminal's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from bench.machine import Commit, Machine
from bench.rows import Goal, Measurement, Table

SCHEMA_VERSION = 1
_TEXT_COLUMNS = ("what", "note", "step", "module", "operator", "case", "implementation")
_COLUMNS = ("what", "goal", "measured", "met", "note")


@dataclass(frozen=True, kw_only=True)
class Report:
    """All measurements of one run."""

    started_at: str
    commit: Commit
    machine: Machine
    measurements: tuple[Measurement, ...]

    def summary(self) -> Table:
        """One row per goal."""
        return Table(
            title="Cost", columns=_COLUMNS, rows=tuple(map(summary_row, self.measurements))
        )

    def tables(self) -> list[Table]:
        """The summary, then the figures behind it."""
        behind = [table for measurement in self.measurements for table in measurement.tables]
        return [self.summary(), *behind]


def summary_row(measurement: Measurement) -> tuple[str, ...]:
    """The cells of ``_COLUMNS``."""
    goal = measurement.goal
    limit = "" if goal.at_most is None else f"≤ {shown(goal.at_most, goal)}"
    if measurement.value is not None:
        measured = shown(measurement.value, goal)
    else:
        measured = "error" if measurement.error else ""
    met = {True: "yes", False: "no", None: ""}[measurement.met]
    notes = filter(None, (measurement.note, measurement.error.partition("\n")[0]))
    return (goal.title, limit, measured, met, "; ".join(notes))


def shown(value: float, goal: Goal) -> str:
    """A value with its unit, in three digits: "44.5 CPU-s"; a ratio has none."""
    number = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return number if goal.unit == "ratio" else f"{number} {goal.unit}"


def as_json(report: Report) -> str:
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
    content = {
        "schema_version": SCHEMA_VERSION,
        "started_at": report.started_at,
        **asdict(report.commit),
        "machine": asdict(report.machine),
        "rows": rows,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def as_markdown(report: Report) -> str:
    """The tables of a run, and of what machine they are."""
    machine = report.machine
    load = ", ".join(f"{value:.1f}" for value in machine.load_average)
    commit = report.commit.commit[:12] + (" with changes" if report.commit.dirty else "")
    about = (
        f"{report.started_at}, commit {commit}; {machine.cores} cores of {machine.cpu_model}, "
        f"load average {load}; torch {machine.torch}, Python {machine.python}, "
        f"{machine.compiler}, {machine.cmake}."
    )
    return "\n".join([about, *map(_markdown_table, report.tables())])


def _markdown_table(table: Table) -> str:
    alignment = ["---" if column in _TEXT_COLUMNS else "---:" for column in table.columns]
    lines = [table.columns, alignment, *table.rows]
    cells = ("| " + " | ".join(_escape(cell) for cell in line) + " |" for line in lines)
    return "\n".join(["", f"## {table.title}", "", *cells, ""])


def _escape(cell: str) -> str:
    return cell.replace("|", r"\|").replace("\n", " ")


def print_report(report: Report, console: Console) -> None:
    """Tables that fit the terminal; the Markdown where there is none."""
    if not console.is_terminal:
        print(as_markdown(report), end="")
        return
    for table in report.tables():
        shape = RichTable(title=table.title, title_justify="left")
        for column in table.columns:
            shape.add_column(column, justify="left" if column in _TEXT_COLUMNS else "right")
        for row in table.rows:
            shape.add_row(*map(Text, row))
        console.print(shape)


def write_report(report: Report, folder: Path) -> Sequence[Path]:
    """Writes ``bench.json`` and ``bench.md`` and returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"bench.json": as_json(report), "bench.md": as_markdown(report)}
    for name, text in contents.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in contents]
