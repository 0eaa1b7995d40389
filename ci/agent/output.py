"""What the agent prints: its events, and the stages' output between them.

The events are append-only JSON lines in a file, and the same lines on standard output.

A stage's log takes all of its output at once. What is printed is read back from it, when the
reader of standard output is ready for more: the stage never waits for that reader, and nothing is
kept in memory. Where the reader is too slow, or a stage writes more than is worth carrying, the
printed output leaves out a part and says so.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ci.model.events import Event, Output

# A container engine stores what is printed in entries of 16 KiB: with one for every line, 200 MB
# of output took it 30 s, in entries that are full 3 s.
LONGEST_TEXT = 16 * 1024 - 256  # as JSON; the rest is for the event around it
PIECE = 15 * 1024  # bytes of the log in an event
PACE_S = 0.05  # between events that are not full
QUIET_S = 1.0  # after which also a line without an end is printed
LAG_S = 2.0  # of output at the full rate; what is further behind is left out
TAIL = 16 * 1024  # bytes before the end from which it then goes on
# An engine keeps what is printed on its disk as long as the container lives.
MOST_PRINTED = 1 << 30  # of a run at the full rate
SLOW_RATE = 64 * 1024  # bytes a second afterwards


class Printer:
    """Prints lines piece by piece, so that the stage waits for no reader."""

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
    """Appends events to a file, so that each one survives whatever follows, and prints them."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b", buffering=0)
        self.printer = Printer(sys.stdout.fileno())

    def emit(self, event: Event) -> None:
        """Append an event to the file, make it durable, and print it."""
        line = event.to_json(time=time.time(), monotonic=time.monotonic())
        # Start a new line if another process left one unfinished.
        file = self._file.fileno()
        size = os.fstat(file).st_size
        begun = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        self._file.write((b"\n" if begun else b"") + line.encode() + b"\n")
        os.fsync(file)
        self.printer.finish()
        self.printer.begin("\n" + line)
        self.printer.finish()


@dataclass
class StageOutput:
    """Writes a stage's log and prints it: lines, together where they come together."""

    log: Path
    printer: Printer
    stage: str
    bytes_per_s: int
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._log = self.log.open("w+b", buffering=0)
        self._size = 0
        self._position = 0  # printed so far
        self._line_end = 0  # of the last whole line
        self._broken_line = False  # what is printed ends within a line
        self._budget = float(self.bytes_per_s)
        self._then = self._last = self.clock()

    def write(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self._log.write(chunk)
        if end := chunk.rfind(b"\n") + 1:
            self._line_end = self._size + end
        self._size += len(chunk)

    def waiting(self) -> tuple[list[int], float]:
        """Return what to wait for: descriptors that must be ready for writing, and seconds."""
        if self.printer.busy or self._due():
            return [self.printer.descriptor], QUIET_S
        return [], PACE_S if self._end() > self._position else QUIET_S

    def quiet(self) -> None:
        """Nothing has come for a while: a line without an end is printed as it is."""
        self._line_end = self._size

    def go_on(self) -> None:
        """Print some of what there is."""
        if not self.printer.busy:
            self._begin()
        self.printer.go_on()

    def finish(self) -> None:
        """Print what is left, and close the log."""
        self.quiet()
        self.printer.finish()
        while self._position < self._size:
            self._begin()
            self.printer.finish()
        self._log.close()

    def _end(self) -> int:
        """How far the log can be printed now."""
        if self._line_end > self._position:
            return self._line_end
        return self._size if self._size - self._position >= PIECE else self._position

    def _due(self) -> bool:
        now, rate = self.clock(), self.bytes_per_s
        if self.printer.printed >= MOST_PRINTED:
            rate = min(rate, SLOW_RATE)
        self._budget = min(rate, self._budget + (now - self._then) * rate)
        self._then = now
        if self._budget <= 0:
            return False
        behind = self._end() - self._position
        return behind >= PIECE or (behind > 0 and now - self._last >= PACE_S)

    def _begin(self) -> None:
        """Begin to print the next piece of the log."""
        if self._size - self._position > LAG_S * self.bytes_per_s:
            text, more = self._leave_out(), True
        else:
            text, more = self._next_piece()
        line = Output(stage=self.stage, text=text, more=more).to_json()
        self.printer.begin(line)
        self._budget -= len(line)
        self._last = self.clock()

    def _leave_out(self) -> str:
        before = self._position
        self._position = self._size - TAIL
        tail = os.pread(self._log.fileno(), TAIL, self._position)
        self._position += tail.find(b"\n") + 1
        start = "\n" if self._broken_line else ""
        self._broken_line = False
        return f"{start}[{self._position - before:,} bytes are only in the whole log]\n"

    def _next_piece(self) -> tuple[str, bool]:
        """Return the next whole lines that fit, else a part of one, and whether more follows."""
        end = self._end()
        piece = os.pread(self._log.fileno(), min(PIECE, end - self._position), self._position)
        # Bytes that are no UTF-8 get through as halves of characters, which JSON can spell.
        while len(json.dumps(text := piece.decode(errors="surrogateescape"))) > LONGEST_TEXT:
            piece = piece[: len(piece) // 2]
        if self._position + len(piece) < end and (whole := piece.rfind(b"\n") + 1):
            piece = piece[:whole]
            text = piece.decode(errors="surrogateescape")
        self._position += len(piece)
        self._broken_line = not piece.endswith(b"\n")
        return text, self._position < end
