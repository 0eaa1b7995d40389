"""The overview: what needs attention first, then a grid of platforms and commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import TYPE_CHECKING

from ci.facts.difference import compare_outcomes, group_lines
from ci.facts.measures import percent
from ci.facts.sentences.on_rows import contract_differs, no_contract, quarantine_stale
from ci.gates.regression import ChangeKind, Judgement
from ci.model.verdicts import Harness, Product
from ci.report.alarm_report import bisect_command, headline, place_text, row_texts
from ci.report.dashboard.collection import Collection
from ci.report.failure_list import reason_of
from ci.store.rows import ResultHead, RunHead
from ci.util.invocation import command
from ci.util.text import commit_name, counted

if TYPE_CHECKING:
    from ci.store.store import Store

COMMITS = 30  # of the grid
REPEATED = 10  # newest runs of a commit that are listed
# The notes of a run on a contract or a quarantine that no longer fits it.
_STALE = (contract_differs.code, no_contract.code, quarantine_stale.code)


class Urgency(StrEnum):
    """Why something needs attention, the most urgent first."""

    FAILING = "failing"
    REGRESSION = "regression"
    SHRUNK = "smaller suite"
    CONTRACT = "contract"
    SUSPECTED = "suspected"


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One thing to look at, with the command to go on with."""

    urgency: Urgency
    platforms: tuple[str, ...]
    text: str
    details: tuple[str, ...] = ()
    command: str | None = None
    run_id: str | None = None
    commit: str | None = None
    """Since when."""
    measure: str | None = None
    """The measure of the platform's page that shows it."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One platform at one commit; without a result, nothing ran."""

    run: RunHead
    results: tuple[ResultHead, ...]
    """Of all runs of the commit, newest first."""

    @property
    def result(self) -> ResultHead | None:
        return self.results[0] if self.results else None

    @property
    def text(self) -> str:
        """``passed, 52 % of 600 tests executed``; of several runs, the newest."""
        if self.result is None:
            return "no result"
        text = result_text(self.result)
        if len(self.results) == 1:
            return text
        passed = sum(it.product is Product.PASSED for it in self.results)
        return f"{text}; the newest of {len(self.results):,} runs, {passed:,} of which passed"

    @property
    def listed(self) -> tuple[ResultHead, ...]:
        return self.results[:REPEATED]


def result_text(result: ResultHead) -> str:
    share, of = result.executed_share, counted(result.tests, "test")
    tests = f"{percent(share)} of {of} executed" if share is not None else "no tests"
    failed = result.counts.get("failed", 0) + result.counts.get("errors", 0)
    some = f", {failed:,} failed" if failed else ""
    return f"{result.product.shown}{some}, {tests}"


@dataclass(frozen=True, kw_only=True)
class GridRow:
    """A platform: its cells, oldest commit first, and two series of the same length."""

    platform: str
    label: str
    cells: tuple[Cell, ...]
    executed: tuple[float | None, ...]
    """Shares of tests that were not skipped."""
    cost: tuple[float | None, ...]
    """Seconds of build/install, of the runs with the most common state of the compiler cache."""


def grid(found: Collection) -> list[GridRow]:
    """The runs of each of the last commits, on each platform."""
    commits: dict[object, list[RunHead]] = {}
    for run in found.line:
        place = (run.tested, run.dirty) if run.tested else run.run_id
        if any(found.result(name, run.run_id) for name in found.platforms):
            commits.setdefault(place, []).append(run)
    newest = [*commits.values()][-COMMITS:]
    return [_grid_row(found, name, newest) for name in found.platforms]


def columns(rows: Sequence[GridRow]) -> list[str]:
    """The headings of the commits: the id, or the time of a run that has none."""
    runs = [cell.run for cell in rows[0].cells] if rows else []
    times = [f"{run.started_at:%m-%d %H:%M}" for run in runs if not run.tested]
    form = "%m-%d %H:%M" if len(set(times)) == len(times) else "%m-%d %H:%M:%S"
    return [
        f"{run.tested[:8]}{'+' if run.dirty else ''}" if run.tested else f"{run.started_at:{form}}"
        for run in runs
    ]


def span(rows: Sequence[GridRow]) -> str:
    """``the last 30 commits``; without commits, runs."""
    runs = [cell.run for cell in rows[0].cells] if rows else []
    noun = "commit" if any(run.tested for run in runs) else "run"
    return f"the last {noun}" if len(runs) == 1 else f"the last {counted(len(runs), noun)}"


def _grid_row(found: Collection, name: str, commits: Sequence[Sequence[RunHead]]) -> GridRow:
    cells = []
    for of_commit in commits:
        own = [(run, found.result(name, run.run_id)) for run in reversed(of_commit)]
        results = {run: result for run, result in own if result}
        first = next(iter(results), of_commit[-1])
        cells.append(Cell(run=first, results=tuple(results.values())))
    caches = {it.run_id: found.keys[it.key].cache for it in found.measured[name]}
    shown = [caches.get(cell.run.run_id) for cell in cells]
    usual = Counter(filter(None, shown)).most_common(1)
    return GridRow(
        platform=name,
        label=found.label(name),
        cells=tuple(cells),
        executed=tuple(it.result.executed_share if it.result else None for it in cells),
        cost=tuple(
            it.result.build_install_s if it.result and usual and cache == usual[0][0] else None
            for it, cache in zip(cells, shown, strict=True)
        ),
    )


# What needs attention


def attention(store: Store, found: Collection) -> list[Attention]:
    """Everything that someone should look at, the most urgent first."""
    listed = [*_alarms(found)]
    whole = {found.platform(name) for name in found.platforms if found.is_whole(name)}
    for name in found.platforms:
        if (platform := found.platform(name)) not in whole:
            listed.append(
                Attention(
                    urgency=Urgency.SHRUNK,
                    platforms=(name,),
                    text="no run of all operators, only of selected ones",
                    command=command("run", platform, "--select", "all"),
                )
            )
        if results := found.on_line(name):
            listed += _failing(store, found, name, results)
            listed += _changed_suite(store, name, results)
            listed += _stale(store, name, results[-1])
        if count := len(found.histories[name].history.of(Judgement.SUSPECTED)):
            text = f"{counted(count, 'suspected regression')}: more runs will confirm or refute"
            then = command("history", found.platform(name), "--check")
            listed.append(
                Attention(urgency=Urgency.SUSPECTED, platforms=(name,), text=text, command=then)
            )
    order = [*Urgency]
    return sorted(listed, key=lambda it: order.index(it.urgency))


def _failing(
    store: Store, found: Collection, name: str, results: Sequence[ResultHead]
) -> Iterator[Attention]:
    """The newest result if it did not pass, and since which commit."""
    newest = results[-1]
    if newest.product is Product.PASSED:
        return
    streak = [*takewhile(lambda it: it.product is not Product.PASSED, reversed(results))]
    heads = {run.run_id: run for run in found.line}
    first = heads[streak[-1].run_id]
    since = f"since {commit_name(first.commit, dirty=first.dirty)}, {first.started_at:%Y-%m-%d}"
    if len(streak) == len(results):
        since = "in every run"
    runs = counted(len(streak), "run")
    run = store.load_or_skip(newest.run_id)
    harness = "" if newest.harness is Harness.CLEAN else f", harness {newest.harness.shown}"
    then = None
    tests = [*store.outcomes(newest.run_id, newest.platform).failures]
    good = heads[results[-len(streak) - 1].run_id].commit if len(streak) < len(results) else None
    if tests and good and first.commit and good != first.commit:
        places = ("--good", good, "--bad", first.commit, "--test", tests[0])
        then = command("bisect", newest.platform, *places)
    yield Attention(
        urgency=Urgency.FAILING,
        platforms=(name,),
        text=f"{newest.product.shown}{harness}, {since}, {runs}",
        details=(reason_of(run.platform(newest.platform)),) if run else (),
        run_id=newest.run_id,
        commit=None if len(streak) == len(results) else first.tested,
        command=then,
    )


def _alarms(found: Collection) -> Iterator[Attention]:
    for alarm in found.alarms:
        kind = Urgency.REGRESSION if alarm.kind is Judgement.REGRESSION else Urgency.SUSPECTED
        yield Attention(
            urgency=kind,
            platforms=alarm.platforms,
            text=headline(alarm),
            details=(place_text(alarm), *row_texts(alarm)),
            command=bisect_command(alarm),
            run_id=alarm.first.run_id,
            commit=alarm.first.commit,
            measure=alarm.rows[0].change.measure,
        )


def _changed_suite(store: Store, name: str, results: Sequence[ResultHead]) -> Iterator[Attention]:
    """What the newest suite lost against the one before it on the branch."""
    tested = [it for it in results if it.counts][-2:]
    if len(tested) < 2 or tested[-1] is not results[-1]:
        return
    sides = [store.outcomes(it.run_id, it.platform) for it in tested]
    if not all(side.names for side in sides):
        return
    difference = compare_outcomes(*sides)
    if kinds := [it for it in ChangeKind if it.is_loss and difference.of(it)]:
        before, after = tested
        yield Attention(
            urgency=Urgency.SHRUNK,
            platforms=(name,),
            text="; ".join(map(difference.headline, kinds)),
            details=tuple(line for kind in kinds for line in group_lines(difference.of(kind))),
            run_id=after.run_id,
            command=command(
                "compare", f"{before.run_id}/{before.platform}", f"{after.run_id}/{after.platform}"
            ),
        )


def _stale(store: Store, name: str, newest: ResultHead) -> Iterator[Attention]:
    """The notes of the newest run on its contract and its quarantine."""
    run = store.load_or_skip(newest.run_id)
    for note in run.platform(newest.platform).findings if run else ():
        if note.code in _STALE:
            yield Attention(
                urgency=Urgency.CONTRACT,
                platforms=(name,),
                text=note.text.removeprefix("contract: "),
                run_id=newest.run_id,
            )
