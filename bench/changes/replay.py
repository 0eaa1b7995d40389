"""Runs come one after the other, and each time a method looks at all that there is.

Series that several people marked are scored as the Turing benchmark scores, where the whole series
is seen at once, and no single reader is right: van den Burg and Williams, An Evaluation of Change
Point Detection Algorithms, https://arxiv.org/abs/2003.06222.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.changes.series import LabelledSeries

Method = Callable[[list[float]], Sequence[int]]
"""From values to the places where it says, for sure, that a new level begins."""

# A change is found if it is reported at most this far from where it is.
TOLERANCE = 3
# Within so many runs a change should be known.
PROMPT = 5
# A place is a person's mark if it is at most this far from it.
MARGIN = 5


@dataclass(frozen=True, kw_only=True)
class Score:
    """How well reported places agree with what several people marked."""

    f1: float
    """Of the places anybody marked (precision), and the mean of each person's (recall)."""
    covering: float
    """How well the levels overlap each person's, at best 1."""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What became of the changes of some series, and what else was reported."""

    delays: tuple[int | None, ...] = ()
    """Values at the new level when a change was reported first; ``None``: never."""
    false_alarms: int = 0
    runs: int = 0
    seconds: float = 0.0
    scores: tuple[Score, ...] = ()
    """Of the last look at each series that several people marked."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{name: own + getattr(other, name) for name, own in vars(self).items()})

    @property
    def found(self) -> list[int]:
        return sorted(delay for delay in self.delays if delay is not None)

    @property
    def recall(self) -> float:
        return len(self.found) / len(self.delays)

    @property
    def prompt_recall(self) -> float:
        """Of the changes that were reported within ``PROMPT`` runs."""
        return sum(delay <= PROMPT for delay in self.found) / len(self.delays)

    @property
    def precision(self) -> float | None:
        reported = len(self.found) + self.false_alarms
        return len(self.found) / reported if reported else None


def replay(method: Method, series: LabelledSeries) -> Tally:
    """Each look is at one value more. A place is an alarm once, however often it is reported."""
    delays: dict[int, int] = {}
    false: list[int] = []
    places: Sequence[int] = ()
    begin = time.process_time()
    for count in range(series.first_look, len(series.values) + 1):
        places = method(series.values[:count])
        for place in places:
            if matched := _near(place, (c for c in series.changes if c < count)):
                delays.setdefault(matched, count - matched)
            elif not _near(place, series.neutral) and not _near(place, false):
                false.append(place)
    return Tally(
        delays=tuple(delays.get(change) for change in series.changes),
        false_alarms=len(false),
        runs=len(series.values) - series.first_look + 1,
        seconds=time.process_time() - begin,
        scores=(score(series.marks, places, len(series.values)),) if series.marks else (),
    )


def _near(place: int, others: Iterable[int]) -> int | None:
    close = [other for other in others if abs(other - place) <= TOLERANCE]
    return min(close, key=lambda other: abs(other - place)) if close else None


def score(marks: Sequence[Iterable[int]], places: Iterable[int], count: int) -> Score:
    """``marks`` has the places of each person, in a series of ``count`` values."""
    # To every reader the first value begins a level, so one who marked nothing can agree.
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
    """Marks that have a place of their own nearby."""
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
    """Jaccard's index: the common part of both, by all that either has."""
    common = len(range(max(level.start, other.start), min(level.stop, other.stop)))
    return common / (len(level) + len(other) - common)
