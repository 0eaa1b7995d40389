"""The results in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from ci.report.console import plain, text_table
from ci.report.rows import HEADINGS, STAGE_HEADINGS, build_text, origin, stage_rows, table_rows
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
