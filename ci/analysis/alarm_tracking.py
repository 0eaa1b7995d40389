"""The identity and the state of alarms, from one check to the next. Pure.

More runs move the found place of a rise, show it on further platforms and in further quantities,
and change its size. The store has the rises of each alarm where they were last found: an alarm of
today with one of them is the same alarm.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ci.analysis.alarms import Alarm, combine
from ci.analysis.changes import POLICY
from ci.analysis.level_changes import MOVES, TOGETHER, TOLERANCE, LevelChange
from ci.analysis.platform_history import PlatformHistory, ProjectLine
from ci.facts.measures import measure_name, percent
from ci.gates.rules import Subject
from ci.store.rows import AlarmRecord, AlarmRise, AlarmState, RunHead
from ci.util.text import commit_name, counted

SETTLED = POLICY.confirm
"""Commits with runs after a message, before the end of its alarm is sent, and after a rise is no
longer found, before its alarm is over: as many as confirm a change."""
LARGER = 2
"""The factor by which a rise is clearly larger than one that was sent or called invalid: it is then
sent, or open, again. What is left of a resolved one is sent only above the inverse."""
UNFIXED = 2 * POLICY.confirm
"""Commits with runs after a fix that did not help: an improvement would show in half of them."""
FAR_LARGER = 4
"""The factor by which a rise is larger than one that was found near it, and so another one. More
runs change the size of one rise, but by less from one check to the next."""
ID_DIGITS = 8


@dataclass(frozen=True, kw_only=True)
class TrackedAlarm:
    """An alarm with what the store knows of it."""

    record: AlarmRecord
    alarm: Alarm | None
    """What is open of it; ``None``: nothing is."""
    state: AlarmState
    """That of the record, unless it is over, its fix did not help, or an invalid one grew."""
    why: str = ""
    """How it was resolved, or why a fixed or invalid one is open again."""
    is_accepted: bool = False
    owners: tuple[str, ...] = ()
    """The owners of the files that changed where it began, then those of its platforms."""

    @property
    def is_dismissed(self) -> bool:
        """Whether it fails no check."""
        return self.alarm is None or self.state is AlarmState.INVALID

    @property
    def is_decided(self) -> bool:
        """Whether it is over by what a person said."""
        return self.is_accepted or self.state in (AlarmState.INVALID, AlarmState.FIXED)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do, as far as receivers need to know."""
        return self.is_dismissed or self.state is AlarmState.FIXED


def track_alarms(
    alarms: Sequence[Alarm],
    known: Sequence[AlarmRecord],
    histories: Sequence[PlatformHistory],
    along: ProjectLine,
    *,
    complete: bool = True,
) -> list[TrackedAlarm]:
    """Find the record of each alarm, and make one for a new alarm; then those that are over.

    ``complete`` is whether the histories have all platforms, stages and runs: only then a rise that
    is not found is over. Records whose runs are not on the line are left out, and those of further
    platforms that the histories lack do not end.
    """
    rises = _rises(histories)
    claims = _claims(alarms, known, rises, along)
    found: dict[str, tuple[AlarmRecord, list[Alarm]]] = {}
    by_id = {record.alarm_id: record for record in known}
    named = {claims.get(key) for alarm in alarms for key in _keys(alarm)}
    hidden = [
        record
        for record in known
        if record.alarm_id not in named
        and along.commits_since(record.seen_run_id) < SETTLED
        and not _end(record, rises, histories, along, complete=complete)
    ]
    owned = [(it, [id_ for key in _keys(it) if (id_ := claims.get(key))]) for it in alarms]

    def keeps_kind(alarm: Alarm, claimed: Iterable[str]) -> bool:
        return any(by_id[it].kind == alarm.kind for it in claimed)

    # If alarms of both kinds have rises of one record, it goes to the one of its kind.
    for alarm, claimed in sorted(owned, key=lambda it: not keeps_kind(*it)):
        fit = [it for it in claimed if it not in found or found[it][1][0].kind is alarm.kind]
        alarm_id = next((it for it in fit if keeps_kind(alarm, [it])), next(iter(fit), None))
        if alarm_id is None and not claimed:
            same = (it.alarm_id for it in hidden if _is_at_one_place(it, alarm, along.order))
            alarm_id = next(same, None)
        alarm_id = alarm_id or _new_id(alarm, along.project, {*by_id, *found})
        record = by_id.get(alarm_id) or AlarmRecord(alarm_id=alarm_id, kind=alarm.kind, rises=())
        found.setdefault(alarm_id, (record, []))[1].append(alarm)
    tracked = [_open(record, parts, along) for record, parts in found.values()]
    for record in known:
        if record.alarm_id not in found:
            end = _end(record, rises, histories, along, complete=complete)
            tracked += [end] if end else []
    return tracked


def gate_subject(histories: Sequence[PlatformHistory], tracked: Sequence[TrackedAlarm]) -> Subject:
    """What a gate looks at in the histories of platforms."""
    # Without an environment, no stage of a platform completed in any run.
    gaps = [it.platform for it in histories if not it.history.environments]
    return Subject(
        judgements={it.alarm.kind for it in tracked if it.alarm and not it.is_dismissed},
        gaps=gaps if histories else ["no platform"],
    )


def by_rise(tracked: Sequence[TrackedAlarm]) -> dict[tuple[str, str], TrackedAlarm]:
    """The alarm of each open rise, by its run and measure."""
    rows = ((it, row) for it in tracked if it.alarm for row in it.alarm.rows)
    return {(change.run.run_id, change.measure): it for it, row in rows for change in row.changes}


# Identity

Key = tuple[str, str, str]  # platform, measure and run
Rises = Mapping[tuple[str, str], Sequence[LevelChange]]  # by platform and measure


def _rises(histories: Iterable[PlatformHistory]) -> Rises:
    """All rises of today, whatever the judgment on them."""
    found: dict[tuple[str, str], list[LevelChange]] = {}
    for it in histories:
        shifts = (change for _, shift in it.history.shifts for change in shift.changes)
        with_key = (rise for changed in it.history.environment_rises for rise in changed.rises)
        for change in (*shifts, *with_key):
            if change.is_worse:
                found.setdefault((it.platform, change.measure), []).append(change)
    return found


def _keys(alarm: Alarm) -> list[Key]:
    """The rises of an alarm, those that its rows are named after first."""
    first = [(row.platform, row.change) for row in alarm.rows]
    also = [(row.platform, change) for row in alarm.rows for change in row.also]
    return [(platform, it.measure, it.run.run_id) for platform, it in (*first, *also)]


def _claims(
    alarms: Sequence[Alarm], known: Sequence[AlarmRecord], rises: Rises, along: ProjectLine
) -> dict[Key, str]:
    """The alarm that each rise of today belongs to, where it is known.

    A known rise is the nearest of today's within ``MOVES`` runs that is not far larger. Closed ones
    compete, too: a further rise above an accepted one is another alarm. A step between the same two
    levels is the same one anywhere, if its alarm was found lately, and nothing is left of it where
    it was.
    """
    claims: dict[Key, str] = {}
    taken: set[tuple[str, str, str]] = set()

    def claim(pairs: Iterable[tuple[int, AlarmRecord, AlarmRise, LevelChange]]) -> None:
        for _, record, rise, change in sorted(pairs, key=_preference):
            key = (rise.platform, rise.measure, change.run.run_id)
            own = (record.alarm_id, rise.platform, rise.measure)
            if key not in claims and own not in taken:
                claims[key] = record.alarm_id
                taken.add(own)

    pairs = [(n, it, rise, change) for it in known for n, rise, change in _pairs(it, rises, along)]
    near = [pair for pair in pairs if _may_be_same(pair[0], *pair[2:])]
    claim(near)
    lost = {it.alarm_id for it in known if along.commits_since(it.seen_run_id) < SETTLED}
    lost -= {record.alarm_id for _, record, _, _ in near}
    is_open = {key for alarm in alarms for key in _keys(alarm)}
    claim(
        (distance, record, rise, change)
        for distance, record, rise, change in pairs
        if record.alarm_id in lost
        and (rise.platform, rise.measure, change.run.run_id) in is_open
        and _is_same_step(rise, change)
    )
    return claims


def _preference(pair: tuple[int, AlarmRecord, AlarmRise, LevelChange]) -> tuple[int, bool]:
    """The nearest rise first; of records at the same place, that of its kind."""
    distance, record, _, change = pair
    return distance, record.kind != change.judgement


def _pairs(
    record: AlarmRecord, rises: Rises, along: ProjectLine
) -> Iterator[tuple[int, AlarmRise, LevelChange]]:
    """The rises of an alarm with those of today of the same measure, and the runs between them.

    None are between a rise and a gradual one that was going on then.
    """
    for rise in record.rises:
        of_platform = along.platform_places.get(rise.platform, {})
        then = of_platform.get(rise.run_id)
        for change in rises.get((rise.platform, rise.measure), ()):
            now = of_platform.get(change.run.run_id)
            end = of_platform.get(change.reached.run_id) if change.reached else now
            if then is not None and now is not None and end is not None:
                yield max(now - then, then - end, 0), rise, change


def _may_be_same(distance: int, rise: AlarmRise, change: LevelChange) -> bool:
    """Whether a rise of today may be a known one: it is near, and not far larger."""
    known = abs(rise.level / rise.before - 1) if rise.before else math.inf
    size = abs(change.point.relative) if change.point.before else 0.0
    return distance <= MOVES and size <= FAR_LARGER * known


def _is_same_step(rise: AlarmRise, change: LevelChange) -> bool:
    if rise.before is None:
        return False
    pairs = ((rise.before, change.point.before), (rise.level, change.point.after))
    return all(abs(now - then) <= TOLERANCE * then for then, now in pairs)


def _is_at_one_place(record: AlarmRecord, alarm: Alarm, order: Mapping[str, int]) -> bool:
    """Whether a record whose rises noise hides today began with the commits of an alarm.

    One cause shows on another platform while the first one is in doubt.
    """
    begin, end = order[alarm.before.run_id], order[alarm.first.run_id]
    known = ((order.get(it.before_run_id or ""), order.get(it.run_id)) for it in record.rises)
    return record.kind is alarm.kind and any(
        begin - last < TOGETHER and first - end < TOGETHER
        for first, last in known
        if first is not None and last is not None
    )


def _new_id(alarm: Alarm, project: str, taken: set[str]) -> str:
    """A short name that all readers of one store find alike, whether or not it is saved yet."""
    row = alarm.rows[0]
    text = "\0".join((project, row.platform, row.change.measure, row.change.run.run_id))
    while True:
        text = hashlib.sha256(text.encode()).hexdigest()
        if text[:ID_DIGITS] not in taken:
            return text[:ID_DIGITS]


# State


def _open(record: AlarmRecord, parts: Sequence[Alarm], along: ProjectLine) -> TrackedAlarm:
    """An alarm with open rises; noise may have split those of one record."""
    alarm = parts[0]
    if len(parts) > 1:
        alarm = combine(alarm.kind, [row for it in parts for row in it.rows], along.order)
    rises = {(it.platform, it.measure): it for it in record.rises}
    growth = ""
    for row in alarm.rows:
        for change in row.changes:
            known = rises.get((row.platform, change.measure))
            rise = _rise_of(row.platform, change)
            if record.state is AlarmState.INVALID and known is not None:
                growth = growth or _growth(known, rise)
                rise = replace(rise, before=known.before, level=known.level)
            rises[row.platform, change.measure] = rise
    record = replace(
        record,
        kind=alarm.kind,
        rises=tuple(rises[it] for it in sorted(rises)),
        seen_run_id=along.line.runs[-1].run_id,
    )
    if record.state is AlarmState.FIXED and (why := _why_unfixed(record, alarm, along)):
        return TrackedAlarm(record=record, alarm=alarm, state=AlarmState.OPEN, why=why)
    if growth:
        why = f"since it was called invalid, {growth}"
        return TrackedAlarm(record=record, alarm=alarm, state=AlarmState.OPEN, why=why)
    return TrackedAlarm(record=record, alarm=alarm, state=record.state)


def _rise_of(platform: str, change: LevelChange) -> AlarmRise:
    return AlarmRise(
        platform=platform,
        measure=change.measure,
        before_run_id=change.before_run.run_id,
        run_id=change.run.run_id,
        before=change.point.before,
        level=change.point.after,
    )


def _growth(then: AlarmRise, now: AlarmRise) -> str:
    """How a rise grew since someone called it invalid; empty unless it is clearly larger."""
    if not then.before or not now.before:
        return ""
    sizes = then.level / then.before - 1, now.level / now.before - 1
    if abs(sizes[1]) < LARGER * abs(sizes[0]):
        return ""
    name = f"{measure_name(now.measure)} on {now.platform}"
    return f"{name} grew from {percent(sizes[0], '+')} to {percent(sizes[1], '+')}"


def with_levels(tracked: TrackedAlarm) -> AlarmRecord:
    """The record of an alarm with the levels of today, of which a person says something now."""
    rises = {(it.platform, it.measure): it for it in tracked.record.rises}
    for row in tracked.alarm.rows if tracked.alarm else ():
        for change in (*row.also, row.change):  # of two steps of one measure, the headline
            rises[row.platform, change.measure] = _rise_of(row.platform, change)
    return replace(tracked.record, rises=tuple(rises[it] for it in sorted(rises)))


def _why_unfixed(record: AlarmRecord, alarm: Alarm, along: ProjectLine) -> str | None:
    """Why an alarm that is said to be fixed is open again; ``None`` while that is not known."""
    places, order = along.line.places, along.order
    runs = [run for run in along.line.runs if {*run.platforms} & {*alarm.platforms}]
    fix = places.get(record.commit or "")

    def has_fix(run: RunHead) -> bool:
        is_later = fix is not None and places.get(run.commit or "", -1) >= fix
        return is_later or run.commit == record.commit

    since = next((order[run.run_id] for run in runs if has_fix(run)), None)
    if since is None and record.stated_at:  # a commit of a branch, which was merged or will be
        later = (order[run.run_id] for run in runs if run.started_at > record.stated_at)
        since = min(later, default=None)
    if since is None:
        return None
    commits = {order[run.run_id] for run in runs if order[run.run_id] >= since}
    if len(commits) < UNFIXED:
        return None
    count = counted(len(commits), "commit")
    return f"{commit_name(record.commit)} did not bring the cost back in {count} with runs"


def _end(
    record: AlarmRecord,
    today: Rises,
    histories: Sequence[PlatformHistory],
    along: ProjectLine,
    *,
    complete: bool,
) -> TrackedAlarm | None:
    """An alarm without open rises; ``None`` if it did not end, or is not on the line."""

    def ended(why: str, *, is_accepted: bool = False) -> TrackedAlarm:
        state = AlarmState.RESOLVED
        return TrackedAlarm(
            record=record, alarm=None, state=state, why=why, is_accepted=is_accepted
        )

    if not complete and not {*record.platforms} <= {it.platform for it in histories}:
        return None  # it may be open on another platform
    near = [pair for pair in _pairs(record, today, along) if _may_be_same(*pair)]
    for _, _, change in sorted(near, key=lambda it: it[0]):
        if change.accepted is not None:
            why = f"accepted by {change.accepted.who}: {change.accepted.reason}"
            return ended(why, is_accepted=True)
        if change.undone is not None:
            undone = change.undone
            name = commit_name(undone.commit, dirty=undone.dirty)
            return ended(f"undone by {undone.run_id} ({name})")
    on_line = any(it.run_id in along.order for it in record.rises)
    if near or not complete or not on_line or along.commits_since(record.seen_run_id) < SETTLED:
        return None
    past = (it for found in histories for it in found.history.past)
    unused = {run.run_id for environment in past for run in environment.runs}
    if any(it.run_id in unused for it in record.rises):
        return ended("its environment is no longer in use")
    return ended("with more runs, the rise is no longer found")
