"""Pass the output of an engine on to log files and to a display.

``EventReader`` splits an agent's stream into events. ``LiveLogs`` writes the stages' output into
files and passes a readable amount on. ``ImageLog`` does the same for the build of an image.

A container's logs are copied out when it has ended. Until then ``<stage>.log`` in the results holds
the output so far; then the stage's own log, which is complete, replaces it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic

from ci.engines import Observer, say
from ci.facts.events import LARGEST_RECORD, parse_event
from ci.facts.measures import IMAGE
from ci.model.plan import DEFAULT_LIMITS
from ci.model.results import HOST_LOCK, POOL_RECORD
from ci.protocol.agent_files import ENGINE_EVENTS
from ci.protocol.events import Event, Output, PrintedEvent, RunFinished
from ci.util.lines import LONGEST_EVENT, LineSplitter, TruncatedLine
from ci.util.text import mask_credentials

# A Docker Engine stores the output and sends it to this machine, which costs 0.03 CPU-s per
# megabyte. Builds write far less than this limit, and its load does not slow them down.
STREAMED_BYTES_PER_S = 12 * 2**20
SHOWN_BYTES_PER_S = 64 * 2**10  # a readable amount, if the logs are on this machine anyway
SHOW_EVERY_S = 0.2  # for a flood of output; no one reads faster
SHOWN_LINES = 30  # at a time; the display quotes as many of a failed stage
SHOWN_CHARACTERS = 8192  # at a time: a line may be as long as the whole output

AGENT_LOG = "agent.log"  # lines of an agent's stream that are no events; the first ones are enough
IMAGE_LOG = "image.log"
# Files of the results that this machine writes. A container's file of such a name is left out.
ENGINE_FILES = frozenset({AGENT_LOG, ENGINE_EVENTS, IMAGE_LOG, HOST_LOCK, POOL_RECORD})
LONGEST_SHOWN = 1000  # characters of a line
MOST_SHOWN = 1000  # lines; further ones are counted

LAST_LINES = 20  # of an image's log, in an error message
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class _NewFile:
    """A file that grows; its first write replaces that of a caller that died."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0

    def append(self, content: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab" if self.size else "wb") as file:
            file.write(content)
        self.size += len(content)


class LiveLogs:
    """An observer that writes logs, and limits the lines that a display gets.

    The agent prints at most what its job allows; after it, this is the only limit. If output comes
    faster than it can be read, the next observer gets only the last lines. It gets them before any
    later event.
    """

    def __init__(
        self,
        observer: Observer,
        files: Mapping[str, Path],
        *,
        most_bytes: int = DEFAULT_LIMITS.total_bytes,
    ) -> None:
        """``files`` are the logs to write, by stage; empty if the engine writes them itself.

        They get at most ``most_bytes`` in all.
        """
        self._observer = observer
        self._room = most_bytes
        self._files = {stage: _NewFile(path) for stage, path in files.items()}
        self._stage = self._held = ""
        self._shown = monotonic()

    def event(self, event: Event) -> None:
        """Handle an event of the agent, and pass on what a display shows."""
        if not isinstance(event, Output):
            self._show()
            self._observer.event(event)
            return
        self._stage = event.stage
        self._write(event.stage, event.text)
        lines = (self._held + event.text)[-SHOWN_CHARACTERS:].splitlines(keepends=True)
        self._held = "".join(lines[-SHOWN_LINES:])
        # The agent has more output, or its last event was full.
        flood = event.more or len(event.text) >= SHOWN_CHARACTERS
        if not flood or monotonic() - self._shown > SHOW_EVERY_S:
            self._show()

    def _write(self, stage: str, text: str) -> None:
        """Append to a stage's log; a stage that the plan does not have is ignored."""
        if stage not in self._files:
            return
        content = _bytes(mask_credentials(text))
        if len(content) > self._room:
            del self._files[stage]
            text = f"{stage}.log is not written any further while the stage runs: it is too large"
            say(self._observer, text)
            return
        try:
            self._files[stage].append(content)
            self._room -= len(content)
        except OSError as error:
            del self._files[stage]  # the run goes on; the complete log comes at the end
            text = f"{stage}.log cannot be written while the stage runs: {error.strerror}"
            say(self._observer, text)

    def _show(self) -> None:
        lines = _bytes(self._held).decode(errors="replace").splitlines()
        self._held, self._shown = "", monotonic()
        for line in lines:
            self._observer.event(Output(self._stage, line))


def _bytes(text: str) -> bytes:
    """Return the bytes that the agent read; text that no agent writes is replaced."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


class ImageLog:
    """Writes ``image.log``, passes its lines on, and keeps the last ones for errors."""

    def __init__(self, results: Path, observer: Observer) -> None:
        results.mkdir(parents=True, exist_ok=True)
        self.path = results / IMAGE_LOG
        self.path.touch()
        self._observer = observer
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    def write(self, text: str) -> None:
        """Add text, without passwords; an empty line is left out."""
        with self.path.open("a", encoding="utf-8") as log:
            for line in filter(str.strip, mask_credentials(_COLOURS.sub("", text)).splitlines()):
                log.write(line + "\n")
                self._last.append(line)
                self._observer.event(Output(IMAGE, line))

    def tail(self) -> str:
        """Return the last lines, indented, for the end of an error message."""
        return "".join(f"\n    {line}" for line in self._last)


class _Silence:
    """Observes events that were shown before."""

    def event(self, event: Event) -> None:
        """Ignore an event."""


class EventReader:
    """Cuts a byte stream into events and passes them to an observer, each exactly once.

    The events are kept in ``engine-events.jsonl``, from which the run is judged: the code under
    test may be able to change the agent's own files, but not what this machine has received.
    """

    def __init__(self, observer: Observer, results: Path) -> None:
        self.finished: RunFinished | None = None
        self.unreadable_lines = 0
        self.longest_line = 0  # bytes, of those that are longer than an event may be
        self._log = _NewFile(results / AGENT_LOG)
        self._record = _NewFile(results / ENGINE_EVENTS)
        self._last_line = ""
        self._observer = observer
        self._seen = 0
        self._skip = 0
        self._lines = LineSplitter(LONGEST_EVENT)

    def restart(self) -> None:
        """Expect the stream from its beginning again; lines that were read are skipped."""
        self._skip = max(self._skip, self._seen)
        self._seen = 0
        self._lines = LineSplitter(LONGEST_EVENT)

    @property
    def is_recorded(self) -> bool:
        """Whether the events so far are on the disk: the folder may be removed under a run."""
        try:
            return self._record.path.stat().st_size == self._record.size
        except OSError:
            return self._record.size == 0

    def record_again(self) -> None:
        """Expect the stream from its beginning, to write all files again and show nothing."""
        self._observer = _Silence()
        self._seen = self._skip = self.unreadable_lines = 0
        self._record.size = self._log.size = 0

    def feed(self, chunk: bytes) -> None:
        """Process the next bytes; a chunk may end anywhere."""
        for line in self._lines.feed(chunk):
            self._seen += 1
            if self._seen > self._skip and line.strip():
                self._read_line(line)

    def _read_line(self, line: str) -> None:
        try:
            event = parse_event(line)
        except ValueError:
            self._keep_unreadable(line)
            return
        if event is None:  # an event of a newer agent
            return
        if isinstance(event, RunFinished):
            self.finished, self._last_line = event, line
        elif not isinstance(event, PrintedEvent):
            self._keep_event(line)
        self._observer.event(event)

    def complete(self) -> None:
        """Keep the agent's last event, now that its results are on this machine.

        Until then its record is incomplete, so that a later caller looks for the container.
        """
        if self.finished is not None:
            self._keep_event(self._last_line)

    def _keep_event(self, line: str) -> None:
        content = f"{line}\n".encode()
        if self._record.size + len(content) <= LARGEST_RECORD:
            self._record.append(content)

    def _keep_unreadable(self, line: str) -> None:
        """Count a line that is no event; write and show it, unless there were too many."""
        self.unreadable_lines += 1
        text = mask_credentials(line[:LONGEST_SHOWN])
        if isinstance(line, TruncatedLine):
            self.longest_line = max(self.longest_line, line.length)
            text += f" [the beginning of {line.length:,} bytes]"
        elif len(line) > LONGEST_SHOWN:
            text += f" [the beginning of {len(line):,} characters]"
        if self.unreadable_lines > MOST_SHOWN:
            return
        if self.unreadable_lines == MOST_SHOWN:
            text += "\n[further lines are counted, not kept]"
        with suppress(OSError):  # the run goes on
            self._log.append(f"{text}\n".encode())
        say(self._observer, text)
