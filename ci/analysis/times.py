"""Compare the times of two runs, judged by the runs between and around them. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ci.analysis.changes import POLICY
from ci.analysis.histories import history
from ci.analysis.level_changes import Environment, LevelChange, is_small
from ci.facts.acceptance import Acceptance
from ci.facts.environment_key import EnvironmentKey
from ci.facts.measures import headline, is_worse, stage_and_quantity
from ci.gates.regression import Judgement, judge_change
from ci.store.rows import RunMeasures


@dataclass(frozen=True, kw_only=True)
class MeasureChange:
    """One measure in both runs, with its judgment."""

    measure: str
    base: float
    head: float
    """The values of the two runs."""
    judgement: Judgement
    before: float
    after: float
    """The levels that the runs belong to, if the level changed between them."""
    detectable: float | None = None
    """The smallest detectable relative change."""
    steps: tuple[LevelChange, ...] = ()
    """The changes of level between the two runs."""

    @property
    def text(self) -> str:
        """``compile +38 s (+21 %)``."""
        return headline(self.measure, self.before, self.after)

    @property
    def delta(self) -> float:
        return self.after - self.before

    @property
    def relative(self) -> float | None:
        return self.delta / self.before if self.before else None


@dataclass(frozen=True, kw_only=True)
class Times:
    """The times of both runs, which share an environment."""

    key: EnvironmentKey
    base: RunMeasures
    head: RunMeasures
    head_runs: int
    """The number of runs of HEAD's commit and environment."""
    changes: tuple[MeasureChange, ...]
    headlines: tuple[str, ...]
    """The measures to report in words: one for each place where measures changed."""
    before: tuple[str, ...] = ()
    """The runs before BASE on the line, newest last."""

    def of(self, judgement: Judgement) -> list[MeasureChange]:
        return [change for change in self.changes if change.judgement is judgement]


@dataclass(frozen=True, kw_only=True)
class MissingTimes:
    """The reasons why no times are compared."""

    reasons: tuple[str, ...]
    key: EnvironmentKey | None = None
    """The environment of HEAD."""


def compare_times(
    rows: Sequence[RunMeasures],
    keys: Mapping[str, EnvironmentKey],
    base: RunMeasures,
    head: RunMeasures,
    accepted: Sequence[Acceptance] = (),
    near: Collection[str] = (),
) -> Times | MissingTimes:
    """Judge HEAD by ``rows``: the runs on its line with its environment, in order of the line.

    The base of a noisy measure is its median over the runs of the commits ``near``, if there are.
    """
    key = keys[head.key]
    if base.key != head.key:
        return MissingTimes(reasons=tuple(map(str, key.changes(keys[base.key]))), key=key)
    untimed = [row.run_id for row in (base, head) if not row.values]
    if untimed:
        return MissingTimes(reasons=(f"no stage of run {untimed[0]} completed",), key=key)
    [environment] = history(rows, {head.key: key}, accepted).environments
    run_ids = [row.run_id for row in rows]
    places = (run_ids.index(base.run_id), run_ids.index(head.run_id))
    of_base = [row for row in rows if row.commit in near and not row.dirty] or [base]
    changes = tuple(_changes(environment, base, head, places, of_base))
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
    """The worst measure of each shift; among equals, that of the most specific stage."""
    order = list(Judgement)
    ranks = {
        (step.measure, step.place): order.index(change.judgement)
        for change in changes
        if change.judgement.is_news
        for step in change.steps
    }
    found: dict[str, None] = {}
    for shift in environment.shifts:
        places = [(step.measure, step.place) for step in shift.changes]
        if news := [place for place in places if place in ranks]:
            found[min(news, key=ranks.__getitem__)[0]] = None
    return tuple(found)


def _changes(
    environment: Environment,
    base: RunMeasures,
    head: RunMeasures,
    places: tuple[int, int],
    of_base: Sequence[RunMeasures],
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
            judgement = _judge_exact(name, [] if is_backwards else steps, before, after)
        else:
            before = median([row.values[name] for row in of_base if name in row.values] or [before])
            if is_backwards:  # judge in order of time, then mirror the judgment
                before, after = after, before
            if steps:
                before, after = steps[0].point.before, steps[-1].point.after
            judgement = _judge_noisy(name, steps, before, after, detectable)
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


# The judgment if HEAD comes before BASE.
_MIRRORED = {
    Judgement.REGRESSION: Judgement.IMPROVEMENT,
    Judgement.ACCEPTED: Judgement.IMPROVEMENT,
    Judgement.IMPROVEMENT: Judgement.REGRESSION,
    Judgement.SUSPECTED: Judgement.SUSPECTED_IMPROVEMENT,
    Judgement.SUSPECTED_IMPROVEMENT: Judgement.SUSPECTED,
}


def _judge_noisy(
    name: str, steps: Sequence[LevelChange], before: float, after: float, detectable: float | None
) -> Judgement:
    if not steps:
        return Judgement.TOO_LITTLE_DATA if detectable is None else Judgement.WITHIN_NOISE
    margin = (detectable or 0.0) * abs(before)
    if len(steps) > 1 and abs(after - before) <= margin:  # there and back
        return Judgement.WITHIN_NOISE
    is_loss = is_worse(name, before, after)
    causes = [step for step in steps if step.is_worse is is_loss]
    if not is_loss:
        is_sure = any(step.point.confirmed for step in causes)
        return Judgement.IMPROVEMENT if is_sure else Judgement.SUSPECTED_IMPROVEMENT
    # A rise that a later run undid is still a regression between these two runs.
    judged = (replace(step, undone=None).judgement for step in causes)
    return min(judged, key=list(Judgement).index, default=Judgement.WITHIN_NOISE)


def _judge_exact(name: str, steps: Sequence[LevelChange], before: float, after: float) -> Judgement:
    if before == after:
        return Judgement.UNCHANGED
    relative = after / before - 1 if before else math.inf
    if abs(relative) < POLICY.exact_minimum:
        return Judgement.CHANGED
    return judge_change(
        is_worse=is_worse(name, before, after),
        is_accepted=any(step.accepted for step in steps),
        is_small=is_small(name, relative),
    )
