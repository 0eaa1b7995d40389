"""The list of alarms with their states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ci.analysis.alarm_tracking import TrackedAlarm
from ci.report.alarm_report import alarm_data, headline, record_headline
from ci.report.changes import SCHEMA_VERSION, tracking_text
from ci.report.document import Document, Heading, Items, Report, Table
from ci.report.table import MISSING
from ci.util.text import commit_name, counted

COLUMNS = ("Alarm", "State", "Regression", "since", "runs since")


@dataclass(frozen=True)
class AlarmList(Report):
    """A row for each alarm, with what people said of it below the table."""

    project: str
    branch: str | None
    alarms: Sequence[TrackedAlarm]

    def document(self, *, page: bool) -> Document:
        of = f" of {self.branch}" if self.branch else ""
        yield [
            Heading(3 if page else 1, f"{self.project}{of}: {counted(len(self.alarms), 'alarm')}")
        ]
        if self.alarms:
            yield [Table(COLUMNS, [*map(_row, self.alarms)], numbers=COLUMNS[4:])]
            yield [Items([*map(tracking_text, self.alarms)])]

    def data(self) -> dict[str, Any]:
        """Collect all alarms for programs."""
        return {
            "schema_version": SCHEMA_VERSION,
            "project": self.project,
            "branch": self.branch,
            "alarms": [*map(alarm_data, self.alarms)],
        }


def _row(tracked: TrackedAlarm) -> Sequence[str]:
    alarm, record = tracked.alarm, tracked.record
    if alarm is None:
        return record.alarm_id, tracked.state, record_headline(record), MISSING, MISSING
    since = commit_name(alarm.first.commit, dirty=alarm.first.dirty)
    runs = max(row.change.runs_since for row in alarm.rows)
    return record.alarm_id, tracked.state, headline(alarm), since, f"{runs:,}"
