"""Runs come one after the other, and each time a method looks at all that there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench.changes.scenarios import Labelled
from bench.changes.scores import Score, score

Method = Callable[[list[float]], Sequence[int]]
"""From values to the places where it says, for sure, that a new level begins."""

# A change is found if it is reported at most this far from where it is.
TOLERANCE = 3
# Within so many runs a change should be known.
PROMPT = 5


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
        return Tally(
            delays=self.delays + other.delays,
            false_alarms=self.false_alarms + other.false_alarms,
            runs=self.runs + other.runs,
            seconds=self.seconds + other.seconds,
            scores=self.scores + other.scores,
        )

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

    @property
    def delay(self) -> int | None:
        return self.found[len(self.found) // 2] if self.found else None

    @property
    def false_per_1000(self) -> float:
        return 1000 * self.false_alarms / self.runs


def replay(method: Method, series: Labelled) -> Tally:
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
