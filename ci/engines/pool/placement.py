"""How a platform gets a host of the pool: in the order of the queue, when Ray has room for it."""

from __future__ import annotations

import time
from time import monotonic
from typing import Any

from ci.engines import Observer
from ci.engines.pool.cluster import (
    RETRY_S,
    ActorGoneError,
    Cluster,
    Host,
    NoAnswerError,
    command_to_join,
    needs_of,
)
from ci.errors import InfrastructureError
from ci.model.plan import Priority, RunPlan

LOOK_AGAIN_S = 15.0  # for whether the pool still has such a host
QUEUE_S = 10.0  # for an answer of the queue, which may have to start
MOST_STARTS = 5  # of an actor that ends at once


def require_host(cluster: Cluster, plan: RunPlan) -> None:
    """Raise ``InfrastructureError`` if no host of the pool can ever take the platform."""
    needs = needs_of(plan)
    if not cluster.offers(needs):
        wanted = ", ".join(f"{name}: {number:g}" for name, number in needs.items())
        raise InfrastructureError(
            f"no host of {cluster.place} has the resources of platform {plan.platform} ({wanted})",
            remedy=f"On a host of this platform: {command_to_join(cluster.address, needs)}",
        )


class Placement:
    """A platform that waits for a host."""

    def __init__(self, cluster: Cluster, plan: RunPlan, observer: Observer, name: str) -> None:
        """``name`` is that of its actor and of its place in the queue."""
        self._cluster = cluster
        self._plan = plan
        self._observer = observer
        self._name = name
        self._queue: Any = cluster.queue()
        self._rank = (list(Priority).index(plan.priority), time.time())
        self._actor: Any = None
        self._starts = 0
        self._said = ""

    def wait(self, run: str) -> tuple[Any, Host]:
        """Return the platform's actor and its host; the files of the run are those of ``run``."""
        looked = monotonic()
        try:
            while True:
                before = self._before()
                if before is None:
                    time.sleep(RETRY_S)
                elif before:
                    self._withdraw()
                    self._say(f"waits for a host of the pool: {before} before it")
                    time.sleep(RETRY_S)
                elif (node := self._node(run)) is not None:
                    return self._actor, self._host(node)
                if monotonic() - looked > LOOK_AGAIN_S:
                    looked = monotonic()
                    require_host(self._cluster, self._plan)
        except BaseException:
            self._withdraw()
            raise
        finally:
            self._queue.leave.remote(self._name)

    def _before(self) -> int | None:
        """Return how many platforms are before this one; ``None``: the queue did not answer."""
        asked = self._queue.ask.remote(self._name, self._plan.platform, *self._rank)
        try:
            return int(self._cluster.get(asked, QUEUE_S))
        except NoAnswerError:
            return None
        except ActorGoneError:  # with its host
            self._queue = self._cluster.queue()
            return None

    def _node(self, run: str) -> str | None:
        """Return the node of this platform's actor, or ``None`` if it has none after a moment."""
        try:
            if self._actor is None:
                needs = needs_of(self._plan)
                self._actor = self._cluster.start_actor(self._name, run, needs)
                self._started = self._actor.node.remote()
            node: str = self._cluster.get(self._started, RETRY_S)
            return node
        except NoAnswerError:
            self._say("waits for a free host of the pool")
            if self._actor is None:  # an earlier one of this name has not ended yet
                time.sleep(RETRY_S)
        except ActorGoneError as error:
            self._actor, self._starts = None, self._starts + 1
            if self._starts == MOST_STARTS:
                message = f"a host of {self._cluster.place} starts no program: {error}"
                raise InfrastructureError(message, remedy="See Ray's logs there.") from error
        return None

    def _host(self, node: str) -> Host:
        for host in self._cluster.hosts():
            if host.node == node:
                return host
        message = f"the host that was to run {self._plan.platform} has left the pool"
        raise InfrastructureError(message, remedy="Run again.")

    def _withdraw(self) -> None:
        if self._actor is not None:
            self._cluster.kill(self._actor)
            self._actor = None

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._observer.event({"event": "pool", "text": text})
