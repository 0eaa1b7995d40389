"""The history that a comparison is judged by: the runs that led to BASE, then to HEAD. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ci.analysis.series import Measured

if TYPE_CHECKING:
    from ci.store.rows import RunHead

BEFORE = 100  # runs before BASE that are looked at: levels are judged by half as many
BETWEEN = 400  # of more, every second, third, ... one
AFTER = 20  # runs after HEAD, which confirm what it is
BEFORE_ALL = -1.0
A_BIT = 0.5  # later than its commit is what was changed on top of it


def places(base: Sequence[str], head: Sequence[str]) -> dict[str, float]:
    """The place of every commit in a line, from the ancestors of both, the newest first.

    What only HEAD has comes last: its runs are judged by those of BASE.
    """
    order = [*reversed(base), *reversed(head)]
    found: dict[str, float] = {}
    for commit in order:
        found.setdefault(commit, len(found))
    return found


def line(
    rows: Sequence[RunHead], commits: Mapping[str, float] | None, base: RunHead, head: RunHead
) -> list[RunHead]:
    """The runs of a line in its order, of those that are given in the order of time.

    Without commits to go by, all runs in the order of time.
    """
    if commits is None:
        return list(rows)
    fallback = {base.run_id: BEFORE_ALL, head.run_id: float(len(commits))}

    def place(row: RunHead) -> float:
        known = commits.get(row.commit or "", fallback.get(row.run_id, 0.0))
        return known + A_BIT if row.dirty else known

    chosen = [
        row for row in rows if row.run_id in fallback or (row.commit in commits and not row.dirty)
    ]
    return sorted(chosen, key=lambda row: (place(row), row.started_at))


def window(rows: Sequence[RunHead], base: RunHead, head: RunHead) -> list[RunHead]:
    """What is looked at of a long line: enough to know the levels of both."""
    run_ids = [row.run_id for row in rows]
    first, last = sorted((run_ids.index(base.run_id), run_ids.index(head.run_id)))
    between = rows[first + 1 : last]
    thinned = between[:: len(between) // BETWEEN + 1]
    ends = (rows[max(0, first - BEFORE) : first + 1], rows[max(first + 1, last) : last + AFTER + 1])
    return [*ends[0], *thinned, *ends[1]]


def newest_of(rows: Sequence[Measured], commits: Collection[str]) -> Measured | None:
    """The last run of a line that is of these commits."""
    clean = (row for row in reversed(rows) if not row.dirty and row.commit in commits)
    return next(clean, None)
