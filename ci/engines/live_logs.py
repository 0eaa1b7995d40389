"""The stages' output on its way from an engine: all of it into files, what one reads to a display.

A container's logs come out when it has ended. Until then ``<stage>.log`` in the results is what
has been printed so far; the stage's own log, which is complete, then takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import BinaryIO

from ci.engines.base import Observer
from ci.plan import RunPlan

# A Docker Engine stores it and sends it to this machine, which takes 0.03 s of its processor for
# every megabyte: far more than builds write, and not enough to slow them down.
STREAMED_BYTES_PER_S = 12 * 2**20
SHOWN_BYTES_PER_S = 64 * 2**10  # as much as somebody could read, where the logs are here anyway
SHOW_EVERY_S = 0.2
SHOWN_LINES = 30
SHOWN_CHARACTERS = 8192


def stage_logs(plan: RunPlan) -> dict[str, Path]:
    """Where the log of each stage comes to lie."""
    return {stage.name: plan.results / f"{stage.name}.log" for stage in plan.stages}


class LiveLogs:
    """An observer that writes logs; use as a context manager.

    Of output that comes faster than it could be read, the next one gets the last lines only.
    """

    def __init__(self, observer: Observer, files: Mapping[str, Path]) -> None:
        """``files`` are the logs to write, by stage; none where an engine writes them itself."""
        self._observer = observer
        self._files = dict(files)
        self._logs: dict[str, BinaryIO] = {}
        self._held = ""
        self._shown = monotonic()

    def __enter__(self) -> LiveLogs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for log in self._logs.values():
            log.close()

    def event(self, event: Mapping[str, object]) -> None:
        """Take an event of the agent, and pass on what concerns a display."""
        if event.get("event") != "output":
            self._observer.event(event)
            return
        stage, text = str(event.get("stage")), str(event.get("text"))
        self._write(stage, text)
        self._held = _last_lines(self._held + text)
        if not event.get("more") or monotonic() - self._shown > SHOW_EVERY_S:
            self._show(stage)

    def _write(self, stage: str, text: str) -> None:
        """Append to a stage's log; the stages are the plan's own, whatever a container prints."""
        if stage not in self._files:
            return
        try:
            if stage not in self._logs:
                self._files[stage].parent.mkdir(parents=True, exist_ok=True)
                # From the beginning: a dead caller's is replaced.
                self._logs[stage] = self._files[stage].open("wb", buffering=0)
            self._logs[stage].write(_bytes(text))
        except OSError as error:
            del self._files[stage]  # the run goes on; its own log comes at the end
            message = f"{stage}.log cannot be written while the stage runs: {error.strerror}"
            self._observer.event({"event": "engine", "text": message})

    def _show(self, stage: str) -> None:
        lines = _bytes(self._held).decode(errors="replace").splitlines()
        self._held, self._shown = "", monotonic()
        for line in lines:
            self._observer.event({"event": "output", "stage": stage, "text": line})


def _bytes(text: str) -> bytes:
    """The bytes that the agent read; of what no agent writes, something."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


def _last_lines(text: str) -> str:
    lines = text[-SHOWN_CHARACTERS:].splitlines(keepends=True)
    return "".join(lines[-SHOWN_LINES:])
