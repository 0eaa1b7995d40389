"""A program on a terminal of its own, and what that shows."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic

import pyte

LONGEST_S = 300.0  # of a program; a busy machine takes a minute
NO_SIZE = ("COLUMNS", "LINES")
NO_TERMINAL = ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


class Pane:
    """A program on a terminal; use as a context manager."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        columns: int,
        lines: int = 24,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._terminal, theirs = pty.openpty()
        self.written = b""
        self._deadline = monotonic() + LONGEST_S
        self.resize(columns, lines)
        kept = {k: v for k, v in os.environ.items() if k not in (*NO_SIZE, *NO_TERMINAL)}
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**kept, "TERM": "xterm-256color", "LANG": "C.UTF-8", **(environment or {})},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Pane:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)

    def resize(self, columns: int, lines: int = 24) -> None:
        """Change the size; what was shown is gone until the program draws again."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)

    def type(self, keys: str) -> None:
        """Press keys; ``\\r`` is Enter."""
        os.write(self._terminal, keys.encode())

    @property
    def rows(self) -> list[str]:
        """The lines that are shown, without spaces at their ends."""
        return [line.rstrip() for line in self._screen.display]

    def read_until(self, condition: Callable[[list[str]], bool]) -> list[str]:
        """Read what the program writes until its screen meets a condition."""
        while not condition(self.rows):
            if not self._read():
                raise AssertionError("the program ended with\n" + "\n".join(self.rows))
        return self.rows

    def read_to_end(self) -> int:
        """Read until the program has ended; return its exit code."""
        while self._read():
            pass
        return self.process.wait()

    def _read(self) -> bool:
        left = max(self._deadline - monotonic(), 0.0)
        ready, _, _ = select.select([self._terminal], [], [], left)
        if not ready or not left:
            raise AssertionError("not shown in time:\n" + "\n".join(self.rows))
        try:
            chunk = os.read(self._terminal, 1 << 16)
        except OSError:  # EIO: the program has closed it
            return False
        self.written += chunk
        self._stream.feed(chunk)
        return bool(chunk)
