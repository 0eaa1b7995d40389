"""The agent's output: its events, and the output of the stages between them.

Events are append-only JSON lines in a file, and the same lines on standard output.

All output of a stage goes to its log at once. Printing reads it back from the log when the reader
of standard output is ready. So a stage never waits for that reader, and no output is kept in
memory. If the reader is too slow, or a stage writes too much, a part is not printed, and a line
says so.
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

from ci.agent.stage_progress import ProgressWatch
from ci.protocol.events import Event, Output, StageProgress

# A container engine stores printed output in entries of at most 16 KiB. For 200 MB of output it
# took 30 s with one entry per line, and 3 s with full entries.
LONGEST_TEXT = 16 * 1024 - 256  # as JSON; the rest is for the event around it
PIECE = 15 * 1024  # bytes of the log in an event
PACE_S = 0.05  # between events that are not full
QUIET_S = 1.0  # without output, after which an incomplete line is printed too
LAG_S = 2.0  # of output at the full rate; if printing lags further behind, a part is left out
TAIL = 16 * 1024  # bytes before the end of the log, from which printing then continues
# An engine keeps printed output on its disk as long as the container exists.
MOST_PRINTED = 1 << 30  # bytes of a run that are printed at the full rate
SLOW_RATE = 64 * 1024  # bytes per second after that


class Printer:
    """Prints lines piece by piece, so that a slow reader does not block the stage."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.printed = 0  # bytes so far
        self._rest = b""

    @property
    def busy(self) -> bool:
        """Whether a line is not completely printed yet."""
        return bool(self._rest)

    def begin(self, line: str) -> None:
        """Take the next line; the one before must be completely printed."""
        self._rest = line.encode() + b"\n"
        self.printed += len(self._rest)

    def print_some(self) -> None:
        """Print as much as fits at once into a pipe that ``select`` reported as writable."""
        self._rest = self._rest[os.write(self.descriptor, self._rest[: select.PIPE_BUF]) :]

    def finish(self) -> None:
        """Print the rest of the line, however long that takes."""
        while self._rest:
            self.print_some()


class EventLog:
    """Appends events to a file, so that each one survives any later crash, and prints them."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b", buffering=0)
        self.begun = os.fstat(self._file.fileno()).st_size > 0
        """Whether an earlier process wrote events."""
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
    """Writes a stage's log and prints it, several lines at a time if they come together."""

    log: Path
    printer: Printer
    stage: str
    bytes_per_s: int
    progress: ProgressWatch | None = None  # printed between the output
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._log = self.log.open("w+b", buffering=0)
        self._size = 0
        self._position = 0  # end of the printed part
        self._line_end = 0  # end of the last complete line
        self._broken_line = False  # the printed part ends within a line
        self._news: StageProgress | None = None
        self._budget = float(self.bytes_per_s)
        self._budget_time = self._printed_at = self.clock()

    def write(self, chunk: bytes) -> None:
        """Write the next bytes of output."""
        self._log.write(chunk)
        if end := chunk.rfind(b"\n") + 1:
            self._line_end = self._size + end
        self._size += len(chunk)
        if self.progress is not None:
            self.progress.feed(chunk)

    def wait_conditions(self) -> tuple[list[int], float]:
        """Return what to wait for: descriptors to become writable, and a time in seconds."""
        if self.progress is not None:
            self._news = self.progress.next_event() or self._news
        if self.printer.busy or self._news is not None or self._is_due():
            return [self.printer.descriptor], QUIET_S
        return [], PACE_S if self._printable_end() > self._position else QUIET_S

    def release_partial_line(self) -> None:
        """Let an incomplete line be printed, since no output has come for a while."""
        self._line_end = self._size

    def print_some(self) -> None:
        """Print some of the pending output."""
        if not self.printer.busy:
            self._begin_next()
        self.printer.print_some()

    def finish(self) -> None:
        """Print the pending output, and close the log."""
        self.release_partial_line()
        self.printer.finish()
        while self._position < self._size:
            self._begin()
            self.printer.finish()
        if self.progress is not None:
            self._news = self.progress.next_event(last=True) or self._news
            self._begin_next()
            self.printer.finish()
            self.progress.close()
        self._log.close()

    def _printable_end(self) -> int:
        """Return the position up to which the log can be printed now."""
        if self._line_end > self._position:
            return self._line_end
        return self._size if self._size - self._position >= PIECE else self._position

    def _is_due(self) -> bool:
        now, rate = self.clock(), self.bytes_per_s
        if self.printer.printed >= MOST_PRINTED:
            rate = min(rate, SLOW_RATE)
        self._budget = min(rate, self._budget + (now - self._budget_time) * rate)
        self._budget_time = now
        if self._budget <= 0:
            return False
        behind = self._printable_end() - self._position
        return behind >= PIECE or (behind > 0 and now - self._printed_at >= PACE_S)

    def _begin_next(self) -> None:
        """Begin to print the progress, if it is news, else the next piece of the log."""
        if self._news is not None:
            self.printer.begin(self._news.to_json(time=time.time(), monotonic=time.monotonic()))
            self._news = None
        elif self._position < self._size:
            self._begin()

    def _begin(self) -> None:
        """Begin to print the next piece of the log."""
        if self._size - self._position > LAG_S * self.bytes_per_s:
            text, more = self._leave_out(), True
        else:
            text, more = self._next_piece()
        line = Output(stage=self.stage, text=text, more=more).to_json()
        self.printer.begin(line)
        self._budget -= len(line)
        self._printed_at = self.clock()

    def _leave_out(self) -> str:
        before = self._position
        self._position = self._size - TAIL
        tail = os.pread(self._log.fileno(), TAIL, self._position)
        self._position += tail.find(b"\n") + 1
        start = "\n" if self._broken_line else ""
        self._broken_line = False
        return f"{start}[{self._position - before:,} bytes are only in the whole log]\n"

    def _next_piece(self) -> tuple[str, bool]:
        """Return the next complete lines that fit, or a part of one, and whether more follows."""
        end = self._printable_end()
        piece = os.pread(self._log.fileno(), min(PIECE, end - self._position), self._position)
        # Bytes that are not UTF-8 become unpaired surrogates, which JSON can escape.
        while len(json.dumps(text := piece.decode(errors="surrogateescape"))) > LONGEST_TEXT:
            piece = piece[: len(piece) // 2]
        if self._position + len(piece) < end and (whole := piece.rfind(b"\n") + 1):
            piece = piece[:whole]
            text = piece.decode(errors="surrogateescape")
        self._position += len(piece)
        self._broken_line = not piece.endswith(b"\n")
        return text, self._position < end
