"""Tests that several processes share, on real engines."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from docker.client import DockerClient

from ci.facts.result_files import ResultFiles
from ci.model.plan import RunPlan
from ci.model.verdicts import Harness, Product
from ci.protocol.events import StageProgress
from ci.protocol.stage_kind import StageKind
from ci.run.platform import judge_platform
from tests.e2e.benches import Bench
from tests.e2e.plans import REQUIREMENTS, stage

INSTALL = stage("install", "python", "-m", "pip", "install", ".", "--no-build-isolation")
MORE = """\
import os
import pytest

@pytest.mark.parametrize("n", range(7))
def test_good(n):
    pass

def test_own_processors():
    with open("/proc/self/status") as status:
        print(*(line for line in status if line.startswith("Cpus_allowed_list")))
"""


def sharded(bench: Bench, *, shards: int = 2, reruns: int = 0) -> RunPlan:
    """Plan one build, and tests that several processes share: 11 in two files, one fails."""
    command = ("python", "-m", "pytest", "-p", "no:cacheprovider", "tests", "-rP")
    tests = stage("pytest", *command, kind=StageKind.PYTEST)
    tests = replace(tests, shards=shards, reruns=reruns)
    plan = bench.plan(INSTALL, tests, requirements=REQUIREMENTS)
    (plan.source / "tests/test_more.py").write_text(MORE)
    return plan


def test_shards_use_one_installation_and_give_one_row(bench: Bench) -> None:
    plan = sharded(bench, reruns=1)
    outcome = judge_platform(plan, bench.run(plan))
    row = outcome.result
    assert (row.verdict.product, row.verdict.harness) == (Product.FAILED, Harness.CLEAN)
    assert row.pytest is not None
    assert (row.pytest.summary or "").startswith("1 failed, 10 passed in ")
    assert [it.name for it in row.stages if it.seconds and it.name != "image"][-2:] == [
        "install",
        "pytest",
    ]
    assert sorted(it.tests or 0 for it in row.shards) == [5, 6]
    assert sorted(it.exit_code or 0 for it in row.shards) == [0, 1]
    assert [rerun.node_id for rerun in outcome.details.reruns] == [
        "tests/test_tiny.py::test_that_fails"
    ]
    assert len(outcome.details.tests) == 11
    files = ResultFiles(folder=plan.results)
    assert {"pytest.jsonl", "pytest.log", "junit.xml", "pytest.shard-2.jsonl"} <= set(
        files.artifacts
    )
    # What a display gets is of one stage.
    events = bench.observer.every(StageProgress)
    assert {event.stage for event in events} <= {"install", "pytest"}
    assert events[-1].done == 11


def test_an_interrupt_ends_all_shards(bench: Bench) -> None:
    plan = sharded(bench)
    wait = "import time\ndef test_it():\n    print('ready', flush=True)\n    time.sleep(600)\n"
    for name in ("test_more", "test_tiny"):
        (plan.source / f"tests/{name}.py").write_text(wait)
    stages = tuple(
        replace(it, command=(*it.command, "-s")) if it.shards > 1 else it for it in plan.stages
    )
    plan = replace(plan, stages=stages)
    ready: list[str] = []

    def interrupt() -> None:
        ready.append("ready")
        if len(ready) == 2:
            signal.raise_signal(signal.SIGINT)

    bench.observer.reactions["tests/test_more.py ready"] = interrupt
    bench.observer.reactions["tests/test_tiny.py ready"] = interrupt
    facts = bench.run(plan)
    assert facts.interrupted
    assert facts.exit_code == 130
    row = judge_platform(plan, facts).result
    assert (row.verdict.product, row.verdict.harness) == (
        Product.INCOMPLETE,
        Harness.INFRASTRUCTURE,
    )
    assert [it.seconds is not None for it in row.shards] == [True, True]
    assert bench.engine.resume(plan, bench.observer) is None  # no leftovers


@pytest.mark.docker
def test_what_a_killed_container_had_run_counts(docker_bench: Bench) -> None:
    """The agent cannot report the ends of its shards any more."""
    plan = sharded(docker_bench)
    last = "import time\ndef test_zz():\n    print('ready', flush=True)\n    time.sleep(600)\n"
    (plan.source / "tests/test_zz.py").write_text(last)
    stages = tuple(
        replace(it, command=(*it.command, "-s")) if it.shards > 1 else it for it in plan.stages
    )
    plan = replace(plan, stages=stages)
    client = DockerClient.from_env()
    name = plan.container.name
    docker_bench.observer.reactions["tests/test_zz.py ready"] = lambda: client.containers.get(
        name
    ).kill()
    facts = docker_bench.run(plan)
    client.close()
    row = judge_platform(plan, facts).result
    assert row.verdict.product in (Product.INCOMPLETE, Product.FAILED)
    assert row.verdict.harness is not Harness.CLEAN
    assert row.pytest is not None
    assert row.pytest.passed >= 4  # in the same shard, before it
    assert [it.seconds for it in row.shards] == [None, None]
