"""A platform's history: in a terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import NamedTuple

from rich.console import Console

from ci.analysis.changes import POLICY
from ci.analysis.history import PlatformHistory
from ci.analysis.regressions import WALL_ALONE, Change, Environment, KeyChange, Series, Shift
from ci.facts.measures import LABELS, Quantity, amount, measure_name, percent, stage_and_quantity
from ci.report import changes as words
from ci.report.console import say, text_table
from ci.report.table import MISSING, escape, table
from ci.store.rows import Measured
from ci.util.invocation import command
from ci.util.text import counted, first_names, printable

SCHEMA_VERSION = 1
MOST = 10
"""Lines of a kind; JSON has them all."""
ALARMS = (
    "What alarms: a level that rose for good, as far as enough later runs tell, that nobody has"
    " accepted and nothing has undone. A rise of wall time without one of CPU seconds alarms once"
    f" it has lasted for {WALL_ALONE} runs: until then a busy machine explains it as well. Counts"
    f" and sizes of files have no noise: they alarm from {percent(POLICY.exact_alarm)}"
    " on."
)
TOO_FEW = f"too few to judge: it takes {POLICY.confirm} runs before a change and as many after it"
_ALARMING = ("open regression", "suspected regression")
_KINDS = (*_ALARMING, "small rise", "improvement", "past regression")


class Row(NamedTuple):
    """One measure of an environment."""

    stage: str
    quantity: str
    level: str
    since: str
    detectable: str
    runs: str
    last: str


HEADINGS = Row(
    "Stage", "Quantity", "level", "since the first run", "detectable", "runs", "last change"
)


def print_history(record: PlatformHistory, console: Console) -> None:
    """Print a table for each environment in use, and below it what changed, in words."""
    say(console, title(record))
    for number, environment in enumerate(record.history.environments, start=1):
        say(console, "", f"environment {number}: {environment.key}", _span(environment.runs), "")
        console.print(text_table(HEADINGS, _rows(environment), numbers=HEADINGS[2:6]))
        for heading, lines in _sections(record, environment):
            say(console, "", heading, *(f"  {line}" for line in lines))
    for heading, lines in _beyond(record):
        say(console, "", heading, *(f"  {line}" for line in lines))
    say(console, "", ALARMS, "", *conclusion(record))


def check_text(record: PlatformHistory) -> str:
    """What alarms, and what may soon."""
    return printable("\n".join([title(record), *_alarms(record)])) + "\n"


def history_markdown(record: PlatformHistory, *, check: bool = False) -> str:
    """The same for a pull request."""
    if check:
        return f"# {escape(title(record))}\n\n{_markdown_list(_alarms(record))}\n"
    parts = [f"# {escape(title(record))}"]
    for number, environment in enumerate(record.history.environments, start=1):
        parts += [f"## Environment {number}", escape(str(environment.key)), _span(environment.runs)]
        parts += [table(HEADINGS, _rows(environment)).rstrip()]
        for heading, lines in _sections(record, environment):
            parts += [f"### {escape(heading.capitalize())}", _markdown_list(lines)]
    for heading, lines in _beyond(record):
        parts += [f"## {escape(heading.capitalize())}", _markdown_list(lines)]
    parts += [ALARMS, _markdown_list(conclusion(record))]
    return "\n\n".join(parts) + "\n"


def history_json(record: PlatformHistory) -> str:
    """Everything."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "project": record.project,
        "platform": record.platform,
        "runs": record.runs,
        "regression": bool(record.history.open),
        "environments": [_environment_json(record, it) for it in record.history.environments],
        "past_environments": [_key_json(it) for it in record.history.past],
        "environment_changes": [
            {"run": words.run_json(it.run), "changes": it.changes}
            for it in record.history.key_changes
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def title(record: PlatformHistory) -> str:
    return f"{record.project}: {record.platform}, {counted(record.runs, 'run')}"


def conclusion(record: PlatformHistory) -> list[str]:
    """Whether something alarms, and what could have been seen."""
    if not record.history.environments:
        return [f"nothing to judge: no stage of {counted(record.runs, 'run')} got to its end"]
    found = record.history.open
    count = counted(len(found), "open regression") if found else "no open regression"
    return [count, *(_visible(*it) for it in enumerate(record.history.environments, start=1))]


def _alarms(record: PlatformHistory) -> list[str]:
    """What alarms; what would, were it surer; and what could have been seen, and where."""
    environments = [*enumerate(record.history.environments, start=1)]
    lines: list[str] = []
    for number, environment in environments:
        place = f"environment {number}: " if len(environments) > 1 else ""
        for heading, found in _sections(record, environment, _ALARMING):
            lines += [f"{place}{heading}", *(f"  {line}" for line in found)]
    keys = [f"environment {number}: {environment.key}" for number, environment in environments]
    return [*lines, *keys, *_too_new(record), *conclusion(record)]


def _too_new(record: PlatformHistory) -> Iterator[str]:
    """Why there is nothing to judge some runs by yet."""
    environments = record.history.environments
    young = {it.runs[0].run_id for it in environments if len(it.runs) < 2 * POLICY.confirm}
    changes = [it for it in record.history.key_changes if it.run.run_id in young]
    if changes:
        yield counted(len(changes), "change") + " of the environment too new to judge runs by"
        yield from (
            f"  {line}" for line in [*map(_key_change, changes[:MOST]), *_more(len(changes))]
        )


def _visible(number: int, environment: Environment) -> str:
    """``environment 1: the smallest change that would be seen: install 4 %, pytest 6 %``."""
    walls = [it for it in environment.series if _is_wall(it)] or [*environment.series]
    known = [
        f"{measure_name(it.measure)} {percent(it.finding.detectable)}"
        for it in walls
        if it.finding.detectable is not None
    ]
    seen = f"the smallest change that would be seen: {', '.join(known)}" if known else TOO_FEW
    return f"environment {number}, {counted(len(environment.runs), 'run')}: {seen}"


def _is_wall(series: Series) -> bool:
    return stage_and_quantity(series.measure)[1] is Quantity.WALL


def _rows(environment: Environment) -> list[Row]:
    newest = {
        change.measure: change for shift in environment.shifts[::-1] for change in shift.changes
    }
    return [_row(series, newest.get(series.measure)) for series in environment.series]


def _row(series: Series, last: Change | None) -> Row:
    finding = series.finding
    stage, quantity = stage_and_quantity(series.measure)
    detectable = finding.detectable
    return Row(
        stage=stage,
        quantity=LABELS[quantity],
        level=amount(series.level, quantity),
        since=_relative(series.first, series.level) if finding.changes else MISSING,
        detectable="too few" if detectable is None else percent(detectable),
        runs=f"{series.runs:,}",
        last=_last_change(last) if last else MISSING,
    )


def _last_change(change: Change) -> str:
    size = _relative(change.point.before, change.point.after)
    return f"{size} on {change.run.started_at:%Y-%m-%d}"


def _relative(before: float, after: float) -> str:
    return percent(after / before - 1, "+") if before else "from nothing"


def _markdown_list(lines: Sequence[str]) -> str:
    """What is indented belongs to the line before it."""
    return "\n".join(
        f"{'  ' if line.startswith(' ') else ''}* {escape(line.strip())}" for line in lines
    )


def _sections(
    record: PlatformHistory, environment: Environment, kinds: Sequence[str] = _KINDS
) -> Iterator[tuple[str, list[str]]]:
    for kind in kinds:
        shifts = [it for it in environment.shifts if words.verdict(it) == kind]
        if shifts:
            lines = [line for shift in shifts[:MOST] for line in _shift_lines(record, shift)]
            yield counted(len(shifts), kind), [*lines, *_more(len(shifts))]
    if drifts := [*_drifts(environment)]:
        yield counted(len(drifts), "drift") + ", no single change", drifts


def _drifts(environment: Environment) -> Iterator[str]:
    """``install +8.0 % little by little since run-012 (commit 0123abcd)``."""
    for series in environment.series:
        drift, since = series.finding.drift, series.drifts_since
        if drift is not None and since is not None:
            interval = words.interval(drift.low, drift.high)
            size = f"{measure_name(series.measure)} {percent(drift.relative, '+')}"
            yield f"{size} little by little, {interval}, since {words.run_name(since)}"


def _shift_lines(record: PlatformHistory, shift: Shift) -> Iterator[str]:
    change = shift.headline
    yield record.causes.get((change.run.run_id, change.measure)) or words.headline(change)
    yield f"  {words.levels(change)}"
    yield f"  {words.where(change)}; seen for {counted(change.runs_since, 'run')}"
    if shift.others:
        yield f"  with it {first_names([words.headline(it) for it in shift.others], MOST)}"
    yield from (f"  {note}" for note in _notes(shift))
    if shift.is_open:
        accept = ("--accept", change.run.run_id, "--reason", "TEXT")
        yield f"  if it is all right: {command('history', record.platform, *accept)}"


def _notes(shift: Shift) -> Iterator[str]:
    """What became of the change that is record, and of others where something else did."""
    own = words.standing(shift.headline)
    if own is not None:
        yield own
    for change in shift.others:
        if not change.wall_alone and (note := words.standing(change)) not in (None, own):
            yield f"{measure_name(change.measure)}: {note}"


def _beyond(record: PlatformHistory) -> Iterator[tuple[str, list[str]]]:
    """What environments there were, and when another came."""
    changes, past = record.history.key_changes, record.history.past
    if changes:
        lines = [*map(_key_change, changes[:MOST]), *_more(len(changes))]
        yield counted(len(changes), "change") + " of the environment", lines
    if past:
        lines = [f"{it.key}: {_span(it.runs)}" for it in past[:MOST]]
        yield counted(len(past), "environment") + " of the past", [*lines, *_more(len(past))]


def _key_change(change: KeyChange) -> str:
    when = f"{change.run.started_at:%Y-%m-%d}"
    return f"{when} run {words.run_name(change.run)}: {'; '.join(change.changes)}"


def _span(runs: Sequence[Measured]) -> str:
    first, last = runs[0].started_at, runs[-1].started_at
    return f"{counted(len(runs), 'run')}, {first:%Y-%m-%d} to {last:%Y-%m-%d}"


def _more(count: int) -> list[str]:
    return [f"and {count - MOST:,} more: --format json has all"] if count > MOST else []


def _environment_json(record: PlatformHistory, environment: Environment) -> dict[str, object]:
    return {
        **_key_json(environment),
        "series": [
            {
                "measure": it.measure,
                "runs": it.runs,
                "level": it.level,
                "first_level": it.first,
                "detectable": it.finding.detectable,
                "drift": asdict(it.finding.drift) if it.finding.drift else None,
            }
            for it in environment.series
        ],
        "shifts": [
            {
                "kind": words.verdict(shift),
                "open": shift.is_open,
                "cause": record.causes.get((shift.headline.run.run_id, shift.headline.measure)),
                "changes": [words.change_json(change) for change in shift.changes],
            }
            for shift in environment.shifts
        ],
    }


def _key_json(environment: Environment) -> dict[str, object]:
    return {
        "key": asdict(environment.key),
        "runs": len(environment.runs),
        "first_run": words.run_json(environment.runs[0]),
        "last_run": words.run_json(environment.runs[-1]),
    }
