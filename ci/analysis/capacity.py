"""A model of the queues for hosts: how long commits wait, and how long until their verdict. Pure.

Commits arrive at random, independently of each other (a Poisson process). Each starts a job on
every platform, and its jobs take as long as those of a recorded run. A platform has one queue,
first come, first served.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from math import sqrt
from operator import add
from random import Random
from statistics import fmean, quantiles, stdev
from typing import Any

import simpy

HOUR_S = 3600.0
COMMITS = 1_000  # of a replication; a platform takes some 30 ms
REPLICATIONS = 10
STUDENT_T = 2.262  # for 95 % confidence in the mean of so many
WARM_UP = 10  # the first commits, one in so many, do not count: they find idle hosts
LATE = 0.05  # the share of commits whose verdict may take longer than the requested time


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """The seconds that recorded jobs of a platform held their hosts."""

    kinds: tuple[tuple[float, Mapping[str, float]], ...]
    """Probabilities, each with the jobs of this kind, by their runs."""

    @property
    def mean_s(self) -> float:
        return sum(probability * fmean(jobs.values()) for probability, jobs in self.kinds)

    def draw(self, place: float, run: str, random: Random) -> float:
        """Draw a job of the kind at a place from 0 to 1: that of a run, else any."""
        ends = [*accumulate(probability for probability, _ in self.kinds)]
        _, jobs = self.kinds[bisect(ends[:-1], place)]
        return jobs[run] if run in jobs else random.choice([*jobs.values()])


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What arrives at the hosts; each job needs ``shards`` hosts at once."""

    jobs: Mapping[str, Jobs]
    """By platform."""
    commits_per_hour: float
    shards: int = 1
    seed: int = 1
    commits: int = COMMITS

    @cached_property
    def runs(self) -> Sequence[str]:
        """All runs of the jobs."""
        kinds = (kind for jobs in self.jobs.values() for _, kind in jobs.kinds)
        return sorted({run for kind in kinds for run in kind})

    def running(self, platform: str) -> float:
        """The mean number of jobs that run at once, if there are hosts enough."""
        return self.commits_per_hour * self.jobs[platform].mean_s / HOUR_S

    def least_hosts(self, platform: str) -> int:
        """The least hosts that keep up with the commits."""
        return (int(self.running(platform)) + 1) * self.shards


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure of the simulated commits; with 95 % confidence its error is at most ``margin``."""

    value: float
    margin: float


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The distribution of a time in seconds."""

    mean: Estimate
    median: Estimate
    p95: Estimate


@dataclass(frozen=True, kw_only=True)
class PlatformCapacity:
    """The queue of a platform."""

    platform: str
    hosts: int
    least_hosts: int
    """The least hosts that keep up."""
    utilization: float
    """The share of their time that jobs need the hosts. From 1 on, the queue grows forever."""
    job_s: float
    """Mean seconds of a job."""
    host_s: float
    """Mean seconds of all hosts that a job holds, added up."""
    waiting: Spread | None
    """``None``: it grows without bound."""
    verdict: Spread | None
    """From the arrival of a commit to the end of its job."""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The queues of all platforms."""

    demand: Demand
    platforms: tuple[PlatformCapacity, ...]
    verdict: Spread | None
    """Until the last platform of a commit is done; ``None``: a queue grows without bound."""


def simulate(arrivals: Sequence[float], seconds: Sequence[float], servers: int) -> list[float]:
    """Return how long each job waits for one of the servers; arrivals are in order of time."""
    environment = simpy.Environment()
    pool = simpy.Resource(environment, capacity=servers)
    waits = [0.0] * len(arrivals)

    def job(number: int) -> Iterator[Any]:
        arrival = environment.now
        with pool.request() as server:
            yield server
            waits[number] = environment.now - arrival
            yield environment.timeout(seconds[number])

    def commits() -> Iterator[Any]:
        for number, arrival in enumerate(arrivals):
            yield environment.timeout(max(arrival - environment.now, 0.0))  # sums are rounded
            environment.process(job(number))

    environment.process(commits())
    environment.run()
    return waits


Series = Sequence[Sequence[float]]  # seconds by replication and commit


class Simulation:
    """Simulates one demand. All numbers of hosts get the same commits and jobs."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        replications = range(REPLICATIONS)
        self._arrivals = [_draw_arrivals(demand, number) for number in replications]
        self._seconds = {
            name: [_draw_jobs(demand, name, number) for number in replications]
            for name in demand.jobs
        }
        self._waits: dict[tuple[str, int], Series] = {}

    def capacity(self, hosts: Mapping[str, int]) -> Capacity:
        """Estimate the times with these hosts of each platform, at least one for each shard."""
        platforms = tuple(self._platform(name, hosts[name]) for name in self.demand.jobs)
        stable = all(it.verdict for it in platforms)
        verdict = _times(self._commits(hosts)) if stable else None
        return Capacity(demand=self.demand, platforms=platforms, verdict=verdict)

    def alone(self) -> Spread:
        """Estimate the time to the verdict of commits whose jobs never wait."""
        return _times(self._commits({}))

    def is_possible(self, limit_s: float) -> bool:
        """Whether 95 % of the commits would have their verdict in this time if no job waited."""
        return self._is_enough({}, limit_s)

    def hosts_within(self, limit_s: float) -> dict[str, int] | None:
        """Find the least hosts with which 95 % of the commits have their verdict in this time.

        No platform has one that it could do without. ``None``: it is not possible.
        """
        if not self.is_possible(limit_s):
            return None
        step = self.demand.shards
        least = {name: self._hosts_alone(name, limit_s) for name in self.demand.jobs}
        hosts = dict(least)
        while not self._is_enough(hosts, limit_s):
            worst = max(hosts, key=lambda name: self._late_by_waiting(name, hosts[name], limit_s))
            hosts[worst] += step
        for name in least:  # a host that was added later may replace one
            fewer = hosts | {name: hosts[name] - step}
            while fewer[name] >= least[name] and self._is_enough(fewer, limit_s):
                hosts, fewer = fewer, fewer | {name: fewer[name] - step}
        return hosts

    def _is_enough(self, hosts: Mapping[str, int], limit_s: float) -> bool:
        return _late_share(self._commits(hosts), limit_s) <= LATE

    def _hosts_alone(self, name: str, limit_s: float) -> int:
        """The least hosts of a platform with which its own verdicts are in time."""
        hosts = self.demand.least_hosts(name)
        while _late_share(self._verdicts(name, hosts), limit_s) > LATE:
            hosts += self.demand.shards
        return hosts

    def _late_by_waiting(self, name: str, hosts: int, limit_s: float) -> float:
        """The share of the verdicts that are late, but were not if no job waited."""
        late = _late_share(self._verdicts(name, hosts), limit_s)
        return late - _late_share(self._seconds[name], limit_s)

    def _platform(self, name: str, hosts: int) -> PlatformCapacity:
        demand = self.demand
        job_s = demand.jobs[name].mean_s
        utilization = demand.running(name) / (hosts // demand.shards)
        stable = utilization < 1
        return PlatformCapacity(
            platform=name,
            hosts=hosts,
            least_hosts=demand.least_hosts(name),
            utilization=utilization,
            job_s=job_s,
            host_s=job_s * demand.shards,
            waiting=_times(self._waiting(name, hosts)) if stable else None,
            verdict=_times(self._verdicts(name, hosts)) if stable else None,
        )

    def _commits(self, hosts: Mapping[str, int]) -> Series:
        """The time of each commit to its last verdict; jobs of other platforms do not wait."""
        verdicts = [
            self._verdicts(name, hosts[name]) if name in hosts else seconds
            for name, seconds in self._seconds.items()
        ]
        replications = zip(*verdicts, strict=True)
        return [[max(row) for row in zip(*parts, strict=True)] for parts in replications]

    def _verdicts(self, name: str, hosts: int) -> Series:
        both = zip(self._waiting(name, hosts), self._seconds[name], strict=True)
        return [[*map(add, waits, seconds)] for waits, seconds in both]

    def _waiting(self, name: str, hosts: int) -> Series:
        place = (name, hosts // self.demand.shards)
        if place not in self._waits:
            both = zip(self._arrivals, self._seconds[name], strict=True)
            self._waits[place] = [simulate(arrivals, jobs, place[1]) for arrivals, jobs in both]
        return self._waits[place]


def _draw_arrivals(demand: Demand, replication: int) -> list[float]:
    random = Random(f"{demand.seed} {replication} arrivals")  # noqa: S311
    rate = demand.commits_per_hour / HOUR_S
    return [*accumulate(random.expovariate(rate) for _ in range(demand.commits))]


def _draw_jobs(demand: Demand, platform: str, replication: int) -> list[float]:
    """Draw the seconds of jobs. A commit has those of one run on all platforms that it tested.

    So slow platforms coincide as they did in the records, such as after a change that no compiler
    cache has.
    """
    commits, own = (
        Random(f"{demand.seed} {replication} {stream}")  # noqa: S311
        for stream in ("commits", f"platform {platform}")
    )
    jobs = demand.jobs[platform]
    return [
        jobs.draw(commits.random(), commits.choice(demand.runs), own) for _ in range(demand.commits)
    ]


def _counted(series: Series) -> Series:
    """Leave the first commits out, which found idle hosts."""
    return [values[len(values) // WARM_UP :] for values in series]


def _late_share(series: Series, limit_s: float) -> float:
    values = [*chain(*_counted(series))]
    return sum(value > limit_s for value in values) / len(values)


def _times(series: Series) -> Spread:
    """Summarize all replications; their differences show how certain that is."""
    counted = _counted(series)
    whole, *parts = ((fmean(it), *_quantiles(it)) for it in ([*chain(*counted)], *counted))
    spreads = (stdev(values) for values in zip(*parts, strict=True))
    margin = STUDENT_T / sqrt(len(parts))
    mean, median, p95 = (
        Estimate(value=value, margin=margin * spread)
        for value, spread in zip(whole, spreads, strict=True)
    )
    return Spread(mean=mean, median=median, p95=p95)


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    """The median, and the quantile that all but the late share of the values are below."""
    cuts = quantiles(values, n=round(1 / LATE), method="inclusive")
    return cuts[len(cuts) // 2], cuts[-1]
