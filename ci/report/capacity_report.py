"""The report of ``capacity``: the queues of platforms, and what a commit costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from ci.analysis.capacity import HOUR_S, LATE, REPLICATIONS, Capacity, PlatformCapacity, Spread
from ci.analysis.workload import LEAST, Workload
from ci.facts.measures import percent
from ci.report.document import Document, Heading, Items, Report, Table, select_attributes
from ci.report.table import MISSING
from ci.util.text import counted, join_names

SCHEMA_VERSION = 1
# Short, so that the table fits into 80 columns.
COLUMNS = ("Platform", "Hosts", "Used", "Wait", "p50", "p95", "Verdict", "p95", "Cost")
UNITS = (
    "Minutes: the mean wait for hosts, its median (p50) and 95 % quantile (p95); the median time to"
    " the verdict, and its p95; the time of hosts that a commit uses."
)
ALL = "all"
SATURATED = 0.95
"""From this share on, a queue takes longer to settle than the simulated commits."""
MINUTE_S = 60.0
WHOLE_MINUTES, WHOLE_MARGIN = 99.95, 9.95  # from these on without a decimal: the table fits


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A time within which 95 % of the commits are to have their verdict."""

    limit_s: float
    met: bool
    """Whether the hosts of the report meet it; otherwise no number of hosts does."""
    alone: Spread
    """The times to the verdict if no job waits."""
    shards: int | None = None
    """If it is not met: the number of shards with which hosts would meet it, if one does."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The hours of hosts for a commit, and their price."""

    host_hours: float
    price: float | None

    def __str__(self) -> str:
        price = "" if self.price is None else f" ({self.price:,.2f})"
        return f"{_minutes(self.host_hours * HOUR_S)} host-minutes{price}"


@dataclass(frozen=True, kw_only=True)
class CapacityReport(Report):
    """A row for each platform, and one for whole commits."""

    wrap: ClassVar[bool] = True

    project: str
    capacity: Capacity
    workloads: Sequence[Workload]
    """In the order of the platforms of ``capacity``."""
    goal: Goal | None
    prices: Mapping[str, float]
    """Of an hour of a host, by platform; empty: unknown."""

    def document(self, *, page: bool) -> Document:
        demand = self.capacity.demand
        shards = f", {demand.shards} shards" if demand.shards > 1 else ""
        rate = f"{demand.commits_per_hour:,.3g}"
        title = f"{self.project}: {rate} commit{'' if rate == '1' else 's'} per hour{shards}"
        yield Heading(3 if page else 1, title), UNITS
        rows = [*map(_row, self.capacity.platforms), self._last_row()]
        yield [Table(COLUMNS, rows, numbers=COLUMNS[1:])]
        yield [Items([*self._goal_lines(), *self._queue_lines()])]
        yield [Items([*self._basis()])]

    def data(self) -> dict[str, Any]:
        """Collect all figures for programs."""
        demand = self.capacity.demand
        return {
            "schema_version": SCHEMA_VERSION,
            "project": self.project,
            **select_attributes(demand, "commits_per_hour", "shards", "seed", "commits"),
            "replications": REPLICATIONS,
            "platforms": [asdict(it) for it in self.capacity.platforms],
            "verdict": self.capacity.verdict and asdict(self.capacity.verdict),
            "used": asdict(self._used),
            "reserved": asdict(self._reserved),
            "goal": self.goal and asdict(self.goal),
            "recorded": {it.platform: len(it.samples) for it in self.workloads},
        }

    @property
    def _used(self) -> Cost:
        """What a commit uses of the hosts."""
        return self._cost({it.platform: it.host_s / HOUR_S for it in self.capacity.platforms})

    @property
    def _reserved(self) -> Cost:
        """What all hosts cost from one commit to the next, used or not."""
        hours = 1 / self.capacity.demand.commits_per_hour
        return self._cost({it.platform: it.hosts * hours for it in self.capacity.platforms})

    def _cost(self, hours: Mapping[str, float]) -> Cost:
        price = sum(hours[name] * each for name, each in self.prices.items())
        return Cost(host_hours=sum(hours.values()), price=price if self.prices else None)

    def _last_row(self) -> tuple[str, ...]:
        hosts = sum(it.hosts for it in self.capacity.platforms)
        used = percent(self._used.host_hours / self._reserved.host_hours)
        verdict = _verdict_cells(self.capacity.verdict)
        return (
            ALL,
            f"{hosts:,}",
            used,
            *[MISSING] * 3,
            *verdict,
            _minutes(self._used.host_hours * HOUR_S),
        )

    def _goal_lines(self) -> Iterator[str]:
        if self.goal is None:
            return
        limit, share = f"{self.goal.limit_s / MINUTE_S:g}", percent(1 - LATE)
        if self.goal.met:
            yield f"With these hosts, {share} of the commits have their verdict within {limit} min."
            yield "With one host fewer on any platform, fewer commits do."
            return
        alone = _minutes(self.goal.alone.p95.value)
        yield (
            f"No number of hosts gives {share} of the commits a verdict within {limit} min: even"
            f" without waiting it takes {alone} min."
        )
        if self.goal.shards:
            yield f"`--shards {self.goal.shards}` makes it possible."
        else:
            yield "No record shows that shards would."

    def _queue_lines(self) -> Iterator[str]:
        for it in self.capacity.platforms:
            used = percent(it.utilization)
            if it.waiting is None:
                needed = counted(it.least_hosts, "host")
                yield (
                    f"{it.platform}: the queue grows without bound: jobs need {used} of the time of"
                    f" {counted(it.hosts, 'host')}. At least {needed} keep up."
                )
            elif it.utilization >= SATURATED:
                yield f"{it.platform}: such a queue takes days to settle, at {used}. Add a host."
        yield f"A commit uses {self._used}. All hosts, idle or not: {self._reserved} per commit."

    def _basis(self) -> Iterator[str]:
        demand = self.capacity.demand
        yield (
            f"Simulated {REPLICATIONS} times {demand.commits:,} commits, seed {demand.seed}. ± is"
            " the 95 % confidence interval."
        )
        recorded = [f"{it.platform} {len(it.samples)} ({_warm(it)} warm)" for it in self.workloads]
        yield f"Recorded runs: {join_names(recorded, len(recorded))}."
        shards = demand.shards
        estimated = [it.platform for it in self.workloads if len(it.divided(shards)) < LEAST]
        if estimated:
            yield (
                f"Fewer than {LEAST} recorded runs with {shards} shards, so estimated from the"
                f" times of tests: {join_names(estimated, len(estimated))}."
            )


def _row(found: PlatformCapacity) -> tuple[str, ...]:
    waiting = found.waiting
    waits = (waiting.mean, waiting.median, waiting.p95) if waiting else ()
    return (
        found.platform,
        f"{found.hosts:,}",
        percent(found.utilization),
        *([_minutes(it.value) for it in waits] or [MISSING] * 3),
        *_verdict_cells(found.verdict),
        _minutes(found.host_s),
    )


def _verdict_cells(times: Spread | None) -> tuple[str, str]:
    if times is None:
        return MISSING, MISSING
    margin = _minutes(times.p95.margin, WHOLE_MARGIN)
    return _minutes(times.median.value), f"{_minutes(times.p95.value)} ± {margin}"


def _minutes(seconds: float, whole: float = WHOLE_MINUTES) -> str:
    minutes = seconds / MINUTE_S
    return f"{minutes:,.1f}" if minutes < whole else f"{minutes:,.0f}"


def _warm(workload: Workload) -> int:
    return sum(it.is_warm for it in workload.samples)
