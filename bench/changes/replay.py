"""Replays series: after each added value, the method analyzes all values so far.

Series with the marks of several people are scored as in the Turing benchmark: the method sees the
whole series at once, and no single person is right. van den Burg and Williams, An Evaluation of
Change Point Detection Algorithms, https://arxiv.org/abs/2003.06222.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from bench.changes.series import LabelledSeries

Method = Callable[[LabelledSeries], Sequence[int]]
"""From a series to the indices at which a new level begins according to the method."""

# A reported index counts as a change if it is at most this far from it.
TOLERANCE = 3
# A change should be reported after at most this many runs.
PROMPT = 5
# On machines that are never quiet.
LATE = 10
# A reported index counts as a person's mark if it is at most this far from it.
MARGIN = 5


@dataclass(frozen=True, kw_only=True)
class Score:
    """Agreement between reported indices and the marks of several people."""

    f1: float
    """Precision over the marks of all people, and recall averaged over the people."""
    covering: float
    """How well the levels overlap those of each person; at best 1."""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Found and missed changes of some series, and false alarms."""

    delays: tuple[int | None, ...] = ()
    """For each change, the number of values at the new level when it was reported; None: never."""
    false_alarms: int = 0
    runs: int = 0
    seconds: float = 0.0
    scores: tuple[Score, ...] = ()
    """Scores of the whole series, for series that several people marked."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{name: own + getattr(other, name) for name, own in vars(self).items()})

    @property
    def found(self) -> list[int]:
        return sorted(delay for delay in self.delays if delay is not None)

    @property
    def recall(self) -> float:
        return len(self.found) / len(self.delays)

    def recall_within(self, runs: int) -> float:
        """The share of changes that were reported within so many runs."""
        return sum(delay <= runs for delay in self.found) / len(self.delays)

    @property
    def precision(self) -> float | None:
        reported = len(self.found) + self.false_alarms
        return len(self.found) / reported if reported else None


def replay(method: Method, series: LabelledSeries) -> Tally:
    """Analyze the series after each value. An index counts as an alarm only once.

    A gradual change is right if it may begin at a change, and one alarm while its begins overlap.
    """
    delays: dict[int, int] = {}
    false: list[range] = []
    places: Sequence[int] = ()
    begin = time.process_time()
    for count in range(series.first_look, len(series.values) + 1):
        places = method(series.first(count))
        for place in places:
            changes = [change for change in series.changes if change < count]
            if isinstance(place, Climb):
                matched = next((it for it in changes if it in place.may_begin), None)
            else:
                matched = _near(place, changes)
            if matched:
                delays.setdefault(matched, count - matched)
            elif not _near(place, series.neutral):
                may_be = place.may_begin if isinstance(place, Climb) else range(place, place + 1)
                if not any(_overlap(may_be, known) for known in false):
                    false.append(may_be)
    return Tally(
        delays=tuple(delays.get(change) for change in series.changes),
        false_alarms=len(false),
        runs=len(series.values) - series.first_look + 1,
        seconds=time.process_time() - begin,
        scores=(score(series.marks, places, len(series.values)),) if series.marks else (),
    )


class Climb(int):
    """The most likely index of the first value of a gradual change."""

    may_begin: range
    """The indices where it may be."""

    def __new__(cls, index: int, may_begin: range) -> Self:
        climb = super().__new__(cls, index)
        climb.may_begin = may_begin
        return climb


def _overlap(one: range, other: range) -> bool:
    return max(one.start, other.start) - min(one.stop, other.stop) < TOLERANCE


def _near(place: int, others: Iterable[int]) -> int | None:
    close = [other for other in others if abs(other - place) <= TOLERANCE]
    return min(close, key=lambda other: abs(other - place)) if close else None


def score(marks: Sequence[Iterable[int]], places: Iterable[int], count: int) -> Score:
    """Score indices against ``marks``, those of each person, in a series of ``count`` values."""
    # For every person the first value begins a level, so that people without marks count too.
    people = [sorted({0, *person}) for person in marks]
    reported = sorted({0, *places})
    marked = sorted({mark for person in people for mark in person})
    precision = _hits(marked, reported) / len(reported)
    recall = sum(_hits(person, reported) / len(person) for person in people) / len(people)
    return Score(
        f1=2 * precision * recall / (precision + recall),
        covering=sum(_covering(person, reported, count) for person in people) / len(people),
    )


def _hits(marks: Iterable[int], places: Iterable[int]) -> int:
    """Count the marks that have an index of their own nearby."""
    left = set(places)
    hits = 0
    for mark in marks:
        close = [place for place in left if abs(place - mark) <= MARGIN]
        if close:
            left.remove(min(close, key=lambda place: (abs(place - mark), place)))
            hits += 1
    return hits


def _covering(person: Sequence[int], reported: Sequence[int], count: int) -> float:
    levels = [range(*ends) for ends in pairwise((*person, count))]
    found = [range(*ends) for ends in pairwise((*reported, count))]
    covered = sum(len(level) * max(_jaccard(level, other) for other in found) for level in levels)
    return covered / count


def _jaccard(level: range, other: range) -> float:
    """Jaccard index: the size of the intersection divided by the size of the union."""
    common = len(range(max(level.start, other.start), min(level.stop, other.stop)))
    return common / (len(level) + len(other) - common)
