"""gc and doctor on a real engine, with items of a project of their own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import pytest
from docker.client import DockerClient
from docker.models.containers import Container

from ci import cli
from ci.engines.checks import Severity
from ci.engines.docker.containers import find_containers, remove_containers
from ci.engines.docker.doctor import disk_findings
from ci.engines.docker.engine import DockerEngine
from ci.engines.docker.leftovers import EngineContents, last_used
from ci.errors import ExitCode
from tests.e2e.benches import Bench, import_image
from tests.e2e.plans import stage

pytestmark = pytest.mark.docker


@dataclass
class Things:
    """Images, containers and volumes with a project's label; gone after the test."""

    client: DockerClient
    folder: Path
    project: str = field(default_factory=lambda: f"gc-{uuid.uuid4().hex[:8]}")

    @property
    def labels(self) -> dict[str, str]:
        return {"infini-ci.project": self.project, "infini-ci.platform": "cpu"}

    def image(self, name: str) -> str:
        """An image of one file, with a name of its own."""
        reference = f"infini-ci/{self.project}:{name}"
        import_image(self.client, reference, {name: bytes(1000)}, self.labels)
        return reference

    def container(self, image: str, *command: str, volume: str | None = None) -> Container:
        volumes = [f"{volume}:/cache"] if volume else None
        return self.client.containers.create(
            image, list(command), labels=self.labels, volumes=volumes, init=True
        )

    def volume(self, name: str) -> str:
        made = self.client.volumes.create(f"{self.project}-{name}", labels=self.labels)
        return str(made.name)

    def gc(self, *arguments: str) -> int:
        results = self.folder / "results"
        options = [f"--config={self.folder / 'ci.yaml'}", f"--results={results}"]
        return cli.main(
            ["gc", "--engine=docker", f"--project={self.project}", *options, *arguments]
        )

    def left(self) -> dict[str, list[str]]:
        """What the engine still has of the project."""
        only = {"label": f"infini-ci.project={self.project}"}
        images = [tag for image in self.client.images.list(filters=only) for tag in image.tags]
        containers = find_containers(self.client, {"infini-ci.project": self.project})
        volumes = self.client.volumes.list(filters=only)
        return {
            "images": sorted(images),
            "containers": [str(container.name) for container in containers],
            "volumes": [str(volume.name) for volume in volumes],
        }

    def clear(self) -> None:
        only = {"label": f"infini-ci.project={self.project}"}
        remove_containers(self.client, {"infini-ci.project": self.project})
        for volume in self.client.volumes.list(filters=only):
            volume.remove()
        for image in self.client.images.list(filters=only):
            image.remove(force=True)


@pytest.fixture
def things(docker_bench: Bench, tmp_path: Path) -> Iterator[Things]:
    assert isinstance(docker_bench.engine, DockerEngine)
    (tmp_path / "ci.yaml").write_text("project: tiny\nplatforms:\n  cpu: {}\n")
    found = Things(client=docker_bench.engine.client, folder=tmp_path)
    yield found
    found.clear()


def test_gc_removes_unused_items(
    docker_bench: Bench, things: Things, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = docker_bench.plan(stage("build", "true"))
    base = docker_bench.engine.prepare(plan, docker_bench.observer).reference
    cache = things.volume("in-use")
    running = things.container(base, "sleep", "600", volume=cache)
    running.start()
    things.volume("unused")
    free, named, used = (things.image(name) for name in ("free", "named", "used"))
    mine = f"{things.project}/mine:1"
    things.client.images.get(named).tag(mine)  # another project's name for it stays
    things.container(used, "none")

    assert things.gc("--older-than=0", "--dry-run") == ExitCode.PASSED
    assert len(things.left()["images"]) == 4
    assert "would remove" in capsys.readouterr().out

    assert things.gc("--older-than=0") == ExitCode.PASSED
    assert things.left() == {
        "images": sorted([used, mine]),
        "containers": [running.name],
        "volumes": [cache],
    }
    shown = capsys.readouterr().out
    assert f"removed image {free}, 1.0 kB, last used today: not used for 0 days" in shown
    assert f"removed compiler cache {things.project}-unused, " in shown
    assert "kept 1 container, 0 bytes: it is running" in shown
    assert "kept 1 image, 1.0 kB: a container uses it" in shown
    assert "kept 1 compiler cache, 0 bytes: a container uses it" in shown

    assert things.gc("--keep-size=0.000001") == ExitCode.PASSED  # 1 kB is not too much
    assert used in things.left()["images"]
    assert things.gc("--keep-size=0") == ExitCode.PASSED
    assert things.left()["images"] == [mine]
    assert "more than 0 bytes of this kind" in capsys.readouterr().out


def test_gc_removes_caches_without_a_trust_level_at_any_age(
    things: Things, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"infini-ci-cache-{things.project}-cpu"
    things.client.volumes.create(name, labels=things.labels)
    kept = [f"{name}-{level}" for level in ("branch", "release", "untrusted")]
    for volume in kept:
        level = volume.rpartition("-")[2]
        things.client.volumes.create(volume, labels={**things.labels, "infini-ci.trust": level})
    assert things.gc() == ExitCode.PASSED
    assert sorted(things.left()["volumes"]) == kept
    assert "last used today: no run uses caches without a trust level" in capsys.readouterr().out
    assert things.gc("--older-than=0") == ExitCode.PASSED
    assert things.left()["volumes"] == []


def test_several_at_once_wait_for_the_engine(things: Things) -> None:
    """An engine adds its disk usage up for one caller at a time."""
    with ThreadPoolExecutor(4) as pool:
        assert (
            len(
                list(
                    pool.map(
                        lambda _: EngineContents.read(things.client, things.client.info()),
                        range(20),
                    )
                )
            )
            == 20
        )


def test_what_a_run_takes_is_used_from_then_on(docker_bench: Bench, things: Things) -> None:
    plan = docker_bench.plan(stage("build", "true"))

    def used() -> datetime:
        digest = docker_bench.engine.prepare(plan, docker_bench.observer).digest
        contents = EngineContents.read(things.client, things.client.info())
        [entry] = [entry for entry in contents.images if entry["Id"] == digest]
        return last_used(things.client, entry)

    assert used() < used()


def test_doctor_asks_the_engine(
    things: Things, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = things.image("base")
    (things.folder / "Dockerfile").write_text("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n")
    (things.folder / "ci.yaml").write_text(
        "project: tiny\nplatforms:\n"
        f"  cpu: {{recipe: Dockerfile, base_image: '{base}'}}\n"
        "  moore: {recipe: Dockerfile, base_image: 'registry.invalid/base:1', simulated: true}\n"
    )
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    arguments = [
        "doctor",
        "--engine=docker",
        "--format=json",
        f"--config={things.folder / 'ci.yaml'}",
    ]
    assert cli.main(arguments) == ExitCode.INFRASTRUCTURE
    findings = json.loads(capsys.readouterr().out)["findings"]
    found = {entry["subject"]: entry for entry in findings}
    assert found["engine docker"]["found"].startswith("Docker Engine ")
    assert found["clock of engine docker"]["level"] == "ok"
    assert found["image of cpu"]["found"].startswith("infini-ci/cpu:")
    assert found["base image of cpu"]["found"] == f"{base} is there"
    problem = "registry.invalid/base:1 is not on the engine and cannot be pulled: "
    assert found["base image of moore"]["found"].startswith(problem)
    assert found["base image of moore"]["level"] == "problem"


def test_the_disk_of_an_engine_elsewhere_is_asked_from_a_container(
    docker_bench: Bench, things: Things
) -> None:
    plan = docker_bench.plan(stage("build", "true"))
    info = things.client.info()
    here = list(disk_findings(things.client, info, [plan]))
    docker_bench.engine.prepare(plan, docker_bench.observer)
    elsewhere = list(disk_findings(things.client, {**info, "Name": "elsewhere"}, [plan]))
    absent = replace(plan, image=replace(plan.needed_image, tag="infini-ci/none:none"))
    [blind] = disk_findings(things.client, {**info, "Name": "elsewhere"}, [absent])
    assert [found.level for found in here] == [found.level for found in elsewhere]
    assert " free" in elsewhere[0].found
    assert blind.level is Severity.UNKNOWN
