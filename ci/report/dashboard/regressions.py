"""The page of regressions: the rises on all platforms, open and closed.

``ci.gates`` decides what a regression is, and ``find_alarms`` which of them share a cause: those of
this page are the ones on which ``history --check`` fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from ci.analysis.alarm_tracking import TrackedAlarm, track_alarms
from ci.analysis.alarms import Alarm, AlarmRow, find_alarms
from ci.analysis.level_changes import LevelChange
from ci.facts.measures import amount, growth, measure_name, stage_and_quantity
from ci.gates.regression import Judgement
from ci.report.alarm_report import acknowledge_command, bisect_command, headline, place_text
from ci.report.changes import accept_command, change_status, tracking_text
from ci.report.dashboard.collection import Collection
from ci.report.dashboard.html import file_stem
from ci.store.rows import RunMeasures
from ci.util.text import join_names

MOST_CLOSED = 200
"""Closed regressions, the newest: some years of them."""
MOST_ALSO = 5  # other measures that rose with one
_CLOSED = (Judgement.ACCEPTED, Judgement.UNDONE)


@dataclass(frozen=True, kw_only=True)
class Rise:
    """A rise of one measure on one platform."""

    label: str
    href: str
    """The plot that shows it."""
    measure: str
    levels: str
    size: str
    run: RunMeasures
    """The first run with it."""
    runs_since: int
    notes: tuple[str, ...]
    """Its cause, what rose with it, and why it is not open, as far as they are known."""


@dataclass(frozen=True, kw_only=True)
class RiseGroup:
    """The rises of one cause, with the commands for them."""

    headline: str
    place: str
    state: str
    """Its id, its state and its owners."""
    acknowledge: str
    rises: tuple[Rise, ...]
    bisect: str | None
    accept: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RegressionsPage:
    """All rises that are regressions, may be, or were."""

    open: tuple[RiseGroup, ...]
    with_environment: tuple[RiseGroup, ...]
    invalid: tuple[RiseGroup, ...]
    """Those that someone marked as invalid, of both kinds."""
    suspected: tuple[Rise, ...]
    closed: tuple[Rise, ...]
    """The newest of them."""
    all_closed: int


def regressions_page(found: Collection) -> RegressionsPage:
    groups: dict[Judgement, list[RiseGroup]] = {}
    invalid: list[RiseGroup] = []
    for tracked, rows in _alarms(found):
        if (alarm := tracked.alarm) is not None:
            kind = invalid if tracked.is_dismissed else groups.setdefault(alarm.kind, [])
            kind.append(_group(found, tracked, alarm, rows))
    closed = _rises(found, _CLOSED)
    return RegressionsPage(
        open=tuple(groups.get(Judgement.REGRESSION, ())),
        with_environment=tuple(groups.get(Judgement.ENVIRONMENT, ())),
        invalid=tuple(invalid),
        suspected=tuple(_rises(found, (Judgement.SUSPECTED,))),
        closed=tuple(closed[:MOST_CLOSED]),
        all_closed=len(closed),
    )


def _alarms(found: Collection) -> Iterator[tuple[TrackedAlarm, Mapping[str, str]]]:
    """Every alarm, with the rows of its platforms: runs of selected operators have their own."""
    for tracked in found.tracked:
        yield tracked, {name: name for name in tracked.record.platforms}
    for row in found.platforms:
        if not found.is_whole(row):
            alarms = find_alarms([found.histories[row]], found.along.order)
            for tracked in track_alarms(alarms, (), [found.histories[row]], found.along):
                yield tracked, {found.platform(row): row}


def _group(
    found: Collection, tracked: TrackedAlarm, alarm: Alarm, rows: Mapping[str, str]
) -> RiseGroup:
    def rise(row: AlarmRow) -> Rise:
        also = [it.text for it in row.also]
        notes = (
            f"cause: {row.cause}" if row.cause else "",
            f"also rose: {join_names(also, MOST_ALSO)}" if also else "",
        )
        return _rise(found, rows[row.platform], row.change, notes)

    accept = dict.fromkeys(
        accept_command(row.platform, row.change.run, row.change) for row in alarm.rows
    )
    return RiseGroup(
        headline=headline(alarm),
        place=place_text(alarm),
        state=tracking_text(tracked),
        acknowledge=acknowledge_command(tracked),
        rises=tuple(map(rise, alarm.rows)),
        bisect=bisect_command(alarm),
        accept=tuple(accept),
    )


def _rises(found: Collection, judgements: Sequence[Judgement]) -> list[Rise]:
    """The rises of these judgments on all platforms, the newest first."""
    found_ones = _unsorted_rises(found, judgements)
    return sorted(found_ones, key=lambda it: -found.along.order[it.run.run_id])


def _unsorted_rises(found: Collection, judgements: Sequence[Judgement]) -> Iterator[Rise]:
    for name in found.platforms:
        history = found.histories[name].history
        for _, shift in history.shifts:
            if shift.judgement in judgements:
                yield _rise(found, name, shift.headline)
        for changed in history.environment_rises:
            first = next((it for it in changed.rises if it.judgement.is_open), changed.rises[0])
            if first.judgement in judgements:
                yield _rise(found, name, first, (f"together with: {'; '.join(changed.changes)}",))


def _rise(found: Collection, name: str, change: LevelChange, notes: Sequence[str] = ()) -> Rise:
    point, quantity = change.point, stage_and_quantity(change.measure)[1]
    is_cold = found.keys[change.run.key].cache.startswith("cold")
    place = {
        "measure": change.measure,
        "cache": "cold" if is_cold else "warm",
        "run": change.run.run_id,
    }
    return Rise(
        label=found.label(name),
        href=f"{file_stem('platform', name)}.html#{urlencode(place)}",
        measure=measure_name(change.measure),
        levels=f"{amount(point.before, quantity)} → {amount(point.after, quantity)}",
        size=growth(point.before, point.after, quantity),
        run=change.run,
        runs_since=change.runs_since,
        notes=tuple(filter(None, (*notes, change_status(change)))),
    )
