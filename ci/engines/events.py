"""The agent's printed events, read back from whatever pieces a stream delivers."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ci.engines.base import Observer


class EventReader:
    """Cuts a byte stream into events and passes them to an observer, each exactly once."""

    def __init__(self, observer: Observer) -> None:
        self.finished: Mapping[str, object] | None = None  # the ``run_finished`` event
        self._observer = observer
        self._seen = 0
        self._skip = 0
        self._rest = b""

    def restart(self) -> None:
        """Expect the stream from its beginning again: what was seen will be passed over."""
        self._skip = self._seen
        self._seen = 0
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes; a chunk may end anywhere."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._seen += 1
            if self._seen > self._skip:
                self._take(line.decode(errors="replace"))

    def _take(self, line: str) -> None:
        event = _parse(line)
        if event.get("event") == "run_finished":
            self.finished = event
        self._observer.event(event)


def _parse(line: str) -> Mapping[str, object]:
    """Read a line; what is no event, for example a traceback, becomes an engine's message."""
    try:
        event = json.loads(line)
    except ValueError:
        return {"event": "engine", "text": line}
    if isinstance(event, dict) and isinstance(event.get("event"), str):
        return event
    return {"event": "engine", "text": line}
