"""Read an agent's append-only record of a run into typed events, and compare two of them.

``events.jsonl`` is the agent's file. The agent prints the same lines, with the output of the stages
between them, and engines keep those in ``engine-events.jsonl``. A line may be truncated, and the
code under test can write anything. So lines that are not events are counted and skipped. Unknown
fields and events, which a newer agent may write, are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from ci.facts.record import EventTime, RunRecord
from ci.protocol.events import EVENTS, Event, Output, RunStarted, StageFinished
from ci.util.lines import TruncatedLine, parse_object
from ci.util.text import counted, make_json_storable

# A run has dozens of events, plus one a minute while it waits for devices.
MOST_EVENTS = 100_000
# Characters of all their lines. In memory they can take 20 times as much.
LARGEST_RECORD = 1 << 25


@cache  # creating one takes 1 ms, and a run needs only a few
def _reader(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def parse_event(line: str, kinds: Mapping[str, type[Event]] = EVENTS) -> Event | None:
    """Read an event; ``None``: an unknown event. Raises ``ValueError`` for any other line."""
    return _parse(line, kinds)[0]


def _parse(line: str, kinds: Mapping[str, type[Event]]) -> tuple[Event | None, EventTime]:
    value: dict[str, Any] = parse_object(line)
    name = value.get("event")
    if name == Output.event:
        return _output(value), EventTime()
    if not isinstance(name, str):
        raise ValueError("an event without a name")
    if name not in kinds:
        return None, EventTime()
    clocks: list[Any] = [value.get("time"), value.get("monotonic")]
    if not all(type(clock) in (int, float) for clock in clocks):
        raise ValueError("an event without its time")
    kind: Any = kinds[name]  # mypy takes the hash of its instances for its own
    event: Event = _reader(kind).validate_python(make_json_storable(line, value))
    for device in getattr(event, "devices", ()):
        if type(device.get("uuid")) is not str or type(device.get("health")) is not str:
            raise ValueError("a device without a name or a state")
    if isinstance(event, RunStarted) and bool in map(type, value.get("machine", {}).values()):
        raise ValueError("a bool among the machine's facts")  # pydantic reads it as a number
    return event, EventTime(*clocks)


def _output(value: dict[str, Any]) -> Output:
    """Read output without pydantic, which refuses the unpaired surrogates of logs."""
    stage, text, more = value.get("stage"), value.get("text"), value.get("more", False)
    if type(stage) is str and type(text) is str and type(more) is bool:
        return Output(stage, text, more)
    raise ValueError("not the output of a stage")


def parse_events(lines: Iterable[str]) -> RunRecord:
    """Read the lines of an agent's record."""
    found: list[tuple[Event, EventTime]] = []
    unreadable = longest = read = 0
    for line in filter(str.strip, lines):
        try:
            event, time = _parse(line, EVENTS)
            if len(found) == MOST_EVENTS or read + len(line) > LARGEST_RECORD:
                raise ValueError("more events than a run has")
            read += len(line)
        except ValueError:
            unreadable += 1
            longest = max(longest, line.length if isinstance(line, TruncatedLine) else 0)
        else:
            found += [(event, time)] if event is not None else []
    events, times = zip(*found, strict=True) if found else ((), ())
    return RunRecord(events, times, unreadable_lines=unreadable, longest_line=longest)


def compare_records(engine: RunRecord, file: RunRecord) -> list[str]:
    """Return how the agent's file differs from the events that the engine received.

    The code under test may have been able to write to the file.
    """
    texts = [
        f"stage {name} ended with {_end(end)}; the file has {_end(other)}"
        for name, end in engine.finished_stages.items()
        if (other := file.finished_stages.get(name, end)) != end
    ]
    if not texts and engine.run_finished is not None:  # else the engine may not have received all
        own, theirs = (Counter(event.to_json() for event in it.events) for it in (engine, file))
        if missing := (own - theirs).total():
            texts.append(f"{counted(missing, 'event')} of the agent not in the file")
        if added := (theirs - own).total():
            texts.append(f"{counted(added, 'event')} in the file not of the agent")
    return texts


def _end(end: StageFinished) -> str:
    return f"exit code {end.exit_code} after {end.seconds:.3f} s"
