"""An observer of a run that keeps what it gets."""

from __future__ import annotations

from ci.engines import EngineMessage
from ci.protocol.events import Event, Output


class Shown:
    """Keeps the events that a display gets."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(self, event: Event) -> None:
        self.events.append(event)

    @property
    def lines(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Output | EngineMessage)]
