"""Engines that hang, lie or are interrupted, at sockets of their own: the real engine goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread, Timer

import pytest
from docker.client import DockerClient

from ci import cli
from ci.engines.docker import link, watch
from ci.engines.docker.containers import find_containers
from ci.engines.docker.engine import DockerEngine
from ci.engines.select import select_engine
from ci.errors import ExitCode
from ci.model.plan import EngineKind, EnginePlan
from tests.e2e.benches import Bench
from tests.e2e.engine_proxy import Proxy, lying, proxied
from tests.e2e.plans import stage

DOCKER = EnginePlan(name="docker", kind=EngineKind.DOCKER)
CREATE = re.compile(r"POST \S*/containers/create")
CONFIG = "project: tiny\nplatforms:\n  cpu: {}\n"


@pytest.fixture
def proxy(docker_bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A way to the engine that the bench takes from now on."""
    path = tmp_path / "docker.sock"
    with proxied(path) as proxy:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        docker_bench.engine = select_engine(DOCKER)
        yield proxy
        docker_bench.engine.close()


def containers(run_id: str) -> list[str]:
    client = DockerClient(base_url="unix:///var/run/docker.sock")
    try:
        found = find_containers(client, {"infini-ci.run": run_id})
        return [str(container.name) for container in found]
    finally:
        client.close()


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.docker
@pytest.mark.parametrize("times", [1, 2])
def test_interrupt_while_a_container_is_created(
    docker_bench: Bench, proxy: Proxy, times: int
) -> None:
    plan = docker_bench.plan(stage("build", "sleep", "600"))
    image = docker_bench.engine.prepare(plan, docker_bench.observer)

    def interrupt_and_delay(request: str) -> None:
        if CREATE.match(request):
            for _ in range(times):
                interrupt()
                time.sleep(0.5)  # the caller has the signal; only now the engine gets the request

    proxy.on_request = interrupt_and_delay
    facts = docker_bench.engine.execute(plan, image, docker_bench.observer)
    assert facts.interrupted
    time.sleep(1.0)  # for a container that comes later
    assert containers(plan.run_id) == []


@pytest.mark.docker
def test_engine_that_hangs_in_the_middle_and_three_interrupts(
    docker_bench: Bench, proxy: Proxy
) -> None:
    plan = docker_bench.plan(stage("build", "sh", "-c", "echo ready; sleep 600"))
    image = docker_bench.engine.prepare(plan, docker_bench.observer)
    start = time.monotonic()
    said: list[tuple[float, str]] = []

    def hang() -> None:
        proxy.running.clear()
        Thread(target=interrupt_later, daemon=True).start()

    def interrupt_later() -> None:
        hung = time.monotonic()
        silent = re.compile(r"the Docker Engine at \S+ has not answered GET /_ping for \d s")
        while time.monotonic() < hung + 30 and not said:
            texts = docker_bench.observer.messages
            said.extend((time.monotonic() - hung, text) for text in texts if silent.match(text))
            time.sleep(0.1)
        for _ in range(3):
            interrupt()
            time.sleep(1.0)

    docker_bench.observer.reactions["ready"] = hang
    try:
        facts = docker_bench.engine.execute(plan, image, docker_bench.observer)
        took = time.monotonic() - start
    finally:
        proxy.running.set()
        for name in containers(plan.run_id):
            subprocess.run(["docker", "--host", "unix:///var/run/docker.sock", "rm", "-f", name])
    assert facts.interrupted
    assert said
    assert said[0][0] < 10
    assert took < 40
    texts = docker_bench.observer.messages
    assert any(text.startswith(f"container {plan.container.name} may remain") for text in texts)


@pytest.mark.docker
def test_engine_that_answers_again(docker_bench: Bench, proxy: Proxy) -> None:
    plan = docker_bench.plan(stage("build", "sh", "-c", "echo ready; sleep 8; echo ended"))
    image = docker_bench.engine.prepare(plan, docker_bench.observer)

    def hang() -> None:
        proxy.running.clear()
        end = Timer(7.0, proxy.running.set)
        end.daemon = True
        end.start()

    docker_bench.observer.reactions["ready"] = hang
    facts = docker_bench.engine.execute(plan, image, docker_bench.observer)
    assert (facts.exit_code, facts.lost) == (0, False)
    assert (plan.results / "build.log").read_text() == "ready\nended\n"
    texts = " ".join(docker_bench.observer.messages)
    assert re.search(r"has not answered GET /_ping for \d s", texts)
    assert "answers again" in texts


@pytest.mark.docker
@pytest.mark.cut_line
def test_engine_that_hangs_for_too_long_is_lost(
    docker_bench: Bench, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOST_S", 2.0)
    monkeypatch.setattr(link, "RECONNECT_S", 0.0)
    plan = docker_bench.plan(stage("build", "sh", "-c", "echo ready; sleep 5; echo ended"))
    engine = docker_bench.engine
    assert isinstance(engine, DockerEngine)
    image = engine.prepare(plan, docker_bench.observer)

    def hang() -> None:
        engine.client.api.timeout = 2
        proxy.running.clear()

    docker_bench.observer.reactions["ready"] = hang
    facts = engine.execute(plan, image, docker_bench.observer)
    assert (facts.lost, facts.exit_code, facts.interrupted) == (True, None, False)
    assert f"lost the connection to container {plan.container.name}" in facts.notes[-1]
    proxy.running.set()
    docker_bench.observer.reactions.clear()
    engine.client.api.timeout = 60
    adopted = engine.resume(plan, docker_bench.observer)
    assert adopted is not None
    assert adopted.exit_code == 0


ANSWERS = {
    "no version": b'{"ApiVersion": "x1", "Version": "x", "Arch": "amd64"}',
    "text": b"hello",
    "HTML": b"<html></html>",
    "a list": b"[1, 2]",
    "null": b"null",
    "no facts": b'{"ApiVersion": "1.41", "Version": "20.1", "Arch": "amd64"}',
    "other types": b'{"ApiVersion": "1.41", "Version": "20.1", "Arch": "amd64", "ID": [],'
    b' "NCPU": "x", "Name": 3}',
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("command", ["run cpu --engine auto", "doctor cpu", "gc --dry-run"])
def test_engine_that_answers_garbage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
    command: str,
) -> None:
    (tmp_path / "ci.yaml").write_text(CONFIG)
    options = [f"--config={tmp_path / 'ci.yaml'}", f"--results={tmp_path / 'results'}"]
    with lying(tmp_path / "docker.sock", ANSWERS[name]):
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'docker.sock'}")
        code = cli.main([*command.split(), *options])
    shown = "".join(capfd.readouterr())
    assert code == ExitCode.INFRASTRUCTURE, shown
    assert "is broken, or is no Docker Engine: " in shown
