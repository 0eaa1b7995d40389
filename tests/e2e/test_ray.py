"""The Ray engine on a cluster of several machines, each in a network namespace of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from conftest import Bench, Recorder
from places import Place
from plans import REQUIREMENTS, python_stage
from ray_pool import PATIENCE_S, POLL_S, RayPool, ray_program
from test_engines import INSTALL, PYTEST

from ci.engines.host import HostEngine
from ci.engines.pool.cluster import HostLostError
from ci.engines.select import select_engine
from ci.errors import InfrastructureError
from ci.facts.result_files import ResultFiles
from ci.model.plan import EnginePlan, RunPlan
from ci.model.results import PlatformResult
from ci.run.platform import judge_platform

pytestmark = [
    pytest.mark.skipif(ray_program() is None, reason="no Ray: pip install --group ray"),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    # Ray's own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ROOT = Path(__file__).parents[2]
# Runs until the test lets it end.
WAIT = """\
import pathlib, time
print("ready", flush=True)
while not pathlib.Path({!r}).exists():
    time.sleep(0.1)
print("done")
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayPool]:
    """A head, and a host with one place."""
    with closing(RayPool(tmp_path_factory.mktemp("pool"))) as pool:
        pool.open()
        pool.add(1, platform_ascend=1)
        yield pool


class RayBench(Bench):
    """The engine on a pool, and a folder with the tiny project to run on it."""

    def __init__(self, address: str, folder: Path) -> None:
        self.engine_plan = EnginePlan(
            name="pool", kind="ray", ray_address=address, node_engine="host"
        )
        super().__init__(select_engine(self.engine_plan), folder)
        self.go = folder / "go"

    def plan(self, *stages: Any, **changes: Any) -> RunPlan:
        return replace(super().plan(*stages, **changes), engine=self.engine_plan)

    def waiting_plan(self) -> RunPlan:
        plan = self.plan(python_stage("wait", WAIT.format(str(self.go))))
        return replace(plan, platform="ascend")

    def when_ready(self, *actions: Callable[[], object]) -> None:
        """React to the first line of the stage, once: an adopted run shows its last lines again."""
        rest = list(actions)

        def react() -> None:
            while rest:
                rest.pop(0)()

        self.observer.reactions["ready"] = react

    def let_end(self) -> None:
        self.go.touch()


@pytest.fixture
def ray_bench(pool: RayPool, tmp_path: Path) -> Iterator[RayBench]:
    bench = RayBench(pool.address, tmp_path)
    with closing(bench.engine):
        yield bench
    wait_for(lambda: not pool.nodes["1"].children("ray::PlatformActor"))
    wait_for(lambda: not list(pool.work(1).glob("infini-ci-*")))


def facts_of(row: PlatformResult) -> tuple[object, ...]:
    """Return what does not depend on time and place."""
    assert row.pytest is not None
    counts = row.pytest.model_dump(exclude={"seconds", "summary"})
    codes = [(it.name, it.exit_code) for it in row.stages]
    return row.verdict, counts, codes, sorted(row.artifacts)


def test_a_platform_gives_the_same_row_as_on_its_host(
    ray_bench: RayBench, pool: RayPool, tmp_path: Path, python: str
) -> None:
    stages = (INSTALL, PYTEST)
    rows = []
    for bench in (ray_bench, Bench(HostEngine(), tmp_path / "host", python)):
        plan = bench.plan(*stages, requirements=REQUIREMENTS)
        rows.append(judge_platform(plan, bench.run(plan)).result)
    assert facts_of(rows[0]) == facts_of(rows[1])
    assert any("ran on host" in note for note in rows[0].notes)
    assert list((pool.folder / "cache-here/infini-ci/pool/runs").iterdir()) == []


def test_a_killed_program_is_replaced_and_its_run_adopted(
    ray_bench: RayBench, pool: RayPool
) -> None:
    plan = ray_bench.waiting_plan()
    ray_bench.when_ready(lambda: pool.kill_program(1), ray_bench.let_end)
    facts = ray_bench.run(plan)
    assert (facts.exit_code, facts.lost) == (0, False)
    assert (plan.results / "wait.log").read_text() == "ready\ndone\n"
    [lost] = [it["text"] for it in ray_bench.observer.named("pool") if "adopting" in str(it)]
    assert str(lost).startswith("host ")
    assert len(ray_bench.observer.named("stage_started")) == 1
    assert len(ray_bench.observer.named("stage_finished")) == 1


def test_a_host_without_ray_is_lost_until_it_joins_again(
    ray_bench: RayBench, pool: RayPool
) -> None:
    plan = ray_bench.waiting_plan()
    ray_bench.when_ready(lambda: pool.kill_raylet(1))
    with pytest.raises(HostLostError, match=r"host \w+ \(\S+\) cannot be reached|not in the pool"):
        ray_bench.run(plan)
    pool.start(1, platform_ascend=1)
    ray_bench.let_end()
    ray_bench.engine.check(plan)
    facts = ray_bench.engine.resume(plan, Recorder())
    assert facts is not None
    assert (facts.exit_code, facts.lost) == (0, False)
    assert (plan.results / "wait.log").read_text() == "ready\ndone\n"
    assert ray_bench.engine.resume(plan, Recorder()) is None


# A caller of its own, which a test can kill.
CALLER = """\
import sys
from pathlib import Path
sys.path[:0] = sys.argv[4:]
from test_ray import RayBench
bench = RayBench(sys.argv[1], Path(sys.argv[2]))
bench.run_id = sys.argv[3]
bench.run(bench.waiting_plan())
"""


def test_a_killed_caller_leaves_a_run_that_the_next_one_adopts(
    ray_bench: RayBench, pool: RayPool
) -> None:
    plan, folders = ray_bench.waiting_plan(), (str(Path(__file__).parent), str(ROOT))
    words = (pool.address, str(ray_bench.folder), ray_bench.run_id, *folders)
    with subprocess.Popen([sys.executable, "-c", CALLER, *words]) as caller:
        try:
            wait_for(lambda: "ready\n" in read(plan.results / "wait.log"))
        finally:
            caller.kill()
    ray_bench.let_end()
    facts = ray_bench.engine.resume(plan, Recorder())
    assert facts is not None
    assert (facts.exit_code, facts.lost) == (0, False)
    assert (plan.results / "wait.log").read_text() == "ready\ndone\n"


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + PATIENCE_S
    while not condition():
        assert monotonic() < deadline
        sleep(POLL_S)


def test_a_cut_network_loses_a_platform_but_not_its_results(
    ray_bench: RayBench, pool: RayPool
) -> None:
    plan = ray_bench.waiting_plan()
    ray_bench.when_ready(lambda: pool.cut(1))
    try:
        with pytest.raises(HostLostError, match="cannot be reached, and infini-ci-test-"):
            ray_bench.run(plan)
        record = ResultFiles(folder=plan.results, stages=plan.stages).record
        assert record.unfinished_stages == ("wait",)
        assert record.run_finished is None
        ray_bench.let_end()
    finally:
        pool.cut(1, healed=True)
    facts = ray_bench.engine.resume(plan, Recorder())
    assert facts is not None
    assert (facts.exit_code, facts.lost) == (0, False)
    assert (plan.results / "wait.log").read_text() == "ready\ndone\n"


def test_the_loss_of_the_head_loses_no_running_platform(ray_bench: RayBench, pool: RayPool) -> None:
    plan = ray_bench.waiting_plan()
    ray_bench.when_ready(pool.nodes["head"].kill, ray_bench.let_end)
    try:
        facts = ray_bench.run(plan)
        with pytest.raises(InfrastructureError, match=r"the head of the Ray cluster .* not answer"):
            ray_bench.engine.check(plan)
    finally:
        ray_bench.engine.close()
        pool.replace_head()
        pool.start(1, platform_ascend=1)
    assert (facts.exit_code, facts.lost) == (0, False)
    assert (plan.results / "wait.log").read_text() == "ready\ndone\n"


def test_an_interrupt_ends_the_stage_on_its_host(ray_bench: RayBench) -> None:
    plan = ray_bench.waiting_plan()
    ray_bench.when_ready(lambda: os.kill(os.getpid(), signal.SIGINT))
    facts = ray_bench.run(plan)
    assert facts.interrupted
    assert (plan.results / "wait.log").read_text() == "ready\n"


def test_a_platform_without_a_host(ray_bench: RayBench, pool: RayPool) -> None:
    plan = replace(ray_bench.waiting_plan(), platform="moore")
    with pytest.raises(InfrastructureError, match=r"has the resources of platform moore") as caught:
        ray_bench.engine.check(plan)
    join = f"ray start --address={pool.address} --resources='{{\"platform:moore\": 1}}'"
    assert join in str(caught.value.remedy)


PROJECT = {
    "ci.yaml": """\
project: pooled
platforms: {cpu: {}}
stages:
- {name: pytest, command: python -m pytest, kind: pytest}
""",
    "test_a.py": "def test_a():\n    pass\n",
}


def test_the_command_line_runs_platforms_on_the_pool(pool: RayPool, tmp_path: Path) -> None:
    place = Place.make(tmp_path, "lab", sys.executable, PROJECT)
    site = {"engines": {"lab": {"ray_address": pool.address, "node_engine": "host"}}}
    place.write({"ci.site.yaml": json.dumps(site)})
    doctor = place.ci("doctor", "cpu", *place.options)
    assert f"engine lab: a pool of {len(pool.nodes)} hosts: " in doctor.stdout, doctor.stderr
    finished = place.ci("run", "cpu", *place.options, "--format", "json")
    assert finished.returncode == 0, finished.stderr
    run = json.loads(finished.stdout)
    [row] = run["platforms"]
    assert (run["engine"], row["verdict"]["product"]) == ("lab", "passed")
    assert row["pytest"]["passed"] == 1
