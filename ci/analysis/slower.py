"""Single tests that take longer than single tests do by chance. Pure.

What a test of some milliseconds takes is mostly the machine's doing: of 17 runs of one suite on
one machine, alone or beside others (41 to 708 s for the same tests), every one had tests that took
many times what they took in the run before. So a test is told only if it grew

* by a factor and by seconds, beyond the longest that it took in any earlier run of the environment,
* at the pace of the later run: a machine that is slow altogether is no news of a test,
* by far more than nearly all tests of the later run did: where the machine stalls now and then,
  the stalls are what the slowest tests show.

Of those 17 runs, each against the 8 before it, none has such a test, against the 4 before it two
have one; of all 136 pairs, for which the limits are wider, four. So what is found is called slower,
and is never a regression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from ci.analysis.difference import Change, Kind
from ci.analysis.outcomes import Outcomes
from ci.analysis.suite import suite_name


class Limits(NamedTuple):
    """Both have to be exceeded."""

    factor: float
    seconds: float


FEW_RUNS = Limits(10.0, 5.0)
MANY_RUNS = Limits(3.0, 1.0)
MANY = 4  # runs before, BASE included
MOST = 8  # of them are looked at
NEARLY_ALL = 100  # all but one in so many
STALLS = 40.0  # times the growth that nearly all tests stay below
MEASURABLE_S = 0.002  # shorter tests say nothing of a pace
TOGETHER_S = 0.1  # nor do tests that take less than this together
PACED = 5  # measurable tests: half of fewer may be the one that grew

Seconds = Mapping[str, float]


def slower(
    base: Outcomes, head: Outcomes, earlier: Callable[[], Sequence[Outcomes]]
) -> tuple[Change, ...]:
    """The tests that became slower; ``earlier`` runs of the same environment, if anybody asks."""
    if max(head.seconds, default=0.0) <= MANY_RUNS.seconds:
        return ()  # without a look at any other run
    now = head.passed_seconds
    pace, before = _at_pace(base.passed_seconds, now)
    if not any(_exceeds(MANY_RUNS, before[name], now[name]) for name in before):
        return ()
    runs = [before, *(_at_pace(run.passed_seconds, now)[1] for run in earlier())]
    longest = {name: max(run.get(name, 0.0) for run in runs) for name in before}
    factor, seconds = MANY_RUNS if len(runs) >= MANY else FEW_RUNS
    least = max(seconds * max(pace, 1.0), STALLS * _usual(longest, now))
    limits = Limits(factor, least)
    return tuple(
        Change(
            kind=Kind.SLOWER,
            test=suite_name(name, head.device),
            before=base.states[name],
            after=head.states[name],
            seconds=(longest[name], now[name]),
        )
        for name in sorted(longest)
        if _exceeds(limits, longest[name], now[name])
    )


def _exceeds(limits: Limits, before: float, now: float) -> bool:
    return now > limits.factor * before and now - before > limits.seconds


def _at_pace(before: Seconds, now: Seconds) -> tuple[float, Seconds]:
    """What tests would have taken before, had that run been as slow as this one."""
    shared = {name: seconds for name, seconds in before.items() if name in now}
    pace = _pace(shared, now)
    return pace, {name: pace * seconds for name, seconds in shared.items()}


def _pace(before: Seconds, now: Seconds) -> float:
    """By how much half of the tests were slowed down, or nearly all of them together."""
    ratios = [now[name] / seconds for name, seconds in before.items() if seconds > MEASURABLE_S]
    nearly_all = sorted(before, key=now.__getitem__)[: -(len(before) // NEARLY_ALL + 1)]
    total = sum(before[name] for name in nearly_all)
    together = sum(now[name] for name in nearly_all) / total if total > TOGETHER_S else 1.0
    return max(median(ratios), together) if len(ratios) >= PACED else together


def _usual(before: Seconds, now: Seconds) -> float:
    """What nearly all tests grew by at most."""
    growth = sorted(now[name] - seconds for name, seconds in before.items())
    rank = len(growth) // NEARLY_ALL + 2
    return max(growth[-rank], 0.0) if rank <= len(growth) else 0.0
