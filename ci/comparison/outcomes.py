"""The tests of two runs, with what only the runs before them can tell."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ci.analysis.difference import Difference, run_difference
from ci.analysis.slower import MOST, slower
from ci.comparison.times import NoTimes, Times

if TYPE_CHECKING:
    from ci.store.store import Store

Place = tuple[str, str]  # run id, platform


def compare_outcomes(store: Store, base: Place, head: Place, times: Times | NoTimes) -> Difference:
    """What changed; slower tests only where the times of the two can be compared."""
    after = store.outcomes(*head)
    found = run_difference(store.outcomes(*base), after)
    if isinstance(times, NoTimes):
        return found
    platform = head[1]
    newest = times.before[-(MOST - 1) :]
    grown = slower(
        store.outcomes(times.base.run_id, platform),
        after,
        lambda: [store.outcomes(run_id, platform) for run_id in newest],
    )
    return replace(found, changes=(*found.changes, *grown))
