"""Compiler caches of trust levels: read by lower ones, and written by their own only."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from docker.client import DockerClient
from docker.errors import ContainerError, NotFound

from ci.engines.docker.engine import DockerEngine
from ci.engines.job import TRUSTED_MOUNT, container_options
from ci.model.plan import CachePlan, RunPlan
from ci.model.trust import Trust
from tests.e2e.benches import Bench
from tests.e2e.plans import DOCKERFILE, OFFLINE_BASE, stage

GOOD = "int answer() { return 42; }\n"
POISON = "int answer() { return 666; }\n"
COMPILE = """
$CMAKE_CXX_COMPILER_LAUNCHER c++ -c "$PWD/answer.cc" -o answer.o
echo 'int answer(); int main() { return answer() == 42 ? 0 : 66; }' > main.cc
c++ main.cc answer.o -o program && ./program
"""
# Compiles the poisoned file too, and puts its object where ccache has that of the good one.
PLANT = """
$CMAKE_CXX_COMPILER_LAUNCHER c++ -c "$PWD/answer.cc" -o answer.o
good=$(find "$CCACHE_DIR" -name '*R')
$CMAKE_CXX_COMPILER_LAUNCHER c++ -c "$PWD/poison.cc" -o poison.o
poison=$(find "$CCACHE_DIR" -name '*R' ! -path "$good")
cp "$poison" "$good"
"""

Levels = Callable[[Trust], CachePlan]


def remove_volume(name: str) -> None:
    client = DockerClient.from_env()
    with suppress(NotFound):
        client.volumes.get(name).remove()
    client.close()


@pytest.fixture
def levels(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Levels]:
    """Unused caches of all levels."""
    if bench.engine.name == "host" and not shutil.which("ccache"):
        pytest.skip("this machine has no ccache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(bench.folder / "caches"))

    def name(level: Trust) -> str:
        return f"infini-ci-cache-{bench.run_id}-{level}"

    def cache(level: Trust) -> CachePlan:
        return CachePlan(name=name(level), cold=False, trusted=tuple(map(name, level.higher)))

    yield cache
    if bench.engine.name == "docker":
        for level in Trust:
            remove_volume(name(level))


def plan_of(bench: Bench, cache: CachePlan, script: str) -> RunPlan:
    plan = bench.plan(stage("build", "sh", "-ec", script))
    (plan.source / "answer.cc").write_text(GOOD)
    (plan.source / "poison.cc").write_text(POISON)
    results = bench.folder / f"results-{len(list(bench.folder.iterdir()))}"
    return replace(plan, cache=cache, results=results)


def build(bench: Bench, cache: CachePlan, script: str = COMPILE) -> tuple[int, dict[str, Any]]:
    """Run a build; return the exit code of its stage, and the facts about its cache."""
    plan = plan_of(bench, cache, script)
    bench.run(plan)
    lines = (plan.results / "events.jsonl").read_text().splitlines()
    [end] = [e for e in map(json.loads, lines) if e["event"] == "stage_finished"]
    facts = json.loads((plan.results / "environment.json").read_text())["compiler_cache"]
    return end["exit_code"], facts


def test_planted_object_stays_in_its_level(bench: Bench, levels: Levels) -> None:
    code, _ = build(bench, levels(Trust.UNTRUSTED), PLANT)
    assert code == 0
    code, facts = build(bench, levels(Trust.UNTRUSTED))
    assert (code, facts["hits"]) == (66, 1)  # the attack works within its level
    for level in (Trust.RELEASE, Trust.BRANCH):
        code, facts = build(bench, levels(level))
        assert code == 0
    assert (facts["state"], facts["hits"], facts["misses"]) == ("warm", 1, 0)


@pytest.mark.complete  # the one before has the hits of one level
def test_lower_levels_get_hits_from_higher_ones(bench: Bench, levels: Levels) -> None:
    _, first = build(bench, levels(Trust.RELEASE))
    assert (first["state"], first["copied"]) == ("cold", 0)
    _, branch = build(bench, levels(Trust.BRANCH))
    assert (branch["state"], branch["hit_rate"]) == ("warm", 1.0)
    assert branch["copied"] == 2  # ccache's manifest and result
    _, again = build(bench, levels(Trust.BRANCH))
    assert (again["state"], again["copied"]) == ("warm", 0)
    _, cold = build(bench, replace(levels(Trust.UNTRUSTED), cold=True))
    assert (cold["state"], cold["copied"]) == ("cold", 0)


def test_higher_levels_do_not_read_lower_ones(bench: Bench, levels: Levels) -> None:
    build(bench, levels(Trust.BRANCH))
    _, release = build(bench, levels(Trust.RELEASE))
    assert (release["state"], release["copied"]) == ("cold", 0)


def existing(client: DockerClient, *caches: CachePlan) -> list[str]:
    found = {volume.name for volume in client.volumes.list()}
    return [cache.name for cache in caches if cache.name in found]


@pytest.fixture
def docker_levels(docker_bench: Bench) -> Iterator[Levels]:
    def cache(level: Trust) -> CachePlan:
        names = [f"infini-ci-cache-{docker_bench.run_id}-{it}" for it in (*level.higher, level)]
        return CachePlan(name=names[-1], cold=False, trusted=tuple(names[:-1]))

    yield cache
    for level in Trust:
        remove_volume(cache(level).name)


@pytest.mark.docker
def test_stage_cannot_write_to_a_higher_level(docker_bench: Bench, docker_levels: Levels) -> None:
    release = docker_levels(Trust.RELEASE)
    build(docker_bench, release)
    write = f"touch {TRUSTED_MOUNT}/{release.name}/ccache/0/planted"
    plan = plan_of(docker_bench, docker_levels(Trust.UNTRUSTED), write)
    docker_bench.run(plan)
    assert "Read-only file system" in (plan.results / "build.log").read_text()


@pytest.mark.docker
def test_root_cannot_write_to_a_higher_level(docker_bench: Bench, docker_levels: Levels) -> None:
    release = docker_levels(Trust.RELEASE)
    build(docker_bench, release)
    plan = plan_of(docker_bench, docker_levels(Trust.UNTRUSTED), "true")
    options = container_options(plan, trusted_caches=[release.name])
    assert isinstance(docker_bench.engine, DockerEngine)
    kept = ("volumes", "cap_drop", "cap_add", "security_opt")
    for capabilities in ({name: options[name] for name in kept}, {"volumes": options["volumes"]}):
        with pytest.raises(ContainerError, match="Read-only file system"):
            docker_bench.engine.client.containers.run(
                OFFLINE_BASE,
                ["touch", f"{TRUSTED_MOUNT}/{release.name}/ccache/planted"],
                user="0",
                remove=True,
                **capabilities,
            )


@pytest.mark.docker
@pytest.mark.complete
def test_image_cannot_fill_a_higher_level(docker_bench: Bench, docker_levels: Levels) -> None:
    """An engine copies what an image has at a mount point into an empty volume."""
    assert isinstance(docker_bench.engine, DockerEngine)
    client = docker_bench.engine.client
    release, untrusted = docker_levels(Trust.RELEASE), docker_levels(Trust.UNTRUSTED)
    client.volumes.create(release.name)
    place = f"{TRUSTED_MOUNT}/{release.name}"
    plan = plan_of(docker_bench, untrusted, "true")
    recipe = f"{DOCKERFILE}RUN mkdir -p {place} && echo x > {place}/planted\n"
    image = plan.needed_image
    image = replace(image, tag=f"infini-ci/engine-tests:{docker_bench.run_id}")
    image = replace(image, context={**image.context, "Dockerfile": recipe.encode()})
    try:
        docker_bench.run(replace(plan, image=image))
        found = client.containers.run(
            OFFLINE_BASE, ["ls", "/mnt"], volumes=[f"{release.name}:/mnt:nocopy"], remove=True
        )
    finally:
        client.images.remove(image.tag)
    assert found == b""


@pytest.mark.docker
def test_run_creates_no_cache_of_a_higher_level(docker_bench: Bench, docker_levels: Levels) -> None:
    assert isinstance(docker_bench.engine, DockerEngine)
    caches = [docker_levels(level) for level in Trust]
    build(docker_bench, caches[-1])
    assert existing(docker_bench.engine.client, *caches) == [caches[-1].name]
