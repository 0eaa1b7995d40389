"""The history that a comparison is judged by: the runs that led to BASE, then to HEAD. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ci.analysis.series import Measured

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
    rows: Sequence[Measured], commits: Mapping[str, float] | None, base: Measured, head: Measured
) -> list[Measured]:
    """The runs of a line in its order; of ``base`` and ``head``, whatever is among ``rows``.

    Without commits to go by, all runs in the order of time.
    """
    if commits is None:
        return list(rows)
    fallback = {base.run_id: BEFORE_ALL, head.run_id: float(len(commits))}

    def place(row: Measured) -> float:
        known = commits.get(row.commit or "", fallback.get(row.run_id, 0.0))
        return known + A_BIT if row.dirty else known

    chosen = [
        row for row in rows if row.run_id in fallback or (row.commit in commits and not row.dirty)
    ]
    return sorted(chosen, key=lambda row: (place(row), row.started_at))


def newest_of(rows: Sequence[Measured], commits: Collection[str]) -> Measured | None:
    """The last run of a line that is of these commits."""
    clean = (row for row in reversed(rows) if not row.dirty and row.commit in commits)
    return next(clean, None)
