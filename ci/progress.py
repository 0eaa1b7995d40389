"""Progress of a run: a live line on a terminal, plain lines elsewhere.

Everything goes to standard error, so that standard output holds results only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from time import monotonic
from types import TracebackType

from rich.console import Console
from rich.progress import Progress as LiveProgress
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from ci.network import mask_credentials
from ci.text import printable

TAIL_LINES = 30
SIGN_OF_LIFE_S = 60.0
LIVE_WIDTH = 80  # characters of the latest line of output


class Progress:
    """Shows events as they come; an engine's ``Observer``. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._label = ""
        self._stage = ""
        self._started = 0.0
        self._last_line = 0.0
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._live: LiveProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            text = TextColumn("{task.description}", markup=False)
            columns = (SpinnerColumn(), TimeElapsedColumn(), text)
            self._live = LiveProgress(*columns, console=self._console, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def platform(self, label: str) -> None:
        """Name the platform that the next events are about."""
        self._label = label

    def event(self, event: Mapping[str, object]) -> None:
        """Show one event of the agent or the engine."""
        match event.get("event"):
            case "stage_started":
                self._begin(str(event["stage"]))
            case "stage_finished":
                self._end(event)
            case "stage_skipped":
                self._say(f"{event['stage']}: {event['reason']}")
            case "output":
                self._output(str(event["text"]))
            case "engine" if self._stage == "image":  # pip's or the builder's own output
                self._output(str(event["text"]))
            case "engine":
                self._say(str(event["text"]))
            case _:
                pass  # nothing to show

    def failure(self, text: str) -> None:
        """Show why a platform cannot go on."""
        self._finish_stage()
        self._say(text)

    def _begin(self, stage: str) -> None:
        self._stage, self._started = stage, monotonic()
        self._tail.clear()
        self._say(f"{stage} started")
        if self._live is not None:
            self._task = self._live.add_task(f"{self._label}: {stage}", total=None)

    def _end(self, event: Mapping[str, object]) -> None:
        self._finish_stage()
        code, seconds = event.get("exit_code"), event.get("seconds")
        took = f" after {seconds:.1f} s" if isinstance(seconds, int | float) else ""
        if code == 0:
            reason = f" ({event['reason']})" if "reason" in event else ""
            self._say(f"{event['stage']} finished{took}{reason}")
            return
        for line in self._tail:
            self._print(f"    {line}")
        self._say(f"{event['stage']} failed with exit code {code}{took}; its log ends as above")

    def _finish_stage(self) -> None:
        self._stage = ""
        if self._live is not None and self._task is not None:
            self._live.remove_task(self._task)
            self._task = None

    def _output(self, text: str) -> None:
        self._tail.append(text.rstrip("\n"))
        if self._live is not None and self._task is not None:
            latest = printable(mask_credentials(text))[:LIVE_WIDTH]
            shown = f"{self._label}: {self._stage}: {latest}"
            self._live.update(self._task, description=shown)
        elif monotonic() - self._last_line > SIGN_OF_LIFE_S:
            self._say(f"{self._stage} running for {monotonic() - self._started:.0f} s: {text}")

    def _say(self, text: str) -> None:
        self._print(f"{self._label}: {text}")

    def _print(self, text: str) -> None:
        # Neither markup nor wrapping: a log's line stays as it is.
        shown = printable(mask_credentials(text))
        self._console.print(shown, markup=False, highlight=False, soft_wrap=True)
        self._last_line = monotonic()
