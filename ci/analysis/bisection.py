"""Noisy bisection: the commit of a line that made a stage slower or a test fail. Pure.

Every place of the change has a probability, given all values so far, and so has that there is no
change. The levels on both sides and the noise are not known beforehand: they follow from the
values. So a noisy stage is run more often than a steady one, and a flaky test more often than one
that always fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, pairwise
from statistics import fmean, median_low

SURE = 0.98  # the probability at which the search ends; 1.5 runs more than 0.95 on a quiet machine
NO_CHANGE = 0.2  # its prior probability: the user has seen a change, which may be noise
LEAST_RUNS = 2  # of the ends, and on both sides of the answer: one value may be an outlier
MOST_RUNS = 10  # of a commit; ten halve the error of three, and more would only take longer
UNDECIDED = 0.5  # the probability of a change from which the ends get twice as many


LogLikelihood = Callable[[Sequence[float], Sequence[float]], float]
"""The log probability of the values before and after a change for the worse, up to a constant.

Without values after it, that of no change.
"""

RISE = 5.0  # standard deviation of the rise, in units of the noise: 10 % if the noise is 2 %
PRIOR_RUNS = 1.0  # the weight of the prior; without one, two equal values would have no noise
PRIOR_NOISE = 0.03  # relative; on a quiet machine CPU seconds have 0.01 to 0.02
OUTLIERS = 0.1  # the share of runs that other work on the machine makes longer
OUTLIER_RANGE = math.log(2)  # by up to this factor
LOG_OUTLIER = math.log(OUTLIERS / (1 - OUTLIERS) / OUTLIER_RANGE)
MOST_OUTLIERS = 1 / 3  # of all runs; if more are longer, that is not other work
SHORTEST_S = 0.01  # the resolution of CPU times


def likelihood_of_times(before: Sequence[float], after: Sequence[float]) -> float:
    """The likelihood of two levels with normal noise on a logarithmic scale, and of outliers.

    Noise grows with the time. Without outliers, this is the Bayes factor of the two-sample t-test,
    with a prior of the noise besides (Gönen, Johnson, Lu, Westfall: The Bayesian Two-Sample t Test,
    The American Statistician 59, 2005). An outlier is a run that other work on the machine made
    longer. It is not known how many there are: this sums over all numbers of them. They are the
    values furthest above the level of their side.
    """
    unit = max([*before, *after][0], SHORTEST_S)  # sums of squares near 0 lose no digits
    good, bad = (
        _Side([math.log(max(it, SHORTEST_S) / unit) for it in side]) for side in (before, after)
    )
    logs = [_log_density(good, bad)]
    for outliers in range(1, int(MOST_OUTLIERS * (good.count + bad.count)) + 1):
        max((good, bad), key=lambda it: it.distance).drop_highest()
        logs.append(_log_density(good, bad) + outliers * LOG_OUTLIER)
    most = max(logs)
    return most if most == -math.inf else most + math.log(sum(math.exp(it - most) for it in logs))


class _Side:
    """The logarithms of the times of one side, of which the highest can be left out."""

    def __init__(self, logs: list[float]) -> None:
        self._logs = sorted(logs)
        self._level = median_low(logs) if logs else 0.0
        self._sum, self._sum_of_squares = sum(logs), sum(it * it for it in logs)

    @property
    def count(self) -> int:
        return len(self._logs)

    @property
    def mean(self) -> float:
        return self._sum / self.count if self._logs else 0.0

    @property
    def squares(self) -> float:
        """The sum of squares around the mean."""
        return max(0.0, self._sum_of_squares - self._sum * self.mean)

    @property
    def distance(self) -> float:
        """That of the highest value from the level."""
        return self._logs[-1] - self._level if self._logs else -math.inf

    def drop_highest(self) -> None:
        value = self._logs.pop()
        self._sum -= value
        self._sum_of_squares -= value * value


def _log_density(good: _Side, bad: _Side) -> float:
    """The log density of values around two levels, the second one higher, or around one level."""
    if good.count and bad.count and bad.mean <= good.mean:
        return -math.inf
    runs, pairs = good.count + bad.count, good.count * bad.count
    shrinkage = 1 + RISE**2 * pairs / runs
    between = (bad.mean - good.mean) ** 2 * pairs / runs
    squares = PRIOR_RUNS * PRIOR_NOISE**2 + good.squares + bad.squares + between / shrinkage
    degrees = runs - 1 + PRIOR_RUNS
    powers = degrees * math.log(squares) + (runs - 1) * math.log(math.pi)
    return math.lgamma(degrees / 2) - (powers + math.log(runs) + math.log(shrinkage)) / 2


# Beta priors of the rates of failure, each with the weight of one run: Jeffreys' prior, and for
# good commits one that expects fewer failures. With more trust in passes and failures, a test that
# always fails takes 2 runs less, but the probability is too high for flaky ones.
ANY_RATE = (0.5, 0.5)
GOOD_RATE = (0.25, 0.75)


def likelihood_of_outcomes(before: Sequence[float], after: Sequence[float]) -> float:
    """The likelihood of two rates of failure; a value is 1 for a failure, else 0."""
    if not after:
        return _log_beta_binomial(before, *ANY_RATE)
    if fmean(after) <= fmean(before):
        return -math.inf
    return _log_beta_binomial(before, *GOOD_RATE) + _log_beta_binomial(after, *ANY_RATE)


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

    @property
    def is_sure(self) -> bool:
        return self.probability >= SURE


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """The commits between a good and a bad one, with all values so far."""

    commits: Sequence[str]
    """Oldest first: the good one, those between, the bad one. At least two."""
    values: Mapping[str, Sequence[float]]
    """Of runs, by commit."""
    skipped: Collection[str]
    """Commits that cannot be judged, because they do not build; neither end is one of them."""
    log_likelihood: LogLikelihood

    @cached_property
    def _judged(self) -> list[str]:
        return [commit for commit in self.commits if commit not in self.skipped]

    @cached_property
    def _blocks(self) -> list[tuple[str, ...]]:
        """The commits after each one that can be judged, up to the next such commit."""
        places = [i for i, commit in enumerate(self.commits) if commit not in self.skipped]
        return [tuple(self.commits[a + 1 : b + 1]) for a, b in pairwise(places)]

    def _runs(self, commit: str) -> Sequence[float]:
        return self.values.get(commit, ())

    @cached_property
    def probabilities(self) -> list[float]:
        """Of each block, that it has the first bad commit. What is missing to 1: no change."""
        values = [it for commit in self._judged for it in self._runs(commit)]

        @cache  # commits without values have the likelihood of those before them
        def likelihood(runs: int) -> float:
            return self.log_likelihood(values[:runs], values[runs:])

        counts = accumulate(len(self._runs(commit)) for commit in self._judged)
        # Without values, every commit is as likely as any other.
        share = math.log((1 - NO_CHANGE) / (len(self.commits) - 1))
        places = zip(self._blocks, counts, strict=False)
        logs = [math.log(len(block)) + share + likelihood(runs) for block, runs in places]
        logs.append(math.log(NO_CHANGE) + likelihood(len(values)))
        most = max(logs)
        weights = [math.exp(it - most) for it in logs]
        total = sum(weights)
        return [it / total for it in weights[:-1]]

    @property
    def _ends(self) -> tuple[str, str]:
        return self.commits[0], self.commits[-1]

    @cached_property
    def ends_differ(self) -> bool:
        has_runs = min(len(self._runs(it)) for it in self._ends) >= LEAST_RUNS
        return has_runs and sum(self.probabilities) >= SURE

    @property
    def is_hopeless(self) -> bool:
        """Whether the ends do not differ, however often they were run."""
        runs = min(len(self._runs(it)) for it in self._ends)
        if runs < MOST_RUNS or self.ends_differ:
            return False
        return runs >= 2 * MOST_RUNS or sum(self.probabilities) < UNDECIDED

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
            return None if self.is_hopeless else min(self._ends, key=lambda it: len(self._runs(it)))
        answer = self.answer
        if answer.is_sure:
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
