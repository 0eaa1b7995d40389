"""Alarms: regressions of all platforms, with one alarm per cause. Pure.

Platforms that get slower by one commit share a cause. Where each of them was measured differs, so
that rises belong together if the commits between which they began overlap, or nearly so: noise
shifts the found places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ci.analysis.level_changes import MOVES, TOGETHER, LevelChange, uncertainty
from ci.analysis.parts import group_by
from ci.analysis.platform_history import PlatformHistory
from ci.analysis.stage_order import containing_measures
from ci.facts.measures import Quantity, stage_and_quantity
from ci.gates.regression import Judgement
from ci.store.rows import RunMeasures

MOST_UNLIKE = 2
"""The largest ratio of the relative rises of a part and its whole, if both are one rise."""


@dataclass(frozen=True, kw_only=True)
class AlarmRow:
    """The rise on one platform in one environment."""

    platform: str
    change: LevelChange
    environment: str
    also: tuple[LevelChange, ...] = ()
    """Other quantities that rose with it."""
    cause: str | None = None

    @property
    def changes(self) -> tuple[LevelChange, ...]:
        return (self.change, *self.also)


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """One cause: confirmed rises that are neither accepted nor undone."""

    kind: Judgement
    rows: tuple[AlarmRow, ...]
    """Sorted by platform."""
    before: RunMeasures
    """The last run before the rise, on any of the platforms."""
    first: RunMeasures
    """The first run with it."""
    place: int
    """The place of the first run on the line of commits."""

    @property
    def platforms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.platform for row in self.rows))

    @property
    def largest(self) -> AlarmRow:
        """The row that the headline names."""
        return max(self.rows, key=lambda it: abs(it.change.point.relative))

    @property
    def reached(self) -> RunMeasures:
        """The first run with the whole rise: of a gradual one, long after the first with it."""
        return self.largest.change.reached or self.first

    @property
    def size(self) -> float:
        """The relative size of the largest change: of a measure that should be high, of a fall."""
        return abs(self.largest.change.point.relative)


def find_alarms(histories: Iterable[PlatformHistory], order: Mapping[str, int]) -> list[Alarm]:
    """Group the open regressions and environment rises of platforms, newest first.

    ``order`` has the place of each run on the line of commits, which the histories follow.
    """
    rows = [row for it in histories for row in (*_regressions(it), *_environment_rises(it))]
    rows = _join_parts(rows, order)
    alarms = []
    # Fewer executed tests are no cost: to dismiss one alarm does not dismiss the other.
    kinds = group_by(rows, lambda row: (row.change.judgement, row.change.is_of_executed_share))
    for (kind, _), found in kinds.items():
        groups: list[list[AlarmRow]] = []
        for row in sorted(found, key=lambda it: order[it.change.run.run_id], reverse=True):
            newest = groups[-1] if groups else []
            if not newest or not all(_is_together(it.change, row.change, order) for it in newest):
                groups.append([])
            groups[-1].append(row)
        alarms += [combine(kind, group, order) for group in groups]
    return sorted(alarms, key=lambda it: (it.kind is Judgement.ENVIRONMENT, -it.place))


def _regressions(record: PlatformHistory) -> Iterator[AlarmRow]:
    for environment, shift in record.history.shifts:
        if shift.judgement is Judgement.REGRESSION:
            explanation = record.cause_of(shift.headline)
            yield AlarmRow(
                platform=record.platform,
                environment=str(environment.key),
                change=shift.headline,
                also=tuple(it for it in shift.others if it.is_rise),
                cause=(explanation and explanation.causes) or None,
            )


def _environment_rises(record: PlatformHistory) -> Iterator[AlarmRow]:
    keys = {it.runs[0].key: str(it.key) for it in record.history.environments}
    for changed in record.history.environment_rises:
        rises = [it for it in changed.rises if it.judgement.is_open]
        if rises:
            yield AlarmRow(
                platform=record.platform,
                environment=keys.get(changed.run.key, ""),
                change=rises[0],
                also=tuple(rises[1:]),
                cause="; ".join(changed.changes),
            )


def _join_parts(rows: Iterable[AlarmRow], order: Mapping[str, int]) -> list[AlarmRow]:
    """One row for a rise of a part and that of its whole, between which noise moved the place.

    A part has wall time alone, which neighbors of the machine lengthen. CPU seconds of the whole
    know the place better.
    """
    joined: list[AlarmRow] = []

    def preference(row: AlarmRow) -> tuple[bool, tuple[bool, float]]:
        quantities = (stage_and_quantity(it.measure)[1] for it in row.changes)
        return Quantity.CPU not in quantities, uncertainty(row.change)

    for row in sorted(rows, key=preference):
        alike = (n for n, it in enumerate(joined) if _is_of_one_rise(it, row, order))
        place = next(alike, None)
        if place is None:
            joined.append(row)
        else:
            known = joined[place]
            also = (*known.also, *row.changes)
            joined[place] = replace(known, also=also, cause=known.cause or row.cause)
    return joined


def _is_of_one_rise(known: AlarmRow, row: AlarmRow, order: Mapping[str, int]) -> bool:
    names, others = ({it.measure for it in some.changes} for some in (known, row))
    is_alike = (known.platform, known.environment) == (row.platform, row.environment)
    # Two rises of one measure are two steps.
    if not is_alike or known.change.judgement is not row.change.judgement or names & others:
        return False
    is_whole = any(containing_measures(it) & others for it in names)
    is_part = any(containing_measures(it) & names for it in others)
    sizes = sorted(abs(it.change.point.relative) for it in (known, row))
    is_near = abs(known.change.place - row.change.place) <= MOVES
    is_near = is_near or _overlap(known.change, row.change, order)
    return (is_whole or is_part) and is_near and sizes[1] <= MOST_UNLIKE * sizes[0]


def _overlap(one: LevelChange, other: LevelChange, order: Mapping[str, int]) -> bool:
    """Whether a gradual rise may have begun with the same commit as another rise."""
    begin = max(order[it.before_run.run_id] for it in (one, other))
    end = min(order[it.run.run_id] for it in (one, other))
    return (one.is_gradual or other.is_gradual) and begin < end


def _is_together(later: LevelChange, change: LevelChange, order: Mapping[str, int]) -> bool:
    """Whether two rises may begin with one commit; ``later`` is not before ``change``."""
    return order[later.before_run.run_id] - order[change.run.run_id] < TOGETHER


def combine(kind: Judgement, rows: Sequence[AlarmRow], order: Mapping[str, int]) -> Alarm:
    """Combine rises: the commits between which all begin, as far as their ranges overlap."""
    changes = sorted((row.change for row in rows), key=uncertainty)
    before, first = changes[0].before_run, changes[0].run
    for change in changes[1:]:
        begin = max(before, change.before_run, key=lambda run: order[run.run_id])
        end = min(first, change.run, key=lambda run: order[run.run_id])
        if order[begin.run_id] < order[end.run_id]:
            before, first = begin, end
    ordered = sorted(rows, key=lambda row: (row.platform, row.environment))
    place = order[first.run_id]
    return Alarm(kind=kind, rows=tuple(ordered), before=before, first=first, place=place)
