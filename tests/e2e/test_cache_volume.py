"""Compilations that are done once and found again, in a volume or in a folder of the user's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from docker.client import DockerClient
from docker.errors import NotFound

from ci.engines.host.workfolder import host_cache_folder
from ci.model.plan import CachePlan
from tests.e2e.benches import Bench
from tests.e2e.plans import python_stage, stage

SOURCES = {
    "include/answer.h": "constexpr int answer = 42;\n",
    "first.cc": '#include "answer.h"\nint first() { return answer; }\n',
    "second.cc": '#include "answer.h"\nint second() { return 2 * answer; }\n',
}
# With the folder of the sources, another one in every run on the host engine, in the command.
COMPILE = """
for name in first second; do
    $CMAKE_CXX_COMPILER_LAUNCHER c++ -I"$PWD/include" -c "$PWD/$name.cc" -o $name.o || exit 1
done
"""


@pytest.fixture
def cache(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[CachePlan]:
    """An unused cache."""
    if bench.engine.name == "host" and not shutil.which("ccache"):
        pytest.skip("this machine has no ccache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(bench.folder / "caches"))
    cache = CachePlan(name=f"infini-ci-cache-{bench.run_id}", cold=False)
    yield cache
    if bench.engine.name == "docker":
        client = DockerClient.from_env()
        with suppress(NotFound):
            client.volumes.get(cache.name).remove()
        client.close()


def compiled(bench: Bench, cache: CachePlan, results: str) -> dict[str, Any]:
    """Compile the sources in a new run; return the note about the cache."""
    plan = bench.plan(stage("build", "sh", "-c", COMPILE), artifacts={"first.o": "first.o"})
    plan = replace(plan, cache=cache, results=bench.folder / results)
    for name, text in SOURCES.items():
        (plan.source / name).parent.mkdir(exist_ok=True)
        (plan.source / name).write_text(text)
    assert bench.run(plan).exit_code == 0
    environment = json.loads((plan.results / "environment.json").read_text())
    said: dict[str, Any] = environment["compiler_cache"]
    return said


def test_second_run_is_warm_unless_it_is_to_be_cold(bench: Bench, cache: CachePlan) -> None:
    first = compiled(bench, cache, "first")
    assert (first["state"], first["hits"], first["misses"]) == ("cold", 0, 2)
    second = compiled(bench, cache, "second")
    assert (second["state"], second["hits"], second["misses"]) == ("warm", 2, 0)
    assert second["hit_rate"] == 1.0
    cold = compiled(bench, replace(cache, cold=True), "third")
    assert (cold["state"], cold["hits"], cold["misses"]) == ("cold", 0, 2)
    objects = {(bench.folder / name / "first.o").read_bytes() for name in ("first", "second")}
    assert len(objects) == 1


def exists(bench: Bench, cache: CachePlan) -> bool:
    if bench.engine.name == "host":
        return host_cache_folder(cache.name).exists()
    client = DockerClient.from_env()
    found = client.volumes.list(filters={"name": cache.name})
    client.close()
    return bool(found)


def test_run_that_compiles_nothing_leaves_no_cache(bench: Bench, cache: CachePlan) -> None:
    plan = replace(bench.plan(python_stage("install", "import pip")), cache=cache)
    assert bench.run(plan).exit_code == 0
    environment = json.loads((plan.results / "environment.json").read_text())
    assert environment["compiler_cache"]["empty"] is True
    assert not exists(bench, cache)


@pytest.mark.docker
def test_volume_says_whose_it_is(docker_bench: Bench) -> None:
    cache = CachePlan(name=f"infini-ci-cache-{docker_bench.run_id}", cold=False)
    look = "ls -ldn /cache/ccache && touch /cache/ccache/kept && ls /"
    plan = replace(docker_bench.plan(stage("look", "sh", "-c", look)), cache=cache)
    labels = {**plan.container.labels, "infini-ci.project": "tiny"}
    plan = replace(plan, container=replace(plan.container, labels=labels))
    assert docker_bench.run(plan).exit_code == 0
    client = DockerClient.from_env()
    volume = client.volumes.get(cache.name)
    expected = {"infini-ci.platform": "cpu", "infini-ci.project": "tiny"}
    expected["infini-ci.trust"] = "branch"
    assert volume.attrs["Labels"] == expected
    volume.remove()
    client.close()
    looked = (plan.results / "look.log").read_text()
    assert " 1000 1000 " in looked
    assert "nocopy" not in looked  # a mode of the mount that the SDK takes for a part of its path
