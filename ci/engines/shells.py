"""Shells in the environment of a failed run that an engine keeps.

While no shell is open, the environment is stopped and leases nothing. The first shell starts an
agent with a job that only holds it open. Further shells join, and the end of the last one ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ci.engines import Observer
from ci.engines.logs import EventReader
from ci.protocol import events

MOST_STARTS = 3  # of an agent that ends at once: two first shells may disturb each other
OPEN_AGAIN = "Open another shell with the same command."


class Opened(Exception):  # noqa: N818, it is no error
    """The environment is held open."""


class Doorway:
    """Observes the agents of a kept environment, one after the other, until one holds it open."""

    def __init__(self, observer: Observer, stage: str) -> None:
        self.is_open = False
        self.reason: str | None = None  # why the last agent did not hold it open
        self.is_live = False  # whether the events are new
        self._observer = observer
        self._stage = stage

    def event(self, event: events.Event) -> None:
        """Pass a new event on; raises ``Opened`` at the one that the environment is held open."""
        match event:
            case events.RunStarted():
                self.is_open, self.reason = False, None
            case events.StageSkipped() | events.StageLost():
                self.is_open, self.reason = False, self.reason or event.reason
            case events.StageFinished() | events.RunFinished():
                self.is_open = False
            case events.StageStarted(stage=self._stage):
                self.is_open = True
                if self.is_live:
                    raise Opened
                return
        if self.is_live:
            self._observer.event(event)

    def opens(
        self,
        reader: EventReader,
        printed: Iterable[bytes],
        start: Callable[[], object] | None,
        follow: Callable[[], object],
    ) -> bool:
        """Follow the agent until it holds the environment open; ``False``: it ended.

        ``printed`` is what the agents of the run and of earlier shells printed, which ``reader``
        reads, and which is not shown. ``start`` starts an agent; ``None``: one runs.
        """
        for chunk in printed:
            reader.feed(chunk)
        if start is not None:
            start()
        elif self.is_open:
            return True
        self.is_live = True
        try:
            follow()
        except Opened:
            return True
        return False

    def enter(self) -> None:
        """Report to the observer that a shell opens."""
        self._observer.event(events.StageStarted(self._stage))
