"""Two suites side by side: in a terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ci.analysis.difference import Change, Difference, Kind, lines_of
from ci.analysis.suite import OperatorTest, Suite
from ci.compare import Side
from ci.pytest_log import Outcome
from ci.report.markdown import escape
from ci.text import counted, printable


def comparison_text(base: Side, head: Side, found: Difference) -> str:
    """For a terminal: the sides, then a paragraph for each kind of change."""
    lines = [f"base  {base.title}: {_counts(base.suite)}"]
    lines += [f"head  {head.title}: {_counts(head.suite)}", ""]
    for kind, told in _sections(found):
        lines += [f"{kind} ({found.count(kind):,})", *(f"  {line}" for line in told), ""]
    return printable("\n".join([*lines, _last(found)])) + "\n"


def comparison_markdown(base: Side, head: Side, found: Difference) -> str:
    lines = [f"* base: {escape(base.title)}: {_counts(base.suite)}"]
    lines += [f"* head: {escape(head.title)}: {_counts(head.suite)}", ""]
    for kind, told in _sections(found):
        lines += [f"### {escape(kind.capitalize())} ({found.count(kind):,})", ""]
        lines += [*(f"* {escape(line)}" for line in told), ""]
    return "\n".join([*lines, _last(found)]) + "\n"


def comparison_json(base: Side, head: Side, found: Difference) -> str:
    """Everything, test by test."""
    document = {
        "base": base.name,
        "head": head.name,
        "simulated": {"base": base.simulated, "head": head.simulated},
        "regression": found.regression,
        "unchanged": found.unchanged,
        "counts": {_key(kind): found.count(kind) for kind in Kind},
        "changes": {_key(kind): [*map(_change, found.of(kind))] for kind in Kind},
    }
    return json.dumps(document, indent=2) + "\n"


def _sections(found: Difference) -> Iterator[tuple[Kind, list[str]]]:
    for kind in Kind:
        if changes := found.of(kind):
            yield kind, lines_of(changes)


def _counts(suite: Suite) -> str:
    counts = suite.counts()
    return ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in Outcome if counts[outcome])


def _last(found: Difference) -> str:
    unchanged = counted(found.unchanged, "test")
    return f"{unchanged} unchanged" if found.changes else f"no difference: {unchanged}"


def _key(kind: Kind) -> str:
    return kind.name.lower()


def _change(change: Change) -> dict[str, object]:
    test = change.test
    name: dict[str, object] = {"test": test, "count": change.count}
    if isinstance(test, OperatorTest):
        name = {"function": test.function, "overload": test.overload}
        name |= {"dtype": test.variant, "slot": test.slot}
    states = {"before": change.before, "after": change.after}
    return name | {key: state and str(state) for key, state in states.items()}
