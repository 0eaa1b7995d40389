"""A platform whose engine dies in the middle of a run is tried again on the next engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread

import pytest
from docker.client import DockerClient

from ci.engines.docker import link
from ci.engines.select import select_engine
from ci.model.plan import EngineKind, EnginePlan, RunPlan
from ci.model.verdicts import Product
from ci.plan.project import load_project
from ci.plan.request import new_request
from ci.protocol.events import Event
from ci.protocol.job import Column
from ci.protocol.stage_kind import StageKind
from ci.run.attempts import PlatformAttempts
from ci.run.platform import PlatformOutcome
from ci.run.workers import Caller
from tests.e2e.benches import Bench
from tests.e2e.engine_proxy import ENGINE, Proxy, proxied
from tests.e2e.plans import stage

pytestmark = [pytest.mark.docker, pytest.mark.cut_line]

SLOW = "import time\ndef test_a():\n    print('begun', flush=True)\n    time.sleep(3)\n"


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    with proxied(tmp_path / "a.sock") as proxy:
        yield proxy


def engine_plan(name: str, path: str | Path) -> EnginePlan:
    return EnginePlan(name=name, kind=EngineKind.DOCKER, docker_host=f"unix://{path}")


def test_next_engine_is_used_when_the_container_must_have_ended(
    docker_bench: Bench, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "RECONNECT_S", 0.0)
    monkeypatch.setattr(RunPlan, "longest_s", 4.0)
    suite = stage("pytest", "python", "-m", "pytest", "-s", "tests", kind=StageKind.PYTEST)
    plan = docker_bench.plan(replace(suite, column=Column.PYTEST))
    (plan.source / "tests/test_tiny.py").write_text(SLOW)
    (plan.source / "ci.yaml").write_text("project: tiny\nplatforms:\n  cpu: {}\n")
    # Both lead to the same engine here, so the second attempt finds the container.
    engines = engine_plan("lab-a", tmp_path / "a.sock"), engine_plan("lab-b", ENGINE)
    plan = replace(plan, engine=engines[0], other_engines=engines[1:], retries=1)
    request = new_request(
        load_project(plan.source / "ci.yaml", {}),
        ["cpu"],
        source_folder=plan.source,
        results=plan.results.parent,
    )
    ours, theirs = Pipe()
    said = []

    def be_the_parent() -> None:
        for message in iter(ours.recv, None):
            text = getattr(message, "text", "") if isinstance(message, Event) else "ready"
            said.append(text)
            if text == "ready":
                ours.send(None)
            elif "begun" in text and (tmp_path / "a.sock").exists():
                (tmp_path / "a.sock").unlink()
                proxy.cut()

    parent = Thread(target=be_the_parent)
    parent.start()
    outcome = PlatformAttempts(
        plan=plan,
        caller=Caller(theirs),
        request=request,
        connect=select_engine,
        resumed=False,
        judged=False,
    ).carry_out()
    theirs.send(None)
    parent.join()
    assert isinstance(outcome, PlatformOutcome)
    assert outcome.result.verdict.product is Product.PASSED
    texts = [evidence.text for evidence in outcome.result.verdict.evidence]
    assert any(text.startswith("attempt 1 on engine lab-a failed: ") for text in texts)
    assert any(f"container {plan.container.name} may still run on it" in text for text in said)
    client = DockerClient(base_url=f"unix://{ENGINE}")
    assert client.containers.list(all=True, filters={"name": plan.container.name}) == []
    client.close()
