"""Containers with a read-only root: what stages can write to, and how its volumes go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from docker.client import DockerClient
from docker.models.volumes import Volume

from ci.engines.docker.containers import find_containers
from ci.errors import ExitCode
from ci.model.plan import ResultLimits, RunPlan
from ci.plan.planning import WRITABLE
from ci.protocol.stage_kind import StageKind
from tests.e2e.benches import Bench
from tests.e2e.plans import DOCKERFILE, python_stage, stage
from tests.e2e.test_container_devices import plan_with_device
from tests.e2e.test_hostile_output import SPARSE

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parents[2]
# As the recipe of this program does.
RECIPE = f"{DOCKERFILE}\nRUN mkdir /workspace /data && chown 1000 /workspace /data\n"
LOOK = """
import json, os, tempfile
from pathlib import Path

def writable(folder):
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return error.strerror
    return True

places = [".", str(Path.home()), "/tmp", "/var/tmp", "/opt/venv", "/data", "/var/lib/data"]
print(json.dumps({place: writable(place) for place in places}))
Path("artifact").write_text("kept")
"""
INSTALL = stage("install", "python", "-m", "pip", "install", "--no-build-isolation", ".")
TESTS = stage("pytest", "python", "-m", "pytest", "tests", kind=StageKind.PYTEST)


@pytest.fixture
def client() -> Iterator[DockerClient]:
    client = DockerClient.from_env()
    yield client
    client.close()


def read_only(plan: RunPlan) -> RunPlan:
    return replace(plan, container=replace(plan.container, writable=WRITABLE))


def volumes(client: DockerClient, plan: RunPlan) -> list[Volume]:
    return client.volumes.list(filters={"label": f"infini-ci.run={plan.run_id}"})


def test_stages_write_to_volumes_only(docker_bench: Bench, client: DockerClient) -> None:
    plan = docker_bench.plan(
        python_stage("look", LOOK),
        INSTALL,
        TESTS,
        dockerfile=RECIPE,
        artifacts={"artifact": "artifact"},
    )
    plan = read_only(plan)
    docker_bench.run(plan)
    assert json.loads((plan.results / "look.log").read_text()) == {
        **dict.fromkeys([".", "/home/builder", "/tmp", "/var/tmp", "/opt/venv"], True),  # noqa: S108
        "/data": "Read-only file system",
        "/var/lib/data": "No such file or directory",
    }
    assert (plan.results / "artifact").read_text() == "kept"
    assert "1 failed, 2 passed" in (plan.results / "pytest.log").read_text()
    assert (plan.results / "junit.xml").exists()
    assert volumes(client, plan) == []


def test_with_devices_the_results_belong_to_the_stages_user(
    docker_bench: Bench, client: DockerClient, tmp_path: Path
) -> None:
    plan = plan_with_device(docker_bench, tmp_path / "leases", "touch /tmp/a /opt/venv/a; id -u")
    recipe = RECIPE.replace(DOCKERFILE, plan.needed_image.context["Dockerfile"].decode())
    context = {**plan.needed_image.context, "Dockerfile": recipe.encode()}
    image = replace(plan.needed_image, context=context, tag=f"{plan.needed_image.tag}-root")
    plan = read_only(replace(plan, image=image))
    docker_bench.run(plan)
    assert (plan.results / "pytest.log").read_text() == "1000\n"
    assert volumes(client, plan) == []


@pytest.mark.usefixtures("one_user")
def test_limits_of_results_hold(docker_bench: Bench) -> None:
    limits = ResultLimits(total_bytes=32 << 20)
    plan = docker_bench.plan(python_stage("plant", SPARSE), dockerfile=RECIPE)
    facts = docker_bench.run(read_only(replace(plan, result_limits=limits)))
    assert facts.exit_code == 0
    assert [note.partition(": ")[2] for note in facts.notes[-2:]] == [
        "1 file for which the limit of 33,554,432 bytes leaves no room: results/b",
        "1 part of the archive: results/d of 1,099,511,627,776 bytes, and everything after it",
    ]
    assert (plan.results / "a").stat().st_blocks == 0


CONFIG = """
project: {project}
platforms: {{cpu: {{compiler_cache: false}}}}
read_only_root: true
writable_folders: [/data]
stages:
  - {{name: pytest, command: python -m pytest, kind: pytest}}
"""
SLOW = """
import time


def test_slow():
    print("begun", flush=True)
    time.sleep(8)  # for the end of the caller, and a second one that finds the container
"""


class Caller:
    """Calls `python -m ci` for runs of a project of its own."""

    def __init__(self, client: DockerClient, folder: Path) -> None:
        self.client = client
        self.results = folder / "results"
        self.config = folder / "project" / "ci.yaml"
        self.project = f"rooted-{uuid.uuid4().hex[:8]}"
        self.config.parent.mkdir()
        self.config.write_text(CONFIG.format(project=self.project))
        (folder / "project" / "test_slow.py").write_text(SLOW)

    def call(self, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "ci", *map(str, arguments), f"--results={self.results}"],
            cwd=ROOT,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def start(self) -> subprocess.Popen[str]:
        """Return a run whose tests have begun."""
        process = self.call("run", "cpu", "--engine=docker", f"--config={self.config}")
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if "pytest started" in line:
                return process
        raise AssertionError("".join(seen))

    @property
    def volumes(self) -> int:
        own = {"label": f"infini-ci.project={self.project}"}
        return len(self.client.volumes.list(filters=own))

    def remove(self, *, volumes: bool) -> None:
        for container in find_containers(self.client, {"infini-ci.project": self.project}):
            container.remove(force=True, v=volumes)


@pytest.fixture
def caller(client: DockerClient, tmp_path: Path) -> Iterator[Caller]:
    caller = Caller(client, tmp_path)
    yield caller
    caller.remove(volumes=True)


def end(process: subprocess.Popen[str], number: signal.Signals) -> int:
    os.killpg(process.pid, number)
    process.communicate()
    return process.returncode


@pytest.mark.complete  # the next one ends the caller, too
def test_volumes_go_after_kill_and_resume(caller: Caller) -> None:
    end(caller.start(), signal.SIGKILL)
    assert caller.volumes == len(WRITABLE) + 1
    run = (caller.results / "latest").resolve().name
    resumed = caller.call("run", f"--resume={run}")
    _, shown = resumed.communicate()
    assert resumed.returncode == ExitCode.PASSED, shown
    assert caller.volumes == 0


def test_volumes_go_after_an_interrupt(caller: Caller) -> None:
    assert end(caller.start(), signal.SIGINT) == ExitCode.INTERRUPTED
    assert caller.volumes == 0


def test_gc_finds_volumes_without_their_container(caller: Caller) -> None:
    end(caller.start(), signal.SIGKILL)
    caller.remove(volumes=False)
    assert caller.volumes == len(WRITABLE) + 1
    options = [f"--config={caller.config}", f"--project={caller.project}"]
    gc = caller.call("gc", "--engine=docker", *options)
    _, shown = gc.communicate()
    assert gc.returncode == ExitCode.PASSED, shown
    assert caller.volumes == 0
