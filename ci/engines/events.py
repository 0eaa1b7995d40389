"""The agent's printed events, read back from whatever pieces a stream delivers.

The code under test can write to the same stream. What is no event of an agent is counted, shown as
an engine's message, and kept in ``agent.log``, where an agent's traceback is found as well.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ci.agent.lines import LONGEST_EVENT, CutLine, LineCutter
from ci.engines.base import Observer
from ci.events import RunFinished, parse_event

AGENT_LOG = "agent.log"
LONGEST_SHOWN = 1000  # characters of a line
MOST_SHOWN = 1000  # lines; further ones are counted


class EventReader:
    """Cuts a byte stream into events and passes them to an observer, each exactly once."""

    def __init__(self, observer: Observer, results: Path) -> None:
        self.finished: RunFinished | None = None
        self.unreadable_lines = 0
        self.longest_line = 0  # bytes, of those that are longer than an event may be
        self._log = results / AGENT_LOG
        self._observer = observer
        self._seen = 0
        self._skip = 0
        self._lines = LineCutter(LONGEST_EVENT)

    def restart(self) -> None:
        """Expect the stream from its beginning again: what was seen will be passed over."""
        self._skip = max(self._skip, self._seen)
        self._seen = 0
        self._lines = LineCutter(LONGEST_EVENT)

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes; a chunk may end anywhere."""
        for line in self._lines.feed(chunk):
            self._seen += 1
            if self._seen > self._skip and line.strip():
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            event = parse_event(line)
        except ValueError:
            self._refuse(line)
            return
        if event is None:  # a newer agent's
            return
        if isinstance(event, RunFinished):
            self.finished = event
        self._observer.event(event.model_dump())

    def _refuse(self, line: str) -> None:
        """Count a line that is no event, keep it, and show it; of a flood the beginning."""
        self.unreadable_lines += 1
        text = line[:LONGEST_SHOWN]
        if isinstance(line, CutLine):
            self.longest_line = max(self.longest_line, line.length)
            text += f" [the beginning of {line.length:,} bytes]"
        elif len(line) > LONGEST_SHOWN:
            text += f" [the beginning of {len(line):,} characters]"
        if self.unreadable_lines > MOST_SHOWN:
            return
        if self.unreadable_lines == MOST_SHOWN:
            text += "\n[further lines are counted, not kept]"
        with suppress(OSError):  # the run goes on
            first = self.unreadable_lines == 1
            # From the beginning: a dead caller's is replaced.
            with self._log.open("w" if first else "a", encoding="utf-8") as log:
                log.write(f"{text}\n")
        self._observer.event({"event": "engine", "text": text})
