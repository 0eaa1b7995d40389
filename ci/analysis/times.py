"""The times of two runs, judged by the history between them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ci.analysis.changes import POLICY
from ci.analysis.regressions import Change, Environment, Series, history
from ci.facts.environment_key import EnvironmentKey
from ci.facts.measures import stage_and_quantity
from ci.store.rows import Accepted, Measured


class Judgement(StrEnum):
    """What is made of a measure, the worst first."""

    REGRESSION = "regression"
    SUSPECTED = "suspected"
    ACCEPTED = "accepted"
    IMPROVEMENT = "improvement"
    HOPED = "suspected improvement"
    SMALL_RISE = "small rise"  # certain, and too little to alarm
    CHANGED = "changed"  # too little for a word
    TOO_LITTLE = "too little data"
    WITHIN_NOISE = "within noise"
    UNCHANGED = "unchanged"

    @property
    def is_news(self) -> bool:
        return self not in (self.CHANGED, self.TOO_LITTLE, self.WITHIN_NOISE, self.UNCHANGED)


@dataclass(frozen=True, kw_only=True)
class MeasureChange:
    """One measure of both runs."""

    measure: str
    base: float
    head: float
    """What the two runs took."""
    judgement: Judgement
    before: float
    after: float
    """The levels that the runs belong to, where the history knows of several."""
    detectable: float | None = None
    """The smallest relative change that would have been seen."""
    steps: tuple[Change, ...] = ()
    """The changes of the level between the two runs, as the history has them."""

    @property
    def delta(self) -> float:
        return self.after - self.before

    @property
    def relative(self) -> float | None:
        return self.delta / self.before if self.before else None


@dataclass(frozen=True, kw_only=True)
class Times:
    """The times of both runs, which have one environment."""

    key: EnvironmentKey
    base: Measured
    head: Measured
    head_runs: int
    """Runs of HEAD's commit and environment."""
    changes: tuple[MeasureChange, ...]
    headlines: tuple[str, ...]
    """The measures reported in words: of a place where several changed, one."""
    before: tuple[str, ...] = ()
    """The runs of the line that come before BASE, the newest last."""

    def of(self, judgement: Judgement) -> list[MeasureChange]:
        return [change for change in self.changes if change.judgement is judgement]


@dataclass(frozen=True, kw_only=True)
class NoTimes:
    """Why no times are compared."""

    reasons: tuple[str, ...]
    key: EnvironmentKey | None = None
    """HEAD's."""


def compare_times(
    rows: Sequence[Measured],
    keys: Mapping[str, EnvironmentKey],
    base: Measured,
    head: Measured,
    accepted: Sequence[Accepted] = (),
) -> Times | NoTimes:
    """Judge HEAD by ``rows``: the runs of its line and environment, in the order of the line."""
    key = keys[head.key]
    if base.key != head.key:
        return NoTimes(reasons=tuple(key.changes(keys[base.key])), key=key)
    untimed = [row.run_id for row in (base, head) if not row.values]
    if untimed:
        return NoTimes(reasons=(f"no stage of run {untimed[0]} got to its end",), key=key)
    [environment] = history(rows, {head.key: key}, accepted).environments
    run_ids = [row.run_id for row in rows]
    places = (run_ids.index(base.run_id), run_ids.index(head.run_id))
    changes = tuple(_changes(environment, base, head, places))
    return Times(
        key=key,
        base=base,
        head=head,
        head_runs=sum(row.commit == head.commit and not row.dirty for row in rows)
        if head.commit and not head.dirty
        else 1,
        changes=changes,
        headlines=_headlines(environment, changes),
        before=tuple(run_ids[: places[0]]),
    )


def _headlines(environment: Environment, changes: Sequence[MeasureChange]) -> tuple[str, ...]:
    """The worst of each shift; of those that are alike, the most specific stage."""
    order = list(Judgement)
    told = {
        (step.measure, step.place): order.index(change.judgement)
        for change in changes
        if change.judgement.is_news
        for step in change.steps
    }
    found: dict[str, None] = {}
    for shift in environment.shifts:
        places = [(step.measure, step.place) for step in shift.changes]
        if news := [place for place in places if place in told]:
            found[min(news, key=told.__getitem__)[0]] = None
    return tuple(found)


def _changes(
    environment: Environment, base: Measured, head: Measured, places: tuple[int, int]
) -> Iterator[MeasureChange]:
    steps = sorted(
        (change for shift in environment.shifts for change in shift.changes),
        key=lambda change: change.place,
    )
    first, last = sorted(places)
    for series in environment.series:
        name = series.measure
        if name in base.values and name in head.values:
            between = [it for it in steps if it.measure == name and first < it.place <= last]
            values = base.values[name], head.values[name]
            yield _change(series, between, values, is_backwards=places[1] < places[0])


def _change(
    series: Series, steps: Sequence[Change], values: tuple[float, float], *, is_backwards: bool
) -> MeasureChange:
    is_noisy = stage_and_quantity(series.measure)[1].is_noisy
    before, after = values
    if not is_noisy:
        judgement = _judge_exact([] if is_backwards else steps, before, after)
    else:
        if steps:
            before, after = steps[0].point.before, steps[-1].point.after
        elif is_backwards:
            before, after = after, before
        judgement = _judge_noisy(series, steps, before, after)
        if is_backwards:
            judgement, before, after = _MIRRORED.get(judgement, judgement), after, before
    return MeasureChange(
        measure=series.measure,
        base=values[0],
        head=values[1],
        judgement=judgement,
        before=before,
        after=after,
        detectable=series.finding.detectable if is_noisy else None,
        steps=tuple(steps),
    )


# What a change is called by a reader who looks back at it from its end.
_MIRRORED = {
    Judgement.REGRESSION: Judgement.IMPROVEMENT,
    Judgement.ACCEPTED: Judgement.IMPROVEMENT,
    Judgement.IMPROVEMENT: Judgement.REGRESSION,
    Judgement.SUSPECTED: Judgement.HOPED,
    Judgement.HOPED: Judgement.SUSPECTED,
}


def _judge_noisy(series: Series, steps: Sequence[Change], before: float, after: float) -> Judgement:
    detectable = series.finding.detectable
    if not steps:
        return Judgement.TOO_LITTLE if detectable is None else Judgement.WITHIN_NOISE
    if len(steps) > 1 and abs(after / before - 1) <= (detectable or 0.0):  # there and back
        return Judgement.WITHIN_NOISE
    is_worse = after > before
    causes = [step for step in steps if step.is_worse is is_worse]
    is_sure = any(step.point.confirmed for step in causes)
    if not is_worse:
        return Judgement.IMPROVEMENT if is_sure else Judgement.HOPED
    if all(step.accepted for step in causes):
        return Judgement.ACCEPTED
    # Whether any alarms where it happened, be it undone later.
    is_open = any(replace(step, undone=None).is_open for step in causes)
    return Judgement.REGRESSION if is_open else Judgement.SUSPECTED


def _judge_exact(steps: Sequence[Change], before: float, after: float) -> Judgement:
    if before == after:
        return Judgement.UNCHANGED
    relative = after / before - 1 if before else math.inf
    if abs(relative) < POLICY.exact_minimum:
        return Judgement.CHANGED
    if relative < 0:
        return Judgement.IMPROVEMENT
    if any(step.accepted for step in steps):
        return Judgement.ACCEPTED
    return Judgement.SMALL_RISE if relative < POLICY.exact_alarm else Judgement.REGRESSION
