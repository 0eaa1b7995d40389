"""The list of runs: all of them, those of other branches included, newest first."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote

from ci.model.verdicts import Harness, Product
from ci.report.dashboard.collection import Collection
from ci.report.dashboard.html import file_stem
from ci.store.rows import ResultHead, RunHead

MOST_RUNS = 500
"""Rows: 0.5 MB. Older runs are in the plots."""
# The worst first: what a reader looks for.
ORDER = (Product.FAILED, Product.INCOMPLETE, Product.NOT_RUN, Product.PASSED)


@dataclass(frozen=True, kw_only=True)
class ListedResult:
    """One platform of a run; ``href`` is the page that shows it."""

    label: str
    href: str | None
    note: str
    """What is to be known beside the verdict on the product."""


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """A row: its results by verdict, each as in ``ORDER``."""

    run: RunHead
    verdicts: tuple[tuple[Product, tuple[ListedResult, ...]], ...]
    is_running: bool
    pending: tuple[str, ...]
    """The labels of the platforms that a running run is still to have a result of."""
    engines: str
    hosts: str

    @property
    def duration(self) -> str:
        """``1:02:03``."""
        seconds = (self.run.finished_at - self.run.started_at).total_seconds()
        return str(timedelta(seconds=max(0, round(seconds))))


def listed_runs(found: Collection, with_page: Names[str]) -> list[ListedRun]:
    """List the newest runs; ``with_page`` has those with a page of their own."""
    newest = found.runs[: -MOST_RUNS - 1 : -1]
    on_line = {run.run_id for run in found.line}
    results: dict[str, list[tuple[str, ResultHead]]] = {run.run_id: [] for run in newest}
    # Rows in use come first, in their order; older ones have no page.
    for row in dict.fromkeys((*found.platforms, *found.results)):
        for run_id, result in found.results[row].items():
            if run_id in results:
                results[run_id].append((row, result))
    listed = []
    for run in newest:
        every, is_running = results[run.run_id], run.run_id in found.running
        own = [it for it in every if not (is_running and it[1].is_pending)]
        in_plot = {name for name in found.platforms if run.run_id in on_line}
        listed.append(
            ListedRun(
                run=run,
                verdicts=tuple(_verdicts(own, in_plot, is_shown=run.run_id in with_page)),
                is_running=is_running,
                pending=tuple(it.label for _, it in every if is_running and it.is_pending),
                engines=_joined(result.engine for _, result in own),
                hosts=_joined(result.host for _, result in own),
            )
        )
    return listed


def _verdicts(
    results: Sequence[tuple[str, ResultHead]], in_plot: Names[str], *, is_shown: bool
) -> Iterator[tuple[Product, tuple[ListedResult, ...]]]:
    for product in ORDER:
        some = tuple(
            ListedResult(
                label=result.label,
                href=_href(row, result, is_shown=is_shown, in_plot=row in in_plot),
                note=_note(result),
            )
            for row, result in results
            if result.product is product
        )
        if some:
            yield product, some


def _note(result: ResultHead) -> str:
    if result.is_pending:
        return "its run ended before"
    return "" if result.harness is Harness.CLEAN else result.harness.shown


def _href(row: str, result: ResultHead, *, is_shown: bool, in_plot: bool) -> str | None:
    """The page of the run; else the run among the platform's plots, which follow the branch."""
    if is_shown:
        return f"{file_stem('run', result.run_id)}.html#{quote(result.platform)}"
    if in_plot:
        return f"{file_stem('platform', row)}.html#run={quote(result.run_id)}"
    return None


def _joined(names: Iterator[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, names)))
