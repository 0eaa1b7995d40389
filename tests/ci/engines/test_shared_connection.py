"""One connection to a cluster for all platforms of a run; a class of ours replaces Ray."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ci.engines import select as engines
from ci.engines.ray import shared
from ci.engines.ray.cluster import NoAnswerError, PoolCluster
from ci.engines.ray.engine import RayEngine
from ci.engines.ray.shared import SharedCluster, shared_connection
from ci.engines.ray.transfer import Trees
from ci.errors import CiError, InfrastructureError
from ci.model.plan import EngineKind, EnginePlan, RunPlan
from ci.util.invocation import REPOSITORY
from tests.ci.local_engine import LocalEngine

Connection = partial[SharedCluster]


class Actor:
    """An actor of the queue, and of each platform."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.says = SimpleNamespace(remote=lambda *words: (name, *words))
        self.silence = SimpleNamespace(remote=lambda: iter([NoAnswerError("no answer"), "late"]))
        self.stop = SimpleNamespace(remote=lambda pid: partial(os.kill, pid, signal.SIGINT))


class InProcess(PoolCluster):
    """A cluster in the process of the connection."""

    def __init__(self, plan: EnginePlan) -> None:
        super().__init__(plan)
        self.actors: dict[str, Actor] = {}

    def identity(self) -> str:
        return f"process {os.getpid()}"

    def hosts(self) -> Any:
        raise InfrastructureError("the head does not answer", remedy="Look at it.")

    def queue(self) -> Any:
        return self.request_actor("queue", {})

    def find_actor(self, name: str) -> Any:
        return self.actors.get(name)

    def request_actor(self, name: str, needs: Any) -> Any:
        return self.actors.setdefault(name, Actor(f"{name} {needs}"))

    def start_actor_on(self, host: Any, name: str) -> Any:
        return self.request_actor(name, host)

    def get(self, reference: Any, timeout_s: float = 1.0) -> Any:
        if isinstance(reference, partial):
            reference()
            threading.Event().wait()  # the caller was interrupted, and gets no answer
        if isinstance(reference, Iterator):
            value = next(reference)
            if isinstance(value, Exception):
                raise value
            return value
        return reference, timeout_s

    def kill(self, handle: Actor) -> None:
        self.actors = {name: it for name, it in self.actors.items() if it is not handle}

    def close(self) -> None:
        raise AssertionError("each platform closes its own side")


@contextmanager
def head() -> Iterator[EnginePlan]:
    """Yield an engine whose head accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        yield EnginePlan(name="ray", kind=EngineKind.RAY, ray_address=address)


@pytest.fixture
def plan() -> Iterator[EnginePlan]:
    with head() as plan:
        yield plan


@pytest.fixture
def connect(plan: EnginePlan, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.setattr(shared, "RayCluster", InProcess)
    with shared_connection(plan) as connect:
        yield connect


@pytest.fixture
def cluster(plan: EnginePlan, connect: Connection) -> Iterator[SharedCluster]:
    with closing(connect(plan)) as cluster:
        yield cluster


def test_all_platforms_have_one_connection(plan: EnginePlan, connect: Connection) -> None:
    receiver, sender = get_context("fork").Pipe(duplex=False)

    def ask() -> None:
        with closing(connect(plan)) as cluster:
            cluster.request_actor("cpu", {"platform:cpu": 1.0})
            sender.send(cluster.identity())

    platforms = [get_context("fork").Process(target=ask) for _ in range(3)]
    for process in platforms:
        process.start()
    for process in platforms:
        process.join()
    [name] = {receiver.recv() for _ in platforms}
    assert name != f"process {os.getpid()}"
    with closing(connect(plan)) as cluster:
        assert cluster.identity() == name
        actor = cluster.find_actor("cpu")  # of another platform's process, which has ended
        assert actor is not None
        assert cluster.get(actor.says.remote("x"), 5.0) == (
            ("cpu {'platform:cpu': 1.0}", "x"),
            5.0,
        )


def test_actors_and_answers_are_kept_where_they_are(cluster: SharedCluster) -> None:
    first, second = cluster.queue(), cluster.start_actor_on("host", "moore")  # type: ignore[arg-type]
    later = second.says.remote(b"two")
    assert cluster.get(first.says.remote("one"))[0] == ("queue {}", "one")
    assert cluster.get(later)[0] == ("moore host", b"two")
    cluster.kill(second)
    assert cluster.find_actor("moore") is None


def test_errors_arrive_as_they_are(cluster: SharedCluster) -> None:
    with pytest.raises(InfrastructureError, match="the head does not answer") as caught:
        cluster.hosts()
    assert caught.value.remedy == "Look at it."
    reference = cluster.queue().silence.remote()
    with pytest.raises(NoAnswerError, match="no answer"):
        cluster.get(reference)
    assert cluster.get(reference) == "late"
    with pytest.raises(RuntimeError, match=r"(?s)Traceback.*AttributeError: .* no attribute 'odd'"):
        cluster.queue().odd.remote()


def test_an_interrupted_call_leaves_no_answer_for_the_next(cluster: SharedCluster) -> None:
    actor = cluster.queue()
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        cluster.get(actor.stop.remote(os.getpid()))
    assert cluster.get(actor.says.remote("next"))[0] == ("queue {}", "next")


def test_a_connection_that_ended_is_an_error(cluster: SharedCluster) -> None:
    process = int(cluster.identity().split()[1])
    with os.fdopen(os.pidfd_open(process)) as end:
        os.kill(process, signal.SIGKILL)
        select.select([end], [], [])
    for _ in range(2):
        with pytest.raises(InfrastructureError, match=r"connection to .* was lost: its process"):
            cluster.hosts()


def test_a_refusal_counts_for_all_platforms(
    plan: EnginePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = tmp_path / "attempts"

    def refuse(_: EnginePlan) -> PoolCluster:
        with attempts.open("a") as file:
            file.write("refused\n")
        raise InfrastructureError("another version")

    monkeypatch.setattr(shared, "RayCluster", refuse)
    monkeypatch.setattr(shared, "CONNECT_AGAIN_S", 1e6)
    with shared_connection(plan) as connect:
        for _ in range(3):
            with (
                closing(connect(plan)) as cluster,
                pytest.raises(InfrastructureError, match="another version"),
            ):
                cluster.identity()
    assert attempts.read_text() == "refused\n"


CALLER = """\
import sys, threading
import tests.ci.engines.test_shared_connection as ours
ours.shared.RayCluster = ours.InProcess
with ours.head() as plan, ours.shared_connection(plan) as connect:
    print(connect(plan).identity(), flush=True)
    threading.Event().wait()
"""


def test_a_connection_ends_with_its_caller() -> None:
    command = [sys.executable, "-c", CALLER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as caller:
        assert caller.stdout is not None
        process = int(caller.stdout.readline().split()[1])
        with os.fdopen(os.pidfd_open(process)) as end:
            caller.kill()
            select.select([end], [], [])


# What the platforms of a run share


def as_plan(folder: Path, *engines: EnginePlan) -> RunPlan:
    """The parts of a plan that matter here."""
    network = SimpleNamespace(wheelhouse=None)
    own: Any = SimpleNamespace(
        engine=engines[0],
        other_engines=engines[1:],
        source=folder,
        packed=False,
        network=network,
    )
    plan: RunPlan = own
    return plan


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((EngineKind.DOCKER, EngineKind.HOST), 0),
        ((EngineKind.RAY, EngineKind.HOST), 1),
        ((EngineKind.DOCKER, EngineKind.RAY), 1),
    ],
)
def test_only_runs_with_ray_have_a_connection(
    kinds: tuple[EngineKind, ...], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[EnginePlan] = []

    def open_one(plan: EnginePlan) -> Any:
        opened.append(plan)
        return closing(SimpleNamespace(close=opened.clear))

    monkeypatch.setattr(engines, "shared_connection", open_one)
    plans = [EnginePlan(name=kind, kind=kind) for kind in kinds]
    ours = LocalEngine()
    with engines.shared_connections([as_plan(tmp_path, *plans)] * 2, lambda _: ours) as connect:
        assert len(opened) == expected
        for plan in plans:
            assert isinstance(connect(plan), RayEngine) == (plan.kind is EngineKind.RAY)
            assert (connect(plan) is ours) == (plan.kind is not EngineKind.RAY)
    assert not opened


def test_a_folder_that_cannot_be_packed_is_an_error_of_its_platforms(
    tmp_path: Path, plan: EnginePlan, connect: Connection
) -> None:
    del connect  # the class of ours
    folder = tmp_path / "missing"
    with engines.shared_connections([as_plan(folder, plan)], lambda _: pytest.fail("called")):
        trees = Trees()
        with pytest.raises((CiError, OSError), match="missing"):
            trees.of(as_plan(folder, plan))


def test_platforms_share_archives_and_close_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    plan = EnginePlan(name="ray", kind=EngineKind.RAY)
    with closing(Trees()) as of_the_run:
        packed = of_the_run.of(as_plan(tmp_path / "a", plan))
        own = Trees(of_the_run)
        assert own.of(as_plan(tmp_path / "a", plan)) == packed
        assert own.program() is packed["program"]
        other = own.of(as_plan(tmp_path / "b", plan))["source"]
        own.close()
        assert other.file.closed
        content = b"".join(packed["source"].pieces(0))
        assert (b"a" in content, len(content)) == (True, packed["source"].size)
        assert b"".join(packed["source"].pieces(600)) == content[600:]
    assert packed["source"].file.closed
