"""The results in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ci.report.rows import HEADINGS, STAGE_HEADINGS, build_text, origin, stage_rows, table_rows
from ci.results import PlatformResult, Product, RunResult
from ci.text import printable

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
        console.print(_table(STAGE_HEADINGS, stage_rows(platform), platform.label))
        if platform.build is not None:
            console.print(_text(build_text(platform.build)))
        for line in _verdict_lines(platform):
            console.print(line)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str | None) -> Table:
    table = Table(
        title=title and _text(title), title_justify="left", box=box.SIMPLE_HEAD, show_edge=False
    )
    for heading in headings:
        table.add_column(heading.replace("`", ""), overflow="fold")
    for row in rows:
        table.add_row(*map(_text, row))
    return table


def _verdict_lines(platform: PlatformResult) -> Iterator[Text]:
    verdict = platform.verdict
    product = (verdict.product, COLORS[verdict.product])
    yield Text.assemble("product ", product, f", harness {verdict.harness}")
    for evidence in verdict.evidence:
        yield _text(f"  {evidence.grade}: {evidence.text}")


def _text(text: str) -> Text:
    """As it is: what a test's name or a message holds is no markup."""
    return Text(printable(text))
