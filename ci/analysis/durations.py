"""The cost of a suite by tests, operators, functions and families. Pure.

The seconds of a test are the sum of all its phases. Their total exceeds the wall time if several
worker processes share the work.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import NamedTuple

from ci.facts.difference import ChangedTest
from ci.facts.suite import Outcomes, families, operator_of, suite_name
from ci.gates.regression import ChangeKind

OTHERS = "other operators"


class Share(NamedTuple):
    """The cost of tests that are counted together."""

    name: str
    tests: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The costs of a suite; each list is complete, the most expensive first."""

    tests: tuple[Share, ...]
    functions: tuple[Share, ...]
    """Operators with all their overloads, dtypes and slots; other tests by function."""
    families: tuple[Share, ...]
    """Operators by the first word of their names if several share it; other tests by file."""

    @cached_property
    def seconds(self) -> float:
        return sum(share.seconds for share in self.families)

    def share(self, shares: Iterable[Share]) -> float:
        """The share of the total time that these took, from 0 to 1."""
        return sum(share.seconds for share in shares) / self.seconds if self.seconds else 0.0


def add_up_costs(outcomes: Outcomes) -> Costs:
    """Add up the seconds of tests in three ways."""
    took = dict(zip(outcomes.names, outcomes.seconds, strict=True))
    operators = {node_id: name for node_id in took if (name := operator_of(node_id))}
    functions = {node_id: node_id.partition("[")[0] for node_id in took} | operators
    words = families(operators.values())
    files = {node_id: node_id.partition("::")[0] for node_id in took}
    named = {node_id: words.get(name, OTHERS) for node_id, name in operators.items()}
    return Costs(
        tests=_shares(took, {node_id: node_id for node_id in took}),
        functions=_shares(took, functions),
        families=_shares(took, files | named),
    )


def _shares(took: Mapping[str, float], groups: Mapping[str, str]) -> tuple[Share, ...]:
    seconds: dict[str, float] = defaultdict(float)
    tests = Counter(groups.values())
    for node_id, group in groups.items():
        seconds[group] += took[node_id]
    shares = [Share(name, tests[name], seconds[name]) for name in tests]
    return tuple(sorted(shares, key=lambda share: (-share.seconds, share.name)))


class GrowthLimits(NamedTuple):
    """Limits of a test's growth; a slower test exceeds both."""

    factor: float
    seconds: float

    def exceeded(self, before: float, now: float) -> bool:
        return now > self.factor * before and now - before > self.seconds


# Single durations vary a lot. Chance rarely exceeds the longest duration of several runs. With few
# runs, only growth that no stall explains is reported.
FEW_RUNS = GrowthLimits(10.0, 5.0)
MANY_RUNS = GrowthLimits(3.0, 1.0)
MANY = 4  # earlier runs, BASE included
MOST = 8  # earlier runs to read: each has 17,000 tests, and more hardly raise the longest duration
NEARLY_ALL = 100  # "nearly all" is all but one in this many
STALLS = 40.0  # times the growth that nearly all tests stay below: a busy machine stalls some
MEASURABLE_S = 0.002  # shorter tests are mostly pytest's own work and do not show the pace
TOGETHER_S = 0.1  # tests that take less than this in total do not show it either
PACED = 5  # measurable tests that show a pace; in fewer, the slower test may be the median

Seconds = Mapping[str, float]


def find_slower_tests(
    base: Outcomes, head: Outcomes, earlier: Callable[[], Sequence[Outcomes]]
) -> tuple[ChangedTest, ...]:
    """Find tests that became slower; ``earlier`` reads runs of the same environment if needed."""
    if max(head.seconds, default=0.0) <= MANY_RUNS.seconds:
        return ()  # no other run has to be read
    now = head.passed_seconds
    pace, before = _scale_to_pace(base.passed_seconds, now)
    if not any(MANY_RUNS.exceeded(before[name], now[name]) for name in before):
        return ()
    runs = [before, *(_scale_to_pace(run.passed_seconds, now)[1] for run in earlier())]
    longest = {name: max(run.get(name, 0.0) for run in runs) for name in before}
    factor, seconds = MANY_RUNS if len(runs) >= MANY else FEW_RUNS
    least = max(seconds * max(pace, 1.0), STALLS * _usual_growth(longest, now))
    limits = GrowthLimits(factor, least)
    return tuple(
        ChangedTest(
            kind=ChangeKind.SLOWER,
            test=suite_name(name, head.device),
            before=base.states[name],
            after=head.states[name],
            seconds=(longest[name], now[name]),
        )
        for name in sorted(longest)
        if limits.exceeded(longest[name], now[name])
    )


def _scale_to_pace(before: Seconds, now: Seconds) -> tuple[float, Seconds]:
    """The factor by which this run is slower than an earlier one, and its times scaled by it.

    The factor is the larger of two: the median ratio of the tests, and the ratio of the total of
    nearly all tests.
    """
    shared = {name: seconds for name, seconds in before.items() if name in now}
    ratios = [now[name] / seconds for name, seconds in shared.items() if seconds > MEASURABLE_S]
    nearly_all = sorted(shared, key=now.__getitem__)[: -(len(shared) // NEARLY_ALL + 1)]
    total = sum(shared[name] for name in nearly_all)
    pace = sum(now[name] for name in nearly_all) / total if total > TOGETHER_S else 1.0
    if len(ratios) >= PACED:
        pace = max(median(ratios), pace)
    return pace, {name: pace * seconds for name, seconds in shared.items()}


def _usual_growth(before: Seconds, now: Seconds) -> float:
    """The growth that nearly all tests stay below."""
    growth = sorted(now[name] - seconds for name, seconds in before.items())
    rank = len(growth) // NEARLY_ALL + 2
    return max(growth[-rank], 0.0) if rank <= len(growth) else 0.0
