"""The page of comparisons: those that were judged, and figures of any two runs by the script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ci.analysis.comparison import Comparison, compare
from ci.errors import CiError
from ci.report.comparison_report import ALARMING, ComparisonReport
from ci.report.dashboard.collection import Collection
from ci.store.rows import RunHead
from ci.util.text import counted, join_names

if TYPE_CHECKING:
    from ci.store.store import Store

BRANCHES = 5  # newest branches, each with its base
RUNS = 5  # newest runs, each with the one before it
PLATFORMS = 21  # pairs of platforms of the newest run


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two references, and their names in a title."""

    group: str
    base: str
    head: str
    names: tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class JudgedComparison:
    """A comparison as ``python -m ci compare`` judges it."""

    pair: Pair
    outcome: str
    report: ComparisonReport | None
    problem: str | None = None
    """Why there is no report."""

    @property
    def title(self) -> str:
        return f"{' → '.join(self.pair.names)}: {self.outcome}"


def judged_comparisons(store: Store, found: Collection, source: Path) -> list[JudgedComparison]:
    """The comparisons that matter most: branches, the newest runs, the platforms of the newest."""
    ended = [run for run in found.line if run.run_id not in found.running]
    line = [run for run in ended if run.whole] or ended
    pairs = [*_branches(found), *_neighbors(line[-RUNS - 1 :]), *_platforms(found, line)]
    return [_compare(store, source, pair) for pair in pairs]


def _compare(store: Store, source: Path, pair: Pair) -> JudgedComparison:
    try:
        found = compare(lambda: nullcontext(store), source, pair.base, pair.head)
    except CiError as error:  # such as: the base has no run yet
        return JudgedComparison(pair=pair, outcome="not compared", report=None, problem=str(error))
    return JudgedComparison(pair=pair, outcome=_outcome(found), report=ComparisonReport(found))


def _outcome(found: Comparison) -> str:
    """``regression on cpu``; of two platforms, the number of tests that differ."""
    [first, *others] = found.platforms or (None,)
    if first and not others and first.base.platform != first.head.platform:
        count = sum(it.count for it in first.tests.changes) if first.tests else 0
        return f"{counted(count, 'test')} of another outcome"
    for judgement, kind in ALARMING.items():
        if names := [it.name for it in found.platforms if judgement in it.judgements]:
            return f"{kind} on {join_names(names, len(names))}"
    if any(it.operator_difference for it in found.platforms):
        return "no regression in the operators that both have"
    return "no regression"


def _branches(found: Collection) -> Iterator[Pair]:
    """The newest branches, each with the branch that it will be merged into."""
    newest: dict[str, RunHead] = {}
    runs = found.runs[::-1]
    for run in (*(it for it in runs if it.whole), *runs):
        if run.branch and run.target and run.branch != run.target and not run.dirty:
            newest.setdefault(run.branch, run)
    for name, run in [*newest.items()][:BRANCHES]:
        names = (str(run.target), name)
        yield Pair(
            group="Branches and their base", base=str(run.target), head=run.run_id, names=names
        )


def _neighbors(line: Sequence[RunHead]) -> Iterator[Pair]:
    for before, after in reversed([*pairwise(line)]):
        names = (before.run_id, after.run_id)
        yield Pair(group="The newest runs", base=names[0], head=names[1], names=names)


def _platforms(found: Collection, line: Sequence[RunHead]) -> Iterator[Pair]:
    if not line:
        return
    newest = line[-1].run_id
    known = [it for it in found.platforms if newest in found.results[it]]
    for first, second in [*combinations(known, 2)][:PLATFORMS]:
        yield Pair(
            group="Platforms of the newest run",
            base=f"{newest}/{found.platform(first)}",
            head=f"{newest}/{found.platform(second)}",
            names=(found.label(first), found.label(second)),
        )
