"""What is asked of many runs at once: columns, no objects of rows, which take 4 times as long."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, func, select

from ci.facts.environment_key import EnvironmentKey, successors
from ci.facts.suite import Outcomes
from ci.model.results import Product
from ci.store import blobs
from ci.store.connect import reading
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


class Queries:
    """Those that a ``Store`` answers beside loading one run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def heads(
        self,
        *,
        project: str | None = None,
        commits: Collection[str] | None = None,
        last: int | None = None,
    ) -> list[RunHead]:
        """List runs, the newest first: the ``last`` ones, those of some commits, or all."""
        # ``cpu not_run/moore passed``: a row for each platform of each run takes longer to read.
        row = PLATFORMS.c.platform + _BEFORE_PRODUCT + PLATFORMS.c.product
        names = select(func.aggregate_strings(row, _BETWEEN_NAMES))
        query = select(
            RUNS.c.run_id,
            RUNS.c.project,
            RUNS.c.commit,
            RUNS.c.dirty,
            RUNS.c.started_at,
            names.where(PLATFORMS.c.run_id == RUNS.c.run_id).scalar_subquery().label("platforms"),
        ).order_by(*NEWEST_FIRST)
        if project is not None:
            query = query.where(RUNS.c.project == project)
        with reading(self._engine) as connection:
            found = _chosen(connection, query, commits, last)
        heads = []
        for run in found:
            rows = run.platforms.split(_BETWEEN_NAMES) if run.platforms else ()
            products = dict(sorted(row.split(_BEFORE_PRODUCT) for row in rows))
            heads.append(
                RunHead(
                    run_id=run.run_id,
                    project=run.project,
                    commit=run.commit,
                    dirty=run.dirty,
                    started_at=run.started_at,
                    platforms=tuple(products),
                    begun=tuple(name for name in products if products[name] != Product.NOT_RUN),
                )
            )
        return heads

    def measured(
        self,
        platform: str,
        *,
        project: str,
        last: int | None = None,
        commits: Collection[str] | None = None,
        runs: Collection[str] | None = None,
    ) -> list[Measured]:
        """List the measures of a platform's runs, the oldest first; chosen as ``heads`` are.

        With ``runs``, some hundreds of ids, of these only.
        """
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
        with reading(self._engine) as connection:
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

    def environment_keys(self, digests: Collection[str]) -> dict[str, EnvironmentKey]:
        """Look up what digests stand for."""
        with reading(self._engine) as connection:
            return _environment_keys(connection, digests)

    def same_environment(self, platform: str, *, project: str) -> list[SameEnvironment]:
        """Group the runs that tested one commit in one environment, and again or twice."""
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
        with reading(self._engine) as connection:
            now = _successors(connection, platform)
            groups: dict[tuple[str, str], list[Row[Any]]] = {}
            for row in reversed(connection.execute(query).all()):
                key = now.get(row.environment_key, row.environment_key)
                groups.setdefault((row.commit, key), []).append(row)
            rerun = set(connection.scalars(select(DETAILS.c.platform_id).where(WITH_RERUNS)))
            # Rows of details are long, and most runs are the only one of their commit.
            several = {
                k: rows for k, rows in groups.items() if len(rows) > 1 or rows[0].id in rerun
            }
            lists = _outcome_lists(
                connection, [row.id for rows in several.values() for row in rows]
            )
        found = []
        for (commit, key), rows in several.items():
            tested = [row for row in rows if row.id in lists]
            group = SameEnvironment(
                commit=commit,
                key=key,
                run_ids=tuple(row.run_id for row in tested),
                rerun=tuple(row.run_id for row in tested if row.id in rerun),
                differing=len({lists[row.id] for row in tested}) > 1,
            )
            if len(group.run_ids) > 1 or group.rerun:
                found.append(group)
        return found

    def outcomes_of_some(
        self, tests: Collection[str], run_ids: Collection[str], platform: str
    ) -> dict[str, Outcomes]:
        """By run, a few tests without their times; runs are some hundreds at most."""
        query = (
            select(PLATFORMS.c.run_id, DETAILS.c.node_ids, DETAILS.c.outcomes)
            .join(PLATFORMS, DETAILS.c.platform_id == PLATFORMS.c.id)
            .where(
                PLATFORMS.c.platform == platform,
                PLATFORMS.c.run_id.in_(run_ids),
                DETAILS.c.outcomes.is_not(None),
            )
        )
        with reading(self._engine) as connection:
            rows = connection.execute(query).all()
            digests = {digest for row in rows for digest in (row.node_ids, row.outcomes)}
            lists = select(BLOBS.c.digest, BLOBS.c.content).where(BLOBS.c.digest.in_(digests))
            contents = {row.digest: row.content for row in connection.execute(lists)}
        places = {}
        for digest in {row.node_ids for row in rows}:
            names = blobs.names(contents[digest])  # in their order
            at = {test: bisect_left(names, test) for test in tests}
            places[digest] = {test: n for test, n in at.items() if names[n : n + 1] == [test]}
        return {row.run_id: _outcomes(places[row.node_ids], contents[row.outcomes]) for row in rows}

    def accepted(self, project: str) -> list[Accepted]:
        """List the changes that somebody has accepted, the oldest first."""
        query = select(ACCEPTED).where(ACCEPTED.c.project == project)
        with reading(self._engine) as connection:
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


def _successors(connection: Connection, platform: str) -> dict[str, str]:
    """The keys of a platform that a newer one continues, each with that."""
    key = PLATFORMS.c.environment_key
    query = select(key).where(PLATFORMS.c.platform == platform).group_by(key)
    digests = connection.scalars(query.order_by(func.min(PLATFORMS.c.id))).all()
    keys = _environment_keys(connection, digests)
    return successors({digest: keys[digest] for digest in digests})


def _environment_keys(
    connection: Connection, digests: Collection[str]
) -> dict[str, EnvironmentKey]:
    query = select(ENVIRONMENT_KEYS.c.digest, ENVIRONMENT_KEYS.c.components)
    return {
        digest: EnvironmentKey(**components)
        for some in _slices(sorted(set(digests)))
        for digest, components in connection.execute(
            query.where(ENVIRONMENT_KEYS.c.digest.in_(some))
        )
    }


def _outcome_lists(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[str | None, str]]:
    """The digests of node ids and outcomes, of those that have any."""
    columns = (DETAILS.c.platform_id, DETAILS.c.node_ids, DETAILS.c.outcomes)
    query = select(*columns).where(DETAILS.c.outcomes.is_not(None))
    return {
        row.platform_id: (row.node_ids, row.outcomes)
        for some in _slices(ids)
        for row in connection.execute(query.where(DETAILS.c.platform_id.in_(some)))
    }


def _slices(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(values), _SLICE):
        yield values[begin : begin + _SLICE]


def _outcomes(places: dict[str, int], content: bytes) -> Outcomes:
    endings = blobs.endings(content, places.values())
    return Outcomes(
        read_names=lambda: [*places], read_endings=lambda: endings, read_seconds=_unknown
    )


def _unknown() -> Sequence[float]:
    raise NotImplementedError("the times of some tests alone are not loaded")
