"""Noisy bisection: the commit of a line that made a stage slower or a test fail. Pure.

Every place of the change has a probability, given all values so far. The levels on both sides and
the noise are not known beforehand: they follow from the values. So a noisy stage is run more often
than a steady one, and a flaky test more often than one that always fails.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Protocol

SURE = 0.95  # the probability at which the search ends, as of the intervals in reports
LEAST_RUNS = 2  # of the ends, and on both sides of the answer: one value may be an outlier
MOST_RUNS = 10  # of a commit; ten halve the error of three, and more would only take longer


class Evidence(Protocol):
    """What values before and after a change say about it."""

    def log_likelihood(self, before: Sequence[float], after: Sequence[float]) -> float:
        """How well a change between these values explains them, up to a constant."""

    def differ(self, good: Sequence[float], bad: Sequence[float]) -> bool:
        """Whether the bad end is surely worse than the good one."""


class LevelEvidence:
    """Two levels of a time with normal noise on a logarithmic scale: noise grows with the time.

    Flat priors of both levels, and one of the noise that weighs as much as ``PRIOR_RUNS`` runs:
    without it, two equal values would look like a measure without noise. On simulated rises of 20 %
    with noise of 1, 4 and 8 %, the answer was right in 100, 100 and 98 % of the searches, after 10,
    11 and 28 runs.
    """

    PRIOR_RUNS = 2.0
    PRIOR_NOISE = 0.02  # relative; of CPU seconds on a quiet machine
    SURE_DEVIATE = 3.0  # standard errors between the ends: a false start in 1 of 700 searches
    SHORTEST_S = 0.01  # the resolution of CPU times

    def log_likelihood(self, before: Sequence[float], after: Sequence[float]) -> float:
        squares, degrees, _ = self._fit(before, after)
        return -degrees / 2 * math.log(squares) - math.log(len(before) * len(after)) / 2

    def differ(self, good: Sequence[float], bad: Sequence[float]) -> bool:
        squares, degrees, rise = self._fit(good, bad)
        error = math.sqrt(squares / degrees * (1 / len(good) + 1 / len(bad)))
        return rise > self.SURE_DEVIATE * error

    def _fit(self, before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
        """The sum of squares around the levels, its degrees of freedom, the rise."""
        squares, means = self.PRIOR_RUNS * self.PRIOR_NOISE**2, []
        for side in (before, after):
            logs = [math.log(max(value, self.SHORTEST_S)) for value in side]
            means.append(fmean(logs))
            squares += sum((value - means[-1]) ** 2 for value in logs)
        degrees = len(before) + len(after) - 2 + self.PRIOR_RUNS
        return squares, degrees, means[1] - means[0]


class OutcomeEvidence:
    """Two rates of failure; a value is 1 for a failure, else 0."""

    # Prior rates. On simulated tests that fail in 100, 90, 70 and 50 % of the runs, the answer was
    # right in 100, 98, 94 and 94 % of the searches, after 11, 14, 22 and 38 runs.
    FAILS_GOOD = 0.05  # of runs of good commits
    PASSES_BAD = 0.2  # of runs of bad ones: a test that one wants to bisect often is flaky
    # Two rates explain the ends so many times better than one. With the caller's word for it that
    # the ends differ, 5 is enough: twice passed and twice failed, or 0 and 4 failures in 10 runs.
    SURE_FACTOR = 5.0

    def log_likelihood(self, before: Sequence[float], after: Sequence[float]) -> float:
        good = _log_beta_binomial(before, self.FAILS_GOOD, 1 - self.FAILS_GOOD)
        return good + _log_beta_binomial(after, 1 - self.PASSES_BAD, self.PASSES_BAD)

    def differ(self, good: Sequence[float], bad: Sequence[float]) -> bool:
        rates = ([*good, *bad], good, bad)
        one, *two = (_log_beta_binomial(values, 0.5, 0.5) for values in rates)  # Jeffreys' prior
        return fmean(bad) > fmean(good) and sum(two) - one > math.log(self.SURE_FACTOR)


def _log_beta_binomial(values: Sequence[float], fails: float, passes: float) -> float:
    """The log probability of 0s and 1s, if the rate of 1s has a beta prior."""
    failed = sum(values)
    passed = len(values) - failed
    return _log_beta(fails + failed, passes + passed) - _log_beta(fails, passes)


def _log_beta(first: float, second: float) -> float:
    return math.lgamma(first) + math.lgamma(second) - math.lgamma(first + second)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Where the change is, as far as the values show."""

    before: str
    """The last commit that is known to be good."""
    first_bad: tuple[str, ...]
    """The first bad commit, or several, oldest first, if all but the last cannot be judged."""
    probability: float


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """The commits between a good and a bad one, with all values so far."""

    commits: Sequence[str]
    """Oldest first: the good one, those between, the bad one. At least two."""
    values: Mapping[str, Sequence[float]]
    """Of runs, by commit."""
    skipped: Collection[str]
    """Commits that cannot be judged, because they do not build; neither end is one of them."""
    evidence: Evidence

    @cached_property
    def _blocks(self) -> list[tuple[str, ...]]:
        """The commits after each one that can be judged, up to the next such commit."""
        places = [i for i, commit in enumerate(self.commits) if commit not in self.skipped]
        return [tuple(self.commits[a + 1 : b + 1]) for a, b in pairwise(places)]

    @property
    def _judged(self) -> list[str]:
        """The commits that can be judged; block ``i`` lies between those at ``i`` and ``i + 1``."""
        return [self.commits[0], *(block[-1] for block in self._blocks)]

    def _runs(self, commit: str) -> Sequence[float]:
        return self.values.get(commit, ())

    @cached_property
    def probabilities(self) -> list[float]:
        """Of each block, that it has the first bad commit. Both ends need a value."""
        logs = []
        for place, block in enumerate(self._blocks):
            sides = self._judged[: place + 1], self._judged[place + 1 :]
            before, after = ([it for name in side for it in self._runs(name)] for side in sides)
            # Without values, every commit is as likely as any other.
            logs.append(math.log(len(block)) + self.evidence.log_likelihood(before, after))
        weights = [math.exp(it - max(logs)) for it in logs]
        return [it / sum(weights) for it in weights]

    @property
    def ends_differ(self) -> bool:
        good, bad = self._runs(self.commits[0]), self._runs(self.commits[-1])
        return min(len(good), len(bad)) >= LEAST_RUNS and self.evidence.differ(good, bad)

    @property
    def is_hopeless(self) -> bool:
        """Whether the ends do not differ, however often they were run."""
        ends = (self.commits[0], self.commits[-1])
        return min(len(self._runs(it)) for it in ends) >= MOST_RUNS and not self.ends_differ

    @property
    def answer(self) -> Answer:
        best = max(range(len(self._blocks)), key=self.probabilities.__getitem__)
        return Answer(
            before=self._judged[best],
            first_bad=self._blocks[best],
            probability=self.probabilities[best],
        )

    def next_commit(self) -> str | None:
        """The commit whose next run is most informative; ``None`` at the end of the search.

        With equal noise everywhere, that is the commit of which it is most uncertain whether it is
        good. Only the ends are run at first: they may not differ at all.
        """
        if not self.ends_differ:
            ends = (self.commits[0], self.commits[-1])
            return None if self.is_hopeless else min(ends, key=lambda it: len(self._runs(it)))
        answer = self.answer
        if answer.probability >= SURE:
            sides = (answer.before, answer.first_bad[-1])
            unsure = [it for it in sides if len(self._runs(it)) < LEAST_RUNS]
            return unsure[0] if unsure else None
        # The probability that a commit is bad: that the change is at it or before it.
        bad = dict(zip(self._judged[1:], accumulate(self.probabilities), strict=True))
        inner = [it for it in self._judged[1:-1] if len(self._runs(it)) < MOST_RUNS]
        if not inner:
            return None
        commit = min(inner, key=lambda it: (abs(bad[it] - 0.5), len(self._runs(it))))
        # More runs of it than of a whole side: then the level of that side is known worse. To take
        # turns also keeps a machine that gets slower meanwhile from looking like a change.
        place = self._judged.index(commit)
        for side in (self._judged[place + 1 :], self._judged[:place][::-1]):
            if sum(len(self._runs(it)) for it in side) < len(self._runs(commit)):
                return side[0]
        return commit
