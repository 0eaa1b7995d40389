"""The page of comparisons: those that were judged, and figures of any two runs by the script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from ci.analysis.comparison import compare
from ci.errors import CiError
from ci.report.comparison import ComparisonReport
from ci.report.dashboard.collection import Collection
from ci.store.rows import RunHead

if TYPE_CHECKING:
    from ci.store.store import Store

BRANCHES = 5  # newest branches, each with its base
RUNS = 5  # newest runs, each with the one before it
PLATFORMS = 10  # pairs of platforms of the newest run


@dataclass(frozen=True, kw_only=True)
class PreparedComparison:
    """A comparison as ``python -m ci compare`` judges it."""

    group: str
    base: str
    head: str
    title: str
    report: ComparisonReport | None
    problem: str | None = None
    """Why there is no report."""


def prepared(store: Store, found: Collection, source: Path) -> list[PreparedComparison]:
    """The comparisons that matter most: branches, the newest runs, the platforms of the newest."""
    pairs = [*_branches(found), *_neighbors(found.line[-RUNS - 1 :]), *_platforms(found)]
    return [_compare(store, source, *pair) for pair in pairs]


def _compare(store: Store, source: Path, group: str, base: str, head: str) -> PreparedComparison:
    words = {"group": group, "base": base, "head": head}
    try:
        report = ComparisonReport(compare(lambda: nullcontext(store), source, base, head))
    except CiError as error:  # such as: the base has no run yet
        title = f"{base} → {head}: not compared"
        return PreparedComparison(**words, title=title, report=None, problem=str(error))
    suspected = "suspected regression" if report.found.suspected else "no regression"
    outcome = "regression" if report.found.regression else suspected
    return PreparedComparison(**words, title=f"{base} → {head}: {outcome}", report=report)


Pair = tuple[str, str, str]  # the group, and two references


def _branches(found: Collection) -> Iterator[Pair]:
    """The newest branches, each with the branch that it will be merged into."""
    newest: dict[str, RunHead] = {}
    for run in reversed(found.runs):
        if run.branch and run.target and run.branch != run.target and not run.dirty:
            newest.setdefault(run.branch, run)
    for run in [*newest.values()][:BRANCHES]:
        yield "Branches and their base", str(run.target), run.run_id


def _neighbors(line: Sequence[RunHead]) -> Iterator[Pair]:
    for before, after in reversed([*zip(line, line[1:], strict=False)]):
        yield "The newest runs", before.run_id, after.run_id


def _platforms(found: Collection) -> Iterator[Pair]:
    if not found.line:
        return
    newest = found.line[-1]
    names = [it for it in found.platforms if newest.run_id in found.results[it]]
    for first, second in [*combinations(names, 2)][:PLATFORMS]:
        yield "Platforms of the newest run", f"{newest.run_id}/{first}", f"{newest.run_id}/{second}"
