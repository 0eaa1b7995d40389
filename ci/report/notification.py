"""The message of a new alarm, in the form that the receiver of ``--notify`` expects."""

from __future__ import annotations

from collections.abc import Iterator

from ci.analysis.alarms import Alarm, AlarmKind
from ci.report.alarms import alarm_data, bisect_command, headline, place_text, row_texts
from ci.util.text import shorten
from ci.util.webhook import FORMS, Body

SCHEMA_VERSION = 1
LONGEST_TEXT = 3_000
"""Characters, of up to 6 bytes as JSON: Feishu refuses a body of more than 20 KB."""


def notification(alarm: Alarm, form: str, *, project: str, branch: str | None) -> Body:
    """The body of a POST for an alarm."""
    lines = _text(alarm, f"{project} of {branch}" if branch else project)
    text = shorten("\n".join(lines), LONGEST_TEXT)
    data = {
        "schema_version": SCHEMA_VERSION,
        "project": project,
        "branch": branch,
        "text": text,
        **alarm_data(alarm),
    }
    return FORMS[form](text, data)


def _text(alarm: Alarm, project: str) -> Iterator[str]:
    """The lines of a message, the most important first, as a long one is cut."""
    kind = "regression: " if alarm.kind is AlarmKind.REGRESSION else ""  # the headline has others
    yield f"{project}: {kind}{headline(alarm)}"
    yield place_text(alarm)
    if narrow := bisect_command(alarm):
        yield f"to find the commit: {narrow}"
    yield from row_texts(alarm)
