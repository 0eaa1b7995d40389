"""What only containers have: images, limits, isolation."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker.client import DockerClient
from docker.errors import ImageNotFound

from ci.engines.checks import Severity
from ci.engines.docker import link
from ci.engines.docker.containers import find_containers
from ci.engines.docker.engine import DockerEngine
from ci.engines.host.engine import HostEngine
from ci.engines.select import select_engine
from ci.errors import ExitCode, InfrastructureError
from ci.facts.platform_result import not_run_result
from ci.model.plan import EngineKind, EnginePlan, RunPlan
from tests.e2e.benches import Bench, import_image
from tests.e2e.plans import DOCKERFILE, python_stage, stage

pytestmark = pytest.mark.docker

UNPRIVILEGED = 65534
DOCKER = EnginePlan(name="docker", kind=EngineKind.DOCKER)


@pytest.fixture
def client() -> Iterator[DockerClient]:
    client = DockerClient.from_env()
    yield client
    client.close()


def finished(plan: RunPlan) -> dict[str, Any]:
    lines = (plan.results / "events.jsonl").read_text().splitlines()
    return next(event for event in map(json.loads, lines) if event["event"] == "stage_finished")


def test_image_is_built_once_and_records_its_base(docker_bench: Bench) -> None:
    plan = docker_bench.plan(stage("build", "true"))
    docker_bench.engine.prepare(plan, docker_bench.observer)
    again = docker_bench.engine.prepare(plan, docker_bench.observer)
    assert (again.reference, again.built, again.reason) == (plan.needed_image.tag, False, "cached")
    assert again.base == plan.needed_image.offline_base_image
    assert (again.base_digest or "").startswith("sha256:")
    facts = docker_bench.engine.execute(plan, again, docker_bench.observer)
    note = "base image registry.invalid/python:3.11 could not be pulled"
    assert facts.notes == (f"{note}; built on an offline Debian base",)
    assert facts.engine_version is not None
    assert facts.sync_seconds > 0


def test_image_that_cannot_be_built(docker_bench: Bench) -> None:
    recipe = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN echo about to fail && exit 7\n"
    plan = docker_bench.plan(stage("build", "true"), dockerfile=recipe)
    with pytest.raises(InfrastructureError, match=r"cannot be built\n(.*\n)*.*about to fail") as e:
        docker_bench.engine.prepare(plan, docker_bench.observer)
    assert e.value.exit_code is ExitCode.INFRASTRUCTURE
    assert e.value.remedy == f"the whole log is {plan.results / 'image.log'}"
    assert "returned a non-zero code: 7" in (plan.results / "image.log").read_text()


OWN_SERVER = """
import http.server, threading, urllib.request
with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as it:
    threading.Thread(target=it.serve_forever).start()
    try:
        for host in ("127.0.0.1", "localhost"):
            address = f"http://{host}:{it.server_port}/pyproject.toml"
            assert b"tiny" in urllib.request.urlopen(address).read()
    finally:
        it.shutdown()
"""


def test_a_proxy_on_loopback(docker_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = "http://me:s3cret@127.0.0.1:9"
    monkeypatch.setenv("http_proxy", proxy)
    plan = docker_bench.plan(python_stage("look", OWN_SERVER))
    facts = docker_bench.run(plan)
    assert facts.exit_code == 0, (plan.results / "look.log").read_text()
    means = "HTTP_PROXY is a proxy on 127.0.0.1, which in a container means the container: "
    assert [note for note in facts.notes if note.startswith(means)]


# A stage of its own, as the platforms' recipes have one, for what needs the index.
STAGES = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE} AS tools
ARG PIP_INDEX_URL
RUN echo %s >/made
FROM ${BASE_IMAGE}
COPY --from=tools /made /made
"""


def test_passwords_stay_in_no_image(docker_bench: Bench, client: DockerClient) -> None:
    plan = docker_bench.plan(stage("build", "true"), dockerfile=STAGES % docker_bench.run_id)
    secret = f"https://me:{docker_bench.run_id}@index.example/simple"
    image = replace(plan.needed_image, build_arguments={"PIP_INDEX_URL": secret})
    docker_bench.engine.prepare(replace(plan, image=image), docker_bench.observer)
    found = [text for text in histories(client) if secret in text]
    client.images.remove(plan.needed_image.tag)
    assert found == []


def test_error_of_a_build_does_not_contain_its_arguments(docker_bench: Bench) -> None:
    recipe = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\ngarbage\n"
    plan = docker_bench.plan(stage("build", "true"), dockerfile=recipe)
    arguments = {"PIP_INDEX_URL": "https://me:s3cret@index.example/simple", "TOKEN": "s3cret"}
    secretive = replace(plan, image=replace(plan.needed_image, build_arguments=arguments))
    with pytest.raises(InfrastructureError, match=r"(?i)unknown instruction: garbage") as error:
        docker_bench.engine.prepare(secretive, docker_bench.observer)
    result = not_run_result(plan, str(error.value))
    log = (plan.results / "image.log").read_text()
    assert "s3cret" not in f"{error.value} {log} {result} {docker_bench.observer.events}"


def histories(client: DockerClient) -> Iterator[str]:
    for name in client.api.images(quiet=True, all=True):
        with suppress(ImageNotFound):  # other tests build and remove images beside this one
            yield str(client.api.history(name))


def test_an_image_that_vanishes_while_others_are_listed(
    docker_bench: Bench, client: DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run, or ``gc``, removes it between two requests."""
    assert isinstance(docker_bench.engine, DockerEngine)
    tag = f"infini-ci/engine-tests:{docker_bench.run_id}"
    import_image(client, tag, {"a": b""}, {"infini-ci.platform": "cpu"})
    api = docker_bench.engine.client.api
    listed = api.images

    def images(*arguments: Any, **options: Any) -> Any:
        found = listed(*arguments, **options)
        assert tag in [name for each in found for name in each["RepoTags"] or ()]
        client.images.remove(tag)
        return found

    monkeypatch.setattr(api, "images", images)
    plan = docker_bench.plan(dockerfile=f"{DOCKERFILE}# {docker_bench.run_id}\n")
    assert docker_bench.engine.images.build_reason(plan)


def test_base_image_without_a_stand_in(docker_bench: Bench) -> None:
    plan = docker_bench.plan(stage("build", "true"), dockerfile=DOCKERFILE + "# another tag\n")
    alone = replace(plan.needed_image, offline_base_image=None, offline_base_command=None)
    wanted = r"base image registry\.invalid/python:3\.11 is not on the engine and cannot be pulled"
    with pytest.raises(InfrastructureError, match=wanted):
        docker_bench.engine.prepare(replace(plan, image=alone), docker_bench.observer)
    log = (plan.results / "image.log").read_text()
    assert "building" not in log  # refused before it waits for the builds of others


def test_memory_limit_kills_the_stage_not_the_run(docker_bench: Bench) -> None:
    hog = python_stage("hog", "bytearray(1 << 30)")
    plan = docker_bench.plan(hog, memory_bytes=128 << 20)
    facts = docker_bench.run(plan)
    assert (facts.exit_code, facts.lost) == (1, False)
    assert facts.oom_killed
    assert (finished(plan)["exit_code"], finished(plan)["oom_kills"]) == (137, 1)


def test_killed_container_is_lost(docker_bench: Bench, client: DockerClient) -> None:
    plan = docker_bench.plan(stage("build", "sh", "-c", "echo ready; sleep 600"))
    container = plan.container.name
    kill = lambda: client.containers.get(container).kill()  # noqa: E731
    docker_bench.observer.reactions["ready"] = kill
    facts = docker_bench.run(plan)
    assert (facts.lost, facts.interrupted, facts.exit_code) == (True, False, 137)
    assert (plan.results / "build.log").read_text() == "ready\n"  # what there was is kept


def test_container_that_another_program_removes(docker_bench: Bench, client: DockerClient) -> None:
    plan = docker_bench.plan(stage("build", "sh", "-c", "echo ready; sleep 600"))
    container = plan.container.name
    remove = lambda: client.containers.get(container).remove(force=True)  # noqa: E731
    docker_bench.observer.reactions["ready"] = remove
    facts = docker_bench.run(plan)
    assert (facts.lost, facts.exit_code, facts.ended_by) == (True, None, "docker rm --force")
    removed = f"container {container} was removed from outside, with the results in it"
    assert facts.notes[-1] == removed


@pytest.fixture
def relay(
    docker_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[bytes]]:
    """A way to the engine that ends with this process; new clients take it."""
    listen = docker_bench.folder / "docker.sock"
    connect = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
    command = [sys.executable, str(Path(__file__).with_name("relay.py")), str(listen), connect]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as relay:
        assert relay.stdout is not None
        assert relay.stdout.readline() == b"ready\n"
        monkeypatch.setenv("DOCKER_HOST", f"unix://{listen}")
        monkeypatch.setattr(link, "RECONNECT_S", 0.0)
        yield relay
        relay.kill()


@pytest.mark.cut_line
def test_lost_connection_leaves_the_container_to_be_adopted(
    docker_bench: Bench, relay: subprocess.Popen[bytes]
) -> None:
    plan = docker_bench.plan(stage("build", "sh", "-c", "echo ready; sleep 1; echo ended"))
    engine = select_engine(DOCKER)
    docker_bench.observer.reactions["ready"] = relay.kill
    image = engine.prepare(plan, docker_bench.observer)
    facts = engine.execute(plan, image, docker_bench.observer)
    assert (facts.lost, facts.exit_code) == (True, None)
    adopted = docker_bench.engine.resume(plan, docker_bench.observer)
    assert adopted is not None
    assert (adopted.lost, adopted.exit_code) == (False, 0)
    assert (plan.results / "build.log").read_text() == "ready\nended\n"


@pytest.mark.cut_line
def test_lost_connection_ends_a_build_with_a_typed_error(
    docker_bench: Bench, client: DockerClient, relay: subprocess.Popen[bytes]
) -> None:
    begun = f"begun {docker_bench.run_id}"  # new every time: nothing of it is cached
    recipe = f"ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\nRUN echo {begun} && sleep 600\n"
    plan = docker_bench.plan(stage("build", "true"), dockerfile=recipe)
    docker_bench.observer.reactions[begun] = relay.kill
    with pytest.raises(InfrastructureError, match=r"the run on the Docker Engine at \S+ failed: "):
        select_engine(DOCKER).prepare(plan, docker_bench.observer)
    # The server of a wheelhouse remained on the engine; the next attempt removes it.
    assert docker_bench.engine.resume(plan, docker_bench.observer) is None
    assert find_containers(client, {"infini-ci.helper": docker_bench.run_id}) == []


@pytest.fixture
def closed_socket(tmp_path: Path) -> Iterator[Path]:
    """A socket that only its owner may connect to."""
    path = tmp_path / "closed.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        path.chmod(0)
        yield path


@contextmanager
def held_back_by_permissions() -> Iterator[None]:
    """Run as another user than root, since root passes every permission check."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(UNPRIVILEGED)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.cut_line
def test_engine_that_may_not_be_used(closed_socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{closed_socket}")
    with (
        pytest.raises(InfrastructureError, match="Permission denied") as error,
        held_back_by_permissions(),
    ):
        select_engine(DOCKER)
    assert error.value.remedy is not None
    assert error.value.remedy.startswith("join the group that owns the engine's socket")


@pytest.mark.cut_line
def test_an_engine_that_may_not_be_used_is_reported(
    closed_socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", "/no/such/folder")
    monkeypatch.setattr("ci.engines.docker.link.LOCAL", f"unix://{closed_socket}")
    with held_back_by_permissions():
        engine = select_engine(EnginePlan(name="auto", kind=EngineKind.AUTO))
    assert isinstance(engine, HostEngine)
    [note] = engine.notes
    assert re.match("this machine's Docker Engine was not used: no .* Permission denied", note)
    finding = next(engine.checks(EnginePlan(name="auto", kind=EngineKind.AUTO), []))
    assert finding.level is Severity.WARNING


def test_container_is_unprivileged_and_gone_afterwards(
    docker_bench: Bench, client: DockerClient
) -> None:
    program = """
import os
import re
status = open("/proc/self/status").read()
print(os.getuid(), [line.split()[1] for line in status.splitlines() if line.startswith("CapEff")])
open("/workspace/a", "w")
"""
    plan = docker_bench.plan(python_stage("look", program))
    assert docker_bench.run(plan).exit_code == 0
    assert (plan.results / "look.log").read_text() == "1000 ['0000000000000000']\n"
    assert find_containers(client, {"infini-ci.run": plan.run_id}) == []


LIMITS = """
from pathlib import Path

groups = Path("/sys/fs/cgroup")
version_1 = ("pids/pids.max", "memory/memory.limit_in_bytes")
version_2 = ("pids.max", "memory.max")
for names in (version_1, version_2):
    if (groups / names[0]).exists():
        print(*[(groups / name).read_text().strip() for name in names])
        break
"""


@pytest.mark.parametrize("limit", [None, 512 * 2**20])
def test_a_container_cannot_exhaust_the_machine(
    docker_bench: Bench, client: DockerClient, limit: int | None
) -> None:
    plan = docker_bench.plan(python_stage("look", LIMITS))
    plan = replace(plan, container=replace(plan.container, memory_bytes=limit, processes=77))
    assert docker_bench.run(plan).exit_code == 0
    processes, memory = map(int, (plan.results / "look.log").read_text().split())
    assert processes == 77
    machine = int(client.info()["MemTotal"])
    assert memory == limit if limit else machine // 2 < memory < machine


def test_container_that_never_started_is_not_adopted(
    docker_bench: Bench, client: DockerClient
) -> None:
    plan = docker_bench.plan(stage("build", "true"))
    docker_bench.engine.prepare(plan, docker_bench.observer)
    client.containers.create(plan.needed_image.tag, labels=dict(plan.container.labels))
    assert docker_bench.engine.resume(plan, docker_bench.observer) is None
    assert docker_bench.engine.resume(plan, docker_bench.observer) is None


def test_container_whose_name_is_taken(docker_bench: Bench, client: DockerClient) -> None:
    plan = docker_bench.plan(stage("build", "true"))
    image = docker_bench.engine.prepare(plan, docker_bench.observer)
    other = client.containers.create(plan.needed_image.tag, name=plan.container.name)
    try:
        message = f"platform cpu already has a container {plan.container.name}: .*Conflict"
        with pytest.raises(InfrastructureError, match=message):
            docker_bench.engine.execute(plan, image, docker_bench.observer)
        other.reload()  # it belongs to another project, and still exists
    finally:
        other.remove()
