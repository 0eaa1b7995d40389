"""A comparison: in a terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from ci.analysis.comparison import Comparison, PlatformComparison, Side
from ci.analysis.times import Judgement, MeasureChange, NoTimes, Times
from ci.facts.difference import ChangedTest, ChangeKind, Difference, lines_of
from ci.facts.measures import percent
from ci.model.tests import OperatorTest, Outcome
from ci.report.changes import change_json
from ci.report.console import say, text_table
from ci.report.table import escape, table
from ci.report.times import TIME_HEADINGS, advice, environment, headline, news, time_rows
from ci.util.text import counted, printable

SCHEMA_VERSION = 2  # 1 was of one platform, and had no times
BROKEN = "the build fails now"
MOST_SHOWN = 5  # names in a cell
STYLES = {
    Judgement.REGRESSION: "red",
    Judgement.SUSPECTED: "yellow",
    Judgement.IMPROVEMENT: "green",
}


# Of tests alone


def tests_text(base: Side, head: Side, found: Difference | None) -> str:
    """The sides, then a paragraph for each kind of change."""
    return "\n".join([*_side_lines(base, head), "", *_test_lines(found)]) + "\n"


def _side_lines(base: Side, head: Side) -> Iterator[str]:
    for name, side in (("base", base), ("head", head)):
        yield f"{name}  {_side(side)}"


def _side(side: Side) -> str:
    origin = f" ({side.origin})" if side.origin else ""
    tests = f"no tests: {side.missing}" if side.missing is not None else _counts(side)
    return printable(f"{side.title}{origin}: {tests}")


def _counts(side: Side) -> str:
    counts = side.counts
    return ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in Outcome if counts[outcome])


def _test_lines(found: Difference | None) -> Iterator[str]:
    if found is None:
        yield "tests are not compared: one side has none"
        return
    for kind, told in _sections(found):
        yield f"{kind} ({found.count(kind):,})"
        yield from (f"  {printable(line)}" for line in told)
        yield ""
    yield _last(found)


def _sections(found: Difference) -> Iterator[tuple[ChangeKind, list[str]]]:
    for kind in ChangeKind:
        if changes := found.of(kind):
            yield kind, lines_of(changes)


def _last(found: Difference) -> str:
    unchanged = counted(found.unchanged, "test")
    return f"{unchanged} unchanged" if found.changes else f"no difference: {unchanged}"


# In a terminal


def print_comparison(found: Comparison, console: Console) -> None:
    """What is the same for all platforms, then each of them."""
    whole = len(found.platforms) == 1
    if not whole:
        count = counted(len(found.platforms), "platform")
        say(console, f"{found.base} -> {found.head}: {count}")
    for line in _notes(found):
        say(console, line)
    for platform in found.platforms:
        if not whole:
            say(console, "")
            say(console, f"{platform.name}: {_verdict(platform)}", style="bold")
        for line in _side_lines(platform.base, platform.head):
            say(console, line)
        for line in _operators(platform):
            say(console, line)
        say(console, "")
        if whole and platform.is_newly_broken:
            say(console, f"regression: {BROKEN}", style=STYLES[Judgement.REGRESSION])
        _print_times(platform, console, whole=whole)
        for line in _test_lines(platform.tests):
            say(console, line)


def _print_times(platform: PlatformComparison, console: Console, *, whole: bool) -> None:
    times = platform.times
    for line in environment(times, platform.base):
        say(console, line)
    if isinstance(times, Times):
        for change, sentence in news(times, platform.explanations):
            say(console, sentence, style=STYLES.get(change.judgement, ""))
        for line in advice(platform.head.platform, times):
            say(console, line)
        shown, rest = _shown(times, whole=whole)
        if shown:
            say(console, "")
            console.print(_table(shown))
        if rest:
            say(console, rest)
    say(console, "")


def _shown(times: Times, *, whole: bool) -> tuple[Sequence[MeasureChange], str]:
    """The rows of the table, and what is said of those that are none."""
    shown = [change for change in times.changes if whole or change.judgement.is_news]
    counts = [
        f"{len(changes)} {judgement}{_seen(changes)}"
        for judgement in Judgement
        if not (whole or judgement.is_news) and (changes := times.of(judgement))
    ]
    return shown, f"measures without news: {', '.join(counts)}" if counts else ""


def _seen(changes: Sequence[MeasureChange]) -> str:
    """The least that would not have been noise, of the steadiest measure and of the noisiest."""
    limits = [change.detectable for change in changes if change.detectable is not None]
    return f" ({percent(min(limits))} to {percent(max(limits))} would be seen)" if limits else ""


def _table(changes: Sequence[MeasureChange]) -> Table:
    return text_table(
        TIME_HEADINGS,
        time_rows(changes),
        numbers=(TIME_HEADINGS.base, TIME_HEADINGS.head, TIME_HEADINGS.change),
        styles=[STYLES.get(change.judgement, "") for change in changes],
    )


def _notes(found: Comparison) -> Iterator[str]:
    """What is said once, for all platforms."""
    for name, only in (("base", found.only_base), ("head", found.only_head)):
        if only:
            yield f"only {name} has {', '.join(only)}"
    yield from (f"note: {note}" for note in found.notes)


def _operators(platform: PlatformComparison) -> Iterator[str]:
    """What is compared of two runs that were built with different operators."""
    if difference := platform.of_different_operators:
        yield printable(f"selected operators differ: {difference}; compared are the tests of both")


def _verdict(platform: PlatformComparison) -> str:
    """``2 tests vanished; regression: compile +38 s (+21 %)``."""
    return "; ".join(_differences(platform)) or "no difference"


def _differences(platform: PlatformComparison) -> Iterator[str]:
    if platform.of_different_operators:
        yield "selected operators differ"
    if platform.is_newly_broken:
        yield BROKEN
    if platform.tests is None:
        yield "no tests"
    else:
        for kind in ChangeKind:
            if count := platform.tests.count(kind):
                yield f"{counted(count, 'test')} {kind}"
    if isinstance(platform.times, NoTimes):
        yield "no times"
        return
    for judgement in Judgement:
        changes = [it for it in platform.times.of(judgement) if _leads(platform.times, it)]
        if judgement.is_news and changes:
            yield f"{judgement}: {', '.join(map(headline, changes[:MOST_SHOWN]))}"


def _leads(times: Times, change: MeasureChange) -> bool:
    return not change.steps or change.measure in times.headlines


# As Markdown, for a pull request


def comparison_markdown(found: Comparison) -> str:
    """A row for each platform and what is news; the rest is folded."""
    lines = [f"### {escape(found.base)} → {escape(found.head)}: {_outcome(found)}", ""]
    if notes := [f"* {escape(line)}" for line in _notes(found)]:
        lines += [*notes, ""]
    rows = [(it.name, _verdict(it)) for it in found.platforms]
    lines += [table(("Platform", "What changed"), rows)]
    for platform in found.platforms:
        lines += [*_platform_markdown(platform), ""]
    return "\n".join(lines).rstrip() + "\n"


def _outcome(found: Comparison) -> str:
    if found.regression:
        return "regression"
    return "suspected regression" if found.suspected else "no regression"


def _platform_markdown(platform: PlatformComparison) -> Iterator[str]:
    times = platform.times
    if isinstance(times, Times):
        yield from (f"* {escape(text)}" for _, text in news(times, platform.explanations))
        yield from (f"* {escape(text)}" for text in advice(platform.head.platform, times))
        yield ""
    yield f"<details><summary>{escape(platform.name)}: runs, times and tests</summary>"
    yield ""
    yield f"* base: {escape(_side(platform.base))}"
    yield f"* head: {escape(_side(platform.head))}"
    yield from (f"* {escape(line)}" for line in _operators(platform))
    yield from (f"* {escape(text)}" for text in environment(times, platform.base))
    yield ""
    if isinstance(times, Times):
        yield table(TIME_HEADINGS, time_rows(times.changes))
    yield from _tests_markdown(platform.tests)
    yield ""
    yield "</details>"


def _tests_markdown(found: Difference | None) -> Iterator[str]:
    if found is None:
        yield "Tests are not compared: one side has none."
        return
    for kind, told in _sections(found):
        yield f"#### {escape(kind.capitalize())} ({found.count(kind):,})"
        yield ""
        yield from (f"* {escape(line)}" for line in told)
        yield ""
    yield _last(found)


# As JSON


def comparison_json(found: Comparison) -> str:
    """Everything, test by test and measure by measure."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "base": found.base,
        "head": found.head,
        "regression": found.regression,
        "suspected": found.suspected,
        "only_base": found.only_base,
        "only_head": found.only_head,
        "notes": found.notes,
        "platforms": [*map(_platform_json, found.platforms)],
    }
    return json.dumps(document, indent=2) + "\n"


def _platform_json(platform: PlatformComparison) -> dict[str, object]:
    return {
        "base": _side_json(platform.base),
        "head": _side_json(platform.head),
        "regression": platform.regression,
        "suspected": platform.suspected,
        "tests": platform.tests and _tests_json(platform.tests),
        "times": _times_json(platform),
    }


def _side_json(side: Side) -> dict[str, object]:
    counts = {outcome.value: side.counts[outcome] for outcome in Outcome}
    names = ("name", "platform", "simulated", "selected", "origin", "missing")
    return {name: getattr(side, name) for name in names} | {"counts": counts}


def _tests_json(found: Difference) -> dict[str, object]:
    return {
        "regression": found.regression,
        "unchanged": found.unchanged,
        "counts": {_key(kind): found.count(kind) for kind in ChangeKind},
        "changes": {_key(kind): [*map(_change, found.of(kind))] for kind in ChangeKind},
    }


def _key(kind: ChangeKind) -> str:
    return kind.name.lower()


def _change(change: ChangedTest) -> dict[str, object]:
    test = change.test
    name: dict[str, object] = {"test": test, "count": change.count}
    if isinstance(test, OperatorTest):
        name = {"function": test.function, "overload": test.overload}
        name |= {"dtype": test.variant, "slot": test.slot}
    states = {"before": change.before, "after": change.after}
    more = {key: getattr(change, key) for key in ("message", "seconds", "flaky")}
    known = {key: value for key, value in more.items() if value is not None}
    return name | {key: state and str(state) for key, state in states.items()} | known


def _times_json(platform: PlatformComparison) -> dict[str, Any]:
    times = platform.times
    if isinstance(times, NoTimes):
        key = times.key and asdict(times.key)
        return {"compared": False, "environment": key, "reasons": times.reasons}
    causes = {it.measure: it.causes for it in platform.explanations}
    return {
        "compared": True,
        "environment": asdict(times.key),
        "base_run": times.base.run_id,
        "head_run": times.head.run_id,
        "baseline_runs": len(times.before) + 1,
        "head_runs": times.head_runs,
        "measures": [
            _measure_json(change) | {"cause": causes.get(change.measure)}
            for change in times.changes
        ],
    }


def _measure_json(change: MeasureChange) -> dict[str, Any]:
    names = ("measure", "base", "head", "before", "after", "relative", "detectable")
    found = {name: getattr(change, name) for name in names}
    found["judgement"] = change.judgement.value
    return found | {"changes": [change_json(step) for step in change.steps]}
