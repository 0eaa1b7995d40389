"""Progress of a run on standard error: a live view on a terminal, lines with a time elsewhere.

Standard output holds results only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event as Signal
from threading import RLock, Thread

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ci.model.results import PlatformResult
from ci.model.verdicts import Product
from ci.protocol import events
from ci.run.screen import ASCII, UNICODE, describe, draw
from ci.run.status import (
    Expectation,
    ImagePrepared,
    Phase,
    PlatformFailed,
    PlatformStatus,
    RunStatus,
    outcome_of,
    stage_title,
)
from ci.util.process import SIGNALS
from ci.util.terminal import discard_output
from ci.util.text import make_inert

REDRAW_S = 0.25  # between two looks at the clock
# CI services end a job whose output stops for some minutes. Less than the promised 30 s, since the
# clock is looked at only now and then.
SIGN_OF_LIFE_S = 29.0
REFUSED = "cannot begin"


def is_live(console: Console, environ: Mapping[str, str]) -> bool:
    """Whether a person watches: a terminal that can move its cursor, and no CI system."""
    is_terminal = console.file.isatty() and console.is_terminal and not console.is_dumb_terminal
    return is_terminal and environ.get("CI", "").lower() in ("", "0", "false")


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """Go on without a reader; rich itself would end the run, as if the product had failed."""
        discard_output(self.file)


class Progress:
    """Shows the events of all platforms as they come. Use as a context manager.

    A thread redraws the live view, or reports platforms of which nothing was printed for long.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        live: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The console is by default the standard error.

        With ``live`` the live view does not depend on the console and the environment.
        """
        self._console = console = console or _Screen(stderr=True)
        self._clock = clock
        self._lock = RLock()  # of everything below
        self._run = RunStatus(began=clock())
        self._printed: dict[str, float] = {}  # when the last line of each platform was
        self._symbols = UNICODE if console.encoding.startswith("utf") else ASCII
        self._drawn: Sequence[Text] = ()
        wanted = is_live(console, os.environ) if live is None else live
        self._live = Live(console=console, auto_refresh=False, transient=True) if wanted else None
        self._ended = Signal()
        self._thread = Thread(target=self._keep_ticking, daemon=True)

    def __enter__(self) -> Progress:
        self._run.began = self._clock()
        if self._live is not None:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._live is not None:
            self._live.stop()

    def expect(self, label: str, expectation: Expectation) -> None:
        """Add a platform that will run."""
        with self._lock:
            self._run.platform(label).expected = expectation

    def estimate(self, label: str, seconds: Mapping[str, float]) -> None:
        """Set the times that the stages of a platform usually take."""
        with self._lock:
            self._run.platform(label).estimates = seconds

    def event(self, label: str, event: events.Event) -> None:
        """Show one event of the agent or the engine of the platform called ``label``."""
        with self._lock:
            platform = self._run.platform(label)
            platform.apply(event, self._clock())
            match event:
                case events.StageStarted():
                    if self._live is None:
                        self._say(platform, f"{stage_title(event)} started")
                case events.StageFinished():
                    self._show_end(platform, event)
                case PlatformFailed() | events.StageLost():
                    self._say(platform, event.reason)
                case events.StageSkipped():
                    self._say(platform, f"{event.stage}: {event.reason}")
                case events.PrintedEvent():
                    pass
                case _ if text := getattr(event, "text", ""):  # of engines, leases and reruns
                    self._say(platform, text)

    def show_failure(self, label: str, text: str) -> None:
        """Show why a platform cannot go on."""
        with self._lock:
            platform = self._run.platform(label)
            platform.fail(text, self._clock())
            self._say(platform, text)

    def show_refusal(self, label: str, text: str) -> None:
        """Show why a platform cannot begin."""
        with self._lock:
            self.show_failure(label, text)
            self._run.platform(label).end(REFUSED, self._clock(), passed=False)

    def show_notice(self, text: str) -> None:
        """Show a message about the run as a whole."""
        with self._lock:
            self._print(text)

    def show_waiting(self, label: str, *, engine: str) -> None:
        """Show that a platform waits until other platforms have ended."""
        with self._lock:
            self._run.platform(label).wait()
            self._say(self._run.platform(label), f"waits for its turn on engine {engine}")

    def show_result(self, label: str, result: PlatformResult) -> None:
        """Show how a platform ended."""
        with self._lock:
            platform, outcome = self._run.platform(label), outcome_of(result)
            passed = result.verdict.product is Product.PASSED
            platform.end(outcome, self._clock(), passed=passed)
            self._say(platform, outcome)

    def tick(self) -> None:
        """Redraw the live view, or report the platforms that were silent for long."""
        with self._lock:
            now = self._clock()
            if self._live is not None:
                self._redraw(self._live, now)
                return
            for platform in self._run.among(Phase.RUNNING):
                if now - self._printed.get(platform.label, platform.began) >= SIGN_OF_LIFE_S:
                    self._say(platform, describe(platform, now))

    def _keep_ticking(self) -> None:
        # An interrupt is for the main thread. This thread starts no programs, which would inherit
        # the mask.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        while not self._ended.wait(REDRAW_S):
            self.tick()

    def _redraw(self, live: Live, now: float) -> None:
        width, height = self._console.size
        lines = draw(self._run, width=width, height=height, now=now, symbols=self._symbols)
        if lines != self._drawn:  # else nothing is written, and the terminal stays quiet
            self._drawn = lines
            live.update(Group(*lines), refresh=True)

    def _show_end(self, platform: PlatformStatus, event: events.StageFinished) -> None:
        took = f"after {event.seconds:.1f} s"
        if event.exit_code == 0:
            reason = f" ({event.reason})" if isinstance(event, ImagePrepared) else ""
            self._say(platform, f"{stage_title(event)} finished {took}{reason}")
            return
        if platform.tail:
            self._print("\n".join(f"    {line}" for line in platform.tail))
        failed = f"{event.stage} failed with exit code {event.exit_code} {took}"
        self._say(platform, f"{failed}; the end of its log is above")

    def _say(self, platform: PlatformStatus, text: str) -> None:
        at = "" if self._live is not None else time.strftime("%H:%M:%S ")
        self._print(f"{at}{platform.label}: {text}")
        self._printed[platform.label] = self._clock()

    def _print(self, text: str) -> None:
        # No markup and no wrapping: a log's line stays as it is.
        self._console.print(make_inert(text), markup=False, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class PlatformObserver:
    """Shows the events of one platform."""

    progress: Progress
    label: str

    def event(self, event: events.Event) -> None:
        self.progress.event(self.label, event)
