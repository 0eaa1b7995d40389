"""The recorded jobs of platforms: how long runs hold their hosts, and what shards change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from typing import TYPE_CHECKING, NamedTuple

from ci.analysis.capacity import HOUR_S, Jobs
from ci.errors import UsageError
from ci.facts.environment_key import HALF
from ci.facts.suite import Outcomes, outcomes_of
from ci.model.results import PlatformResult
from ci.store.rows import RunHead
from ci.util.invocation import command
from ci.util.text import counted

if TYPE_CHECKING:
    from ci.store.store import Store  # SQLAlchemy, 0.3 s

LEAST = 3
"""Runs of each kind that are needed: fewer do not show how much times vary."""
PER_TEST_S = 0.001
"""What pytest adds to the duration of a test, as ``ci.agent.shard_plugin`` counts it."""


class Sample(NamedTuple):
    """A recorded job of a platform."""

    run: str
    setup_s: float
    """Image, transfer of the sources, and all stages but the tests."""
    tests_s: float
    is_warm: bool
    """Whether the compiler cache had at least half of the compilations."""
    shards: int


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What differs from the recorded runs."""

    hit_rate: float | None = None
    """The share of runs with a warm compiler cache; ``None``: as recorded."""
    suite_scale: float = 1.0
    shards: int = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """The recorded runs of a platform."""

    platform: str
    samples: tuple[Sample, ...]
    """Newest first."""
    tests: Outcomes
    """The tests of the newest run without shards."""

    def jobs(self, scenario: Scenario) -> Jobs:
        """Return the jobs of a scenario; raises ``UsageError`` without records of such jobs."""
        samples, scale = self.divided(scenario.shards), scenario.suite_scale
        if len(samples) < LEAST:
            samples = self.divided(1)
            self._require(samples, "without shards")
            scale *= self._remaining(samples[0].tests_s, scenario.shards)
        kinds = self._kinds(samples, scenario.hit_rate)
        return Jobs(
            kinds=tuple(
                (share, {it.run: it.setup_s + scale * it.tests_s for it in alike})
                for share, alike in kinds
            )
        )

    def divided(self, shards: int) -> list[Sample]:
        """The runs with so many shards."""
        return [it for it in self.samples if it.shards == shards]

    def _kinds(
        self, samples: Sequence[Sample], hit_rate: float | None
    ) -> Sequence[tuple[float, Sequence[Sample]]]:
        """The shares of jobs, each with recorded ones."""
        if hit_rate is None:
            return [(1.0, samples)]
        kinds = []
        for is_warm, share in ((True, hit_rate), (False, 1 - hit_rate)):
            if share:
                alike = [it for it in samples if it.is_warm is is_warm]
                self._require(alike, f"with a {'warm' if is_warm else 'cold'} compiler cache")
                kinds.append((share, alike))
        return kinds

    def _require(self, samples: Sequence[Sample], kind: str) -> None:
        if len(samples) < LEAST:
            got = f"got {counted(len(samples), 'judged run')} {kind}"
            raise UsageError(f"{self.platform}: {got}, expected at least {LEAST}")

    def _remaining(self, whole_s: float, shards: int) -> float:
        """The share of the time of the tests that remains: the longest tests are placed first.

        Each shard repeats what is not the time of a test, such as imports and collection. It is
        unknown where several workers ran the tests side by side; then nothing is repeated.
        """
        costs = [seconds + PER_TEST_S for seconds in self.tests.seconds]
        if not costs:
            raise UsageError(f"{self.platform}: the newest run without shards lacks times of tests")
        loads = [0.0] * shards
        for cost in sorted(costs, reverse=True):
            heapreplace(loads, loads[0] + cost)
        repeated = max(1 - sum(costs) / whole_s, 0.0) if whole_s else 0.0
        return repeated + (1 - repeated) * max(loads) / sum(costs)


def find_jobs(workloads: Iterable[Workload], scenario: Scenario) -> dict[str, Jobs]:
    """Return the jobs of platforms; raises one ``UsageError`` for all that lack records."""
    jobs, lacking = {}, {}
    for it in workloads:
        try:
            jobs[it.platform] = it.jobs(scenario)
        except UsageError as error:
            lacking[it.platform] = str(error)
    if lacking:
        remedy = f"Run them: {command('run', *lacking)}"
        remedy += "\nOr use more of the recorded runs: --last 1000"
        if jobs:
            remedy += f"\nOr leave them out: {command('capacity', *jobs)}"
        raise UsageError("\n".join(lacking.values()), remedy=remedy)
    return jobs


def read_workloads(
    store: Store, heads: Sequence[RunHead], platforms: Collection[str]
) -> list[Workload]:
    """Read the judged runs of platforms among some runs, the newest first.

    Runs of selected operators, or with another kind of device than the newest one, are left out:
    they take another time as a matter of course. If there are no others, those with the selection
    of the newest one are read.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in platforms}
    kinds: dict[str, tuple[object, ...]] = {}
    with_all = {name for head in heads for name in head.whole}
    for head in heads:
        run = store.load_or_skip(head.run_id) if samples.keys() & set(head.begun) else None
        for result in run.platforms if run else ():
            name, kind = result.platform, (result.simulated, result.selected)
            is_read = name in samples and (result.selected is None or name not in with_all)
            sample = _sample(head.run_id, result) if is_read else None
            if sample and kinds.setdefault(name, kind) == kind:
                samples[name].append(sample)
    workloads = []
    for name, found in samples.items():
        whole = next((it.run for it in found if it.shards == 1), None)
        tests = store.outcomes(whole, name) if whole else outcomes_of(())
        workloads.append(Workload(platform=name, samples=tuple(found), tests=tests))
    return workloads


def _sample(run: str, result: PlatformResult) -> Sample | None:
    """The times of a run with a verdict on its tests; ``None`` for any other."""
    if not result.verdict.product.is_final or result.pytest_s is None or result.total_s is None:
        return None
    rate = result.facts("compiler_cache").get("hit_rate")
    return Sample(
        run=run,
        setup_s=max(sum(it.seconds or 0.0 for it in result.stages) - result.pytest_s, 0.0),
        tests_s=result.pytest_s,
        is_warm=isinstance(rate, int | float) and rate >= HALF,
        shards=max(len(result.shards), 1),
    )


def recorded_rate(heads: Sequence[RunHead]) -> float | None:
    """The mean number of commits in an hour; ``None``: the runs do not show it. Newest first."""
    commits = {head.commit or head.run_id for head in heads}
    hours = (heads[0].started_at - heads[-1].started_at).total_seconds() / HOUR_S
    return (len(commits) - 1) / hours if len(commits) > 1 and hours > 0 else None
