"""The event log: append-only JSON lines in a file, the same lines on standard output."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from pathlib import Path


class Printer:
    """Prints lines piece by piece, so that nobody has to wait for who reads them."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.printed = 0  # bytes so far
        self._rest = b""

    @property
    def busy(self) -> bool:
        """Tell whether a line is not out yet."""
        return bool(self._rest)

    def begin(self, line: str) -> None:
        """Take the next line; the one before must be out."""
        self._rest = line.encode() + b"\n"
        self.printed += len(self._rest)

    def go_on(self) -> None:
        """Print as much as a pipe that ``select`` has reported takes at once."""
        self._rest = self._rest[os.write(self.descriptor, self._rest[: select.PIPE_BUF]) :]

    def finish(self) -> None:
        """Print what is left, however long that takes."""
        while self._rest:
            self.go_on()


class EventLog:
    """Writes events so that each one survives whatever happens right after it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b", buffering=0)
        self.printer = Printer(sys.stdout.fileno())

    def emit(self, event: str, **fields: object) -> None:
        """Append an event to the file, make it durable, and print it."""
        clocks = {"time": time.time(), "monotonic": time.monotonic()}
        line = json.dumps({"event": event, **clocks, **fields})
        # Start a new line if another process left one unfinished.
        file = self._file.fileno()
        size = os.fstat(file).st_size
        begun = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        self._file.write((b"\n" if begun else b"") + line.encode() + b"\n")
        os.fsync(file)
        self.printer.finish()
        self.printer.begin("\n" + line)
        self.printer.finish()
