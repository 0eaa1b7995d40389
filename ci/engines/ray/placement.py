"""How a platform gets a host of the pool, and how a later caller finds that host again.

It gets one in the order of the queue, when Ray has room for it. The name of its actor is that of
its container.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from time import monotonic, sleep
from typing import Any

from ci.engines import Observer, say
from ci.engines.ray.cluster import (
    LOGS,
    RETRY_S,
    ActorGoneError,
    Host,
    HostLostError,
    NoAnswerError,
    PoolCluster,
    command_to_join,
    needs_of,
)
from ci.errors import InfrastructureError
from ci.model.plan import Priority, RunPlan
from ci.model.results import POOL_RECORD
from ci.util.files import write_atomically

LOOK_AGAIN_S = 15.0  # for whether the pool still has such a host
QUEUE_S = 10.0  # for an answer of the queue, which may have to start
MOST_STARTS = 5  # of an actor that ends at once
REJOIN_S = 5.0  # for a host to come back: 14 s have passed until Ray reports that it is gone
NEW_ACTOR_S = 180.0  # for an actor on a host that can be reached; seconds, on an idle one


@dataclass(frozen=True, kw_only=True)
class Record:
    """The host of a platform, in its folder of results until they are here."""

    address: str
    name: str
    began: float | None = None
    """When the stages began, in seconds since 1970; ``None``: an environment is prepared."""

    @classmethod
    def read(cls, plan: RunPlan) -> Record | None:
        """Return the record of an earlier caller, if it left one."""
        try:
            return cls(**json.loads((plan.results / POOL_RECORD).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    @staticmethod
    def forget(plan: RunPlan) -> None:
        """Remove the record: no later caller looks for the host."""
        (plan.results / POOL_RECORD).unlink(missing_ok=True)

    def write(self, plan: RunPlan) -> None:
        write_atomically(plan.results / POOL_RECORD, json.dumps(asdict(self)))


def require_host(cluster: PoolCluster, plan: RunPlan) -> None:
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

    def __init__(self, cluster: PoolCluster, plan: RunPlan, observer: Observer) -> None:
        self._cluster = cluster
        self._plan = plan
        self._observer = observer
        self._name = plan.container.name
        self._queue: Any = cluster.queue()
        self._rank = (list(Priority).index(plan.priority), time.time())
        self._actor: Any = None
        self._starts = 0
        self._said = ""

    def wait(self) -> tuple[Any, Host]:
        """Return the platform's actor and its host."""
        looked = monotonic()
        try:
            while True:
                before = self._before()
                if before is None:
                    sleep(RETRY_S)
                elif before:
                    self._withdraw()
                    self._say(f"waits for a host of the pool: {before} before it")
                    sleep(RETRY_S)
                elif (node := self._node()) is not None:
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

    def _node(self) -> str | None:
        """Return the node of this platform's actor, or ``None`` if it has none after a moment."""
        try:
            if self._actor is None:
                self._actor = self._cluster.request_actor(self._name, needs_of(self._plan))
                self._started = self._actor.node.remote()
            node: str = self._cluster.get(self._started, RETRY_S)
            return node
        except NoAnswerError:
            self._say("waits for a free host of the pool")
            if self._actor is None:  # an earlier one of this name has not ended yet
                sleep(RETRY_S)
        except ActorGoneError as error:
            self._actor, self._starts = None, self._starts + 1
            if self._starts == MOST_STARTS:
                raise InfrastructureError(
                    f"{self._cluster.place}: a host cannot start the program of platform"
                    f" {self._plan.platform}: {error}",
                    remedy=f"See Ray's logs on the hosts of this platform, in {LOGS}.",
                ) from error
        return None

    def _host(self, node: str) -> Host:
        for host in self._cluster.hosts():
            if host.node == node:
                return host
        message = f"platform {self._plan.platform}: its host left the pool before the run began"
        remedy = "Run again: another host takes the platform."
        raise InfrastructureError(message, remedy=remedy)

    def _withdraw(self) -> None:
        if self._actor is not None:
            self._cluster.kill(self._actor)
            self._actor = None

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            say(self._observer, text)


def host_lost(plan: RunPlan, host: str, why: str) -> HostLostError:
    """Return the error for a host that does not answer."""
    return HostLostError(
        f"{host} {why}, and {plan.container.name} may go on there",
        remedy="Check the host and the network, and resume the run when it is in the pool again.",
    )


def find_or_start_actor(cluster: PoolCluster, plan: RunPlan, address: str) -> tuple[Any, Host]:
    """Return the actor of a platform on a host, a new one if the last one has ended.

    Raises ``HostLostError`` if the host is not in the pool, or starts no actor.
    """
    name = plan.container.name
    began = seen = monotonic()
    while monotonic() - seen < REJOIN_S and monotonic() - began < NEW_ACTOR_S:
        # A host that has come back is here twice until the cluster misses what it was before.
        same = (it for it in cluster.hosts() if it.address == address)
        host = next((it for it in same if it.is_reachable()), None)
        if host is None:
            sleep(RETRY_S)
            continue
        seen = monotonic()
        try:
            # Each time a new call: one to an actor that was lost may never be answered.
            actor = cluster.find_actor(name) or cluster.start_actor_on(host, name)
            cluster.get(actor.state.remote())
            return actor, host
        except (ActorGoneError, NoAnswerError):  # it has ended, or it starts
            sleep(RETRY_S)
    why = "is not in the pool" if monotonic() - seen >= REJOIN_S else "starts no program"
    raise host_lost(plan, f"host {address}", why)
