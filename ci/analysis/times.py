"""The times of two runs, judged by the history between them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ci.analysis.changes import POLICY
from ci.analysis.regressions import Environment, LevelChange, history
from ci.facts.environment_key import EnvironmentKey
from ci.facts.measures import stage_and_quantity
from ci.store.rows import Acceptance, RunMeasures


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
    steps: tuple[LevelChange, ...] = ()
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
    base: RunMeasures
    head: RunMeasures
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
    rows: Sequence[RunMeasures],
    keys: Mapping[str, EnvironmentKey],
    base: RunMeasures,
    head: RunMeasures,
    accepted: Sequence[Acceptance] = (),
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
    is_clean = head.commit and not head.dirty
    alike = [row for row in rows if is_clean and row.commit == head.commit and not row.dirty]
    return Times(
        key=key,
        base=base,
        head=head,
        head_runs=len(alike or [head]),
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
    environment: Environment, base: RunMeasures, head: RunMeasures, places: tuple[int, int]
) -> Iterator[MeasureChange]:
    changes = (change for shift in environment.shifts for change in shift.changes)
    ordered = sorted(changes, key=lambda change: change.place)
    first, last = sorted(places)
    is_backwards = places[1] < places[0]
    for series in environment.series:
        name, detectable = series.measure, series.finding.detectable
        if name not in base.values or name not in head.values:
            continue
        steps = [it for it in ordered if it.measure == name and first < it.place <= last]
        before, after = base.values[name], head.values[name]
        if not stage_and_quantity(name)[1].is_noisy:
            detectable = None
            judgement = _judge_exact([] if is_backwards else steps, before, after)
        else:
            if is_backwards:  # judged as it happened, then seen from its end
                before, after = after, before
            if steps:
                before, after = steps[0].point.before, steps[-1].point.after
            judgement = _judge_noisy(steps, before, after, detectable)
            if is_backwards:
                judgement, before, after = _MIRRORED.get(judgement, judgement), after, before
        yield MeasureChange(
            measure=name,
            base=base.values[name],
            head=head.values[name],
            judgement=judgement,
            before=before,
            after=after,
            detectable=detectable,
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


def _judge_noisy(
    steps: Sequence[LevelChange], before: float, after: float, detectable: float | None
) -> Judgement:
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


def _judge_exact(steps: Sequence[LevelChange], before: float, after: float) -> Judgement:
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
