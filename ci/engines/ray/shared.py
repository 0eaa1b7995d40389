"""One connection to a cluster for all platforms of a run, in a process of its own.

With Ray, a process takes 45 MB more and a second to connect. The platforms have processes of their
own, which send their calls to this one. Ray's objects stay here: there, they are numbers.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Lock, Thread
from time import monotonic
from types import SimpleNamespace
from typing import Any

from ci.engines.ray.cluster import (
    ANSWER_S,
    ActorGoneError,
    Host,
    NoAnswerError,
    PoolCluster,
    RayCluster,
)
from ci.errors import CiError, InfrastructureError
from ci.model.plan import EnginePlan
from ci.util.process import SIGNALS

HANDLES = ("queue", "find_actor", "request_actor", "start_actor_on")  # return actors
CONNECT_AGAIN_S = 5.0  # after a failure: all platforms ask at once


@contextmanager
def shared_connection(plan: EnginePlan) -> Iterator[partial[SharedCluster]]:
    """Connect in a new process; yields what connects processes that are forked from this one."""
    ours, theirs = socket.socketpair()
    process = get_context("fork").Process(target=_serve, args=(plan, theirs, ours))
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    theirs.close()
    try:
        yield partial(SharedCluster, door=ours)
    finally:
        ours.close()
        process.kill()  # its actors are detached
        process.join()


class SharedCluster(PoolCluster):
    """A platform's side of the connection; for one thread."""

    def __init__(self, plan: EnginePlan, door: socket.socket) -> None:
        super().__init__(plan)
        self._door = door
        self._connection: Connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def identity(self) -> str:
        return str(self._ask("identity"))

    def hosts(self) -> list[Host]:
        hosts: list[Host] = self._ask("hosts")
        return hosts

    def queue(self) -> Any:
        return self._actor(self._ask("queue"))

    def find_actor(self, name: str) -> Any | None:
        return self._actor(self._ask("find_actor", name))

    def request_actor(self, name: str, needs: Mapping[str, float]) -> Any:
        return self._actor(self._ask("request_actor", name, needs))

    def start_actor_on(self, host: Host, name: str) -> Any:
        return self._actor(self._ask("start_actor_on", host, name))

    def get(self, reference: Any, timeout_s: float = ANSWER_S) -> Any:
        return self._ask("get", reference, timeout_s)

    def kill(self, handle: Any) -> None:
        self._ask("kill", handle.number)

    def _actor(self, number: int | None) -> SharedActor | None:
        return None if number is None else SharedActor(number, self._ask)

    def _ask(self, call: str, *arguments: object) -> Any:
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.send((call, arguments))
            value, error = self._connection.recv()
        except (OSError, EOFError) as error:  # Ray ends a process whose machine has left the pool
            self.close()
            message = f"the connection to {self.place} was lost: its process on this machine ended"
            remedy = "Check Ray on this machine, and resume the run."
            raise InfrastructureError(message, remedy=remedy) from error
        except BaseException:  # an interrupt: the next call must not get the answer of this one
            self.close()
            raise
        if error is not None:
            raise error
        return value

    def _connect(self) -> Connection:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(self._door, [b"+"], [theirs.fileno()])
            return Connection(ours.detach())


class SharedActor:
    """An actor of the connection's process, with the calls of Ray's own handles."""

    def __init__(self, number: int, ask: Any) -> None:
        self.number = number
        self._ask = ask

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=partial(self._ask, "call", self.number, method))


def _serve(plan: EnginePlan, door: socket.socket, others: socket.socket) -> None:
    """Connect, and serve all who come through the door until no process has its other end."""
    gc.freeze()  # else a collection copies every page with an object
    os.setpgid(0, 0)  # the parent handles Ctrl-C
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    others.close()
    connection = SharedConnection(plan)
    with suppress(CiError):  # those who come get it
        connection.connect()
    while True:
        letter, descriptors, *_ = socket.recv_fds(door, 1, 1)
        if not letter:
            return
        Thread(target=connection.serve, args=descriptors, daemon=True).start()


class SharedConnection:
    """The connection, and the objects of Ray that its users know by their numbers."""

    def __init__(self, plan: EnginePlan) -> None:
        self._plan = plan
        self._lock = Lock()
        self._cluster: RayCluster | None = None
        self._refusal: CiError | None = None
        self._refused_at = 0.0
        self._numbers = count()
        self._objects: dict[int, Any] = {}

    def connect(self) -> RayCluster:
        """Return the cluster; a failure counts for a while for all who ask."""
        with self._lock:
            if self._cluster is None:
                if self._refusal and monotonic() - self._refused_at < CONNECT_AGAIN_S:
                    raise self._refusal
                try:
                    self._cluster = RayCluster(self._plan)
                except CiError as error:
                    self._refusal, self._refused_at = error, monotonic()
                    raise
            return self._cluster

    def serve(self, descriptor: int) -> None:
        """Answer the calls of one user, until it ends."""
        with Connection(descriptor) as connection, suppress(OSError, EOFError):
            while True:
                call, arguments = connection.recv()
                answer: tuple[Any, Exception | None]
                try:
                    answer = self._carry_out(call, *arguments), None
                except (CiError, NoAnswerError, ActorGoneError) as error:
                    answer = None, error
                except Exception:  # an internal error of the platform; others may not be picklable
                    answer = None, RuntimeError(traceback.format_exc())
                connection.send(answer)

    def _carry_out(self, call: str, *arguments: Any) -> Any:
        cluster = self.connect()
        match call, arguments:
            case "call", (actor, method, *others):
                return self._keep(getattr(self._objects[actor], method).remote(*others))
            case "get", (reference, timeout_s):
                value = cluster.get(self._objects[reference], timeout_s)
                del self._objects[reference]
                return value
            case "kill", (actor,):
                return cluster.kill(self._objects.pop(actor))
        value = getattr(cluster, call)(*arguments)
        return self._keep(value) if call in HANDLES and value is not None else value

    def _keep(self, value: object) -> int:
        number = next(self._numbers)
        self._objects[number] = value
        return number
