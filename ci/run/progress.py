"""Progress of a run: a live line per running platform on a terminal, plain lines elsewhere.

Everything goes to standard error, so that standard output holds results only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic

from rich.console import Console
from rich.progress import Progress as LiveProgress
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from ci.engines.logs import SHOWN_LINES
from ci.model.results import Harness, PlatformResult
from ci.util.text import mask_credentials, strip_controls

TAIL_LINES = SHOWN_LINES  # of a failed stage's log; no more lines are passed on
SIGN_OF_LIFE_S = 60.0  # CI services end a job whose output stops for some minutes
LIVE_WIDTH = 80  # characters of the latest line of output: what any terminal has room for


@dataclass(kw_only=True)
class PlatformProgress:
    """The displayed state of one platform."""

    label: str
    stage: str = ""
    started: float = 0.0
    last_line: float = 0.0
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    task: TaskID | None = None


class Progress:
    """Shows the events of all platforms as they come. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._platforms: dict[str, PlatformProgress] = {}
        text = TextColumn("{task.description}", markup=False)
        columns = (SpinnerColumn(), TimeElapsedColumn(), text)
        plain = not console.is_terminal
        self._live = LiveProgress(*columns, console=console, transient=True, disable=plain)

    def __enter__(self) -> Progress:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def event(self, label: str, event: Mapping[str, object]) -> None:
        """Show one event of the agent or the engine of the platform called ``label``."""
        platform = self._platform(label)
        match event.get("event"):
            case "stage_started":
                platform.stage, platform.started = str(event["stage"]), monotonic()
                platform.tail.clear()
                self._say(platform, f"{platform.stage} started")
                platform.task = self._live.add_task(f"{label}: {platform.stage}", total=None)
            case "stage_finished":
                self._show_end(platform, event)
            case "stage_lost":
                self._finish_stage(platform)
                self._say(platform, str(event["reason"]))
            case "stage_skipped":
                self._say(platform, f"{event['stage']}: {event['reason']}")
            case "output":
                self._output(platform, str(event["text"]))
            case "engine" if platform.stage == "image":  # pip's or the builder's own output
                self._output(platform, str(event["text"]))
            case "failure":
                self.show_failure(label, str(event["text"]))
            case _ if event.get("text"):  # of engines, leases and reruns; others are not shown
                self._say(platform, str(event["text"]))

    def show_failure(self, label: str, text: str) -> None:
        """Show why a platform cannot go on."""
        platform = self._platform(label)
        self._finish_stage(platform)
        self._say(platform, text)

    def show_notice(self, text: str) -> None:
        """Show a message about the run as a whole."""
        self._print(text)

    def show_waiting(self, label: str, *, engine: str) -> None:
        """Show that a platform waits until other platforms have ended."""
        self._say(self._platform(label), f"waits for its turn on engine {engine}")

    def show_result(self, label: str, result: PlatformResult) -> None:
        """Show how a platform ended."""
        platform = self._platform(label)
        self._finish_stage(platform)
        verdict, counts = result.verdict, result.pytest and result.pytest.summary
        words = [verdict.product.replace("_", " ")]
        if verdict.harness is not Harness.CLEAN:
            words.append(verdict.harness.replace("_", " "))
        self._say(platform, ", ".join([*words, *([counts] if counts else [])]))

    def _platform(self, label: str) -> PlatformProgress:
        return self._platforms.setdefault(label, PlatformProgress(label=label))

    def _show_end(self, platform: PlatformProgress, event: Mapping[str, object]) -> None:
        self._finish_stage(platform)
        code, seconds = event.get("exit_code"), event.get("seconds")
        took = f" after {seconds:.1f} s" if isinstance(seconds, int | float) else ""
        if code == 0:
            reason = f" ({event['reason']})" if "reason" in event else ""
            self._say(platform, f"{event['stage']} finished{took}{reason}")
            return
        for line in platform.tail:
            self._print(f"    {line}")
        failed = f"{event['stage']} failed with exit code {code}{took}"
        self._say(platform, f"{failed}; the end of its log is above")

    def _finish_stage(self, platform: PlatformProgress) -> None:
        platform.stage = ""
        if platform.task is not None:
            self._live.remove_task(platform.task)
            platform.task = None

    def _output(self, platform: PlatformProgress, text: str) -> None:
        platform.tail.append(text.rstrip("\n"))
        if platform.task is not None and not self._live.disable:
            latest = strip_controls(mask_credentials(text))[:LIVE_WIDTH]
            shown = f"{platform.label}: {platform.stage}: {latest}"
            self._live.update(platform.task, description=shown)
        elif monotonic() - platform.last_line > SIGN_OF_LIFE_S:
            elapsed = monotonic() - platform.started
            self._say(platform, f"{platform.stage} running for {elapsed:.0f} s: {text}")

    def _say(self, platform: PlatformProgress, text: str) -> None:
        self._print(f"{platform.label}: {text}")
        platform.last_line = monotonic()

    def _print(self, text: str) -> None:
        # No markup and no wrapping: a log's line stays as it is.
        shown = strip_controls(mask_credentials(text))
        self._console.print(shown, markup=False, highlight=False, soft_wrap=True)
