"""The alarms of a project, which every command that prints their ids saves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ci.errors import InfrastructureError
from ci.util.terminal import complain

if TYPE_CHECKING:  # they import NumPy and SQLAlchemy
    from ci.analysis.alarm_tracking import TrackedAlarm
    from ci.analysis.platform_history import PlatformHistory, ProjectLine
    from ci.store.store import Store


def tracked_alarms(
    store: Store,
    histories: Sequence[PlatformHistory],
    along: ProjectLine,
    *,
    complete: bool = True,
) -> list[TrackedAlarm]:
    """Find the alarms of histories with their records, and save what changed of these.

    ``complete`` is whether the histories have all platforms, stages and runs.
    """
    from ci.analysis.alarm_tracking import track_alarms
    from ci.analysis.alarms import find_alarms
    from ci.analysis.owners import add_owners

    known = store.alarm_records(along.project)
    alarms = find_alarms(histories, along.order)
    tracked = track_alarms(alarms, known, histories, along, complete=complete)
    try:
        if new := [it.record for it in tracked if it.record not in known]:
            store.save_alarms(along.project, new)
    except InfrastructureError as error:
        complain(f"warning: {error}\n{error.remedy or ''}".rstrip())
    return add_owners(tracked, along)
