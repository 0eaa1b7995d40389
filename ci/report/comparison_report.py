"""The report of a comparison: tests, then times in sentences and in tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any

from ci.analysis.changes import POLICY
from ci.analysis.comparison import Comparison, PlatformComparison, Side
from ci.analysis.times import MeasureChange, MissingTimes, Times
from ci.facts.difference import ChangedTest, Difference, group_lines
from ci.facts.measures import amount, growth, is_benchmark, percent, stage_and_quantity
from ci.gates.regression import ChangeKind, Judgement, Standing
from ci.model.outcomes import OperatorTest, Outcome
from ci.report.changes import change_data, change_status, run_name, size_interval
from ci.report.document import (
    Block,
    Document,
    Fold,
    Heading,
    Items,
    Line,
    Report,
    Span,
    Table,
    select_attributes,
)
from ci.report.history_report import LONGEST_LABEL, MOST_ROWS
from ci.report.table import MISSING
from ci.report.wheel_report import abi_reports, wheel_lines
from ci.util.invocation import command
from ci.util.text import SHORT, counted, shorten_middle

SCHEMA_VERSION = 2  # version 1 had one platform and no times
NEWS = [judgement for judgement in Judgement if judgement.is_news]
ALARMING = {
    Judgement.REGRESSION: "regression",
    Judgement.SUSPECTED: "suspected regression",
}
DIFFERS = "differs beside the sources:"
MOST_CHANGES = 12  # of what else differs: the image, the SDK and torch, and some packages
MOST_SHOWN = 5  # measures in a cell, to be read at one glance; the table has all of them
COLORS = {
    Judgement.REGRESSION: "red",
    Judgement.SUSPECTED: "yellow",
    Judgement.IMPROVEMENT: "green",
}


@dataclass(frozen=True)
class ComparisonReport(Report):
    """The notes on all platforms, then a section for each platform."""

    found: Comparison

    def document(self, *, page: bool) -> Document:
        return self._page() if page else self._screen()

    def _screen(self) -> Document:
        """All measures of a single platform; of several platforms, only the news."""
        found = self.found
        whole = len(found.platforms) == 1
        notes = Items([*_notes(found)])
        if not whole:
            count = counted(len(found.platforms), "platform")
            yield f"{found.base} -> {found.head}: {count}", notes
        for platform in found.platforms:
            verdict = Heading(2, f"{platform.name}: {_verdict(platform)}", style="bold")
            yield notes if whole else verdict, Items([*_sides(platform, " ")])
            if stack := [*_stack(platform)]:
                yield DIFFERS, Items(stack, indent="  ")
            yield from _screen_times(platform, whole=whole)
            if whole:
                yield from _abi(platform)
            yield from _tests(platform.tests)

    def _page(self) -> Document:
        """A row for each platform, then its news; the rest is folded."""
        found = self.found
        outcome = "no regression"
        if alarming := [it for it in ALARMING if it in found.judgements]:
            outcome = ALARMING[alarming[0]]
        if any(it.operator_difference for it in found.platforms):
            outcome += " in the operators that both have"
        yield [Heading(3, f"{found.base} → {found.head}: {outcome}")]
        if notes := [*_notes(found)]:
            yield [Items(notes)]
        for platform in found.platforms:
            if stack := [*_stack(platform)]:
                yield [f"{platform.name} {DIFFERS}", Items(stack)]
        verdicts = [(it.name, _verdict(it)) for it in found.platforms]
        yield [Table(("Platform", "What changed"), verdicts)]
        for platform in found.platforms:
            environment = (line.strip() for line in _environment(platform))
            folded: list[Block] = [Items([*_sides(platform, ":"), *environment])]
            if isinstance(platform.times, Times):
                yield [Items(_news(platform))]
                shown, more = _shown_measures(platform.times.changes)
                folded += [_table(shown), *more]
            sections = (*_abi(platform), *_tests(platform.tests, page=True))
            folded += [block for section in sections for block in section]
            yield [Fold(f"{platform.name}: runs, times and tests", folded)]

    def data(self) -> dict[str, Any]:
        """Collect every test and every measure for programs."""
        left = self.found.merge_base
        return {
            "schema_version": SCHEMA_VERSION,
            **select_attributes(self.found, "base", "head"),
            **_alarming_data(self.found.judgements),
            **select_attributes(self.found, "only_base", "only_head", "notes"),
            "merge_base": left and select_attributes(left, "commit", "nearest", "gained"),
            "platforms": [*map(_platform_data, self.found.platforms)],
        }


def tests_document(base: Side, head: Side, found: Difference | None) -> Document:
    """A comparison of tests only, for a terminal: both sides, then each kind of change."""
    yield [Items([f"base  {_side(base)}", f"head  {_side(head)}"])]
    yield from _tests(found)


def _notes(found: Comparison) -> Iterator[str]:
    """The notes that hold for all platforms."""
    for name, only in (("base", found.only_base), ("head", found.only_head)):
        if only:
            yield f"only {name} has {', '.join(only)}"
    yield from (f"note: {note}" for note in found.notes)
    for platform in found.platforms:
        if gained := platform.gained:
            named = [it for it in gained.changes if it.measure in gained.headlines]
            news = [f"{it.judgement}: {it.text}" for it in named]
            since = f"{found.base} since the merge base"
            yield f"note: {platform.name}: {since}, not in HEAD: {'; '.join(news)}"


def _verdict(platform: PlatformComparison) -> str:
    """``2 tests vanished; regression: compile +38 s (+21 %)``."""
    tests, times = platform.tests, platform.times
    found = ["selected operators differ"] if platform.operator_difference else []
    if standing := _worse_standing(platform):
        found.append(standing)
    if tests is None:
        found.append("no tests")
    else:
        found += [tests.headline(it) for it in ChangeKind if tests.of(it)]
    if isinstance(times, MissingTimes):
        return "; ".join([*found, "no times"])
    for judgement in NEWS:
        changes = times.of(judgement)
        leading = [it for it in changes if not it.steps or it.measure in times.headlines]
        if leading:
            found.append(f"{judgement}: {', '.join(it.text for it in leading[:MOST_SHOWN])}")
    return "; ".join(found) or "no difference"


def _worse_standing(platform: PlatformComparison) -> str | None:
    """How HEAD ended, if that is worse than BASE and no change of a test shows it."""
    if not platform.ended_worse or (platform.tests and platform.tests.regression):
        return None
    if platform.head.standing is Standing.NOT_BUILT:
        return "the build now fails"
    return f"{platform.base.standing} before, now {platform.head.standing}: {platform.head.reason}"


def _sides(platform: PlatformComparison, mark: str) -> Iterator[str]:
    """Both sides, and the difference of their selected operators, if any."""
    for name, side in (("base", platform.base), ("head", platform.head)):
        yield f"{name}{mark} {_side(side)}"
    if difference := platform.operator_difference:
        yield f"selected operators differ: {difference}; only tests of both are compared"


def _side(side: Side) -> str:
    origin = f" ({side.origin})" if side.origin else ""
    counts = [f"{side.counts[it]:,} {it}" for it in Outcome if side.counts[it]]
    tests = ", ".join(counts) if side.missing is None else f"no tests: {side.missing}"
    return f"{side.title}{origin}: {tests}"


def _abi(platform: PlatformComparison) -> Document:
    return (section for it in platform.wheels for section in abi_reports(it))


# Tests


def _tests(found: Difference | None, *, page: bool = False) -> Document:
    if found is None:
        text = "tests are not compared: one side has none"
        yield [f"T{text[1:]}." if page else text]
        return
    for kind in ChangeKind:
        if changes := found.of(kind):
            title = f"{kind.capitalize() if page else kind} ({found.count(kind):,})"
            yield Heading(4, title), Items(group_lines(changes), indent="  ")
    unchanged = counted(found.unchanged, "test")
    yield [f"{unchanged} unchanged" if found.changes else f"no difference: {unchanged}"]


# Times


COLUMNS = ("Stage", "Quantity", "base", "head", "change", "judgement")


def _table(changes: Sequence[MeasureChange]) -> Table:
    styles = [COLORS.get(change.judgement, "") for change in changes]
    return Table(COLUMNS, [*map(_row, changes)], numbers=COLUMNS[2:5], styles=styles)


def _shown_measures(
    changes: Sequence[MeasureChange],
) -> tuple[Sequence[MeasureChange], list[str]]:
    """All measures of stages, the worst benchmarks, and the number of the others."""
    order = list(Judgement)
    stages = [it for it in changes if not is_benchmark(it.measure)]
    benchmarks = [it for it in changes if is_benchmark(it.measure)]
    benchmarks.sort(key=lambda it: (order.index(it.judgement), -abs(it.relative or 0.0)))
    more = len(benchmarks) - MOST_ROWS
    text = f"and {counted(more, 'more benchmark')}: --format json shows all"
    return [*stages, *benchmarks[:MOST_ROWS]], [text] if more > 0 else []


def _row(change: MeasureChange) -> Sequence[str]:
    stage, quantity = stage_and_quantity(change.measure)
    levels = [amount(level, quantity) for level in (change.before, change.after)]
    size = growth(change.before, change.after, quantity) if change.delta else MISSING
    judgement = change.judgement.value
    if change.judgement is Judgement.WITHIN_NOISE and change.detectable is not None:
        judgement += f" (detectable from {percent(change.detectable)})"
    return stage, shorten_middle(quantity.label, LONGEST_LABEL), *levels, size, judgement


def _screen_times(platform: PlatformComparison, *, whole: bool) -> Document:
    lines: list[Line] = [*_environment(platform), *_news(platform)]
    if whole and (standing := _worse_standing(platform)):
        lines.insert(0, Span(f"regression: {standing}", COLORS[Judgement.REGRESSION]))
    last: list[str] = []
    shown: Sequence[MeasureChange] = ()
    if isinstance(platform.times, Times):
        found = platform.times.changes
        shown, last = _shown_measures([it for it in found if whole or it.judgement.is_news])
        last = [*last, *([] if whole else _without_news(platform.times))]
    if shown:
        yield [Items(lines)]
        yield _table(shown), *last
    else:
        yield Items(lines), *last


def _without_news(times: Times) -> list[str]:
    """Count the measures without news, with the smallest changes that would not be noise.

    That range reaches from the steadiest measure to the noisiest.
    """
    counts = []
    for judgement in Judgement:
        if not judgement.is_news and (changes := times.of(judgement)):
            limits = [change.detectable for change in changes if change.detectable is not None]
            counts.append(f"{len(changes)} {judgement}")
            if limits:
                least, most = percent(min(limits)), percent(max(limits))
                counts[-1] += f" (detectable from {least} to {most})"
    return [f"measures without news: {', '.join(counts)}"] if counts else []


def _stack(platform: PlatformComparison) -> Iterator[str]:
    """What differs beside the sources: it comes first, since it may explain everything else."""
    changed = [*map(str, platform.stack)]
    if isinstance(times := platform.times, MissingTimes) and times.key is not None:
        changed = [*dict.fromkeys((*times.reasons, *changed))]
    yield from changed[:MOST_CHANGES]
    if len(changed) > MOST_CHANGES:
        yield f"and {len(changed) - MOST_CHANGES:,} more: --format json shows all"


def _environment(platform: PlatformComparison) -> Iterator[str]:
    """Whether the files differ, and the environment key or why times are not compared."""
    times = platform.times
    yield from map(str, platform.rebuilt)
    yield from (line for it in platform.wheels for line in wheel_lines(it))
    if isinstance(times, Times):
        yield f"environment: {times.key}"
        if times.base.run_id != platform.base.run_id:
            run = times.base.run_id
            yield f"times of base: from run {run}, the newest run of BASE in this environment"
    elif times.key is not None:
        yield "times are not compared because the environments differ"
    else:
        yield f"times are not compared: {'; '.join(times.reasons)}"


def _news(platform: PlatformComparison) -> list[Line]:
    """A sentence for each change of times, the worst first; then advice."""
    times = platform.times
    if isinstance(times, MissingTimes):
        return []
    known = {it.measure: it.text for it in platform.explanations}
    lines: list[Line] = []
    for judgement in NEWS:
        for change in times.of(judgement):
            if change.measure in known or not change.steps:
                text = known.get(change.measure) or change.text
                sentence = f"{judgement}: {text}{''.join(_evidence(change))}"
                lines.append(Span(sentence, COLORS.get(judgement, "")))
    return [*lines, *_advice(platform.head.platform, times)]


def _evidence(change: MeasureChange) -> Iterator[str]:
    """The runs around a change, and how certain it is."""
    if not change.steps:
        return
    first, last = change.steps[0], change.steps[-1]
    yield f"; between {run_name(first.before_run)} and {run_name(last.run)}"
    if first is last and (interval := size_interval(first.point)):
        yield f"; {interval}"
    if change.judgement is Judgement.SUSPECTED:
        yield f"; seen in {counted(last.runs_since, 'run')}"
    if note := change_status(last):
        yield f"; {note}"


def _advice(platform: str, times: Times) -> Iterator[str]:
    """Why a suspected change is uncertain, and the command that helps to decide."""
    steps = [step for change in times.of(Judgement.SUSPECTED) for step in change.steps]
    young = [step.runs_since for step in steps if not step.point.confirmed]
    if not young:
        return
    commit = times.head.commit
    checkout = f"git checkout {commit[:SHORT]} && " if commit and not times.head.dirty else ""
    once = "was seen in one run only and may be a spike"
    doubt = once if min(young) == 1 else "may still be chance"
    sure = f"{POLICY.confirm} runs confirm it. Run it once more:"
    yield f"a suspected change {doubt}; {sure} {checkout}{command('run', platform)}"


# For programs


def _alarming_data(judgements: Set[Judgement]) -> dict[str, bool]:
    return {str(it): it in judgements for it in ALARMING}


def _platform_data(platform: PlatformComparison) -> dict[str, Any]:
    tests = platform.tests
    symbols = [it.symbols for it in platform.wheels]
    return {
        "base": _side_data(platform.base),
        "head": _side_data(platform.head),
        **_alarming_data(platform.judgements),
        "tests": tests
        and {
            **select_attributes(tests, "regression", "unchanged"),
            "counts": {kind.name.lower(): tests.count(kind) for kind in ChangeKind},
            "changes": {
                kind.name.lower(): [*map(_test_data, tests.of(kind))] for kind in ChangeKind
            },
        },
        "stack": [it._asdict() for it in platform.stack],
        "rebuilt": [*map(asdict, platform.rebuilt)],
        "symbols": [asdict(it) for it in symbols if it and (it.removed or it.added)],
        "abi": [asdict(it.abi) for it in platform.wheels if it.abi],
        "times": _times_data(platform),
        "gained": [*map(_measure_data, platform.gained.changes)] if platform.gained else [],
    }


def _side_data(side: Side) -> dict[str, Any]:
    names = ("name", "platform", "simulated", "selected", "origin", "missing")
    return select_attributes(side, *names) | {
        "counts": {it.value: side.counts[it] for it in Outcome}
    }


def _test_data(change: ChangedTest) -> dict[str, Any]:
    test = change.test
    name: dict[str, Any] = {"test": test, "count": change.count}
    if isinstance(test, OperatorTest):
        name = {
            **select_attributes(test, "function", "overload"),
            "dtype": test.variant,
            "slot": test.slot,
        }
    states = select_attributes(change, "before", "after")
    more = select_attributes(change, "message", "seconds", "flaky")
    known = {key: value for key, value in more.items() if value is not None}
    return name | {key: state and str(state) for key, state in states.items()} | known


def _times_data(platform: PlatformComparison) -> dict[str, Any]:
    times = platform.times
    environment = times.key and asdict(times.key)
    if isinstance(times, MissingTimes):
        return {"compared": False, "environment": environment, "reasons": times.reasons}
    causes = {it.measure: it.causes for it in platform.explanations}
    return {
        "compared": True,
        "environment": environment,
        "base_run": times.base.run_id,
        "head_run": times.head.run_id,
        "baseline_runs": len(times.before) + 1,
        "head_runs": times.head_runs,
        "measures": [
            {**_measure_data(change), "cause": causes.get(change.measure)}
            for change in times.changes
        ],
    }


def _measure_data(change: MeasureChange) -> dict[str, Any]:
    names = ("measure", "base", "head", "before", "after", "relative", "detectable", "judgement")
    changes = [*map(change_data, change.steps)]
    return {**select_attributes(change, *names), "changes": changes}
