"""The connection to a Docker Engine: made, and made again when it was cut."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic, sleep
from typing import TypeVar

from docker.client import DockerClient
from docker.utils import parse_host

from ci.engines.addresses import EngineAddress, find_address
from ci.engines.base import Observer
from ci.engines.remote import Forward, RemoteMachine, serve_there
from ci.engines.sdk_errors import ERRORS, explain, is_cut, typed_sdk_errors
from ci.engines.wheelhouse import serve
from ci.errors import InfrastructureError
from ci.network import mask_credentials
from ci.plan import EnginePlan, NetworkPlan

RECONNECT_S = 60.0
RETRY_S = 1.0
MOST_CUTS = 20  # of one request: an engine that cuts it every time is not waited for for ever

START_REMEDY = "start one with docker/start-engine, or use --engine host"
PERMISSION_REMEDY = "join the group that owns the engine's socket (docker), or use --engine host"
ELSEWHERE_REMEDY = (
    "look at the address, at the network, and whether an engine runs there, or use --engine host"
)

Result = TypeVar("Result")


class Link:
    """A client, and what stands between it and its engine.

    ``place`` is the engine in words; ``environment`` leads the docker command to it.
    """

    def __init__(self, address: EngineAddress) -> None:
        self._told = mask_credentials(address.url)
        self.place = f"the Docker Engine at {self._told}"
        self.address = address
        self.environment = address.environment
        self.machine: RemoteMachine | None = None
        self._forward: Forward | None = None
        self._closing = ExitStack()
        url = address.url
        if url.startswith("ssh://"):
            self.machine = RemoteMachine.parse(url, os.environ)
            self._forward = Forward(self.machine, self.machine.engine_socket)
            self._closing.callback(self._forward.close)
            url = f"unix://{self._forward.socket}"
            self.environment = {"DOCKER_HOST": url}
        self._url = url

    @classmethod
    def open(cls, plan: EnginePlan) -> Link:
        """Connect to the engine of ``plan``; raises ``InfrastructureError`` where none answers."""
        address = find_address(plan, os.environ)
        with ExitStack() as undo:
            link = cls(address)
            undo.callback(link.close)
            try:
                link._connect()
            except ERRORS as error:
                raise link._no_answer(error) from error
            undo.pop_all()
        return link

    def _connect(self) -> None:
        if self._forward is not None:
            self._forward.start()
        _knock(self._url)
        self.client = DockerClient(base_url=self._url, tls=self.address.tls or False)
        self._closing.callback(self.client.close)

    def _no_answer(self, error: Exception) -> InfrastructureError:
        found = self.machine.missing_engine() if self.machine else None
        why, remedy = found or (explain(error), _remedy(error, self.address.url))
        message = f"no Docker Engine answers at {self._told}: {why}"
        return InfrastructureError(message, remedy=remedy)

    def close(self) -> None:
        """Hang up."""
        self._closing.close()

    @contextmanager
    def in_use(self, network: NetworkPlan) -> Iterator[None]:
        """Have the wheelhouse within the engine's reach, and turn its errors into typed ones."""
        with typed_sdk_errors(self.place):
            self._restore()
            with serve(network), serve_there(self.machine, network):
                yield

    def lasting(self, action: Callable[[], Result], observer: Observer) -> Result:
        """Return what ``action`` returns, beginning it anew whenever the connection was cut.

        Raises what it raised when that is an answer of the engine, and the last cut when the
        engine cannot be reached any more.
        """
        for _ in range(MOST_CUTS):
            try:
                return action()
            except ERRORS as error:
                if not is_cut(error) or not self._reached_again(error, observer):
                    raise
        return action()

    def _reached_again(self, error: Exception, observer: Observer) -> bool:
        def say(text: str) -> None:
            observer.event({"event": "engine", "text": text})

        say(f"lost {self.place}: {explain(error)}; trying again for {RECONNECT_S:g} s")
        deadline = monotonic() + RECONNECT_S
        while monotonic() < deadline:
            sleep(RETRY_S)
            with suppress(InfrastructureError, *ERRORS):
                self._restore()
                _knock(self._url)
                self.client.ping()
                say(f"reached {self.place} again")
                return True
        return False

    def _restore(self) -> None:
        """Start ssh again where it has ended: the socket stays the same, so does the client."""
        if self._forward is not None and not self._forward.alive():
            self._forward.start()


def _knock(url: str) -> None:
    """Connect to a local engine's socket and hang up; raises ``OSError`` naming the socket.

    The SDK never closes a socket that it could not connect, which Python then warns of.
    """
    scheme, _, path = str(parse_host(url)).partition("://")
    if scheme != "http+unix":
        return
    with socket.socket(socket.AF_UNIX) as door:
        try:
            door.connect(path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error


def _remedy(error: BaseException | None, url: str) -> str:
    """Tell an engine that may not be used from one that is not there."""
    while error is not None:
        if isinstance(error, PermissionError):
            return PERMISSION_REMEDY
        error = error.__context__
    return START_REMEDY if url.startswith("unix://") else ELSEWHERE_REMEDY
