"""``python -m bench.bisection``: how often ``bisect`` finds the commit, and after how many runs.

The runs are simulated, so every answer can be checked. Prints the table of
``docs/track-build-cost.md``.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import mean

from bench.rows import MeasurementError
from ci.analysis.bisection import (
    MOST_RUNS,
    Bisection,
    LogLikelihood,
    likelihood_of_outcomes,
    likelihood_of_times,
)

COMMITS = tuple(f"c{number:02}" for number in range(21))
SEARCHES = 400
TYPICAL_S = 60.0

Measure = Callable[[int], float]  # runs the commit at a place of the line; returns its value


def slower(first_bad: int, random: Random, *, rise: float, noise: float) -> Measure:
    """A stage that is slower since a commit, with normal noise on a logarithmic scale."""
    typical = math.log(TYPICAL_S)
    return lambda place: (1 + rise * (place >= first_bad)) * random.lognormvariate(typical, noise)


BUSY_SHARE = 0.1  # of the runs, on a machine with noisy neighbours
BUSY_TIMES = (1.2, 2.0)  # as long as alone


def busy(measure: Measure, random: Random) -> Measure:
    """The same on a machine that others use: one run in ten takes 1.2 to 2 times as long."""
    return lambda place: (
        measure(place) * (random.uniform(*BUSY_TIMES) if random.random() < BUSY_SHARE else 1)
    )


def failing(first_bad: int, random: Random, *, rate: float, before: float = 0.0) -> Measure:
    """A test that fails in a share of the runs since a commit, and in another one before it."""
    return lambda place: float(random.random() < (rate if place >= first_bad else before))


def search(
    measure: Measure, likelihood: LogLikelihood, skipped: Collection[str] = ()
) -> tuple[Bisection, int]:
    """Search to the end; also return the number of runs."""
    values: dict[str, list[float]] = {}
    for runs in range(MOST_RUNS * (len(COMMITS) + 2) + 1):
        found = Bisection(
            commits=COMMITS, values=values, skipped=skipped, log_likelihood=likelihood
        )
        commit = found.next_commit()
        if commit is None:
            return found, runs
        values.setdefault(commit, []).append(measure(COMMITS.index(commit)))
    raise MeasurementError("the search does not end")


def halve(measure: Measure, limit: float | None) -> int:
    """Search with one run per commit; values above the limit are bad.

    Without a limit, that is the middle of the values of both ends.
    """
    good, bad = 0, len(COMMITS) - 1
    if limit is None:
        limit = math.sqrt(measure(good) * measure(bad))
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if measure(middle) > limit else (middle, bad)
    return bad


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row of the table: a change, and how it can be seen."""

    change: str
    seen: str
    """The noise, or how often the test fails."""
    measure: Callable[[int, Random], Measure]
    """Runs of commits, from the first bad one."""
    likelihood: LogLikelihood
    limit: float | None = None
    """As in ``halve``."""

    def cells(self) -> tuple[str, ...]:
        """Simulate the searches; the first bad commit is any of them."""
        counts, right, wrong, halved = [], 0, 0, 0
        for seed in range(SEARCHES):
            random = Random(seed)  # noqa: S311
            first_bad = random.randrange(1, len(COMMITS))
            found, runs = search(self.measure(first_bad, random), self.likelihood)
            counts.append(runs)
            if found.ends_differ and found.answer.is_sure:
                is_right = found.answer.first_bad == (COMMITS[first_bad],)
                right, wrong = right + is_right, wrong + (not is_right)
            halved += halve(self.measure(first_bad, random), self.limit) == first_bad
        stated, alone = f"{right} of {right + wrong}", f"{100 * halved / SEARCHES:.0f} %"
        return self.change, self.seen, f"{mean(counts):.0f}", stated, alone


def _stage(rise: float, noise: float, *, is_busy: bool = False) -> Case:
    def measure(first_bad: int, random: Random) -> Measure:
        quiet = slower(first_bad, random, rise=rise, noise=noise)
        return busy(quiet, random) if is_busy else quiet

    return Case(
        change=f"{100 * rise:+.0f} %",
        seen=f"{100 * noise:.0f} %{', busy' if is_busy else ''}",
        measure=measure,
        likelihood=likelihood_of_times,
    )


def _test(rate: float) -> Case:
    return Case(
        change="a test fails",
        seen="always" if rate == 1 else f"in {100 * rate:.0f} % of the runs",
        measure=partial(failing, rate=rate),
        likelihood=likelihood_of_outcomes,
        limit=0.5,
    )


CASES = (
    *(_stage(0.2, noise) for noise in (0.01, 0.04, 0.08)),
    _stage(0.05, 0.02),
    _stage(0.08, 0.03),
    _stage(0.08, 0.03, is_busy=True),
    *(_test(rate) for rate in (1.0, 0.7, 0.5)),
)
HEADS = (
    "Change",
    "Noise, or failures",
    "Runs",
    "Right of the stated answers",
    "With one run per commit",
)


def table() -> Iterator[str]:
    """Yield the lines of the table in Markdown, each once its searches are done."""
    yield f"| {' | '.join(HEADS)} |"
    yield f"| {' | '.join('---' for _ in HEADS)} |"
    for case in CASES:
        yield f"| {' | '.join(case.cells())} |"


def main() -> None:
    argparse.ArgumentParser(prog="python -m bench.bisection", description=__doc__).parse_args()
    for line in table():
        print(line, flush=True)


if __name__ == "__main__":
    main()
