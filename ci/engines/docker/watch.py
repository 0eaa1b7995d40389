"""Report an engine that does not answer, while a run waits for it.

A run mostly reads a log, in which silence is normal. So a thread asks the engine at intervals
whether it is alive. It reports how long an answer has been missing, and at last ends the reading.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from threading import Event, Thread
from time import monotonic
from typing import Any

from docker.api.client import APIClient
from docker.types import CancellableStream

from ci.engines import Observer, say
from ci.util.process import SIGNALS

PAUSE_S = 1.0  # between two questions, each of which takes an engine a millisecond
PING_S = 2  # for an answer
# Missing for so long, an answer is reported; a busy engine takes a second or two.
SILENCE_S = 3.0
# The same for a removal, if the engine answers other questions: deleting some GB takes its time,
# and the results are here already.
REMOVAL_S = 30.0
REMOVAL = "DELETE "
SHORT_ID = 12  # characters, as the docker command shows it
MORE_SILENCE = 2.0  # after each report, the next one needs longer by this factor
LOST_S = 60.0  # missing for so long, an answer counts as a lost connection
PING = "GET /_ping"

_VERSION = re.compile(r"^/v[0-9.]+(?=/)")


class Watch:
    """Watches the requests of a client, and the engine behind it."""

    def __init__(self, place: str, api: APIClient, ask: Callable[[], APIClient]) -> None:
        """``ask`` makes a second client, with a connection of its own."""
        self._place = place
        self._ask = ask
        self._request: tuple[str, float] | None = None  # its name, and since when it waits
        self._stream: CancellableStream[bytes] | None = None
        self._send = api.send
        api.send = self._recorded  # type: ignore[method-assign]

    def _recorded(self, request: Any, **options: Any) -> Any:
        """Send a request of the client, and remember it until it is answered."""
        path = _VERSION.sub("", str(request.path_url).partition("?")[0])
        self._request = (f"{request.method} {path}", monotonic())
        try:
            return self._send(request, **options)
        finally:
            self._request = None

    @contextmanager
    def reading(self, stream: CancellableStream[bytes]) -> Iterator[None]:
        """Close ``stream`` if the engine does not answer for ``LOST_S``."""
        self._stream = stream
        try:
            yield
        finally:
            self._stream = None

    @contextmanager
    def reporting_to(self, observer: Observer) -> Iterator[None]:
        """Report missing answers until the block ends."""
        ended = Event()
        thread = Thread(target=self._keep_asking, args=(observer, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _keep_asking(self, observer: Observer, ended: Event) -> None:
        # An interrupt is for the main thread, which may block it. This thread starts no programs,
        # which would inherit the mask.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        silent: float | None = None  # since when the engine does not answer our question
        reported_at, removed = 0.0, False  # the last report, and whether it was of a removal
        with closing(self._ask()) as client:
            while not ended.wait(PAUSE_S):
                asked = monotonic()
                silent = None if _answers(client) else silent or asked
                now = monotonic()
                waiting = [it for it in (self._request, silent and (PING, silent)) if it]
                name, since = min(waiting, key=lambda it: it[1], default=(PING, now))
                waited = now - since
                removes = silent is None and name.startswith(REMOVAL)
                patience = REMOVAL_S if removes else SILENCE_S
                if waited < patience:
                    if reported_at and not removed:
                        say(observer, f"{self._place} answers again")
                    reported_at = 0.0
                elif waited >= max(patience, MORE_SILENCE * reported_at):
                    text = f"{self._place} has not answered {name} for {waited:.0f} s"
                    if removes:
                        kind, _, identity = name.removeprefix(f"{REMOVAL}/").partition("/")
                        what = f"{kind.removesuffix('s')} {identity[:SHORT_ID]}"
                        text = f"{self._place} is still removing {what}, after {waited:.0f} s"
                    say(observer, text)
                    reported_at, removed = waited, removes
                stream = self._stream
                if stream is not None and silent is not None and now - silent > LOST_S:
                    self._stream = None
                    with suppress(OSError):
                        stream.close()


def _answers(client: APIClient) -> bool:
    try:
        return bool(client.ping())
    except Exception:  # whatever is wrong, it is no answer
        return False
