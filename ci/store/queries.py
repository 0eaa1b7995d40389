"""What is asked of many runs at once: columns, no objects of rows, which take 4 times as long."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from ci.analysis.accepted import Accepted
from ci.analysis.environment_key import EnvironmentKey
from ci.analysis.series import Measured
from ci.store.rows import RunHead, SameEnvironment
from ci.store.tables import (
    AcceptedRow,
    DetailsRow,
    EnvironmentKeyRow,
    MeasuredRow,
    PlatformRow,
    RunRow,
)

# A start is known to the second only, and short runs share one.
NEWEST_FIRST = (RunRow.started_at.desc(), RunRow.finished_at.desc(), RunRow.run_id.desc())
_SLICE = 1_000  # names in one query; SQLite takes 32,766


def heads(
    connection: Connection,
    *,
    project: str | None,
    commits: Collection[str] | None,
    last: int | None,
) -> list[RunHead]:
    query = select(
        RunRow.run_id, RunRow.project, RunRow.commit, RunRow.dirty, RunRow.started_at
    ).order_by(*NEWEST_FIRST)
    if project is not None:
        query = query.where(RunRow.project == project)
    runs = _chosen(connection, query, commits, last)
    platforms = _platforms(connection, [run.run_id for run in runs])
    return [RunHead(**run._mapping, platforms=tuple(platforms.get(run.run_id, ()))) for run in runs]


def measured(
    connection: Connection,
    platform: str,
    *,
    project: str,
    last: int | None,
    commits: Collection[str] | None,
    runs: Collection[str] | None,
) -> list[Measured]:
    query = (
        select(
            RunRow.run_id,
            RunRow.commit,
            RunRow.dirty,
            RunRow.started_at,
            PlatformRow.environment_key,
            MeasuredRow.measures,
        )
        .join(RunRow, PlatformRow.run_id == RunRow.run_id)
        .join(MeasuredRow, MeasuredRow.platform_id == PlatformRow.id)
        .where(PlatformRow.platform == platform, RunRow.project == project)
        .order_by(*NEWEST_FIRST)
    )
    if runs is not None:
        query = query.where(RunRow.run_id.in_(runs))
    found = _chosen(connection, query, commits, last)
    return [
        Measured(
            run_id=run.run_id,
            commit=run.commit,
            dirty=run.dirty,
            started_at=run.started_at,
            key=run.environment_key,
            values=run.measures,
        )
        for run in reversed(found)
    ]


def environment_keys(connection: Connection, digests: Collection[str]) -> dict[str, EnvironmentKey]:
    found: dict[str, EnvironmentKey] = {}
    for some in _slices(sorted(set(digests))):
        query = select(EnvironmentKeyRow.digest, EnvironmentKeyRow.components)
        for digest, parts in connection.execute(query.where(EnvironmentKeyRow.digest.in_(some))):
            found[digest] = EnvironmentKey(**parts)
    return found


def same_environment(
    connection: Connection, platform: str, *, project: str
) -> list[SameEnvironment]:
    query = (
        select(
            RunRow.commit,
            PlatformRow.environment_key,
            RunRow.run_id,
            DetailsRow.node_ids,
            DetailsRow.outcomes,
            DetailsRow.reruns.is_not(None).label("rerun"),
        )
        .join(PlatformRow, PlatformRow.run_id == RunRow.run_id)
        .join(DetailsRow, DetailsRow.platform_id == PlatformRow.id)
        .where(
            PlatformRow.platform == platform,
            RunRow.project == project,
            RunRow.commit.is_not(None),
            RunRow.dirty.is_(False),
            DetailsRow.outcomes.is_not(None),
        )
        .order_by(*NEWEST_FIRST)
    )
    groups: dict[tuple[Any, Any], list[Any]] = {}
    for row in reversed(connection.execute(query).all()):
        groups.setdefault((row.commit, row.environment_key), []).append(row)
    return [
        SameEnvironment(
            commit=commit,
            key=key,
            run_ids=tuple(row.run_id for row in rows),
            rerun=tuple(row.run_id for row in rows if row.rerun),
            differing=len({(row.node_ids, row.outcomes) for row in rows}) > 1,
        )
        for (commit, key), rows in groups.items()
        if len(rows) > 1 or rows[0].rerun
    ]


def accepted(connection: Connection, project: str) -> list[Accepted]:
    columns = AcceptedRow.__table__.columns
    query = select(*columns).where(AcceptedRow.project == project)
    rows = connection.execute(query.order_by(AcceptedRow.accepted_at))
    return [Accepted(**row._mapping) for row in rows]


def _chosen(
    connection: Connection, query: Any, commits: Collection[str] | None, last: int | None
) -> Sequence[Row[Any]]:
    """The newest runs, of these commits if any are named; a branch may have any number."""
    if commits is None:
        return connection.execute(query.limit(last)).all()
    wanted = frozenset(commits)
    return [row for row in connection.execute(query) if row.commit in wanted][:last]


def _platforms(connection: Connection, run_ids: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for some in _slices(run_ids):
        query = select(PlatformRow.run_id, PlatformRow.platform).where(PlatformRow.run_id.in_(some))
        for run_id, platform in connection.execute(query.order_by(PlatformRow.platform)):
            found.setdefault(run_id, []).append(platform)
    return found


def _slices(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(values), _SLICE):
        yield values[begin : begin + _SLICE]
