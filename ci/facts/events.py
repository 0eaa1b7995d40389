"""Typed reading of ``events.jsonl``, the agent's append-only record of a run.

The agent prints the same lines, and the output of the stages between them. The writer may have
died in the middle of a line, and the code under test can write what it likes, so a line that is
no event is counted and left out; fields and events that a newer agent may add are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from pydantic import TypeAdapter

from ci.model.events import Event, RunRecord
from ci.util.lines import CutLine, parse_object
from ci.util.text import storable_json

# A run has dozens of events, plus one a minute while it waits for devices.
MOST_EVENTS = 100_000
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)
_NAMES = frozenset(
    name
    for model in get_args(get_args(Event)[0])
    for name in get_args(model.model_fields["event"].annotation)
)


def parse_event(line: str) -> Event | None:
    """Read an event; ``None``: one of a newer agent. Raises ``ValueError`` for what is none."""
    value: dict[str, Any] = parse_object(line)
    name = value.get("event")
    if isinstance(name, str) and name not in _NAMES:
        return None
    return _EVENT.validate_python(value if name == "output" else storable_json(line, value))


def parse_events(lines: Iterable[str]) -> RunRecord:
    """Read the lines of ``events.jsonl``."""
    events: list[Event] = []
    unreadable = longest = 0
    for line in filter(str.strip, lines):
        try:
            event = parse_event(line)
            if len(events) == MOST_EVENTS:
                raise ValueError("more events than any run has")
        except ValueError:
            unreadable += 1
            longest = max(longest, line.length if isinstance(line, CutLine) else 0)
        else:
            events += [event] if event is not None else []
    return RunRecord(events=tuple(events), unreadable_lines=unreadable, longest_line=longest)
