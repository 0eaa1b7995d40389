"""How far a running stage is: ninja's steps, pytest's tests, and the compiler cache's hits.

All of it comes from what the stage writes anyway, so it costs the stage nothing. It serves only a
display: the verdict later reads the complete files, and the code under test can write anything.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Callable, ContextManager

from ci.agent.artifacts import open_regular
from ci.agent.compiler_cache import hits_and_misses, parse_statistics_log
from ci.protocol.events import StageProgress
from ci.protocol.pytest_report import collected_tests, parse_report

INTERVAL_S = 2.0  # between two events
# Bytes of a log that are read at a time, which takes milliseconds: the output of the stage waits.
# A suite of 17,000 tests writes 30 MB in some minutes.
LARGEST_PIECE = 1 << 22
LAST_STEPS = 4096  # bytes at the end of some output; only the last of ninja's steps counts
LONGEST_HELD = 256  # bytes of an incomplete line
LONGEST_FAILING = 300  # characters of a test's name
MOST_FAILED = 100_000  # tests that are distinguished
LARGEST_COUNT = (1 << 31) - 1

_STEP = re.compile(rb"^\s*\[(\d{1,7})/(\d{1,7})\] ", re.MULTILINE)
_COLLECTING = (b"collected ", b" items]", b" item]")
# A record of the per-test log ends a test: its teardown, or the crash of its process. In a test's
# own output, which the log repeats, the quotes would be escaped.
_ENDS = (b'"when": "teardown"', b'"when": "???"')
_FAILED = b'"outcome": "failed"'


@dataclass
class GrowingFile:
    """A file that another process appends to, read piece by piece."""

    path: Path
    access: Callable[[], ContextManager[None]] = nullcontext
    """The rights with which it is opened."""

    def __post_init__(self) -> None:
        self._file: BinaryIO | None = None
        self._position = 0

    def read(self) -> bytes:
        """Return the next whole lines, or the next part of a line that is longer than a piece."""
        if self._file is None:
            with suppress(OSError), self.access():
                self._file = open_regular(self.path, os.O_NOFOLLOW)
        if self._file is None:
            return b""
        piece = os.pread(self._file.fileno(), LARGEST_PIECE, self._position)
        if len(piece) < LARGEST_PIECE or b"\n" in piece:
            piece = piece[: piece.rfind(b"\n") + 1]
        self._position += len(piece)
        return piece

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@dataclass
class ProgressWatch:
    """Follows the counts of one stage; ``next_event`` has them when they are news."""

    stage: str
    tests: GrowingFile | None = None
    """The per-test log of a pytest stage."""
    cache: GrowingFile | None = None
    """The compiler cache's log of the run."""
    group: list[ProgressWatch] = field(default_factory=list)
    """The watches of all shards of the stage: the events of each have the counts of all."""
    clock: Callable[[], float] = time.monotonic
    _done: int = 0
    _total: int | None = None
    _failing: str = ""
    _held: bytes = b""
    _failed: set[int] = field(default_factory=set)
    _cached: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.group.append(self)
        self._looked_at = self.clock()
        self._last = self._event()

    def feed(self, chunk: bytes) -> None:
        """Look for counts in the next bytes of the stage's output."""
        text = self._held + chunk
        self._held = text[text.rfind(b"\n") + 1 :][-LONGEST_HELD:]
        if self.tests is None:
            steps = _STEP.findall(text[-LAST_STEPS:])
            if steps:
                self._done, self._total = map(int, steps[-1])
        elif self._total is None and any(mark in text for mark in _COLLECTING):
            lines = text.decode(errors="replace").splitlines()
            counts = map(collected_tests, lines)
            self._total = next((it for it in counts if it is not None), None)

    def next_event(self, *, last: bool = False) -> StageProgress | None:
        """Read what the stage wrote, unless that was done just now; return the counts if changed.

        ``last`` is for the end of the stage.
        """
        now = self.clock()
        if not last and now - self._looked_at < INTERVAL_S:
            return None
        self._looked_at = now
        if self.tests is not None:
            self._count_tests(self.tests.read())
        if self.cache is not None:
            lines = self.cache.read().decode(errors="replace").splitlines()
            self._cached += parse_statistics_log(lines)
        event, before = self._event(), self._last
        self._last = event
        return event if event != before else None

    def close(self) -> None:
        for file in filter(None, (self.tests, self.cache)):
            file.close()

    def _count_tests(self, piece: bytes) -> None:
        self._done += sum(map(piece.count, _ENDS))
        if _FAILED not in piece:
            return
        for line in piece.splitlines():
            if _FAILED in line and len(self._failed) < MOST_FAILED:
                with suppress(ValueError):  # not a line of pytest
                    name = parse_report(line.decode(errors="replace")).get("nodeid")
                    if type(name) is str and hash(name) not in self._failed:
                        self._failed.add(hash(name))
                        self._failing = name[:LONGEST_FAILING]

    def _event(self) -> StageProgress:
        totals = [it._total for it in self.group if it._total is not None]
        hits, misses = hits_and_misses(sum((it._cached for it in self.group), Counter()))
        return StageProgress(
            stage=self.stage,
            done=min(sum(it._done for it in self.group), LARGEST_COUNT),
            total=sum(totals) if len(totals) == len(self.group) else None,
            failed=sum(len(it._failed) for it in self.group),
            failing=self._failing or next((it._failing for it in self.group if it._failing), ""),
            cache_hits=min(hits, LARGEST_COUNT),
            cache_misses=min(misses, LARGEST_COUNT),
        )
