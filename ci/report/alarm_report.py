"""Reports of the alarms of several platforms, one for each cause, and their notifications."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ci.analysis.alarm_messages import is_undersold
from ci.analysis.alarm_tracking import TrackedAlarm
from ci.analysis.alarms import Alarm, AlarmRow
from ci.analysis.parts import group_by
from ci.analysis.platform_history import PlatformHistory
from ci.facts.measures import amount, growth, measure_name, percent, stage_and_quantity
from ci.gates.regression import Judgement
from ci.report.changes import (
    ENVIRONMENT_RISE,
    INVALID,
    SCHEMA_VERSION,
    accept_command,
    change_data,
    run_data,
    run_name,
    texts_of_runs_apart,
    tracking_text,
)
from ci.report.document import Document, Heading, Items, Report, Table, select_attributes
from ci.report.table import MISSING
from ci.store.rows import AlarmEvent, AlarmMessage, AlarmRecord
from ci.util.invocation import command
from ci.util.text import counted, join_names, shorten
from ci.util.webhook import FORMS, Body

NOTIFICATION_VERSION = 1
LONGEST_NOTIFICATION = 3_000
"""Characters, of up to 6 bytes as JSON: Feishu refuses a body of more than 20 KB."""
COLUMNS = ("Platform", "Quantity", "before", "since", "change", "95 % interval", "runs since")


@dataclass(frozen=True)
class AlarmReport(Report):
    """A table for each alarm, with its commits, its causes and the commands for it."""

    project: str
    branch: str | None
    histories: Sequence[PlatformHistory]
    alarms: Sequence[TrackedAlarm]
    """All that are open."""

    def document(self, *, page: bool) -> Document:
        names = join_names([it.platform for it in self.histories], len(self.histories))
        of = f" of {self.branch}" if self.branch else ""
        yield [Heading(3 if page else 1, f"{self.project}{of}: {names}")]
        for number, tracked in enumerate(self.alarms, start=1):
            if (alarm := tracked.alarm) is None:
                continue
            head = Heading(4 if page else 2, f"{number}. {headline(alarm)}", style="bold")
            yield head, place_text(alarm)
            yield [Table(COLUMNS, [*map(_row, alarm.rows)], numbers=COLUMNS[2:5])]
            advice = f"to acknowledge it: {acknowledge_command(tracked)}"
            again = f"to run both sides again: {command('rerun-alarm', tracked.record.alarm_id)}"
            yield [Items([tracking_text(tracked), *_details(alarm), again, advice])]
        yield [Items([*self._conclusion()])]

    def _conclusion(self) -> Iterator[str]:
        found = self._regressions()
        yield counted(len(found), "open regression") if found else "no open regression"
        if invalid := [it for it in self.alarms if it.is_dismissed]:
            yield counted(len(invalid), INVALID)
        for record in self.histories:
            if not record.history.environments:
                runs = counted(record.runs, "run")
                yield f"{record.platform}: nothing to judge: no stage completed in {runs}"
            if count := len(record.history.of(Judgement.SUSPECTED)):
                details = command("history", record.platform, "--check")
                yield f"{record.platform}: {counted(count, 'suspected regression')}: {details}"
        apart = [(text, it.platform) for it in self.histories for text in texts_of_runs_apart(it)]
        for text, of in group_by(apart, lambda it: it[0]).items():
            yield f"{join_names([name for _, name in of], len(of))}: {text}"

    def data(self) -> dict[str, Any]:
        """Collect all alarms for programs."""
        return {
            "schema_version": SCHEMA_VERSION,
            "project": self.project,
            "branch": self.branch,
            "platforms": [it.platform for it in self.histories],
            "elsewhere": {it.platform: it.elsewhere for it in self.histories},
            "abandoned": {it.platform: it.abandoned for it in self.histories},
            "searches": {it.platform: it.searches for it in self.histories},
            "regression": bool(self._regressions()),
            "alarms": [*map(alarm_data, self.alarms)],
        }

    def _regressions(self) -> list[TrackedAlarm]:
        return [
            it
            for it in self.alarms
            if it.alarm and it.alarm.kind is Judgement.REGRESSION and not it.is_dismissed
        ]


def headline(alarm: Alarm) -> str:
    """``install up to +20 % on cpu, nvidia``: the size of the largest rise."""
    point = (row := alarm.largest).change.point
    size = percent(point.after / point.before - 1, "+") if point.before else "from 0"
    size += " gradually" if row.change.is_gradual else ""
    most = "up to " if len(alarm.rows) > 1 else ""
    platforms = join_names(alarm.platforms, len(alarm.platforms))
    text = f"{measure_name(row.change.measure)} {most}{size} on {platforms}"
    is_environment = alarm.kind is Judgement.ENVIRONMENT
    return f"together with a change of the environment: {text}" if is_environment else text


def place_text(alarm: Alarm) -> str:
    """The last run before the rise and the first with it."""
    text = f"after {run_name(alarm.before)}, with {run_name(alarm.first)}"
    is_gradual = alarm.reached is not alarm.first
    return f"{text}, gradually until {run_name(alarm.reached)}" if is_gradual else text


def _row(row: AlarmRow) -> tuple[str, ...]:
    change, point = row.change, row.change.point
    quantity = stage_and_quantity(change.measure)[1]
    interval = MISSING
    if point.before and point.low < point.high:
        interval = f"{percent(point.low, '+')} to {percent(point.high, '+')}"
    return (
        row.platform,
        measure_name(change.measure),
        amount(point.before, quantity),
        amount(point.after, quantity),
        growth(point.before, point.after, quantity),
        interval,
        f"{change.runs_since:,}",
    )


def row_texts(alarm: Alarm) -> Iterator[str]:
    """``cpu: install 83 s -> 97 s, +14 s (+17 %), ...`` for each platform, then the causes."""
    for row in alarm.rows:
        platform, name, before, after, size, interval, _ = _row(row)
        seen = f"seen in {counted(row.change.runs_since, 'run')}"
        yield f"{platform}: {name} {before} -> {after}, {size}, 95 % interval {interval}; {seen}"
    yield from _causes(alarm)


def _details(alarm: Alarm) -> Iterator[str]:
    """The causes, the platforms of each, and the commands for the alarm."""
    if len(alarm.platforms) < len(alarm.rows):  # one platform in several environments
        yield from (f"{row.platform}: in {row.environment}" for row in alarm.rows)
    yield from _causes(alarm)
    if alarm.kind is Judgement.ENVIRONMENT:
        yield ENVIRONMENT_RISE
    if narrow := bisect_command(alarm):
        yield f"to find the commit: {narrow}"
    for row in alarm.rows:
        yield f"to accept it: {accept_command(row.platform, row.change.run, row.change)}"


def acknowledge_command(tracked: TrackedAlarm) -> str:
    return command("alarms", tracked.record.alarm_id, "--acknowledge", "--note", "TEXT")


def _causes(alarm: Alarm) -> Iterator[str]:
    """The causes, each with its platforms."""
    known = [row for row in alarm.rows if row.cause]
    for cause, rows in group_by(known, lambda row: row.cause).items():
        names = dict.fromkeys(row.platform for row in rows)
        yield f"cause on {join_names([*names], len(names))}: {cause}"


def bisect_command(alarm: Alarm) -> str | None:
    """The command that finds the first commit with the rise; ``None`` if no single one has it."""
    good, bad = alarm.before.commit, alarm.first.commit
    row = alarm.largest
    is_of_commits = alarm.kind is Judgement.REGRESSION and not row.change.is_gradual
    if not is_of_commits or not good or not bad or good == bad:
        return None
    stage, quantity = stage_and_quantity(row.change.measure)
    # Without a measure, `bisect` takes the CPU seconds, else the wall time of the stage.
    measure = () if quantity.is_time else ("--measure", quantity.label)
    ends = ("--good", good, "--bad", bad)
    return command("bisect", row.platform, *ends, "--stage", stage, *measure)


def alarm_data(tracked: TrackedAlarm) -> dict[str, Any]:
    """All data of an alarm; one that is over has no rows and no runs."""
    record, alarm = tracked.record, tracked.alarm
    return {
        "id": record.alarm_id,
        "state": tracked.state,
        "why": tracked.why or None,
        "statement": statement_data(record),
        "owners": tracked.owners,
        "link": record.link,
        "kind": record.kind,
        "headline": headline(alarm) if alarm else record_headline(record),
        "last_run_before": alarm and run_data(alarm.before),
        "first_run_after": alarm and run_data(alarm.first),
        "bisect": alarm and bisect_command(alarm),
        "rows": [
            {
                "platform": row.platform,
                "environment": row.environment,
                "cause": row.cause,
                "change": change_data(row.change),
                "also": [*map(change_data, row.also)],
            }
            for row in (alarm.rows if alarm else ())
        ],
    }


def statement_data(record: AlarmRecord) -> dict[str, Any] | None:
    """What a person said last of an alarm."""
    if record.stated_at is None:
        return None
    own = select_attributes(record, "state", "who", "note", "commit")
    return {**own, "stated_at": record.stated_at.isoformat()}


def record_headline(record: AlarmRecord) -> str:
    """``install +20 % on cpu, nvidia``: the rises where they were last found."""
    platforms = join_names(record.platforms, len(record.platforms))
    rises = [it for it in record.rises if it.before] or [*record.rises]
    most = max(rises, key=lambda it: abs(it.level / it.before - 1) if it.before else 0.0)
    size = f" {percent(most.level / most.before - 1, '+')}" if most.before else ""
    return f"{measure_name(most.measure)}{size} on {platforms}"


def notification(
    tracked: TrackedAlarm,
    event: AlarmEvent,
    form: str,
    *,
    project: str,
    branch: str | None,
    said: AlarmMessage | None = None,
) -> Body:
    """The body of a POST for an alarm, in the form that its receiver expects.

    ``said`` is the last message, which a correction corrects.
    """
    lines = _lines(tracked, event, f"{project} of {branch}" if branch else project, said)
    text = shorten("\n".join(lines), LONGEST_NOTIFICATION)
    corrects = said if event is AlarmEvent.CORRECTED else None
    data = {
        "schema_version": NOTIFICATION_VERSION,
        "project": project,
        "branch": branch,
        "text": text,
        "event": event,
        "corrects": corrects
        and {
            "last_run_before": corrects.before_run_id,
            "first_run_after": corrects.run_id,
            "headline": _said_size(corrects),
        },
        **alarm_data(tracked),
    }
    return FORMS[form](text, data)


def _lines(
    tracked: TrackedAlarm, event: AlarmEvent, project: str, said: AlarmMessage | None
) -> Iterator[str]:
    """The lines of a message, the most important first, as a long one is cut."""
    alarm = tracked.alarm
    if event is AlarmEvent.RESOLVED or alarm is None:
        yield f"{project}: resolved: {record_headline(tracked.record)}"
        yield tracking_text(tracked)
        return
    begin = {AlarmEvent.CORRECTED: "correction: ", AlarmEvent.REOPENED: "open again: "}.get(event)
    kind = "regression: " if alarm.kind is Judgement.REGRESSION else ""  # the headline has others
    yield f"{project}: {begin or ''}{kind}{headline(alarm)}"
    yield place_text(alarm)
    if said and event is AlarmEvent.CORRECTED:
        size = _said_size(said) if is_undersold(tracked, said) else None
        moved = (said.before_run_id, said.run_id) != (alarm.before.run_id, alarm.first.run_id)
        place = f"after {said.before_run_id}, with {said.run_id}" if moved else None
        yield f"and not, as it seemed before, {', '.join(filter(None, (size, place)))}"
    yield tracking_text(tracked)
    if narrow := bisect_command(alarm):
        yield f"to find the commit: {narrow}"
    yield from row_texts(alarm)


def _said_size(said: AlarmMessage) -> str | None:
    """``install +20 %``, as a message named it; ``None`` if an older version sent it."""
    if said.measure is None or said.size is None:
        return None
    return f"{measure_name(said.measure)} {percent(said.size, '+')}"
