"""How close `python -m ci capacity` is to hosts that really run jobs, one after the other.

Recorded jobs are replayed at 100 times their speed: each is a process that waits, started by one of
the hosts of its platform, which take jobs from one queue. The model gets the same arrivals and
jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from statistics import fmean, median, quantiles
from time import monotonic, sleep
from typing import NamedTuple, TypeVar

from bench.context import Context
from bench.generated_history import Scale, history
from bench.rows import FigureTable, Measurement
from ci.analysis.capacity import simulate
from ci.analysis.workload import read_workloads
from ci.store.folder import default_url
from ci.store.store import Store
from ci.util.process import run

SPEED = 100
RUNS = 143  # of seven platforms: 1,001 jobs
HOSTS = {
    "cpu": 4,
    "nvidia": 6,
    "iluvatar": 4,
    "metax": 7,
    "cambricon": 13,
    "moore": 9,
    "ascend": 7,
}  # 50, so that all platforms are about equally busy
COMMITS_PER_HOUR = 48.0
FEW_TESTS = 16  # of a run: only the times of stages count
HOUR_S = 3600.0

Submitted = TypeVar("Submitted")


class Replayed(NamedTuple):
    """When a job began and ended, in seconds since the replay began."""

    begin: float
    end: float


@dataclass(frozen=True)
class Load:
    """When commits arrive, and the times of their jobs by platform; recorded seconds."""

    arrivals: Sequence[float]
    jobs: Mapping[str, Sequence[float]]

    @classmethod
    def recorded(cls, context: Context) -> Load:
        """The jobs of a generated history, as the command reads them."""
        random = Random(1)  # noqa: S311
        gaps = (random.expovariate(COMMITS_PER_HOUR / HOUR_S) for _ in range(RUNS))
        return cls([*accumulate(gaps)], _recorded_jobs(context))

    def faster(self) -> Load:
        """The same at a multiple of the speed."""
        jobs = {name: [took / SPEED for took in seconds] for name, seconds in self.jobs.items()}
        return Load([arrival / SPEED for arrival in self.arrivals], jobs)

    def submit(
        self, submit: Callable[[str, int, float], Submitted]
    ) -> tuple[float, dict[str, list[Submitted]]]:
        """Submit each job when it arrives: its platform, number and seconds.

        Returns when the replay began, and what was submitted.
        """
        submitted: dict[str, list[Submitted]] = {name: [] for name in self.jobs}
        start = monotonic()
        for number, arrival in enumerate(self.arrivals):
            sleep(max(start + arrival - monotonic(), 0.0))
            for name, seconds in self.jobs.items():
                submitted[name].append(submit(name, number, seconds[number]))
        return start, submitted


def measure(context: Context) -> Iterator[Measurement]:
    """Replay the jobs of a generated history, and simulate the same."""
    load = Load.recorded(context)
    yield compare("capacity-replay", load, replay(load.faster(), HOSTS))


def compare(key: str, load: Load, replayed: Mapping[str, Sequence[Replayed]]) -> Measurement:
    """The largest difference between a replay and the model, which gets the same arrivals."""
    found = {
        name: [
            (SPEED * it.begin - at, SPEED * it.end - at)
            for it, at in zip(some, load.arrivals, strict=True)
        ]
        for name, some in replayed.items()
    }
    expected = {}
    for name, seconds in load.jobs.items():
        waits = simulate(load.arrivals, seconds, HOSTS[name])
        expected[name] = [(wait, wait + took) for wait, took in zip(waits, seconds, strict=True)]
    pairs = {name: (value, _figures(found)[name]) for name, value in _figures(expected).items()}
    errors = {name: 100 * abs(model / real - 1) for name, (model, real) in pairs.items()}
    rows = [
        (name, *(f"{value / 60:.1f}" for value in pair), f"{errors[name]:.1f} %")
        for name, pair in pairs.items()
    ]
    worst = max(errors, key=errors.__getitem__)
    return Measurement(
        key=key,
        value=errors[worst],
        note=f"{worst}; {RUNS * len(HOSTS):,} jobs on {sum(HOSTS.values())} hosts",
        detail={
            name: {"model_s": model, "replay_s": real} for name, (model, real) in pairs.items()
        },
        table=FigureTable(
            title="Queues for hosts, in recorded minutes",
            columns=("Figure", "Model", "Replay", "Difference"),
            rows=tuple(rows),
        ),
    )


def replay(load: Load, hosts: Mapping[str, int]) -> dict[str, list[Replayed]]:
    """Run jobs of platforms as processes that take so long, each started when a host is idle."""
    with ExitStack() as stack:
        queues = {name: ThreadPoolExecutor(hosts[name]) for name in load.jobs}
        for queue in queues.values():
            stack.callback(queue.shutdown, cancel_futures=True)  # after an interrupt
        start, futures = load.submit(lambda name, _, took: queues[name].submit(_run, took))
        return {
            name: [
                Replayed(begin - start, end - start) for begin, end in (it.result() for it in some)
            ]
            for name, some in futures.items()
        }


def _run(seconds: float) -> tuple[float, float]:
    begin = monotonic()
    run(["sleep", f"{seconds:.3f}"])
    return begin, monotonic()


def _recorded_jobs(context: Context) -> dict[str, list[float]]:
    """Save a history, and read the jobs of each platform as the command does, oldest first."""
    folder = context.scratch / "capacity"
    folder.mkdir()
    with Store(default_url(folder)) as store:
        for result, details in history(Scale(runs=RUNS, tests=FEW_TESTS)):
            store.save(result, details)
        workloads = read_workloads(store, store.heads(), HOSTS)
    return {
        it.platform: [one.setup_s + one.tests_s for one in reversed(it.samples)] for it in workloads
    }


def _figures(times: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, float]:
    """The figures of ``capacity``, from the wait and the time to the end of each job."""
    waits = [wait for some in times.values() for wait, _ in some]
    ends = [[end for _, end in some] for some in times.values()]
    verdicts = [max(row) for row in zip(*ends, strict=True)]
    return {
        "wait, mean": fmean(waits),
        "wait, p95": quantiles(waits, n=20)[-1],
        "verdict, median": median(verdicts),
        "verdict, p95": quantiles(verdicts, n=20)[-1],
    }
