"""What is to be sent of an alarm, from one check to the next. Pure.

One cause is one message, a correction only if many more runs show something else, and an end.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from ci.analysis.alarm_tracking import LARGER, SETTLED, TrackedAlarm
from ci.analysis.alarms import AlarmRow
from ci.analysis.changes import POLICY
from ci.analysis.platform_history import ProjectLine
from ci.analysis.stage_order import stages_around
from ci.facts.measures import TOTAL, stage_and_quantity
from ci.store.rows import AlarmEvent, AlarmMessage, AlarmState

BETTER = 2
"""How many times as many commits with runs since the rise as at the last message are needed for a
correction. The place is known better with more runs; one that moves back and forth sends a few."""


def due_event(
    tracked: TrackedAlarm,
    last: AlarmMessage | None,
    along: ProjectLine,
    sent: Collection[AlarmMessage] = (),
) -> AlarmEvent | None:
    """What is to be sent of an alarm, after the last message of it; ``None``: nothing.

    ``sent`` has the last messages of all alarms to the same address.

    What a person decides is sent at once. The end of an alarm waits for ``SETTLED`` commits, and
    what more runs show about one and the same rise until there are ``BETTER`` times as many.
    """
    is_open = tracked.state is AlarmState.OPEN and tracked.alarm is not None
    if last is None:
        return AlarmEvent.NEW if is_open and not _is_late(tracked, along, sent) else None
    if last.event is AlarmEvent.RESOLVED:
        is_back = not _is_rest(tracked, last) and _is_better_known(tracked, last, along)
        return AlarmEvent.REOPENED if is_open and (last.decided or is_back) else None
    if tracked.is_over:
        is_due = tracked.is_decided or along.commits_since(last.latest_run_id) >= SETTLED
        return AlarmEvent.RESOLVED if is_due else None
    is_other = _is_elsewhere(tracked, last, along) or is_undersold(tracked, last)
    is_due = is_open and is_other and not _is_partly_over(tracked)
    is_due = is_due and _is_better_known(tracked, last, along)
    return AlarmEvent.CORRECTED if is_due else None


def _is_partly_over(tracked: TrackedAlarm) -> bool:
    """Whether it is over on some platforms: the others alone know it less well."""
    open_ = tracked.alarm.platforms if tracked.alarm else ()
    return {*open_} != {*tracked.record.platforms}


def _is_late(tracked: TrackedAlarm, along: ProjectLine, sent: Collection[AlarmMessage]) -> bool:
    """Whether an earlier check, which sent a message, had all runs that a rise is judged by.

    It did not find the rise: later runs changed how other runs are read. One that a person accepted
    or spoke of was found.
    """
    rows = tracked.alarm.rows if tracked.alarm else ()
    known = {(it.platform, it.measure) for it in along.accepted}
    if tracked.record.stated_at or known & {(it.platform, it.change.measure) for it in rows}:
        return False

    def runs_until(row: AlarmRow, message: AlarmMessage) -> int:
        """The runs with the rise that the check had."""
        first, end = (
            along.order[row.change.run.run_id],
            along.order.get(message.latest_run_id or ""),
        )
        places = (along.order[it] for it in along.platform_places.get(row.platform, ()))
        return 0 if end is None else sum(first <= place <= end for place in places)

    return any(all(runs_until(it, message) >= POLICY.window for it in rows) for message in sent)


def _is_better_known(tracked: TrackedAlarm, last: AlarmMessage, along: ProjectLine) -> bool:
    known = along.commits_since(last.run_id) - along.commits_since(last.latest_run_id)
    first = tracked.alarm.first.run_id if tracked.alarm else None
    return along.commits_since(first) >= BETTER * known


def _is_elsewhere(tracked: TrackedAlarm, last: AlarmMessage, along: ProjectLine) -> bool:
    """Whether the rise may have begun with a commit that the last message did not name.

    A range that contains that of the message shows the same rise, less well known: the message may
    be right.
    """
    order, alarm = along.order, tracked.alarm
    begin, end = order.get(last.before_run_id or ""), order.get(last.run_id)
    if alarm is None or begin is None or end is None:
        return False
    is_earlier, is_later = order[alarm.before.run_id] < begin, order[alarm.first.run_id] > end
    is_wider = order[alarm.before.run_id] <= begin and order[alarm.first.run_id] >= end
    return (is_earlier or is_later) and not is_wider


def _is_rest(tracked: TrackedAlarm, last: AlarmMessage) -> bool:
    """Whether little is left of the rise that the last message named: most of it was undone."""
    size = tracked.alarm.size if tracked.alarm else 0.0
    return last.size is not None and size < abs(last.size) / LARGER


def is_undersold(tracked: TrackedAlarm, last: AlarmMessage) -> bool:
    """Whether the rise is clearly larger than the last message said, or not of its stage at all.

    The total is of no stage. A stage and the one that contains it are no others.
    """
    if tracked.alarm is None or last.measure is None or last.size is None:
        return False
    rises = [it for row in tracked.alarm.rows for it in row.changes]
    stages = {stage_and_quantity(it.measure)[0] for it in rises} - {TOTAL}
    then = stage_and_quantity(last.measure)[0]
    is_of_it = any(then in stages_around(it) or it in stages_around(then) for it in stages)
    is_larger = tracked.alarm.size >= LARGER * abs(last.size)
    return is_larger or bool(stages and not is_of_it)


def message_of(
    tracked: TrackedAlarm,
    event: AlarmEvent,
    last: AlarmMessage | None,
    along: ProjectLine,
    sent_at: datetime,
) -> AlarmMessage:
    """What to remember of a message."""
    alarm = tracked.alarm
    known = (last.before_run_id, last.run_id) if last else (None, "")
    before, first = (alarm.before.run_id, alarm.first.run_id) if alarm else known
    said = (last.measure, last.size) if last else (None, None)
    if alarm and (largest := alarm.largest.change).point.before:
        said = largest.measure, largest.point.relative
    return AlarmMessage(
        alarm_id=tracked.record.alarm_id,
        event=event,
        before_run_id=before,
        run_id=first,
        latest_run_id=along.line.runs[-1].run_id,
        decided=tracked.is_decided,
        sent_at=sent_at,
        measure=said[0],
        size=said[1],
    )
