"""An engine that does not answer is reported; one that only takes its time to remove is not."""

from __future__ import annotations

from contextlib import suppress
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ci.engines.docker import watch
from ci.engines.docker.watch import Watch
from ci.protocol.events import Event as AgentEvent

WAIT_S = 60  # at most; the reports come at once


class Listener:
    """An observer that lets the engine answer at the first report of a missing answer."""

    def __init__(self, answered: Event) -> None:
        self.answered = answered
        self.texts: list[str] = []

    def event(self, event: AgentEvent) -> None:
        self.texts.append(cast(Any, event).text)
        self.answered.set()


def first_report(request: str, path: str, *, pings: bool) -> str:
    """Return what is reported first while a request waits for its answer."""
    answered = Event()
    listener = Listener(answered)

    def send(_: object, **__: object) -> None:
        assert answered.wait(WAIT_S)

    def ping() -> bool:
        if not pings:
            raise OSError("no answer")
        return True

    api = SimpleNamespace(send=send)
    own = SimpleNamespace(ping=ping, close=lambda: None)
    watched = Watch("the engine", cast(Any, api), lambda: cast(Any, own))
    with suppress(OSError), watched.reporting_to(listener):
        api.send(SimpleNamespace(method=request, path_url=f"/v1.41{path}?force=1"))
    return listener.texts[0]


@pytest.mark.parametrize(
    ("request_", "path", "pings", "report"),
    [
        ("POST", "/containers/create", True, "has not answered POST /containers/create for 0 s"),
        ("DELETE", "/containers/ab", True, "is still removing container ab, after 1 s"),
        ("DELETE", "/containers/ab", False, "has not answered "),
    ],
)
def test_a_slow_removal_is_no_silence(
    request_: str, path: str, pings: bool, report: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PAUSE_S", 0.01)
    monkeypatch.setattr(watch, "SILENCE_S", 0.02)
    monkeypatch.setattr(watch, "REMOVAL_S", 0.6)
    assert first_report(request_, path, pings=pings).startswith(f"the engine {report}")
