"""Containers get a folder of wheels as a volume, and reach nothing on the engine's machine."""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

import pytest
from docker.client import DockerClient
from docker.errors import NotFound
from docker.models.containers import Container, ContainerCollection

from ci.engines.archives import pack
from ci.engines.docker.containers import find_containers
from ci.engines.docker.wheelhouse import volume_name
from ci.engines.leftovers import ItemKind, Scope
from ci.errors import InfrastructureError
from ci.facts.result_files import ResultFiles
from ci.model.plan import RunPlan
from ci.protocol.events import NetworkRemoved, NetworkWaiting
from ci.protocol.job import StagePlan
from ci.upkeep.gc import decide
from tests.e2e.benches import Bench
from tests.e2e.bridge import machine_address
from tests.e2e.plans import OFFLINE_BASE, python_stage, stage

pytestmark = [pytest.mark.docker, pytest.mark.cut_line]

REPOSITORY = Path(__file__).parents[2]
URL = "http://127.0.0.1:8421/tiny-1-py3-none-any.whl"
# The build fetches a file; the line with the run's id makes it a new one.
RECIPE = f"""\
ARG BASE_IMAGE
FROM ${{BASE_IMAGE}}
RUN echo %s && python3 -c "import urllib.request as r; \\
    open('/fetched', 'wb').write(r.urlopen('{URL}').read())"
RUN grep --only-matching attempts:5 /etc/resolv.conf >/asked
RUN %s
"""
SHOW = """\
from pathlib import Path
for file in ("/fetched", "/asked"):
    print(Path(file).read_text().strip())
print(sorted(path.name for path in Path("/opt/infini-ci/wheels").iterdir()))
"""

# All projects share the volume, and an engine would fill an empty one with an image's files.
PLANT = "mkdir -p /opt/infini-ci/wheels && touch /opt/infini-ci/wheels/planted.whl"


@pytest.fixture
def client() -> Iterator[DockerClient]:
    with closing(DockerClient.from_env()) as client:
        yield client


@pytest.fixture
def wheels(tmp_path: Path, client: DockerClient) -> Iterator[Path]:
    """A wheelhouse that no other test has; its volume is gone at the end."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / "tiny-1-py3-none-any.whl").write_text(f"wheel of {tmp_path}")
    volume = volume_name(folder)
    yield folder
    with suppress(NotFound):
        client.volumes.get(volume).remove()


def with_wheels(
    bench: Bench, wheels: Path, *stages: StagePlan, last: str = "true", base: str = OFFLINE_BASE
) -> RunPlan:
    recipe = RECIPE % (bench.run_id, last)
    plan = bench.plan(*stages, dockerfile=recipe)
    return replace(
        plan,
        network=replace(plan.network, wheelhouse=wheels),
        image=replace(plan.needed_image, base_image=base),
        container=replace(
            plan.container, labels={**plan.container.labels, "infini-ci.project": bench.run_id}
        ),
    )


def containers_of(client: DockerClient, bench: Bench) -> list[Container]:
    return find_containers(client, {"infini-ci.project": bench.run_id})


@pytest.fixture
def built(docker_bench: Bench, client: DockerClient) -> Iterator[None]:
    """Remove the images that a test has built."""
    yield
    for last in ("true", PLANT):
        plan = docker_bench.plan(dockerfile=RECIPE % (docker_bench.run_id, last))
        with suppress(NotFound):
            client.images.remove(plan.needed_image.tag)


@pytest.mark.usefixtures("built")
def test_builds_and_runs_get_the_wheels(
    docker_bench: Bench, client: DockerClient, wheels: Path
) -> None:
    plan = with_wheels(docker_bench, wheels, stage("show", "python3", "-c", SHOW))
    facts = docker_bench.run(plan)
    assert facts.exit_code == 0
    shown = (plan.results / "show.log").read_text().splitlines()
    assert shown == [
        (wheels / "tiny-1-py3-none-any.whl").read_text(),
        "attempts:5",
        "['.complete', 'tiny-1-py3-none-any.whl']",
    ]
    assert containers_of(client, docker_bench) == []
    # `gc` knows the volume.
    scope = Scope(
        project=docker_bench.run_id, orphans=False, runs=frozenset(), platforms=frozenset()
    )
    leftovers = docker_bench.engine.leftovers()
    assert leftovers is not None
    items = leftovers.items(scope)
    [volume] = [item for item in items if item.kind is ItemKind.WHEELS]
    assert (volume.name, volume.needed) == (volume_name(wheels), None)
    # Another run takes the volume as it is.
    made = client.volumes.get(volume_name(wheels)).attrs["CreatedAt"]
    assert docker_bench.run(plan).exit_code == 0
    assert client.volumes.get(volume_name(wheels)).attrs["CreatedAt"] == made


@pytest.mark.usefixtures("built")
def test_an_image_plants_no_wheels(docker_bench: Bench, client: DockerClient, wheels: Path) -> None:
    plan = with_wheels(docker_bench, wheels, stage("show", "python3", "-c", SHOW), last=PLANT)
    assert docker_bench.run(plan).exit_code == 0  # the volume was filled with the base image
    client.volumes.get(volume_name(wheels)).remove()
    assert docker_bench.run(replace(plan, results=plan.results / "again")).exit_code == 0
    shown = (plan.results / "again" / "show.log").read_text().splitlines()
    assert shown[-1] == "['.complete', 'tiny-1-py3-none-any.whl']"


def test_a_failed_build_leaves_no_server(
    docker_bench: Bench, client: DockerClient, wheels: Path
) -> None:
    plan = with_wheels(docker_bench, wheels, stage("no", "true"), last="false")
    with pytest.raises(InfrastructureError, match="cannot be built"):
        docker_bench.engine.prepare(plan, docker_bench.observer)
    assert containers_of(client, docker_bench) == []


def test_a_build_whose_server_is_removed(
    docker_bench: Bench, client: DockerClient, wheels: Path
) -> None:
    plan = with_wheels(
        docker_bench, wheels, stage("no", "true"), last="echo now && sleep 2 && false"
    )

    def remove_server() -> None:
        [server] = [
            it for it in containers_of(client, docker_bench) if str(it.name).endswith("-wheels")
        ]
        server.remove(force=True)

    docker_bench.observer.reactions["now"] = remove_server
    with pytest.raises(InfrastructureError, match=r"lost its wheelhouse: .*-wheels was removed"):
        docker_bench.engine.prepare(plan, docker_bench.observer)


def test_an_interrupted_build_leaves_no_server(
    docker_bench: Bench, client: DockerClient, wheels: Path
) -> None:
    plan = with_wheels(docker_bench, wheels, stage("no", "true"), last="echo now && sleep 60")
    docker_bench.observer.reactions["now"] = lambda: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        docker_bench.engine.prepare(plan, docker_bench.observer)
    assert containers_of(client, docker_bench) == []


def test_a_base_image_that_cannot_serve(
    docker_bench: Bench, client: DockerClient, wheels: Path
) -> None:
    tag = f"infini-ci/engine-tests:{docker_bench.run_id}"
    context = pack({"Dockerfile": b"FROM scratch\nCOPY Dockerfile /\n"})
    client.images.build(fileobj=context, custom_context=True, tag=tag, forcerm=True)
    plan = with_wheels(docker_bench, wheels, stage("no", "true"), base=tag)
    try:
        with pytest.raises(InfrastructureError, match="cannot serve the wheelhouse") as error:
            docker_bench.engine.prepare(plan, docker_bench.observer)
    finally:
        client.images.remove(tag)
    assert "a base image with Python 3" in (error.value.remedy or "")
    assert containers_of(client, docker_bench) == []


CALLER = """
import os, signal, sys
from pathlib import Path
import pickle
from tests.e2e.benches import Recorder
from ci.engines.select import select_engine
plan = pickle.loads(Path(sys.argv[1]).read_bytes())
observer = Recorder()
observer.reactions["now"] = lambda: os.kill(os.getpid(), signal.SIGKILL)
select_engine(plan.engine).prepare(plan, observer)
"""


def test_a_killed_caller_leaves_what_resume_and_gc_remove(
    docker_bench: Bench, client: DockerClient, wheels: Path
) -> None:
    plan = with_wheels(docker_bench, wheels, stage("no", "true"), last="echo now && sleep 60")
    pickled = docker_bench.folder / "plan"
    pickled.write_bytes(pickle.dumps(plan))
    command = [sys.executable, "-c", CALLER, str(pickled)]
    killed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    [server] = containers_of(client, docker_bench)
    assert server.status == "running"
    contents = docker_bench.engine.leftovers()
    assert contents is not None
    assert docker_bench.run_id not in contents.running
    scope = Scope(
        project=docker_bench.run_id, orphans=False, runs=frozenset(), platforms=frozenset()
    )
    items = [item for item in contents.items(scope) if item.kind is ItemKind.CONTAINER]
    soon = datetime.now(UTC) + timedelta(days=2)
    [decision] = decide(items, now=soon, age=timedelta(days=1), size_bytes=1 << 40)
    assert decision.removed
    assert docker_bench.engine.resume(plan, docker_bench.observer) is None
    assert containers_of(client, docker_bench) == []


@pytest.mark.parametrize("name", ["{}-wheels", "{}"])
def test_ctrl_c_while_a_container_is_created(
    docker_bench: Bench,
    client: DockerClient,
    wheels: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    plan = docker_bench.plan(stage("no", "true"))
    plan = replace(plan, network=replace(plan.network, wheelhouse=wheels))
    create = ContainerCollection.create

    def interrupted(self: ContainerCollection, *arguments: Any, **options: Any) -> Container:
        if options["name"] == name.format(plan.container.name):
            os.kill(os.getpid(), signal.SIGINT)
        return create(self, *arguments, **options)

    image = docker_bench.engine.prepare(plan, docker_bench.observer)
    monkeypatch.setattr(ContainerCollection, "create", interrupted)
    assert docker_bench.engine.execute(plan, image, docker_bench.observer).interrupted
    for label in ("run", "helper"):
        assert find_containers(client, {f"infini-ci.{label}": docker_bench.run_id}) == []


def test_a_disk_without_room_for_the_wheels(
    docker_bench: Bench, client: DockerClient, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The volume that is not complete goes."""

    def full(_folder: Path) -> Iterator[bytes]:
        yield b""
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ci.engines.docker.wheelhouse.wheel_archive", full)
    plan = docker_bench.plan(stage("no", "true"))
    image = docker_bench.engine.prepare(plan, docker_bench.observer)
    plan = replace(plan, network=replace(plan.network, wheelhouse=wheels))
    with pytest.raises(InfrastructureError, match="is full"):
        docker_bench.engine.execute(plan, image, docker_bench.observer)
    with pytest.raises(NotFound):
        client.volumes.get(volume_name(wheels))


# What a stage can reach


CONNECT = """
import json, socket, sys
reached = {}
for address in json.loads(sys.argv[1]):
    try:
        socket.create_connection(address, timeout=3).close()
        reached[address[0]] = True
    except OSError:
        reached[address[0]] = False
print(json.dumps(reached))
"""


@pytest.fixture
def service() -> Iterator[int]:
    """A service at every address of this machine; its port."""
    with socket.create_server(("0.0.0.0", 0)) as server:  # noqa: S104 - of the test only

        def answer() -> None:
            with suppress(OSError):
                while True:
                    server.accept()[0].close()

        Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def test_a_stage_without_a_network_reaches_no_service_of_the_machine(
    docker_bench: Bench, client: DockerClient, wheels: Path, service: int
) -> None:
    addresses = json.dumps([["127.0.0.1", service], [machine_address(client), service]])
    stages = [
        stage("before", "python", "-c", CONNECT, addresses),
        replace(stage("tests", "python", "-c", CONNECT, addresses), isolated=True),
    ]
    plan = docker_bench.plan(*stages)
    plan = replace(plan, network=replace(plan.network, wheelhouse=wheels))
    facts = docker_bench.run(plan)
    assert facts.exit_code == 0
    before, tests = (
        json.loads((plan.results / f"{name}.log").read_text()) for name in ("before", "tests")
    )
    assert not before["127.0.0.1"]
    assert before[machine_address(client)]  # so the service can be reached
    assert not any(tests.values())
    files = ResultFiles(folder=plan.results, stages=plan.stages)
    assert files.record.first(NetworkWaiting) is not None
    removed = files.record.first(NetworkRemoved)
    assert removed is not None
    assert removed.waited_s < 30
    assert containers_of(client, docker_bench) == []


RUN = CALLER.replace(
    "select_engine(plan.engine).prepare(plan, observer)",
    "engine = select_engine(plan.engine)\n"
    "engine.execute(plan, engine.prepare(plan, observer), observer)",
)


def test_a_later_caller_disconnects_the_container(
    docker_bench: Bench, client: DockerClient, wheels: Path
) -> None:
    """The first one is killed before the stage that needs it."""
    first = python_stage("first", "import time; print('now', flush=True); time.sleep(3)")
    last = replace(python_stage("last", "print(open('/proc/net/dev').read())"), isolated=True)
    plan = docker_bench.plan(first, last)
    plan = replace(plan, network=replace(plan.network, wheelhouse=wheels))
    pickled = docker_bench.folder / "plan"
    pickled.write_bytes(pickle.dumps(plan))
    command = [sys.executable, "-c", RUN, str(pickled)]
    killed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    container = client.containers.get(plan.container.name)
    wait_for(container, b'"network_waiting"')
    facts = docker_bench.engine.resume(plan, docker_bench.observer)
    assert facts is not None
    assert facts.exit_code == 0
    assert "eth0" not in (plan.results / "last.log").read_text()
    assert find_containers(client, {"infini-ci.run": docker_bench.run_id}) == []


def wait_for(container: Container, text: bytes) -> None:
    deadline = monotonic() + 30
    while text not in container.logs():
        assert monotonic() < deadline, container.logs()
