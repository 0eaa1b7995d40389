"""The tests of two runs, with what only the runs before them can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ci.analysis.difference import Difference, Kind, run_difference
from ci.analysis.flaky import Flaky
from ci.analysis.slower import MOST, slower
from ci.analysis.suite import suite_name
from ci.comparison.times import NoTimes, Times
from ci.history.flaky import stored_flaky

if TYPE_CHECKING:
    from ci.store.store import Store

Place = tuple[str, str]  # run id, platform


def compare_outcomes(
    store: Store, base: Place, head: Place, times: Times | NoTimes, *, project: str
) -> Difference:
    """What changed; slower tests only where the times of the two can be compared."""
    after = store.outcomes(*head)
    found = run_difference(store.outcomes(*base), after)
    if failing := {change.test for change in found.of(Kind.NEWLY_FAILING)}:
        tests = {name for name in after.bad if suite_name(name, after.device) in failing}
        flaky = stored_flaky(store, head[1], project, tests=tests)
        found = _with_evidence(found, flaky, after.device)
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


def _with_evidence(found: Difference, flaky: Sequence[Flaky], device: str | None) -> Difference:
    """Say of what fails newly that it is known to do so now and then; it counts all the same."""
    known = {suite_name(test.node_id, device): str(test) for test in flaky}
    return replace(
        found,
        changes=tuple(
            replace(change, flaky=known.get(change.test))
            if change.kind is Kind.NEWLY_FAILING
            else change
            for change in found.changes
        ),
    )
