"""What is asked of many runs at once: columns, no objects of rows, which take 4 times as long."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, select

from ci.facts.environment_key import EnvironmentKey, successors
from ci.facts.suite import Columns, Outcomes
from ci.model.results import Product
from ci.store import blobs
from ci.store.rows import Accepted, Measured, RunHead, SameEnvironment
from ci.store.tables import (
    ACCEPTED,
    BLOBS,
    DETAILS,
    ENVIRONMENT_KEYS,
    MEASURED,
    PLATFORMS,
    RUNS,
    WITH_RERUNS,
)

# A start is known to the second only, and short runs share one.
NEWEST_FIRST = (RUNS.c.started_at.desc(), RUNS.c.finished_at.desc(), RUNS.c.run_id.desc())
_BETWEEN_NAMES = "/"  # of platforms; none has it in its name, since RUN/PLATFORM is one of them
_BEFORE_PRODUCT = " "
_SLICE = 1_000  # names in one query; SQLite takes 32,766


def heads(
    connection: Connection,
    *,
    project: str | None,
    commits: Collection[str] | None,
    last: int | None,
) -> list[RunHead]:
    row = PLATFORMS.c.platform + _BEFORE_PRODUCT + PLATFORMS.c.product
    names = select(func.aggregate_strings(row, _BETWEEN_NAMES))
    query = select(
        RUNS.c.run_id,
        RUNS.c.project,
        RUNS.c.commit,
        RUNS.c.dirty,
        RUNS.c.started_at,
        names.where(PLATFORMS.c.run_id == RUNS.c.run_id).scalar_subquery().label("names"),
    ).order_by(*NEWEST_FIRST)
    if project is not None:
        query = query.where(RUNS.c.project == project)
    return [
        RunHead(
            run_id=run.run_id,
            project=run.project,
            commit=run.commit,
            dirty=run.dirty,
            started_at=run.started_at,
            **_platforms(run.names or ""),
        )
        for run in _chosen(connection, query, commits, last)
    ]


def _platforms(names: str) -> dict[str, tuple[str, ...]]:
    """``cpu not_run/moore passed`` as the fields of a ``RunHead``."""
    products = dict(name.split(_BEFORE_PRODUCT) for name in names.split(_BETWEEN_NAMES) if name)
    begun = (name for name, product in products.items() if product != Product.NOT_RUN)
    return {"platforms": tuple(sorted(products)), "begun": tuple(sorted(begun))}


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
            RUNS.c.run_id,
            RUNS.c.commit,
            RUNS.c.dirty,
            RUNS.c.started_at,
            PLATFORMS.c.environment_key,
            MEASURED.c.measures,
        )
        .join(RUNS, PLATFORMS.c.run_id == RUNS.c.run_id)
        .join(MEASURED, MEASURED.c.platform_id == PLATFORMS.c.id)
        .where(PLATFORMS.c.platform == platform, RUNS.c.project == project)
        .order_by(*NEWEST_FIRST)
    )
    if runs is not None:
        query = query.where(RUNS.c.run_id.in_(runs))
    found = _chosen(connection, query, commits, last)
    now = _successors(connection, platform)
    return [
        Measured(
            run_id=run.run_id,
            commit=run.commit,
            dirty=run.dirty,
            started_at=run.started_at,
            key=now.get(run.environment_key, run.environment_key),
            values=run.measures,
        )
        for run in reversed(found)
    ]


def _successors(connection: Connection, platform: str) -> dict[str, str]:
    first = func.min(PLATFORMS.c.id)
    query = select(PLATFORMS.c.environment_key).where(PLATFORMS.c.platform == platform)
    order = query.group_by(PLATFORMS.c.environment_key).order_by(first)
    digests = [digest for digest in connection.scalars(order) if digest is not None]
    keys = environment_keys(connection, digests)
    return successors({digest: keys[digest] for digest in digests})


def environment_keys(connection: Connection, digests: Collection[str]) -> dict[str, EnvironmentKey]:
    found: dict[str, EnvironmentKey] = {}
    for some in _slices(sorted(set(digests))):
        query = select(ENVIRONMENT_KEYS.c.digest, ENVIRONMENT_KEYS.c.components)
        for digest, parts in connection.execute(query.where(ENVIRONMENT_KEYS.c.digest.in_(some))):
            found[digest] = EnvironmentKey(**parts)
    return found


def same_environment(
    connection: Connection, platform: str, *, project: str
) -> list[SameEnvironment]:
    """Rows of details are long, and most runs are the only one of their commit: few are read."""
    query = (
        select(RUNS.c.commit, PLATFORMS.c.environment_key, RUNS.c.run_id, PLATFORMS.c.id)
        .join(PLATFORMS, PLATFORMS.c.run_id == RUNS.c.run_id)
        .where(
            PLATFORMS.c.platform == platform,
            RUNS.c.project == project,
            RUNS.c.commit.is_not(None),
            RUNS.c.dirty.is_(False),
        )
        .order_by(*NEWEST_FIRST)
    )
    now = _successors(connection, platform)
    groups: dict[tuple[Any, Any], list[Any]] = {}
    for row in reversed(connection.execute(query).all()):
        key = now.get(row.environment_key, row.environment_key)
        groups.setdefault((row.commit, key), []).append(row)
    rerun = set(connection.scalars(select(DETAILS.c.platform_id).where(WITH_RERUNS)))
    several = {of: rows for of, rows in groups.items() if len(rows) > 1 or rows[0].id in rerun}
    lists = _outcome_lists(connection, [row.id for rows in several.values() for row in rows])
    found = [
        _same_environment(of, [row for row in rows if row.id in lists], lists, rerun)
        for of, rows in several.items()
    ]
    return [group for group in found if len(group.run_ids) > 1 or group.rerun]


def _outcome_lists(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[str | None, str]]:
    """The digests of node ids and outcomes, of those that have any."""
    columns = (DETAILS.c.platform_id, DETAILS.c.node_ids, DETAILS.c.outcomes)
    query = select(*columns).where(DETAILS.c.outcomes.is_not(None))
    return {
        row.platform_id: (row.node_ids, row.outcomes)
        for some in _slices(ids)
        for row in connection.execute(query.where(DETAILS.c.platform_id.in_(some)))
    }


def _same_environment(
    of: tuple[str, str],
    rows: Sequence[Row[Any]],
    lists: Mapping[int, tuple[str | None, str]],
    rerun: Collection[int],
) -> SameEnvironment:
    commit, key = of
    return SameEnvironment(
        commit=commit,
        key=key,
        run_ids=tuple(row.run_id for row in rows),
        rerun=tuple(row.run_id for row in rows if row.id in rerun),
        differing=len({lists[row.id] for row in rows}) > 1,
    )


def accepted(connection: Connection, project: str) -> list[Accepted]:
    columns = ACCEPTED.c
    query = select(*columns).where(ACCEPTED.c.project == project)
    rows = connection.execute(query.order_by(ACCEPTED.c.accepted_at))
    return [Accepted(**row._mapping) for row in rows]


def _chosen(
    connection: Connection, query: Any, commits: Collection[str] | None, last: int | None
) -> Sequence[Row[Any]]:
    """The newest runs, of these commits if any are named; a branch may have any number."""
    if commits is None:
        return connection.execute(query.limit(last)).all()
    wanted = frozenset(commits)
    return [row for row in connection.execute(query) if row.commit in wanted][:last]


def _slices(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(values), _SLICE):
        yield values[begin : begin + _SLICE]


def outcomes_of_some(
    connection: Connection, tests: Collection[str], run_ids: Collection[str], platform: str
) -> dict[str, Outcomes]:
    """By run, those of the tests that it has, without their times."""
    query = (
        select(PLATFORMS.c.run_id, DETAILS.c.node_ids, DETAILS.c.outcomes)
        .join(PLATFORMS, DETAILS.c.platform_id == PLATFORMS.c.id)
        .where(
            PLATFORMS.c.platform == platform,
            PLATFORMS.c.run_id.in_(run_ids),
            DETAILS.c.outcomes.is_not(None),
        )
    )
    rows = connection.execute(query).all()
    digests = {digest for row in rows for digest in (row.node_ids, row.outcomes)}
    contents = _contents(connection, digests)
    places = {
        digest: _places(blobs.names(contents[digest]), tests)
        for digest in {row.node_ids for row in rows}
    }
    return {row.run_id: _outcomes(places[row.node_ids], contents[row.outcomes]) for row in rows}


def _contents(connection: Connection, digests: Collection[str]) -> dict[str, bytes]:
    query = select(BLOBS.c.digest, BLOBS.c.content).where(BLOBS.c.digest.in_(digests))
    return {row.digest: row.content for row in connection.execute(query)}


def _places(names: Sequence[str], tests: Iterable[str]) -> dict[str, int]:
    """Names are stored in their order."""
    found = {test: bisect_left(names, test) for test in tests}
    return {test: n for test, n in found.items() if n < len(names) and names[n] == test}


def _outcomes(places: dict[str, int], content: bytes) -> Outcomes:
    endings = blobs.endings(content, places.values())
    return Outcomes(Columns(names=lambda: [*places], endings=lambda: endings, seconds=_unknown))


def _unknown() -> Sequence[float]:
    raise NotImplementedError("the times of some tests alone are not loaded")
