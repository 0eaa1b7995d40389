"""The results in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ci.report.rows import HEADINGS, STAGE_HEADINGS, origin, stage_rows, table_rows
from ci.results import PlatformResult, Product, RunResult

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
    console.print(_table(HEADINGS, table_rows(run.platforms), None))
    for platform in run.platforms:
        console.print()
        console.print(_table(STAGE_HEADINGS, stage_rows(platform.stages), platform.label))
        for line in _verdict_lines(platform):
            console.print(line, highlight=False)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str | None) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for heading in headings:
        table.add_column(heading.replace("`", ""), overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _verdict_lines(platform: PlatformResult) -> list[str]:
    verdict = platform.verdict
    color = COLORS[verdict.product]
    lines = [f"product [{color}]{verdict.product}[/{color}], harness {verdict.harness}"]
    lines += [f"  {evidence.grade}: {escape(evidence.text)}" for evidence in verdict.evidence]
    return lines
