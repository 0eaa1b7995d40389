"""Flaky tests: tests that both passed and failed at one commit in one environment. Pure.

A test that fails at one commit and passes at another may have been broken and fixed. Evidence of
flakiness is both outcomes with the same sources in the same environment. The outcomes come from
several runs, or from reruns within one run (``run --reruns N``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

from ci.facts.suite import Outcomes
from ci.model.details import Rerun
from ci.util.text import commit_name

if TYPE_CHECKING:
    from ci.store.store import Store  # SQLAlchemy, 0.3 s


GROUPS = 25  # newest groups of runs of one commit and environment: 0.1 s of a comparison
Z95 = 1.959964  # 95 % of a normal distribution lie within this many standard deviations


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """All runs and reruns of tests at one commit in one environment."""

    commit: str
    key: str
    runs: Sequence[Outcomes]
    reruns: Sequence[Rerun] = ()


@dataclass(frozen=True, kw_only=True)
class FlakyEvidence:
    """The counts of a test that both failed and passed at one commit in one environment."""

    commit: str
    key: str
    failed: int
    tried: int


@dataclass(frozen=True, kw_only=True)
class FlakyTest:
    """A test with evidence that it is flaky."""

    node_id: str
    evidence: tuple[FlakyEvidence, ...]
    """Oldest commit first."""

    @property
    def failed(self) -> int:
        return sum(found.failed for found in self.evidence)

    @property
    def tried(self) -> int:
        return sum(found.tried for found in self.evidence)

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.failed, self.tried)

    def __str__(self) -> str:
        """``failed 1 of 12 times at commit 0123abcd: flaky, 8 %, 95 % interval 1 to 35 %``."""
        commits = list(dict.fromkeys(found.commit for found in self.evidence))
        where = commit_name(commits[0]) if len(commits) == 1 else f"{len(commits)} commits"
        low, high = self.interval
        rate = f"{100 * self.failed / self.tried:.0f} %"
        rate += f", 95 % interval {100 * low:.0f} to {100 * high:.0f} %"
        return f"failed {self.failed:,} of {self.tried:,} times at {where}: flaky, {rate}"


def wilson_interval(failed: int, tried: int) -> tuple[float, float]:
    """Wilson's 95 % score interval of a failure rate; it is also valid for very few attempts."""
    rate, square = failed / tried, Z95**2 / tried
    half = Z95 * sqrt(rate * (1 - rate) / tried + square / (4 * tried))
    middle, scale = rate + square / 2, 1 + square
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def flaky_tests(attempts: Iterable[Attempts]) -> list[FlakyTest]:
    """Find tests with evidence of flakiness, the most frequent failures first."""
    found: dict[str, list[FlakyEvidence]] = defaultdict(list)
    for group in attempts:
        failed = Counter(name for run in group.runs for name in run.failures)
        failed.update(rerun.node_id for rerun in group.reruns if rerun.outcome.bad)
        passed = Counter(rerun.node_id for rerun in group.reruns if rerun.outcome.good)
        for run in group.runs:
            states = {name: run.states.get(name) for name in failed}
            passed.update(name for name, state in states.items() if state and state.outcome.good)
        for name in failed.keys() & passed.keys():
            counts = {"failed": failed[name], "tried": failed[name] + passed[name]}
            found[name].append(FlakyEvidence(commit=group.commit, key=group.key, **counts))
    tests = [FlakyTest(node_id=name, evidence=tuple(every)) for name, every in found.items()]
    return sorted(tests, key=lambda test: (-test.failed, test.node_id))


def find_flaky_tests(
    store: Store, platform: str, project: str, *, tests: Collection[str] | None = None
) -> list[FlakyTest]:
    """Find flaky tests in the store, at the commits whose attempts may have ended differently.

    ``tests`` limits the search to these.
    """
    groups = store.repeated_runs(platform, project=project)
    newest = [group for group in groups if group.differing or group.rerun][-GROUPS:]
    run_ids = [run_id for group in newest for run_id in group.run_ids]
    if tests is None:
        runs = {run_id: store.outcomes(run_id, platform) for run_id in run_ids}
    else:
        runs = store.outcomes_of_tests(tests, run_ids, platform)
    attempts = []
    for group in newest:
        reruns = [rerun for run_id in group.rerun for rerun in store.reruns(run_id, platform)]
        if tests is not None:
            reruns = [rerun for rerun in reruns if rerun.node_id in tests]
        of_group = [runs[run_id] for run_id in group.run_ids]
        attempts.append(Attempts(commit=group.commit, key=group.key, runs=of_group, reruns=reruns))
    return flaky_tests(attempts)
