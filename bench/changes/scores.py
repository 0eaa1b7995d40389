"""How well reported places agree with what several people marked, as the Turing benchmark scores.

Van den Burg and Williams, An Evaluation of Change Point Detection Algorithms,
https://arxiv.org/abs/2003.06222: the whole series is seen at once, and nobody is right alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

# A place is a person's mark if it is at most this far from it.
MARGIN = 5


@dataclass(frozen=True, kw_only=True)
class Score:
    f1: float
    """Of the places anybody marked (precision), and the mean of each person's (recall)."""
    covering: float
    """How well the levels overlap each person's, at best 1."""


def score(marks: Sequence[Iterable[int]], places: Iterable[int], count: int) -> Score:
    """``marks`` has the places of each person, in a series of ``count`` values."""
    # The first value begins a level in everybody's eyes; so somebody who marked nothing can agree.
    people = [sorted({0, *person}) for person in marks]
    reported = sorted({0, *places})
    precision = _hits(sorted({mark for person in people for mark in person}), reported) / len(
        reported
    )
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
    levels = list(pairwise((*reported, count)))
    return (
        sum(
            (end - start) * max(_overlap(start, end, *level) for level in levels)
            for start, end in pairwise((*person, count))
        )
        / count
    )


def _overlap(start: int, end: int, other_start: int, other_end: int) -> float:
    """Jaccard's index of two ranges."""
    common = max(0, min(end, other_end) - max(start, other_start))
    return common / (end - start + other_end - other_start - common)
