"""The model of the queues for hosts: against closed forms, a replay, and on a store of runs."""

from __future__ import annotations

import heapq
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from itertools import accumulate
from math import factorial, log
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console

from ci.analysis.capacity import Capacity, Demand, Jobs, Simulation, simulate
from ci.analysis.workload import Sample, Scenario, Workload, find_jobs
from ci.errors import ExitCode, UsageError
from ci.facts.suite import outcomes_of
from ci.model.outcomes import Outcome
from ci.model.results import PlatformResult, StageResult
from ci.model.verdicts import Harness, Product
from ci.report.capacity_report import CapacityReport
from tests.ci.made_results import made_test, made_verdict
from tests.ci.stored_history import ENVIRONMENT, Project, expect, result

MEAN_S = 600.0
PAGE = Path(__file__).resolve().parents[3] / "docs" / "capacity.md"


def jobs(*seconds: float) -> Jobs:
    return Jobs(kinds=((1.0, {str(run): took for run, took in enumerate(seconds)}),))


FIXED = jobs(MEAN_S)
EXPONENTIAL = jobs(*(-MEAN_S * log(1 - (place + 0.5) / 2000) for place in range(2000)))


def replay(arrivals: Sequence[float], seconds: Sequence[float], hosts: int) -> list[float]:
    """How long jobs wait that the host takes which is free first: a clock for each host."""
    free = [0.0] * hosts
    waits = []
    for arrival, took in zip(arrivals, seconds, strict=True):
        start = max(arrival, free[0])
        heapq.heapreplace(free, start + took)
        waits.append(start - arrival)
    return waits


@pytest.mark.parametrize("hosts", [1, 2, 7])
def test_each_job_waits_as_long_as_in_a_replay(hosts: int) -> None:
    random = Random(hosts)  # noqa: S311
    arrivals = [*accumulate(random.expovariate(hosts / 1.2) for _ in range(1000))]
    seconds = [random.choice((0.2, 0.9, 2.5)) for _ in arrivals]
    waits = simulate(arrivals, seconds, hosts)
    assert waits == pytest.approx(replay(arrivals, seconds, hosts), abs=1e-6)
    assert max(waits) > 1


def test_a_job_that_finds_an_idle_host_does_not_wait() -> None:
    assert simulate([0.1, 0.2, 0.3, 1.3], [1.0, 1.0, 1.0, 0.0], 3) == [0.0] * 4


def erlang_wait(servers: int, load: float) -> float:
    """The mean wait of M/M/c: Erlang's C by the rate at which the servers get ahead."""
    last = load**servers / factorial(servers) * servers / (servers - load)
    busy = last / (sum(load**k / factorial(k) for k in range(servers)) + last)
    return busy * MEAN_S / (servers - load)


@pytest.mark.parametrize(
    ("kind", "hosts", "load", "expected"),
    [
        (EXPONENTIAL, 1, 0.6, erlang_wait(1, 0.6)),
        (EXPONENTIAL, 2, 1.4, erlang_wait(2, 1.4)),
        (EXPONENTIAL, 5, 4.0, erlang_wait(5, 4.0)),
        (FIXED, 1, 0.7, 0.7 * MEAN_S / (2 * (1 - 0.7))),
    ],
    ids=["M/M/1", "M/M/2", "M/M/5", "M/D/1"],
)
def test_the_mean_wait_is_that_of_the_closed_form(
    kind: Jobs, hosts: int, load: float, expected: float
) -> None:
    demand = Demand(jobs={"cpu": kind}, commits_per_hour=load * 3600 / MEAN_S, commits=3000)
    [found] = Simulation(demand).capacity({"cpu": hosts}).platforms
    assert found.utilization == pytest.approx(load / hosts, rel=1e-3)
    assert found.waiting is not None
    assert found.waiting.mean.value == pytest.approx(expected, rel=0.1)
    assert abs(found.waiting.mean.value - expected) < 1.5 * found.waiting.mean.margin


def minutes(*values: float) -> Jobs:
    return jobs(*(60 * value for value in values))


def late(capacity: Capacity, limit_s: float) -> bool:
    return capacity.verdict is None or capacity.verdict.p95.value > limit_s


def test_the_least_hosts_are_enough_and_one_less_is_not() -> None:
    kinds = {"cpu": minutes(2, 3, 4), "nvidia": minutes(4, 5, 9), "ascend": minutes(8, 9, 10)}
    model = Simulation(Demand(jobs=kinds, commits_per_hour=12, commits=300))
    hosts = model.hosts_within(15 * 60)
    assert hosts is not None
    assert not late(model.capacity(hosts), 15 * 60)
    for name in hosts:
        fewer = hosts | {name: hosts[name] - 1}
        assert not fewer[name] or late(model.capacity(fewer), 15 * 60)


def test_jobs_that_take_too_long_by_themselves_need_no_search() -> None:
    kinds = {"cpu": minutes(2), "ascend": minutes(10, 20)}
    model = Simulation(Demand(jobs=kinds, commits_per_hour=1, commits=100))
    assert model.hosts_within(15 * 60) is None
    assert model.alone().p95.value == 20 * 60


def test_a_queue_that_grows_without_bound_has_no_times() -> None:
    kinds = {"cpu": minutes(1), "ascend": minutes(45)}
    demand = Demand(jobs=kinds, commits_per_hour=3, commits=100)
    found = Simulation(demand).capacity({"cpu": 1, "ascend": 2})
    cpu, ascend = found.platforms
    assert (ascend.waiting, ascend.verdict, found.verdict) == (None, None, None)
    assert ascend.utilization == pytest.approx(1.125)
    assert ascend.least_hosts == 3
    assert cpu.verdict is not None
    assert Simulation(demand).capacity({"cpu": 1, "ascend": 3}).verdict is not None


def test_a_job_holds_a_host_for_each_shard() -> None:
    demand = Demand(jobs={"cpu": FIXED}, commits_per_hour=3, commits=100)
    [one] = Simulation(demand).capacity({"cpu": 2}).platforms
    [three] = (
        Simulation(replace(demand, shards=3)).capacity({"cpu": 7}).platforms
    )  # the seventh is of no use
    assert (three.waiting, three.utilization) == (one.waiting, one.utilization)
    assert (one.host_s, three.host_s, three.least_hosts) == (MEAN_S, 3 * MEAN_S, 3)


def test_a_commit_has_the_jobs_of_one_run() -> None:
    """Independent ones would be slow on some platform for far more commits."""
    kind = Jobs(kinds=((1.0, {"cold": 60.0, **{f"run-{place}": 1.0 for place in range(24)}}),))
    kinds = {f"platform {number}": kind for number in range(7)}
    times = Simulation(Demand(jobs=kinds, commits_per_hour=1, commits=200)).alone()
    assert times.p95.value == 1.0
    assert times.mean.value == pytest.approx(1 + 59 / 25, rel=0.2)


def test_another_platform_changes_nothing() -> None:
    runs = {f"run-{place}": float(place) for place in range(9)}
    both = Jobs(kinds=((0.5, runs), (0.5, {"other": 40.0})))
    demand = Demand(jobs={"cpu": both}, commits_per_hour=60, commits=100)
    more = replace(demand, jobs={"cpu": both, "ascend": both})
    [alone] = Simulation(demand).capacity({"cpu": 1}).platforms
    assert Simulation(more).capacity({"cpu": 1, "ascend": 1}).platforms[0] == alone


# From recorded runs


def sample(run: int, *, tests_s: float = 60.0, is_warm: bool = True, shards: int = 1) -> Sample:
    return Sample(run=f"{run}", setup_s=100.0, tests_s=tests_s, is_warm=is_warm, shards=shards)


def workload(*samples: Sample, tests: Sequence[float] = ()) -> Workload:
    outcomes = outcomes_of(
        made_test(f"t::{place}", seconds=seconds) for place, seconds in enumerate(tests)
    )
    return Workload(platform="cpu", samples=samples, tests=outcomes)


def test_the_hit_rate_weighs_the_recorded_runs() -> None:
    warm = [sample(run, tests_s=0.0) for run in range(3)]
    cold = [sample(run, tests_s=100.0, is_warm=False) for run in range(3, 9)]
    found = workload(*warm, *cold)
    assert found.jobs(Scenario()).mean_s == pytest.approx(100 + 6 / 9 * 100)
    assert found.jobs(Scenario(hit_rate=0.8)).mean_s == pytest.approx(100 + 0.2 * 100)
    assert found.jobs(Scenario(hit_rate=1.0)).mean_s == 100
    assert found.jobs(Scenario(suite_scale=2.0)).mean_s == pytest.approx(100 + 6 / 9 * 200)


def test_shards_divide_what_is_not_repeated() -> None:
    """60 s, of which 12 s are not those of tests: the longest of four shards has a test of 15 s."""
    tests = [15 - 0.001, *[1 - 0.001] * 33]
    found = workload(*map(sample, range(3)), tests=tests)
    assert found.jobs(Scenario(shards=2)).mean_s == pytest.approx(100 + 12 + 24)
    assert found.jobs(Scenario(shards=4)).mean_s == pytest.approx(100 + 12 + 15)


def test_recorded_shards_count_as_they_are() -> None:
    sharded = [sample(run, tests_s=31.0, shards=2) for run in range(3, 6)]
    found = workload(*map(sample, range(3)), *sharded, tests=[1.0] * 60)
    assert found.jobs(Scenario(shards=2)).mean_s == 131
    assert found.jobs(Scenario(shards=1)).mean_s == 160


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (Scenario(hit_rate=0.5), "got 0 judged runs with a cold compiler cache, expected at least"),
        (Scenario(shards=2), "the newest run without shards lacks times of tests"),
    ],
)
def test_what_no_run_shows_is_an_error(scenario: Scenario, message: str) -> None:
    with pytest.raises(UsageError, match=f"^cpu: {message}"):
        find_jobs([workload(*map(sample, range(3)))], scenario)


# The command


def job(
    platform: str,
    install: float,
    *,
    rate: float = 1.0,
    pytest_s: float | None = 60.0,
    **changes: Any,
) -> PlatformResult:
    found = result(install, platform=platform)
    cache = {"tool": "ccache", "state": "warm", "hit_rate": rate}
    stages = (
        StageResult(name="image", seconds=5.0, exit_code=0, in_total=False),
        StageResult(name="install", seconds=install, exit_code=0, in_total=True),
        StageResult(name="pytest", seconds=pytest_s, exit_code=0, in_total=True),
    )
    fields = {
        "stages": stages,
        "pytest_s": pytest_s,
        "environment": {**ENVIRONMENT, "compiler_cache": cache},
    }
    return found.model_copy(update={**fields, **changes})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A run in an hour: seven warm ones and three cold ones, and some that do not count."""
    project = Project(folder=tmp_path_factory.mktemp("recorded"))
    suite = {f"t::{number}": Outcome.PASSED for number in range(100)}
    selected = {**ENVIRONMENT, "selection": {"operators": "smoke"}}
    project.run("c" * 40, job("ascend", 9.0, environment=selected), outcomes=suite)
    for place in range(10):
        rate, factor = (0.0, 3) if place % 3 == 2 else (1.0, 1)
        both = (job("cpu", 100.0 * factor, rate=rate), job("ascend", 800.0 * factor, rate=rate))
        project.run(f"{place:040x}", *both, outcomes=suite)
    unfinished = made_verdict(Product.INCOMPLETE, harness=Harness.LOST)
    project.run("d" * 40, job("cpu", 9.0, verdict=unfinished), job("ascend", 9.0, pytest_s=None))
    project.run("e" * 40, job("cpu", 100.0), outcomes=suite)
    return project


Answer = Callable[..., dict[str, Any]]


@pytest.fixture
def answer(recorded: Project) -> Answer:
    def ask(*words: str) -> dict[str, Any]:
        said = expect(recorded.ci("capacity", *words, "--format", "json"))
        document: dict[str, Any] = json.loads(said)
        return document

    return ask


def test_jobs_are_those_of_the_recorded_runs(answer: Answer) -> None:
    found = answer()
    ascend, cpu = found["platforms"]
    assert (cpu["platform"], found["recorded"]) == ("cpu", {"ascend": 10, "cpu": 11})
    assert cpu["job_s"] == pytest.approx(65 + 100 + 3 / 11 * 200)
    assert ascend["host_s"] == pytest.approx(65 + 800 + 3 / 10 * 1600)
    assert found["commits_per_hour"] == pytest.approx(1.0)
    assert cpu["utilization"] == pytest.approx(cpu["job_s"] / 3600)


def test_the_same_seed_gives_the_same_answer(answer: Answer) -> None:
    first, again, other = (answer("--seed", seed)["verdict"] for seed in ("1", "1", "2"))
    assert first == again != other


def test_hosts_and_prices_are_by_platform_or_for_all(answer: Answer) -> None:
    found = answer("--hosts", "CPU=2,ascend=3", "--price", "ascend=3.6", "--commits-per-hour", "2")
    assert [it["hosts"] for it in found["platforms"]] == [3, 2]
    assert found["used"]["price"] == pytest.approx(found["platforms"][0]["host_s"] / 1000)
    assert found["reserved"] == {"host_hours": 2.5, "price": pytest.approx(3 * 3.6 / 2)}
    assert [it["hosts"] for it in answer("--hosts", "4")["platforms"]] == [4, 4]


def test_more_commits_or_a_longer_suite_or_fewer_hits_take_longer(answer: Answer) -> None:
    usual = answer("cpu")["verdict"]["mean"]["value"]
    for words in (("--commits-per-hour", "9"), ("--suite-scale", "3"), ("--hit-rate", "0.2")):
        assert answer("cpu", *words)["verdict"]["mean"]["value"] > 1.2 * usual


def test_within_finds_hosts(recorded: Project, answer: Answer) -> None:
    found = answer("--within", "1h", "--commits-per-hour", "4")
    hosts = {it["platform"]: it["hosts"] for it in found["platforms"]}
    assert found["goal"]["met"]
    assert found["verdict"]["p95"]["value"] <= 3600
    assert hosts["ascend"] > hosts["cpu"] == 1
    _, said = recorded.ci("capacity", "--within", "1h", "--commits-per-hour", "4")
    assert "With these hosts, 95 % of the commits have their verdict within 60 min.\n" in said


def test_shards_are_suggested_if_no_host_helps(recorded: Project) -> None:
    words = ("cpu", "--within", "12m", "--suite-scale", "9")
    said = expect(recorded.ci("capacity", *words))
    assert "No number of hosts gives 95 % of the commits a verdict within 12 min" in said
    assert "even without waiting it takes 14.1 min." in said
    [shards] = re.findall(r"`--shards (\d+)` makes it possible", said)
    said = expect(recorded.ci("capacity", *words, "--shards", shards), "With these hosts, 95 %")
    assert f"Fewer than 3 recorded runs with {shards} shards, so estimated" in said


def test_a_queue_without_bound_is_named(recorded: Project) -> None:
    said = expect(recorded.ci("capacity", "--commits-per-hour", "5"))
    growing = r"ascend: the queue grows without bound: jobs need 187 % of the time of 1 host\."
    assert re.search(rf"^{growing} At least 2 hosts keep up\.$", said, re.MULTILINE)
    assert re.search(r"^ascend +1 +187 % +- +- +- +- +- +22\.4$", said, re.MULTILINE)


def test_a_queue_that_is_nearly_too_long_is_named(recorded: Project) -> None:
    _, said = recorded.ci("capacity", "--commits-per-hour", "2.6")
    assert "\nascend: such a queue takes days to settle, at 97 %. Add a host.\n" in said
    assert "cpu: such" not in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--hosts cpu=0", "argument --hosts: got '0', expected a number of at least 1"),
        ("--hosts 2,cpu=1", "argument --hosts: got '2,cpu=1', expected one number, or"),
        ("--hit-rate 80", "argument --hit-rate: got '80', expected a number from 0 to 1"),
        ("--commits-per-hour nan", "--commits-per-hour: got 'nan', expected a number from 0.001"),
        ("--within 15", "argument --within: got '15', expected a time such as 900s, 15m or 1h"),
        ("cpu --hosts cup=2", "error: --hosts: got platform 'cup', expected one of cpu; did you"),
        ("--shards 2 --hosts ascend=1,cpu=2", "error: --hosts: got 1 for ascend, expected at"),
        ("--within 1h --hosts 1", "error: --within: cannot be combined with --hosts"),
        ("nvidia", "error: the store holds no run of 'nvidia'"),
        ("--last 1", "error: --commits-per-hour: got none, and the store has too few runs"),
        ("--last 4", "error: ascend: got 2 judged runs without shards, expected at least 3\nRun "),
    ],
)
def test_questions_without_an_answer_are_usage_errors(
    recorded: Project, words: str, message: str
) -> None:
    expect(recorded.ci("capacity", *words.split()), message, code=ExitCode.USAGE)


def test_without_simpy_the_remedy_is_named(
    recorded: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "simpy", None)
    said = expect(recorded.ci("capacity"), code=ExitCode.INFRASTRUCTURE)
    assert said.startswith("error: capacity: the package simpy is not installed\nInstall it: pip ")


def test_the_table_fits_into_80_columns() -> None:
    kinds = {"cambricon": minutes(10, 30), "iluvatar": minutes(4, 9)}
    demand = Demand(jobs=kinds, commits_per_hour=2, commits=100)
    capacity = Simulation(demand).capacity(dict.fromkeys(kinds, 1))
    report = CapacityReport(project="p", capacity=capacity, workloads=(), goal=None, prices={})
    shown = StringIO()
    report.print(Console(width=80, file=shown))
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    [row] = [line for line in lines if line.startswith("cambricon")]
    assert re.search(r"^cambricon +1 +67 % .* [\d.]+ ± [\d.]+ +20\.0$", row)


def test_names_of_a_stranger_are_escaped(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    for place in range(3):
        project.run(f"{place:040x}", job("<b>|*cpu*", 1.0), project="[p](http://x)")
    _, said = project.ci("capacity", "--format", "markdown")
    assert r"| &lt;b&gt;\|\*cpu\* | 1 |" in said
    assert said.startswith("### \\[p\\](http:<!-- -->//x): 1 commit per hour\n")


def test_the_page_describes_the_json(answer: Answer) -> None:
    rows = re.findall(r"^\| `([\w.]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    found = answer("--within", "1h")
    times = {"mean", "median", "p95"}
    keys = {*found, *(f"platforms.{key}" for key in found["platforms"][0])}
    keys |= {f"goal.{key}" for key in found["goal"]} | {f"used.{key}" for key in found["used"]}
    assert {*rows} == keys
    assert {*found["verdict"]} == times == {*found["platforms"][0]["waiting"]}
    assert {*found["verdict"]["p95"]} == {"value", "margin"}
