"""Typed reading of ``events.jsonl``, the agent's append-only record of a run.

The agent prints the same lines, and the output of the stages between them. The writer may have
died in the middle of a line, and the code under test can write what it likes, so a line that is
no event is counted and left out; fields and events that a newer agent may add are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from ci.model.events import EVENTS, Event, Output, RunRecord, RunStarted
from ci.util.lines import CutLine, parse_object
from ci.util.text import storable_json

# A run has dozens of events, plus one a minute while it waits for devices.
MOST_EVENTS = 100_000
_NUMBER = (int, float)


@cache  # each takes 1 ms to be made, and a run needs few of them
def _reader(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(EVENTS[name])


def parse_event(line: str) -> Event | None:
    """Read an event; ``None``: one of a newer agent. Raises ``ValueError`` for what is none."""
    value: dict[str, Any] = parse_object(line)
    name = value.get("event")
    if name == Output.event:
        return _output(value)
    if not isinstance(name, str):
        raise ValueError("an event without a name")
    if name not in EVENTS:
        return None
    if type(value.get("time")) not in _NUMBER or type(value.get("monotonic")) not in _NUMBER:
        raise ValueError("an event without its time")
    event: Event = _reader(name).validate_python(storable_json(line, value))
    for device in getattr(event, "devices", ()):
        if type(device.get("uuid")) is not str or type(device.get("health")) is not str:
            raise ValueError("a device without a name or a state")
    if isinstance(event, RunStarted) and bool in map(type, value.get("machine", {}).values()):
        raise ValueError("a truth value among facts")  # pydantic takes it for a number
    return event


def _output(value: dict[str, Any]) -> Output:
    """Take text as it is: pydantic refuses the halves of characters that logs are full of."""
    stage, text, more = value.get("stage"), value.get("text"), value.get("more", False)
    if type(stage) is str and type(text) is str and type(more) is bool:
        return Output(stage, text, more)
    raise ValueError("no output of a stage")


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
