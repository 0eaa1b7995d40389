"""A Ray cluster: its hosts, their resources, and the actors on them."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, Protocol

from ci.engines.ray import actor, queue
from ci.errors import ConfigError, InfrastructureError
from ci.model.plan import EnginePlan, RunPlan
from ci.util.process import SIGNALS
from ci.util.text import strip_controls

NAMESPACE = "infini-ci"
QUEUE = "queue"
PLATFORM_RESOURCE = "platform:{}"
DEVICE_RESOURCE = "device:{}"
ADDRESS_VARIABLE = "RAY_ADDRESS"  # Ray's own
LOGS = "/tmp/ray/session_latest/logs"  # noqa: S108 - of Ray, on each host
HEAD_REMEDY = "Check the address, the network, and whether the head runs, then run again."
AUTHENTICATION_REMEDY = (
    "If the head demands a token, copy its ~/.ray/auth_token to this machine, and"
    " export RAY_AUTH_MODE=token."
)
INSTALL_REMEDY = (
    "Install it: pip install --group ray (the dependency group `ray` of pyproject.toml)."
)

CONNECT_S = 5.0
ANSWER_S = 2.0  # for one look at an answer that may take longer
REACH_S = 2.0  # for a connection to a host
RETRY_S = 1.0
# Ray ends a process that has lost the head for longer. This one reports it itself, and by then it
# has the results of the hosts that it still reaches.
HEAD_LOST_S = 24 * 3600
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": str(HEAD_LOST_S),
}


class NoAnswerError(Exception):
    """An actor has not answered, or its connection was lost; it may still run."""

    def __init__(self, message: str, *, is_connection_lost: bool = False) -> None:
        super().__init__(message)
        self.is_connection_lost = is_connection_lost


class ActorGoneError(Exception):
    """An actor has ended."""


class HostLostError(InfrastructureError):
    """A host does not answer, and what runs there may go on."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine of the pool; after a restart it has another ``node``."""

    node: str
    address: str
    port: int
    name: str
    resources: Mapping[str, float]

    def is_reachable(self) -> bool:
        """Whether Ray's program on the host accepts a connection."""
        return _connects(self.address, self.port, REACH_S) is None


def _connects(address: str, port: int, timeout_s: float) -> OSError | None:
    try:
        socket.create_connection((address, port), timeout_s).close()
    except OSError as error:
        return error
    return None


def needs_of(plan: RunPlan) -> dict[str, float]:
    """Return the resources that a platform takes: a place on one of its hosts, and devices."""
    needs = {PLATFORM_RESOURCE.format(plan.platform): 1.0}
    if plan.devices is not None:
        resource = plan.devices.facts.ray_resource or DEVICE_RESOURCE.format(plan.platform)
        needs[resource] = float(plan.devices.count * plan.shards)
    return needs


def command_to_join(address: str, needs: Mapping[str, float]) -> str:
    """Return the command that adds a host with these resources to a pool."""
    detected = ("GPU", "NPU")
    pairs = (f'"{name}": {number:g}' for name, number in needs.items() if name not in detected)
    return f"ray start --address={address} --resources='{{{', '.join(pairs)}}}'"


def load_ray() -> Any:
    """Import Ray, with our settings; raises ``ImportError``."""
    for variable, value in SETTINGS.items():
        os.environ.setdefault(variable, value)
    return import_module("ray")


class PoolCluster(Protocol):
    """A cluster of Ray, as the engine uses it."""

    address: str
    place: str
    """The cluster, for messages."""
    _head: tuple[str, int]

    def __init__(self, plan: EnginePlan) -> None:
        """Raise ``InfrastructureError`` if the head of the cluster does not answer."""
        address = plan.ray_address or os.environ.get(ADDRESS_VARIABLE) or ""
        name, _, port = address.rpartition(":")
        if not name or not port.isdigit() or "/" in name:
            raise ConfigError(
                f"engine {plan.name}: got the address '{address}' of a Ray cluster, expected"
                " HOST:PORT",
                remedy=f"Name the head's: --ray-address HOST:6379, or set {ADDRESS_VARIABLE}.",
            )
        self.address = address
        self.place = f"the Ray cluster at {address}"
        self._head = (name.strip("[]"), int(port))
        self._require_head()  # Ray itself would try for a minute

    def _require_head(self) -> None:
        if refusal := _connects(*self._head, CONNECT_S):
            message = f"the head of {self.place} does not answer: {refusal.strerror or refusal}"
            raise InfrastructureError(message, remedy=HEAD_REMEDY) from refusal

    def host_at(self, address: str) -> Host | None:
        """Return the host with an address, if it is in the pool."""
        return next((it for it in self.hosts() if it.address == address), None)

    def offers(self, needs: Mapping[str, float]) -> bool:
        """Whether a host has these resources, if nothing else uses them."""
        return any(
            all(host.resources.get(name, 0.0) >= number for name, number in needs.items())
            for host in self.hosts()
        )

    def identity(self) -> str:
        """Return the same text for every address of the same cluster."""

    def hosts(self) -> list[Host]:
        """Return the hosts that the cluster counts as alive."""

    def queue(self) -> Any:
        """Return the queue of the pool, a new one if there is none."""

    def find_actor(self, name: str) -> Any | None:
        """Return a platform's actor, if the cluster has it."""

    def request_actor(self, name: str, needs: Mapping[str, float]) -> Any:
        """Request a platform's actor, which starts when a host has room for it.

        Raises ``NoAnswerError`` while another actor has the name.
        """

    def start_actor_on(self, host: Host, name: str) -> Any:
        """Start an actor that continues with what is on a host, which must not wait for room."""

    def get(self, reference: Any, timeout_s: float = ANSWER_S) -> Any:
        """Return the answer of an actor.

        Raises ``NoAnswerError``, ``ActorGoneError``, or ``InfrastructureError`` for an error in
        the actor itself.
        """

    def kill(self, handle: Any) -> None:
        """End an actor, or its request."""

    def close(self) -> None:
        """Close the connection."""


class RayCluster(PoolCluster):
    """This process's connection to a cluster."""

    def __init__(self, plan: EnginePlan) -> None:
        """Connect; raises ``InfrastructureError`` if no cluster answers, or of another version."""
        super().__init__(plan)
        try:
            self._ray = load_ray()
        except ImportError as error:
            raise InfrastructureError(
                f"engine {plan.name} needs the package ray: {error}", remedy=INSTALL_REMEDY
            ) from error
        self._connect()

    def _connect(self) -> None:
        ray = self._ray
        # Ray's own handler would end this process.
        is_main = current_thread() is main_thread()
        handlers = {number: signal.getsignal(number) for number in SIGNALS if is_main}
        try:
            with _no_stderr():
                ray.init(
                    address=self.address,
                    namespace=NAMESPACE,
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                )
        except Exception as error:  # Ray raises many kinds, even built-in ones
            raise InfrastructureError(
                f"{self.place} cannot be used from this machine: {_first_lines(error)}",
                remedy="This machine must be a host of the pool, with the versions of Ray and"
                f" Python that its head has: ray start --address={self.address} --num-cpus=0\n"
                + AUTHENTICATION_REMEDY,
            ) from error
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        # Ray prints what goes wrong in the cluster to the standard output, which is for results.
        worker: Any = import_module("ray._private.worker")
        worker.print_to_stdstream = _ignore
        # Ray would look for these modules on the hosts, which do not have this program.
        for module in (actor, queue):
            ray.cloudpickle.register_pickle_by_value(module)

    def close(self) -> None:
        self._ray.shutdown()

    def identity(self) -> str:
        context = self._ray.get_runtime_context()
        return f"ray {context.gcs_address}"

    def hosts(self) -> list[Host]:
        with self._typed_errors():
            return [
                Host(
                    node=node["NodeID"],
                    address=node["NodeManagerAddress"],
                    port=node["NodeManagerPort"],
                    name=node["NodeManagerHostname"],
                    resources=node["Resources"],
                )
                for node in self._ray.nodes()
                if node["Alive"]
            ]

    def get(self, reference: Any, timeout_s: float = ANSWER_S) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference, timeout=timeout_s)
        except errors.GetTimeoutError as error:
            raise NoAnswerError("no answer") from error
        except errors.ActorUnavailableError as error:
            raise NoAnswerError(_first_lines(error), is_connection_lost=True) from error
        except errors.RayTaskError as error:
            raise InfrastructureError(
                f"the platform's program on its host failed: {error.cause!r}",
                remedy="See Ray's logs on that host, then continue with run --resume RUN.",
            ) from error
        except errors.RayError as error:
            raise ActorGoneError(_first_lines(error)) from error

    def queue(self) -> Any:
        with self._typed_errors():
            remote = self._ray.remote(queue.Queue)
            options = {**_OPTIONS, "name": QUEUE, "get_if_exists": True}
            return remote.options(**options).remote()

    def find_actor(self, name: str) -> Any | None:
        with suppress(ValueError), self._typed_errors():
            return self._ray.get_actor(name, namespace=NAMESPACE)
        return None

    def request_actor(self, name: str, needs: Mapping[str, float]) -> Any:
        return self._new_actor(name, _as_options(needs))

    def start_actor_on(self, host: Host, name: str) -> Any:
        strategies = import_module("ray.util.scheduling_strategies")
        strategy = strategies.NodeAffinitySchedulingStrategy(host.node, soft=False)
        return self._new_actor(name, {"scheduling_strategy": strategy})

    def _new_actor(self, name: str, options: Mapping[str, Any]) -> Any:
        remote = self._ray.remote(actor.PlatformActor)
        try:
            return remote.options(**_OPTIONS, **options, name=name).remote(name, actor.IDLE_S)
        except ValueError as error:
            raise NoAnswerError(_first_lines(error)) from error

    def kill(self, handle: Any) -> None:
        with suppress(Exception), self._typed_errors():  # it has ended, or will when it is idle
            self._ray.kill(handle)

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        """Raise ``InfrastructureError`` if the head does not answer, which Ray waits for."""
        self._require_head()
        try:
            yield
        except self._ray.exceptions.RayError as error:
            message = f"the head of {self.place} does not answer: {_first_lines(error)}"
            raise InfrastructureError(message, remedy=HEAD_REMEDY) from error


# Ray must never repeat anything by itself: what runs is found again by its labels.
_OPTIONS = {
    "namespace": NAMESPACE,
    "lifetime": "detached",
    "max_restarts": 0,
    "max_task_retries": 0,
    "num_cpus": 0,
}
_COUNTED = {"GPU": "num_gpus"}


def _as_options(needs: Mapping[str, float]) -> dict[str, Any]:
    """Return resources as options of an actor: Ray has a name of its own for some of them."""
    own = {option: needs[name] for name, option in _COUNTED.items() if name in needs}
    return {**own, "resources": {name: needs[name] for name in needs if name not in _COUNTED}}


@contextmanager
def _no_stderr() -> Iterator[None]:
    """Hide what Ray's library writes while it tries to connect: a line per second, for 20 s."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _ignore(*_arguments: object, **_options: object) -> None:
    """Print nothing: the caller of an actor reports what happened to it."""


def _first_lines(error: BaseException) -> str:
    """Return the beginning of Ray's message, which quotes logs and tracebacks after it."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return strip_controls(" ".join(lines[:2]))[:400] or type(error).__name__
