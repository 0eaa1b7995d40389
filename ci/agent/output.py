"""A stage's output as it is shown live: lines of text, and no more than somebody could read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

LONGEST_LINE = 8192  # what is longer is passed on in pieces of this size
BYTES_PER_SECOND = 65536
TAIL_LINES = 30  # of a flood, and so of a failed stage, the last lines are always shown


class LiveOutput:
    """Cuts chunks of output into lines and passes them on; of a flood only its last lines.

    The stage's own log has everything. What is printed goes through the caller, and a container
    engine keeps it at three times its size: 200 MB in a container took 30 s in place of 3.5 s.
    """

    def __init__(
        self, show: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._show = show
        self._clock = clock
        self._rest = b""
        self._second = clock()  # when the present second began
        self._budget = BYTES_PER_SECOND  # of the present second
        self._held: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._left_out = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes; none at all only tell that time has passed."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        if self._clock() - self._second >= 1.0:
            self._release()
        if self._budget > 0:
            self._budget -= len(chunk)
            self._print(lines)
        else:
            self._left_out += max(0, len(self._held) + len(lines) - TAIL_LINES)
            self._held.extend(lines)

    def finish(self) -> None:
        """Pass on what is left."""
        self._release()
        if self._rest:
            self._print([self._rest])
        self._rest = b""

    def _release(self) -> None:
        """Begin a new second with the end of what the last one held back."""
        if self._left_out:
            self._show(f"[{self._left_out} lines are only in the log]")
        self._print(self._held)
        self._held.clear()
        self._left_out = 0
        self._second = self._clock()
        self._budget = BYTES_PER_SECOND

    def _print(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            for start in range(0, max(len(line), 1), LONGEST_LINE):
                self._show(line[start : start + LONGEST_LINE].decode(errors="replace"))
