"""The parts of the Ray engine that need no cluster: its actor, its queue and its transfers."""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ci import cli
from ci.commands import run as run_command
from ci.engines.ray import actor as actor_module
from ci.engines.ray.actor import ARCHIVE, BUSY, COMPLETE, RESULTS, PlatformActor, feed_name
from ci.engines.ray.cluster import (
    HostLostError,
    NoAnswerError,
    RayCluster,
    command_to_join,
    needs_of,
)
from ci.engines.ray.engine import RayEngine
from ci.engines.ray.hosted import HostedPlatform, Mirror
from ci.engines.ray.messages import SOURCE, WHEELHOUSE, Archive, Request, plan_on_host
from ci.engines.ray.placement import Record, find_or_start_actor
from ci.engines.ray.queue import GONE_S, Queue
from ci.engines.ray.transfer import PIECE, Tree, fetched, send
from ci.engines.select import select_engine
from ci.errors import ConfigError, ExitCode, InfrastructureError
from ci.model.plan import EngineKind, EnginePlan, Priority, RunPlan
from ci.protocol.agent_files import ENGINE_EVENTS
from ci.protocol.events import Event, Output, RunFinished, StageStarted
from ci.run.dry_run import plan_document
from ci.util.invocation import REPOSITORY
from tests.ci.made_plans import pool_plans, pool_project
from tests.ci.shown_events import Shown

MakeTree = Callable[..., Tree]


@pytest.fixture
def actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlatformActor:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return PlatformActor("run-cpu")


@pytest.fixture
def plan(tmp_path: Path) -> RunPlan:
    return pool_plans(tmp_path)["cpu"]


def ray_at(address: str) -> EnginePlan:
    return EnginePlan(name="ray", kind=EngineKind.RAY, ray_address=address)


def of_a_site(**settings: Any) -> EnginePlan:
    return EnginePlan(name="lab", kind=EngineKind.RAY, **settings)


@pytest.fixture
def tree_of(tmp_path: Path) -> Iterator[MakeTree]:
    """Make the archive of a folder with some files."""
    with ExitStack() as stack:

        def make(name: str = "source", *, packed: bool = False, **files: bytes) -> Tree:
            (tmp_path / name).mkdir(exist_ok=True)
            for file, content in files.items():
                (tmp_path / name / file).write_bytes(content)
            tree = Tree.of_folder(tmp_path / name, packed=packed)
            stack.enter_context(tree.file)
            return tree

        yield make


class Handle:
    """An actor of this process, whose calls Ray would carry out elsewhere."""

    def __init__(self, actor: PlatformActor) -> None:
        self.actor = actor
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Any:
            self.calls.append(name)
            return getattr(self.actor, name)(*arguments)

        return type("Method", (), {"remote": staticmethod(remote)})


def call(make: Callable[[], Any], made: Any = None, /) -> Any:
    return make() if made is None else made


IDLE = """
import sys, threading
from ci.engines.ray.actor import PlatformActor
PlatformActor("run-cpu", *map(float, sys.argv[1:]))
if threading.active_count() == 1:
    sys.exit("no thread ends it")
threading.Event().wait()
"""


@pytest.mark.parametrize(("limits", "code"), [((), 1), (("0",), 0)])
def test_an_idle_actor_ends_its_process_if_it_may(
    limits: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", IDLE, *limits]
    finished = subprocess.run(command, cwd=REPOSITORY, env=environment, check=False)
    assert finished.returncode == code


# Trees


def test_a_tree_is_sent_once_to_a_host(
    actor: PlatformActor, tree_of: MakeTree, tmp_path: Path
) -> None:
    content = os.urandom(3 * PIECE + 1)
    tree = tree_of(program=b"#!/bin/sh\n", data=content)
    handle = Handle(actor)
    send(tree, handle, call)
    there = tmp_path / "cache/infini-ci/pool/trees" / tree.digest
    assert (there / "data").read_bytes() == content
    assert handle.calls.count("write") > 3
    other = Handle(PlatformActor("run-nvidia"))
    send(tree, other, call)
    assert other.calls == ["offer"]


def test_a_transfer_goes_on_where_it_was_cut(actor: PlatformActor, tree_of: MakeTree) -> None:
    tree = tree_of(data=os.urandom(4 * PIECE))
    assert actor.offer(tree.digest) == 0
    first = next(tree.pieces(0))
    assert actor.write(tree.digest, 0, first) == PIECE
    assert actor.write(tree.digest, 0, first) == PIECE  # sent twice: its answer was lost
    os.close(actor._locks.pop(tree.digest))  # as the end of its process does
    handle = Handle(PlatformActor("run-cpu"))
    send(tree, handle, call)
    assert handle.calls.count("write") == tree.size // PIECE
    assert handle.actor.offer(tree.digest) == COMPLETE


def test_two_platforms_do_not_send_one_tree_at_once(
    actor: PlatformActor, tree_of: MakeTree
) -> None:
    tree = tree_of(data=b"x")
    other = PlatformActor("run-nvidia")
    assert actor.offer(tree.digest) == 0
    assert other.offer(tree.digest) == BUSY
    send(tree, Handle(actor), call)
    assert other.offer(tree.digest) == COMPLETE


def test_a_damaged_archive_is_sent_again(actor: PlatformActor, tree_of: MakeTree) -> None:
    tree = tree_of(data=b"x")
    actor.offer(tree.digest)
    actor.write(tree.digest, 0, b"something else")
    handle = Handle(actor)
    send(tree, handle, call)
    assert handle.calls.count("complete") == 2
    assert actor.offer(tree.digest) == COMPLETE


def test_an_archive_that_is_never_whole_is_an_error(
    actor: PlatformActor, tree_of: MakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tree_of(data=b"x")
    monkeypatch.setattr(PlatformActor, "complete", lambda *_: False)
    with pytest.raises(InfrastructureError, match="arrived damaged 3 times on a host"):
        send(tree, Handle(actor), call)


@pytest.mark.usefixtures("actor")
def test_old_files_of_a_host_are_removed(tmp_path: Path) -> None:
    pool = tmp_path / "cache/infini-ci/pool"
    names = ("trees/old", "trees/new", "runs/old-cpu", "runs/new-cpu")
    for name in names:
        (pool / name).mkdir()
    for name in ("trees/old", "runs/old-cpu"):
        os.utime(pool / name, (0, 0))
    PlatformActor("run-cpu")
    assert [name for name in names if (pool / name).exists()] == ["trees/new", "runs/new-cpu"]


# Results


def test_results_are_copied_in_pieces(actor: PlatformActor, tmp_path: Path) -> None:
    content = os.urandom(20 * PIECE + 7)
    archive = received(actor, content)
    handle = Handle(actor)
    with fetched(archive, handle, call, tmp_path / "results") as file:
        assert file.read() == content
    assert handle.calls == ["read"] * 21
    assert list((tmp_path / "results").iterdir()) == []


def test_a_download_goes_on_where_it_was_cut(actor: PlatformActor, tmp_path: Path) -> None:
    content = os.urandom(20 * PIECE)
    archive, handle = received(actor, content), Handle(actor)
    answers = iter(range(7))

    def cut(make: Callable[[], Any], made: Any = None, /) -> Any:
        if next(answers, None) is None:
            raise ConnectionError("cut")
        return call(make, made)

    with (
        pytest.raises(ConnectionError, match="cut"),
        fetched(archive, handle, cut, tmp_path),
    ):
        pytest.fail("it was cut")
    handle.calls.clear()
    with fetched(archive, handle, call, tmp_path) as file:
        assert file.read() == content
    assert handle.calls == ["read"] * 13


def test_results_that_differ_from_their_digest_are_an_error(
    actor: PlatformActor, tmp_path: Path
) -> None:
    archive = replace(received(actor, b"one thing"), digest="0" * 64)
    with (
        pytest.raises(InfrastructureError, match="arrived damaged 3 times from a host"),
        fetched(archive, Handle(actor), call, tmp_path),
    ):
        pytest.fail("it is damaged")


def received(actor: PlatformActor, content: bytes) -> Archive:
    """Put the archive of a run's results onto the host."""
    (actor._folder / ARCHIVE).write_bytes(content)
    return Archive(size=len(content), digest=hashlib.sha256(content).hexdigest())


# The running platform


def test_news_are_what_is_beyond_the_offsets(actor: PlatformActor) -> None:
    (actor._folder / "a.log").write_bytes(b"one\n")
    (actor._folder / "b.log").write_bytes(b"two\n")
    offsets = {"a.log": 0, "b.log": 4, "c.log": 0}
    assert actor.poll(offsets) == ({"a.log": (0, b"one\n")}, False)
    (actor._folder / "b.log").write_bytes(b"new")  # an adopted run writes its files again
    assert actor.poll({"b.log": 4}) == ({"b.log": (0, b"new")}, False)


def test_the_mirror_of_a_record_lacks_its_end(plan: RunPlan) -> None:
    mirror = Mirror(plan, Shown())
    begin = StageStarted("pytest").to_json() + "\n"
    end = RunFinished(exit_code=0).to_json() + "\n"
    name = f"{RESULTS}/{ENGINE_EVENTS}"
    assert mirror.add({name: (0, (begin + end).encode())})
    assert (plan.results / ENGINE_EVENTS).read_text() == begin
    assert mirror.offsets[name] == len(begin)
    assert not mirror.add({name: (len(begin), end.encode())})


def test_a_log_that_begins_again_replaces_its_mirror(plan: RunPlan) -> None:
    mirror = Mirror(plan, Shown())
    name = f"{RESULTS}/pytest.log"
    mirror.add({name: (0, b"a long line\n")})
    mirror.add({name: (0, b"a line\n")})
    assert (plan.results / "pytest.log").read_text() == "a line\n"


def test_events_of_an_adopted_run_are_shown_once(plan: RunPlan) -> None:
    observer = Shown()
    mirror = Mirror(plan, observer)
    output = Output("install", "line")
    events = [StageStarted(stage) for stage in ("install", "pytest")]
    feed = Feed()
    mirror.follow("aa")
    mirror.add({feed_name("aa"): feed.add(events[0], output)})
    mirror.follow("bb", adopted=True)
    assert mirror.offsets[feed_name("bb")] == 0
    mirror.add({feed_name("bb"): Feed().add(events[0], output, events[1], output)})
    assert observer.events == [events[0], output, output, events[1], output]


class Feed:
    """What an actor reads of a feed, piece by piece."""

    def __init__(self) -> None:
        self.size = 0

    def add(self, *events: Event) -> tuple[int, bytes]:
        lines = (event.to_json(time=1.0, monotonic=1.0) + "\n" for event in events)
        data = "".join(lines).encode()
        at, self.size = self.size, self.size + len(data)
        return at, data


# A host that does not answer


class Silence:
    """A cluster whose actors answer after some time; each look at an answer takes 2 seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, answers_after: float) -> None:
        self.now = 0.0
        self.answers_after = answers_after
        monkeypatch.setattr("ci.engines.ray.hosted.monotonic", lambda: self.now)
        monkeypatch.setattr("ci.engines.ray.hosted.sleep", lambda _: None)

    def get(self, reference: object) -> object:
        if self.now < self.answers_after:
            self.now += 2.0
            raise NoAnswerError("no answer", is_connection_lost=True)
        return reference


class SilentHost:
    name, address = "gpu-1", "10.0.0.1"

    def __init__(self, *, reachable: bool) -> None:
        self.reachable = reachable

    def is_reachable(self) -> bool:
        return self.reachable


@pytest.mark.parametrize(
    ("reachable", "message", "most"),
    [
        (True, r"^host gpu-1 \(10\.0\.0\.1\) has not answered for 46 s, and infini-ci-", 60),
        (False, r"^host gpu-1 \(10\.0\.0\.1\) cannot be reached, and infini-ci-", 20),
    ],
)
def test_a_silent_host_is_lost(
    reachable: bool, message: str, most: float, plan: RunPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = Silence(monkeypatch, answers_after=1e9)
    hosted = platform_on(SilentHost(reachable=reachable), silence, plan, Shown())
    with pytest.raises(HostLostError, match=message):
        hosted.call(object)
    assert silence.now <= most


def test_a_slow_answer_is_reported(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    silence, observer = Silence(monkeypatch, answers_after=40.0), Shown()
    hosted = platform_on(SilentHost(reachable=True), silence, plan, observer)
    assert hosted.call(lambda: "answer") == "answer"
    assert observer.lines == [
        "host gpu-1 (10.0.0.1) has not answered for 6 s",
        "host gpu-1 (10.0.0.1) answers again",
    ]


class ReturnedHost(Silence):
    """A cluster that for a while knows a host as it was, with its actor, beside what it is now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch, answers_after=0.0)
        monkeypatch.setattr("ci.engines.ray.placement.monotonic", lambda: self.now)
        monkeypatch.setattr("ci.engines.ray.placement.sleep", self._pass)
        self.before, self.after = SilentHost(reachable=False), SilentHost(reachable=True)
        self.started: list[object] = []

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def _is_missed(self) -> bool:
        return self.now > 20.0

    def hosts(self) -> list[SilentHost]:
        return [self.after] if self._is_missed() else [self.before, self.after]

    def find_actor(self, _name: str) -> object:
        return None if self._is_missed() else self._handle(None)

    def start_actor_on(self, host: object, _name: str) -> object:
        self.started.append(host)
        return self._handle("ready")

    def _handle(self, answer: object) -> object:
        state = SimpleNamespace(remote=lambda: answer)
        return SimpleNamespace(state=state)

    def get(self, reference: object) -> object:
        if reference is None:
            self.now += 2.0
            raise NoAnswerError("no answer")
        return reference


def test_a_host_that_comes_back_gets_a_new_actor(
    plan: RunPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster: Any = ReturnedHost(monkeypatch)
    _, host = find_or_start_actor(cluster, plan, SilentHost.address)
    assert host is cluster.after
    assert cluster.started == [host]
    assert cluster.now < 30.0


def platform_on(host: Any, cluster: Any, plan: RunPlan, observer: Shown) -> HostedPlatform:
    return HostedPlatform(cluster, plan, observer, None, host)


def test_a_plan_has_the_paths_of_its_host(plan: RunPlan, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    links = {"PIP_FIND_LINKS": f"https://host/ {wheels}"}
    network = replace(plan.network, wheelhouse=wheels, host_environment=links)
    engine = of_a_site(ray_address="head:1", node_engine=EngineKind.HOST)
    sent = replace(plan, network=network, engine=engine)
    request = Request(plan=sent, trees={SOURCE: "aa", WHEELHOUSE: "bb"}, files={})
    moved = plan_on_host(request, Path("/run"), Path("/trees"), "/usr/bin/python3")
    assert (moved.source, moved.results) == (Path("/trees/aa"), Path("/run/results"))
    assert moved.packed
    assert (moved.engine.kind, moved.engine.ray_address) == ("host", None)
    assert moved.host.python == "/usr/bin/python3"
    assert moved.network.wheelhouse == Path("/trees/bb")
    assert moved.network.host_environment == {"PIP_FIND_LINKS": "https://host/ /trees/bb"}
    assert str(tmp_path) not in repr(moved)


# The queue


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("ci.engines.ray.queue.time.monotonic", lambda: now[0])
    return now


def test_the_queue_orders_by_priority_then_by_arrival() -> None:
    queue = Queue()
    assert queue.ask("commit/cpu", "cpu", 2, 10.0) == 0
    assert queue.ask("release/cpu", "cpu", 0, 20.0) == 0
    assert queue.ask("nightly/cpu", "cpu", 1, 15.0) == 1
    assert queue.ask("later/cpu", "cpu", 2, 11.0) == 3
    assert queue.ask("commit/cpu", "cpu", 2, 10.0) == 2
    assert queue.ask("commit/ascend", "ascend", 2, 30.0) == 0  # another kind of host
    queue.leave("release/cpu")
    assert queue.ask("commit/cpu", "cpu", 2, 10.0) == 1


def test_the_queue_forgets_callers_that_died(clock: list[float]) -> None:
    queue = Queue()
    queue.ask("release/cpu", "cpu", 0, 1.0)
    clock[0] = GONE_S - 1
    assert queue.ask("commit/cpu", "cpu", 2, 2.0) == 1
    clock[0] = GONE_S
    assert queue.ask("commit/cpu", "cpu", 2, 2.0) == 0


# The cluster


def test_a_platform_needs_a_place_and_devices(tmp_path: Path) -> None:
    made = pool_plans(tmp_path)
    assert needs_of(made["cpu"]) == {"platform:cpu": 1.0}
    assert needs_of(made["ascend"]) == {"platform:ascend": 1.0, "NPU": 1.0}
    assert needs_of(made["moore"]) == {"platform:moore": 1.0, "device:moore": 1.0}
    assert command_to_join("head:6379", needs_of(made["ascend"])) == (
        "ray start --address=head:6379 --resources='{\"platform:ascend\": 1}'"
    )


@pytest.mark.parametrize("address", ["", "head", "ray://head:10001", "head:port", ":6379"])
def test_an_address_that_is_none(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ConfigError, match=r"engine ray: got the address '.*' of a Ray cluster"):
        RayCluster(ray_at(address))


def test_a_cluster_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(InfrastructureError, match=f"127.0.0.1:{port} does not answer: .*refused"):
        RayCluster(ray_at(f"127.0.0.1:{port}"))


def test_a_machine_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        with pytest.raises(InfrastructureError, match="engine ray needs the package ray"):
            RayCluster(ray_at(address))


# The command line and the site


def test_an_address_needs_the_engine(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool_project(tmp_path)
    monkeypatch.chdir(tmp_path / "project")
    words = ["run", "cpu", "--config", "ci.yaml", "--ray-address", "head:6379"]
    assert cli.main([*words, "--engine", "docker"]) == ExitCode.USAGE
    assert "--ray-address: got --engine docker, expected --engine ray" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], Priority.COMMIT),
        (["--trust", "release"], Priority.RELEASE),
        (["--trust", "release", "--priority", "nightly"], Priority.NIGHTLY),
    ],
)
def test_priority_of_a_run(words: list[str], expected: Priority, tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    run_command.add_options(parser)
    options = parser.parse_args(["cpu", "--engine", "ray", "--ray-address", "head:1", *words])
    plan = pool_plans(tmp_path, options=run_command._run_options(options))["cpu"]
    assert plan.priority is expected
    assert plan.engine == ray_at("head:1")


def test_a_pool_of_the_site_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "ci.site.yaml").write_text(
        "engines: {lab: {ray_address: 'head:6379', node_engine: host}}\n"
        "platforms: {cpu: {engine: lab}}\n"
    )
    expected = of_a_site(ray_address="head:6379", node_engine=EngineKind.HOST)
    assert pool_project(tmp_path).engine("cpu", None) == expected
    assert isinstance(select_engine(expected), RayEngine)  # it connects when it is used


def test_a_dry_run_needs_no_pool(plan: RunPlan) -> None:
    engine = RayEngine(of_a_site(node_engine=EngineKind.HOST))
    document = plan_document(plan, engine)
    engine.close()
    assert ["python", "-m", "pytest"] in [it["command"][:3] for it in document["stages"]]


def test_a_shell_is_refused(plan: RunPlan) -> None:
    engine = RayEngine(of_a_site())
    with pytest.raises(InfrastructureError, match="an engine of kind ray cannot open a shell"):
        engine.enter(plan, interactive=False)
    with pytest.raises(InfrastructureError, match="an engine of kind ray cannot open a shell"):
        engine.enter_kept(plan, Shown(), interactive=False)


def test_what_a_host_gets_imports_no_program_of_ours() -> None:
    for module in (actor_module, sys.modules[Queue.__module__]):
        source = Path(str(module.__file__)).read_text()
        assert "import ci" not in source
        assert "from ci" not in source


def test_a_record_that_is_damaged_is_none(plan: RunPlan) -> None:
    record = Record(address="10.0.0.1", name="gpu-1", began=1.0)
    plan.results.mkdir(parents=True)
    record.write(plan)
    assert Record.read(plan) == record
    (plan.results / "pool.json").write_text('{"address": 1}')
    assert Record.read(plan) is None
    Record.forget(plan)
    assert Record.read(plan) is None


def test_equal_trees_have_equal_archives(tree_of: MakeTree, tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b", "c")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").write_bytes(b"x")
        os.utime(tmp_path / name / "data", (0, 1_000_000_000 + number // 2))
    first, second, newer = (tree_of(name) for name in ("a", "b", "c"))
    assert first.digest == second.digest != newer.digest
    # The same wheels have the same name on a host, whenever they were downloaded.
    assert tree_of("a", packed=True).digest == tree_of("c", packed=True).digest
    first.file.seek(0)
    with tarfile.open(fileobj=io.BytesIO(first.file.read())) as archive:
        assert [it.name for it in archive] == ["data"]
