"""The event log: append-only JSON lines in a file, the same lines on standard output."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


class EventLog:
    """Writes events so that each one survives whatever happens right after it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def emit(self, event: str, **fields: object) -> None:
        """Append an event to the file, make it durable, and print it."""
        clocks = {"time": time.time(), "monotonic": time.monotonic()}
        line = json.dumps({"event": event, **clocks, **fields})
        self._file.write(line + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        _print(line)

    def output(self, stage: str, text: str) -> None:
        """Print a line of a stage's output; the file of record is the stage's own log."""
        _print(json.dumps({"event": "output", "stage": stage, "text": text}))


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
