"""The log of the image stage: a file in the results, and a message a line."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from ci.engines.base import Observer
from ci.network import mask_credentials

LAST_LINES = 20

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class ImageLog:
    """Writes ``image.log`` and tells the observer; remembers the last lines for errors."""

    def __init__(self, results: Path, observer: Observer) -> None:
        results.mkdir(parents=True, exist_ok=True)
        self.path = results / "image.log"
        self._file = self.path.open("a", encoding="utf-8")
        self._observer = observer
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, text: str) -> None:
        """Add text, without passwords; an empty line is left out."""
        for line in filter(str.strip, mask_credentials(_COLOURS.sub("", text)).splitlines()):
            self._file.write(line + "\n")
            self._file.flush()
            self._last.append(line)
            self._observer.event({"event": "engine", "text": line})

    def tail(self) -> str:
        """Return the last lines, indented, for the end of an error message."""
        return "".join(f"\n    {line}" for line in self._last)
