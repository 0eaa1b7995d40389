"""The report of a platform's history: its levels, and their changes with the runs around them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from textwrap import wrap
from typing import Any

from ci.analysis.alarm_tracking import TrackedAlarm
from ci.analysis.changes import POLICY
from ci.analysis.level_changes import Environment, LevelChange, Series, Shift
from ci.analysis.platform_history import PlatformHistory
from ci.facts.environment_key import EnvironmentKey
from ci.facts.measures import (
    Quantity,
    amount,
    is_benchmark,
    measure_name,
    percent,
    stage_and_quantity,
)
from ci.gates.regression import IN_WORDS, Judgement
from ci.report.changes import (
    ENVIRONMENT_RISE,
    INVALID,
    KINDS,
    SCHEMA_VERSION,
    accept_command,
    accepted_text,
    change_data,
    change_status,
    interval_text,
    level_lines,
    run_data,
    run_name,
    texts_of_runs_apart,
    tracking_text,
)
from ci.report.document import (
    SCREEN_WIDTH,
    Document,
    Heading,
    Items,
    Report,
    Table,
    select_attributes,
)
from ci.report.table import MISSING
from ci.store.rows import RunMeasures
from ci.util.invocation import command
from ci.util.text import counted, join_names, shorten_middle

MOST = 10
"""Lines of each kind, so that all kinds fit on two screens. JSON has all lines."""
MOST_ROWS = 20
"""Benchmarks in a table, those that changed first: a project may have thousands."""
LONGEST_LABEL = 24
"""Characters of a benchmark's name in a table, which then fits on a screen of 80 columns."""
TOO_FEW = (
    f"too few runs to judge: a change needs at least {POLICY.confirm} runs before it and"
    f" {POLICY.confirm} after it"
)
_ALARMING = [KINDS[Judgement.REGRESSION], KINDS[Judgement.SUSPECTED]]

Alarms = Mapping[tuple[str, str], TrackedAlarm]
Section = tuple[str, list[str]]  # a heading and its lines; an indented line continues the last


@dataclass(frozen=True)
class HistoryReport(Report):
    """A table for each environment in use, with the changes in words below it."""

    record: PlatformHistory
    check: bool = False
    """Whether to show only open and suspected regressions."""
    alarms: Alarms = field(default_factory=dict)
    """The alarms of open rises, by run and measure."""

    def document(self, *, page: bool) -> Document:
        record = self.record
        branch = f" of {record.branch}" if record.branch else ""
        count = f"{counted(record.runs, 'run')}{branch}"
        title = Heading(1, f"{record.project}: {record.platform}, {count}")
        if self.check:
            yield title, Items([*_notes(record), *_check_lines(record, self.alarms)])
            return
        yield title, Items(_notes(record))
        for heading, lines in _environment_rises(record, self.alarms):
            yield Heading(2, heading), Items(lines, indent="  ")
        young = []
        for number, environment in enumerate(record.history.environments, start=1):
            key, span = _key_text(record, environment.key), _span(environment.runs)
            if number > 1 and _is_young(environment):  # its table would have no answers
                young.append(f"environment {number}: {key}: {span}")
                continue
            if page:
                yield Heading(2, f"Environment {number}"), key, span
            else:
                yield Items(_wrapped(f"environment {number}: {key}")), span
            yield from _tables(environment, page=page)
            for heading, lines in _change_sections(record, environment, self.alarms):
                yield Heading(3, heading), Items(lines, indent="  ")
        if young:
            heading = f"{counted(len(young), 'environment')} with too few runs to judge"
            yield Heading(2, heading), Items(_shorten(young), indent="  ")
        for heading, lines in _environment_sections(record):
            yield Heading(2, heading), Items(lines, indent="  ")
        yield [IN_WORDS]
        yield [Items(_conclusion(record, self.alarms))]

    def data(self) -> dict[str, Any]:
        """Collect the whole history for programs."""
        record, history = self.record, self.record.history
        return {
            "schema_version": SCHEMA_VERSION,
            **select_attributes(record, "project", "platform", "branch", "runs", "elsewhere"),
            "abandoned": record.abandoned,
            "searches": record.searches,
            "regression": bool(_open_regressions(record, self.alarms)),
            "environments": [
                _environment_data(record, it, self.alarms) for it in history.environments
            ],
            "past_environments": [*map(_key_data, history.past)],
            "environment_changes": [
                {
                    "run": run_data(it.run),
                    "changes": it.changes,
                    "open": it.is_open,
                    "rises": [*map(change_data, it.rises)],
                }
                for it in history.key_changes
            ],
        }


def _notes(record: PlatformHistory) -> list[str]:
    """The runs that are not on the line, and the acceptances that no longer hold."""
    expired = [f"no longer accepted: {accepted_text(it)}: {it.reason}" for it in record.expired]
    return [*texts_of_runs_apart(record), *_shorten(expired)]


def _is_young(environment: Environment) -> bool:
    """Whether an environment has too few runs for any answer."""
    # Counts have no noise: they are judged from the first run on.
    timed = [it for it in environment.series if stage_and_quantity(it.measure)[1].is_time]
    judged = any(it.finding.detectable is not None for it in timed or environment.series)
    return not (judged or environment.shifts)


def _key_text(record: PlatformHistory, key: EnvironmentKey) -> str:
    """The first environment in full, and others by what they have instead."""
    first = record.history.environments[0].key if record.history.environments else key
    if key.platform != first.platform or not (changes := key.changes(first)):
        return str(key)
    named = [f"{it.component}: {it.after}" for it in changes]
    return f"as environment 1, but {'; '.join(named)}"


def _wrapped(text: str) -> list[str]:
    """An environment, which may have 400 characters, in lines that fit on a screen."""
    return wrap(text, SCREEN_WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _conclusion(record: PlatformHistory, alarms: Alarms) -> list[str]:
    """Whether a regression is open, and the smallest changes that these runs can show.

    ``environment 1, 9 runs: smallest detectable change: install 4 %, pytest 6 %``.
    """
    environments = record.history.environments
    found = _open_regressions(record, alarms)
    if not environments:
        return [f"nothing to judge: no stage completed in {counted(record.runs, 'run')}"]
    lines = [counted(len(found), "open regression") if found else "no open regression"]
    if invalid := len(record.history.of(Judgement.REGRESSION)) - len(found):
        lines.append(counted(invalid, INVALID))
    young = {number: it for number, it in enumerate(environments, start=1) if _is_young(it)}
    for number, environment in enumerate(environments, start=1):
        if number in young and len(young) > 1:
            continue
        series = environment.series
        walls = [it for it in series if stage_and_quantity(it.measure)[1] is Quantity.WALL]
        known = [
            f"{measure_name(it.measure)} {percent(it.finding.detectable)}"
            for it in walls or series
            if it.finding.detectable is not None and not is_benchmark(it.measure)
        ]
        found_of = [it.finding.detectable for it in series if is_benchmark(it.measure)]
        if limits := [it for it in found_of if it is not None]:
            span = dict.fromkeys((percent(min(limits)), percent(max(limits))))
            known.append(f"{counted(len(limits), 'benchmark')} {' to '.join(span)}")
        seen = f"smallest detectable change: {', '.join(known)}" if known else TOO_FEW
        lines.append(f"environment {number}, {counted(len(environment.runs), 'run')}: {seen}")
    if len(young) > 1:
        lines.append(f"environments {join_names([*map(str, young)], MOST)}: {TOO_FEW}")
    return lines


def _check_lines(record: PlatformHistory, alarms: Alarms) -> list[str]:
    """Open and suspected regressions, their environments, and the detectable changes."""
    environments = record.history.environments
    lines: list[str] = []
    for heading, found in _environment_rises(record, alarms):
        lines += [heading, *(f"  {line}" for line in found)]
    for number, environment in enumerate(environments, start=1):
        place = f"environment {number}: " if len(environments) > 1 else ""
        for heading, found in _change_sections(record, environment, alarms, _ALARMING):
            lines += [f"{place}{heading}", *(f"  {line}" for line in found)]
    for number, it in enumerate(environments, start=1):
        lines += _wrapped(f"environment {number}: {_key_text(record, it.key)}")
    # Explain why some runs cannot be judged yet.
    young = {it.runs[0].run_id for it in environments if len(it.runs) < 2 * POLICY.confirm}
    if new := _key_changes(record, young):
        heading = counted(len(new), "change") + " of the environment, with too few runs since"
        lines += [heading, *(f"  {line}" for line in _shorten(new))]
    return [*lines, *_conclusion(record, alarms)]


def _environment_rises(record: PlatformHistory, alarms: Alarms) -> Iterator[Section]:
    """The rises that came with a change of the environment, which are not open regressions."""
    if not (found := record.history.environment_rises):
        return
    lines = []
    for change in found[:MOST]:
        first = next((it for it in change.rises if it.judgement.is_open), change.rises[0])
        lines.append(f"{first.text}, together with: {'; '.join(change.changes)}")
        lines += level_lines(first)
        if others := [rise.text for rise in change.rises if rise is not first]:
            lines.append(f"  also rose: {join_names(others, MOST)}")
        lines.append(f"  {change_status(first) or ENVIRONMENT_RISE}")
        if tracked := alarms.get((first.run.run_id, first.measure)):
            lines.append(f"  {tracking_text(tracked)}")
        if first.is_rise:
            lines.append(f"  to accept it: {accept_command(record.platform, change.run, first)}")
    heading = f"{counted(len(found), 'rise')} together with a change of the environment"
    yield heading, [*lines, *_omitted(len(found))]


def _environment_sections(record: PlatformHistory) -> Iterator[Section]:
    """The changes of the environment, and the environments no longer in use."""
    if changes := _key_changes(record):
        yield counted(len(changes), "change") + " of the environment", _shorten(changes)
    if past := [f"{_key_text(record, it.key)}: {_span(it.runs)}" for it in record.history.past]:
        yield counted(len(past), "environment") + " no longer in use", _shorten(past)


def _key_changes(record: PlatformHistory, run_ids: Container[str] | None = None) -> list[str]:
    return [
        f"{it.run.started_at:%Y-%m-%d} run {run_name(it.run)}: {'; '.join(it.changes)}"
        for it in record.history.key_changes
        if run_ids is None or it.run.run_id in run_ids
    ]


def _span(runs: Sequence[RunMeasures]) -> str:
    first, last = runs[0].started_at, runs[-1].started_at
    return f"{counted(len(runs), 'run')}, {first:%Y-%m-%d} to {last:%Y-%m-%d}"


def _shorten(lines: Sequence[str]) -> list[str]:
    return [*lines[:MOST], *_omitted(len(lines))]


def _omitted(count: int) -> list[str]:
    return [f"and {count - MOST:,} more: --format json shows all"] if count > MOST else []


COLUMNS = ("Stage", "Quantity", "level", "since the first run", "detectable", "runs", "last change")
BENCHMARK_COLUMNS = ("Benchmark", "level", *COLUMNS[4:])


def _tables(environment: Environment, *, page: bool) -> Document:
    """A table of the stages, and one of the benchmarks, the worst and latest changes first."""
    newest = {it.measure: it for shift in environment.shifts[::-1] for it in shift.changes}
    stages = [it for it in environment.series if not is_benchmark(it.measure)]
    if stages:
        rows = [_row(series, newest.get(series.measure)) for series in stages]
        yield [Table(COLUMNS, rows, numbers=COLUMNS[2:6])]
    if not (benchmarks := [it for it in environment.series if is_benchmark(it.measure)]):
        return
    order = list(Judgement)

    def urgency(series: Series) -> tuple[int, int, float]:
        change = newest.get(series.measure)
        if change is None:
            return len(order), 0, 0.0
        return order.index(change.judgement), -change.place, -abs(change.point.relative)

    shown = sorted(benchmarks, key=urgency)[:MOST_ROWS]
    rows = [_benchmark_row(it, newest.get(it.measure), page=page) for it in shown]
    more = len(benchmarks) - len(shown)
    text = f"and {counted(more, 'more benchmark')}: see some with --measure TEXT, all with"
    below = [f"{text} --format json"] if more else []
    yield Table(BENCHMARK_COLUMNS, rows, numbers=BENCHMARK_COLUMNS[1:4]), *below


def _row(series: Series, last: LevelChange | None) -> Sequence[str]:
    stage, quantity = stage_and_quantity(series.measure)
    since = _relative(series.first, series.level) if series.finding.changes else MISSING
    return stage, quantity.label, amount(series.level, quantity), since, *_cells(series, last)


def _benchmark_row(series: Series, last: LevelChange | None, *, page: bool) -> Sequence[str]:
    """The name, in a terminal so much of it that 80 columns suffice for the row."""
    stage, quantity = stage_and_quantity(series.measure)
    name = f"{stage}: {quantity.label}" if page else shorten_middle(quantity.label, LONGEST_LABEL)
    return name, amount(series.level, quantity), *_cells(series, last)


def _cells(series: Series, last: LevelChange | None) -> tuple[str, str, str]:
    """The columns ``detectable``, ``runs`` and ``last change``."""
    finding, change = series.finding, MISSING
    detectable = "too few" if finding.detectable is None else percent(finding.detectable)
    if last is not None:
        size = _relative(last.point.before, last.point.after)
        change = f"{size} on {last.run.started_at:%Y-%m-%d}"
    return detectable, f"{series.runs:,}", change


def _relative(before: float, after: float) -> str:
    return percent(after / before - 1, "+") if before else "from 0"


# What changed, in words


def _change_sections(
    record: PlatformHistory,
    environment: Environment,
    alarms: Alarms,
    kinds: Iterable[str] = KINDS.values(),
) -> Iterator[Section]:
    for kind in dict.fromkeys((*kinds, INVALID)):
        if shifts := [it for it in environment.shifts if _kind(it, alarms) == kind]:
            lines = [line for it in shifts[:MOST] for line in _shift_lines(record, it, alarms)]
            yield counted(len(shifts), kind), [*lines, *_omitted(len(shifts))]
    drifts = []
    for series in environment.series:
        drift, since = series.finding.drift, series.drifts_since
        if drift is not None and since is not None:
            size = f"{measure_name(series.measure)} {percent(drift.relative, '+')}"
            between = interval_text(drift.low, drift.high)
            drifts.append(f"{size} gradually, {between}, since {run_name(since)}")
    if drifts:
        yield counted(len(drifts), "drift") + ", no single change", _shorten(drifts)
    if frequent := [*_more_outliers(environment)]:
        yield counted(len(frequent), "level") + " with more outliers", _shorten(frequent)


def _more_outliers(environment: Environment) -> Iterator[str]:
    for series in environment.series:
        found, since = series.finding.outliers, series.outliers_since
        if found is not None and since is not None:
            now = f"{found.since:,} of {counted(found.values_since, 'run')} since {run_name(since)}"
            then = f"{found.before:,} of {found.values_before:,} before"
            yield f"{measure_name(series.measure)}: {now}, {then}"


def _shift_lines(record: PlatformHistory, shift: Shift, alarms: Alarms) -> Iterator[str]:
    change = shift.headline
    own = change_status(change)
    explanation = record.cause_of(change)
    yield explanation.text if explanation else change.text
    yield from level_lines(change)
    if shift.others:
        yield f"  also changed: {join_names([it.text for it in shift.others], MOST)}"
    if own is not None:
        yield f"  {own}"
    for other in shift.others:
        if not other.wall_alone and (note := change_status(other)) not in (None, own):
            yield f"  {measure_name(other.measure)}: {note}"
    if tracked := alarms.get((change.run.run_id, change.measure)):
        yield f"  {tracking_text(tracked)}"
        yield f"  to run both sides again: {command('rerun-alarm', tracked.record.alarm_id)}"
    if shift.judgement.is_open:
        yield f"  to accept it: {accept_command(record.platform, change.run, change)}"


def _kind(shift: Shift, alarms: Alarms) -> str:
    tracked = alarms.get((shift.headline.run.run_id, shift.headline.measure))
    return INVALID if tracked and tracked.is_dismissed else KINDS[shift.judgement]


def _open_regressions(record: PlatformHistory, alarms: Alarms) -> list[Shift]:
    found = record.history.of(Judgement.REGRESSION)
    return [it for it in found if _kind(it, alarms) != INVALID]


# For programs


def _environment_data(
    record: PlatformHistory, environment: Environment, alarms: Alarms
) -> dict[str, Any]:
    def alarm_id(change: LevelChange) -> str | None:
        tracked = alarms.get((change.run.run_id, change.measure))
        return tracked.record.alarm_id if tracked else None

    return {
        **_key_data(environment),
        "series": [
            {
                **select_attributes(it, "measure", "runs", "level"),
                "first_level": it.first,
                "detectable": it.finding.detectable,
                "drift": it.finding.drift and asdict(it.finding.drift),
                "outliers": it.finding.outliers and asdict(it.finding.outliers),
            }
            for it in environment.series
        ],
        "shifts": [
            {
                "kind": (kind := _kind(shift, alarms)),
                "open": shift.judgement.is_open and kind != INVALID,
                "alarm": alarm_id(shift.headline),
                "cause": (cause := record.cause_of(shift.headline)) and cause.text,
                "changes": [*map(change_data, shift.changes)],
            }
            for shift in environment.shifts
        ],
    }


def _key_data(environment: Environment) -> dict[str, Any]:
    return {
        "key": asdict(environment.key),
        "runs": len(environment.runs),
        "first_run": run_data(environment.runs[0]),
        "last_run": run_data(environment.runs[-1]),
    }
