"""The Ray engine on a cluster of several machines, each in a network namespace of its own."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any

import pytest

from bench.parts.capacity import Load
from bench.parts.pool import replay
from ci.engines.host.engine import HostEngine
from ci.engines.ray.cluster import HostLostError
from ci.engines.select import select_engine
from ci.errors import ExitCode, InfrastructureError
from ci.facts.result_files import ResultFiles
from ci.model.plan import DevicePlan, EngineKind, EnginePlan, Exposure, Priority, RunPlan
from ci.model.platforms import PLATFORMS
from ci.model.results import PlatformResult
from ci.model.verdicts import Harness, Product
from ci.protocol.events import StageFinished, StageStarted
from ci.run.platform import judge_platform
from tests.e2e.benches import Bench, Recorder, engine_or_skip
from tests.e2e.places import Place
from tests.e2e.plans import REQUIREMENTS, python_stage
from tests.e2e.ray_pool import PATIENCE_S, POLL_S, RayPool, ray_program
from tests.e2e.test_engines import INSTALL, PYTEST

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
RESOURCES = {"platform_ascend": 1, "platform_moore": 2, "device_moore": 2}  # of host 1


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayPool]:
    """A head, and a host with one place."""
    with closing(RayPool(tmp_path_factory.mktemp("pool"))) as pool:
        pool.open()
        pool.add(1, **RESOURCES)
        yield pool


class RayBench(Bench):
    """The engine on a pool, and a folder with the tiny project to run on it."""

    def __init__(self, address: str, folder: Path) -> None:
        self.engine_plan = EnginePlan(
            name="pool", kind=EngineKind.RAY, ray_address=address, node_engine=EngineKind.HOST
        )
        super().__init__(select_engine(self.engine_plan), folder)
        self.go = folder / "go"

    def plan(self, *stages: Any, **changes: Any) -> RunPlan:
        return replace(super().plan(*stages, **changes), engine=self.engine_plan)

    def waiting_plan(self, *later: Any) -> RunPlan:
        plan = self.plan(python_stage("wait", WAIT.format(str(self.go))), *later)
        return replace(plan, platform="ascend")

    def when_ready(self, *actions: Callable[[], object]) -> None:
        """React to the first line of the stage, once: an adopted run shows its last lines again."""
        rest = list(actions)

        def react() -> None:
            while rest:
                rest.pop(0)()

        self.observer.reactions["ready"] = react

    def cluster_api(self) -> Any:
        """Return Ray, which is connected."""
        self.engine.machine()
        return import_module("ray")

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
    [lost] = [text for text in ray_bench.observer.messages if "adopting" in text]
    assert lost.startswith("host ")
    assert len(ray_bench.observer.every(StageStarted)) == 1
    assert len(ray_bench.observer.every(StageFinished)) == 1


@dataclass(frozen=True)
class Loss:
    """How host 1 is lost, what is reported, and how it comes back."""

    lose: Callable[[RayPool], None]
    report: str
    restore: Callable[[RayPool], None]


def start_again(pool: RayPool) -> None:
    pool.start(1, **RESOURCES)


def thaw(pool: RayPool) -> None:
    """A raylet that the head has given up ends, but not at once."""
    pool.freeze(1, thawed=True)
    pool.kill_raylet(1)
    start_again(pool)


LOSSES = {
    "without Ray": Loss(
        lambda pool: pool.kill_raylet(1), "cannot be reached|is not in the pool", start_again
    ),
    "without a network": Loss(
        lambda pool: pool.cut(1), "cannot be reached", lambda pool: pool.cut(1, healed=True)
    ),
    "frozen": Loss(
        lambda pool: pool.freeze(1), r"has not answered for [45]\d s|is not in the pool", thaw
    ),
}


@pytest.mark.parametrize("loss", [pytest.param(it, id=name) for name, it in LOSSES.items()])
def test_a_lost_host_keeps_its_run_until_it_is_back(
    loss: Loss, ray_bench: RayBench, pool: RayPool
) -> None:
    plan = ray_bench.waiting_plan()
    ray_bench.when_ready(lambda: loss.lose(pool))
    try:
        with pytest.raises(HostLostError, match=f"host .*({loss.report}), and infini-ci-test-"):
            ray_bench.run(plan)
        record = ResultFiles(folder=plan.results, stages=plan.stages).record
        assert record.unfinished_stages == ("wait",)
        assert record.run_finished is None
        ray_bench.let_end()
    finally:
        loss.restore(pool)
    ray_bench.engine.check(plan)
    facts = ray_bench.engine.resume(plan, Recorder())
    assert facts is not None
    assert (facts.exit_code, facts.lost) == (0, False)
    assert (plan.results / "wait.log").read_text() == "ready\ndone\n"
    assert ray_bench.engine.resume(plan, Recorder()) is None


def test_a_host_that_lost_its_processes_returns_what_they_wrote(
    ray_bench: RayBench, pool: RayPool
) -> None:
    plan = ray_bench.waiting_plan(PYTEST)
    ray_bench.when_ready(pool.nodes["1"].kill)
    with pytest.raises(HostLostError, match=r"cannot be reached|is not in the pool"):
        ray_bench.run(plan)
    start_again(pool)
    facts = ray_bench.engine.resume(plan, Recorder())
    assert facts is not None
    verdict = judge_platform(plan, facts).result.verdict
    assert (verdict.product, verdict.harness) == (Product.INCOMPLETE, Harness.LOST)
    assert (plan.results / "wait.log").read_text() == "ready\n"


# A caller of its own, which a test can kill. It prints why it waits.
CALLER = """\
import sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, sys.argv[5])
from ci.model.plan import Priority
from tests.e2e.test_ray import RayBench
bench = RayBench(sys.argv[1], Path(sys.argv[2]))
bench.run_id = sys.argv[3]
bench.observer.event = lambda event: print(event, flush=True)
bench.run(replace(bench.waiting_plan(), priority=Priority(sys.argv[4])))
"""


@contextmanager
def calling(bench: RayBench, priority: Priority = Priority.COMMIT) -> Iterator[IO[str]]:
    """Run the waiting plan in another process; yields what it prints."""
    words = (bench.engine_plan.ray_address, bench.folder, bench.run_id, priority, ROOT)
    command = [sys.executable, "-c", CALLER, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        try:
            yield caller.stdout
        finally:
            caller.kill()


def test_a_killed_caller_leaves_a_run_that_the_next_one_adopts(ray_bench: RayBench) -> None:
    plan = ray_bench.waiting_plan()
    with calling(ray_bench) as printed:
        assert any("text='ready'" in line for line in printed)
    ray_bench.let_end()
    facts = ray_bench.engine.resume(plan, Recorder())
    assert facts is not None
    assert (facts.exit_code, facts.lost) == (0, False)
    assert (plan.results / "wait.log").read_text() == "ready\ndone\n"


def test_a_free_host_goes_to_the_release(
    ray_bench: RayBench, pool: RayPool, tmp_path: Path
) -> None:
    benches = {}
    for priority in (Priority.COMMIT, Priority.RELEASE):
        (tmp_path / priority).mkdir()
        benches[priority] = RayBench(pool.address, tmp_path / priority)
    commit, release = benches.values()
    with ExitStack() as callers:

        def queue_both() -> None:
            ours = callers.enter_context(calling(commit))
            assert any("waits for a free host of the pool" in line for line in ours)
            others = callers.enter_context(calling(release, Priority.RELEASE))
            assert any("waits for a free host of the pool" in line for line in others)
            assert any("waits for a host of the pool: 1 before it" in line for line in ours)
            printed.extend([ours, others])
            ray_bench.let_end()

        printed: list[IO[str]] = []
        ray_bench.when_ready(queue_both)
        ray_bench.run(ray_bench.waiting_plan())
        assert any("text='ready'" in line for line in printed[1])
        assert not (commit.folder / "results/wait.log").exists()
        for bench, output in zip(benches.values(), printed, strict=True):
            bench.let_end()
            assert any("'run_finished'" in line for line in output)
            assert output.read() == ""  # it has ended


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + PATIENCE_S
    while not condition():
        assert monotonic() < deadline
        sleep(POLL_S)


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
        pool.start(1, **RESOURCES)
    assert (facts.exit_code, facts.lost) == (0, False)
    assert (plan.results / "wait.log").read_text() == "ready\ndone\n"


def test_an_interrupt_ends_the_stage_on_its_host(ray_bench: RayBench) -> None:
    plan = ray_bench.waiting_plan()
    ray_bench.when_ready(lambda: os.kill(os.getpid(), signal.SIGINT))
    facts = ray_bench.run(plan)
    assert facts.interrupted
    assert (plan.results / "wait.log").read_text() == "ready\n"


def test_a_platform_without_a_host(ray_bench: RayBench, pool: RayPool) -> None:
    plan = replace(ray_bench.waiting_plan(), platform="metax")
    with pytest.raises(InfrastructureError, match=r"has the resources of platform metax") as caught:
        ray_bench.engine.check(plan)
    join = f"ray start --address={pool.address} --resources='{{\"platform:metax\": 1}}'"
    assert join in str(caught.value.remedy)


def test_a_platform_takes_devices_of_its_host(ray_bench: RayBench) -> None:
    facts = PLATFORMS["moore"].devices
    assert facts is not None
    devices = DevicePlan(
        facts=facts,
        count=2,
        uuids=(),
        exposure=Exposure.AUTO,
        privileged=False,
        wait_s=0.0,
        busy_memory=0.1,
    )
    plan = replace(ray_bench.waiting_plan(), platform="moore", devices=devices)
    ray = ray_bench.cluster_api()
    free = []

    def look() -> None:
        free.append(ray.available_resources())
        ray_bench.let_end()

    ray_bench.when_ready(look)
    assert ray_bench.run(plan).exit_code == 0
    assert (free[0]["platform:moore"], "device:moore" in free[0]) == (1, False)
    wait_for(lambda: ray.available_resources().get("device:moore") == 2)
    more = replace(plan, devices=replace(devices, count=3))
    with pytest.raises(InfrastructureError, match=r"platform moore .*device:moore: 3"):
        ray_bench.engine.check(more)


def test_jobs_that_queue_for_hosts_run_once(ray_bench: RayBench, tmp_path: Path) -> None:
    """As ``nox -s bench -- --only pool`` does it with 1,001 jobs; here, of two platforms."""
    ray_bench.cluster_api()
    load = Load([0.0] * 10, {"ascend": [0.01] * 10, "moore": [0.02] * 10})
    found = replay(load, tmp_path / "jobs")  # raises an error if one is lost or doubled
    for name, hosts in (("ascend", 1), ("moore", 2)):
        runs = found[name]
        assert all(
            it.end - it.begin >= took for it, took in zip(runs, load.jobs[name], strict=True)
        )
        assert all(sum(it.begin <= at.begin < it.end for it in runs) <= hosts for at in runs)


PROJECT = {
    "ci.yaml": """\
project: pooled
platforms: {cpu: {}}
stages:
- {name: pytest, command: python -m pytest, kind: pytest}
""",
    "test_a.py": """\
import os
def test_variables_of_ray_are_not_passed_on():
    assert not [name for name in os.environ if name.startswith("RAY_")]
def test_the_priority_is_not_that_of_rays_processes():
    assert os.getpriority(os.PRIO_PROCESS, 0) == 0
""",
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A repository with a small suite."""
    return Place.make(tmp_path, "lab", sys.executable, PROJECT)


def write_site(place: Place, pool: RayPool) -> None:
    site = {"engines": {"lab": {"ray_address": pool.address, "node_engine": "host"}}}
    place.write({"ci.site.yaml": json.dumps(site)})


def test_the_command_line_runs_platforms_on_the_pool(pool: RayPool, place: Place) -> None:
    write_site(place, pool)
    doctor = place.ci("doctor", "cpu", *place.options)
    assert f"engine lab: a pool of {len(pool.nodes)} hosts: " in doctor.stdout, doctor.stderr
    finished = place.ci("run", "cpu", *place.options, "--format", "json")
    assert finished.returncode == 0, finished.stderr
    run = json.loads(finished.stdout)
    [row] = run["platforms"]
    assert (run["engine"], row["verdict"]["product"]) == ("lab", "passed")
    assert row["pytest"]["passed"] == 2


def test_a_pool_with_a_token(place: Place, tmp_path: Path) -> None:
    ours = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with closing(RayPool(tmp_path, **ours)) as pool:
        pool.open()
        write_site(place, pool)
        for theirs in ({}, ours | {"RAY_AUTH_TOKEN": secrets.token_hex(32)}):
            refused = place.ci("run", "cpu", *place.options, **theirs)
            assert refused.returncode == ExitCode.INFRASTRUCTURE
            assert "cannot be used from this machine" in refused.stderr
            assert "copy its ~/.ray/auth_token to this machine" in refused.stderr
            assert "gcs_client" not in refused.stderr
        finished = place.ci("run", "cpu", *place.options, **ours)
        assert finished.returncode == 0, finished.stderr


SIMULATION = ("--config", str(ROOT / "tests/simulated/ci.yaml"))
SOME = ("--select", "abs,add,mul_")


@pytest.mark.docker
@pytest.mark.parametrize(
    "selection",
    [pytest.param(SOME, id="narrow"), pytest.param((), id="all", marks=pytest.mark.complete)],
)
def test_three_hosts_give_the_same_release_as_this_machine(
    selection: tuple[str, ...], tmp_path: Path
) -> None:
    engine_or_skip("docker")
    names = list(PLATFORMS)
    hosts = {1: names[1:4], 2: names[4:]}  # and this one, for the CPU
    with closing(RayPool(tmp_path)) as pool:
        pool.open()
        for number, theirs in hosts.items():
            pool.add(number, **{f"platform_{name}": 1 for name in theirs})
        options = ("--ray-address", pool.address, *selection)
        rows = released(tmp_path / "pool", "ray", *options)
    assert [notes_of(row, "ran on host") for row in rows.values()] == [
        [f"ran on host {socket.gethostname()} ({address}) of the pool"]
        for address in [
            f"{pool.subnet}.1",
            *(pool.host(number) for number in hosts for _ in hosts[number]),
        ]
    ]
    expected = released(tmp_path / "here", "docker", *selection)
    for name in names:
        assert outcome_of(rows[name]) == outcome_of(expected[name])


def released(folder: Path, engine: str, *options: str) -> dict[str, Any]:
    """Return the rows of the release of all platforms."""
    words = ("run", "--all", *SIMULATION, "--engine", engine, "--results", str(folder), *options)
    command = [sys.executable, "-m", "ci", *words]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(finished.stdout, finished.stderr)
    assert finished.returncode == 0
    document = json.loads((folder / "latest/results.json").read_text())
    return {row["platform"]: row for row in document["platforms"]}


def outcome_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must not depend on the engine: nearly all but times, places and the cache."""
    same = ("label", "simulated", "built", "overloads", "failures", "verdict", "artifacts")
    suite = {name: it for name, it in row["pytest"].items() if name not in ("seconds", "summary")}
    stages = [(it["name"], it["exit_code"], it["in_total"]) for it in row["stages"]]
    notes = [it for it in row["notes"] if not re.match("ran on host|warm|cold", it)]
    notes = [it.partition("; update with: ")[0] for it in notes]  # names the folder of results
    return {name: row[name] for name in same} | {"pytest": suite, "stages": stages, "notes": notes}


def notes_of(row: Mapping[str, Any], beginning: str) -> list[str]:
    return [note for note in row["notes"] if note.startswith(beginning)]
