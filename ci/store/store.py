"""The store's face: one transaction per save; the schema is brought up to date on opening."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, column, inspect, select, table
from sqlalchemy.exc import SQLAlchemyError

from ci.errors import InfrastructureError, UsageError
from ci.facts.environment_key import EnvironmentKey
from ci.facts.suite import Columns, Outcomes, outcomes_of
from ci.model.details import BuildDetails, Details, Rerun
from ci.model.results import PlatformResult, RunResult
from ci.model.tests import TestOutcome
from ci.store import blobs, queries
from ci.store.connect import cause, connect, reading, remedy_for, shown, writing
from ci.store.folder import LATEST
from ci.store.queries import outcomes_of_some
from ci.store.records import run_result, stored_platforms
from ci.store.rows import Accepted, Measured, RunHead, SameEnvironment
from ci.store.tables import ACCEPTED, BLOBS, DETAILS, PLATFORMS, RUNS
from ci.util.invocation import command
from ci.util.text import first_names, near_match

MIGRATIONS = Path(__file__).parent / "migrations"
VERSION_TABLE = "alembic_version"


class Store:
    """Saves and loads runs; SQLite or PostgreSQL."""

    def __init__(self, url: str) -> None:
        self._engine = connect(url)
        self._decoded: dict[str, Sequence[Any]] = {}
        self._outcomes: dict[tuple[str, str], Outcomes] = {}
        try:
            _bring_up_to_date(self._engine)
        except BaseException:
            self.close()
            raise

    def save(self, run: RunResult, details: Mapping[str, Details]) -> None:
        """Save a run, in place of an earlier save of it.

        ``details`` are those of platforms that have just ended: one that is stored as it is, and
        that ``details`` does not name, keeps its own.
        """
        from ci.store.records import save  # with two dialects, which who reads does not need

        self._outcomes.clear()  # those of this run may be others now
        try:
            with writing(self._engine) as connection:
                save(connection, run, details)
        # A driver's own checks, and durations that are no numbers.
        except (SQLAlchemyError, ValueError, OverflowError) as error:
            message = f"the store rejects run {run.run_id}: {cause(error)}"
            raise InfrastructureError(message) from error

    def load(self, run_id: str | None = None, *, platform: str | None = None) -> RunResult:
        """Load a run, by default the latest, or the latest that tested a platform."""
        query = select(RUNS).order_by(*queries.NEWEST_FIRST).limit(1)
        if run_id not in (None, LATEST):
            query = query.where(RUNS.c.run_id == run_id)
        elif platform is not None:
            tested = (PLATFORMS.c.platform == platform) & PLATFORMS.c.passed.is_not(None)
            query = query.where(RUNS.c.run_id.in_(select(PLATFORMS.c.run_id).where(tested)))
        with reading(self._engine) as connection:
            row = connection.execute(query).one_or_none()
            if row is None:
                raise _missing(run_id, platform, _run_ids(connection))
            found = stored_platforms(connection, row.run_id)
            return run_result(row, (result for _, result in found))

    def tests(self, run_id: str, platform: str) -> list[TestOutcome]:
        """Load the tests of one platform of a run, in order of their node ids.

        They come without what operator tests recorded; durations are kept to the microsecond.
        """
        node_ids, outcomes = BLOBS.alias(), BLOBS.alias()
        query = (
            select(node_ids.c.content, outcomes.c.content, DETAILS.c.durations)
            .join(node_ids, DETAILS.c.node_ids == node_ids.c.digest)
            .join(outcomes, DETAILS.c.outcomes == outcomes.c.digest)
        )
        row = self._details(query, run_id, platform)
        return blobs.suite(*row) if row else []

    def outcomes(self, run_id: str, platform: str) -> Outcomes:
        """The same tests as columns, each of which is loaded when it is asked for, and kept."""
        place = (run_id, platform)
        if place not in self._outcomes:
            self._outcomes[place] = self._columns(run_id, platform)
        return self._outcomes[place]

    def outcomes_of_some(
        self, tests: Collection[str], run_ids: Collection[str], platform: str
    ) -> dict[str, Outcomes]:
        """By run, a few tests without their times; runs are some hundreds at most."""
        with reading(self._engine) as connection:
            return outcomes_of_some(connection, tests, run_ids, platform)

    def reruns(self, run_id: str, platform: str) -> list[Rerun]:
        """Load what was tried again on one platform of a run."""
        row = self._details(select(DETAILS.c.reruns), run_id, platform)
        return blobs.reruns(row[0]) if row and row[0] else []

    def build_details(self, run_id: str, platform: str) -> BuildDetails | None:
        """Load what the build of one platform of a run was made of."""
        row = self._details(select(DETAILS.c.build), run_id, platform)
        return blobs.build_details(row[0]) if row and row[0] else None

    def holds(self, run_id: str, result: PlatformResult) -> bool:
        """Tell whether a platform of a run is stored as it is."""
        with reading(self._engine) as connection:
            found = stored_platforms(connection, run_id, result.platform)
            return any(stored == result for _, stored in found)

    def heads(
        self,
        *,
        project: str | None = None,
        commits: Collection[str] | None = None,
        last: int | None = None,
    ) -> list[RunHead]:
        """List runs, the newest first: the ``last`` ones, those of some commits, or all."""
        with reading(self._engine) as connection:
            return queries.heads(connection, project=project, commits=commits, last=last)

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
        with reading(self._engine) as connection:
            return queries.measured(
                connection, platform, project=project, last=last, commits=commits, runs=runs
            )

    def environment_keys(self, digests: Collection[str]) -> dict[str, EnvironmentKey]:
        """Look up what digests stand for."""
        with reading(self._engine) as connection:
            return queries.environment_keys(connection, digests)

    def same_environment(self, platform: str, *, project: str) -> list[SameEnvironment]:
        """Group the runs that tested one commit in one environment, and again or twice."""
        with reading(self._engine) as connection:
            return queries.same_environment(connection, platform, project=project)

    def accepted(self, project: str) -> list[Accepted]:
        """List the changes that somebody has accepted, the oldest first."""
        with reading(self._engine) as connection:
            return queries.accepted(connection, project)

    def accept(self, accepted: Accepted) -> None:
        """Record that a change is as it should be; once more gives it another reason."""
        from ci.store.records import put

        try:
            with writing(self._engine) as connection:
                put(connection, ACCEPTED, asdict(accepted))
        except (SQLAlchemyError, ValueError) as error:
            message = f"the store rejects what was accepted: {cause(error)}"
            raise InfrastructureError(message) from error

    def _details(self, query: Any, run_id: str, platform: str) -> Any:
        query = query.join(PLATFORMS, DETAILS.c.platform_id == PLATFORMS.c.id).where(
            PLATFORMS.c.run_id == run_id, PLATFORMS.c.platform == platform
        )
        with reading(self._engine) as connection:
            return connection.execute(query).one_or_none()

    def _columns(self, run_id: str, platform: str) -> Outcomes:
        query = select(DETAILS.c.node_ids, DETAILS.c.outcomes, DETAILS.c.durations)
        row = self._details(query, run_id, platform)
        if row is None or row.durations is None:
            return outcomes_of(())
        return Outcomes(
            Columns(
                names=lambda: self._shared(row.node_ids, blobs.names),
                endings=lambda: self._shared(row.outcomes, blobs.endings),
                seconds=lambda: blobs.seconds(row.durations),
                digest=(row.node_ids, row.outcomes),
            )
        )

    def _shared(self, digest: str, decode: Callable[[bytes], Sequence[Any]]) -> Sequence[Any]:
        """A list that runs share, decoded once for all of them."""
        if digest not in self._decoded:
            query = select(BLOBS.c.content).where(BLOBS.c.digest == digest)
            with reading(self._engine) as connection:
                self._decoded[digest] = decode(connection.execute(query).scalar_one())
        return self._decoded[digest]

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run_ids(connection: Connection) -> Sequence[str]:
    return connection.scalars(select(RUNS.c.run_id).order_by(*queries.NEWEST_FIRST)).all()


def _missing(run_id: str | None, platform: str | None, known: Sequence[str]) -> UsageError:
    if run_id in (None, LATEST):
        of_platform = f" of {platform}" if platform and known else ""
        remedy = f"Run one: {command('run', platform or 'cpu')}"
        return UsageError(f"the store holds no run{of_platform} yet", remedy=remedy)
    message = f"the store holds no run '{run_id}'" + near_match(run_id, [*known, LATEST])
    remedy = f"The newest: {first_names(known)}." if known else "It holds none yet."
    return UsageError(message, remedy=remedy)


def _bring_up_to_date(engine: Engine) -> None:
    try:
        if not _up_to_date(engine):  # else reading is enough, without a lock
            # Imported here: Alembic takes 0.11 s and 12 MB, and is seldom needed.
            from ci.store.upgrade import upgrade

            upgrade(engine, MIGRATIONS)
    except (SQLAlchemyError, ValueError) as error:
        message = f"the store {shown(engine)} cannot be opened: {cause(error)}"
        raise InfrastructureError(message, remedy=remedy_for(error)) from error


def _up_to_date(engine: Engine) -> bool:
    with engine.connect() as connection:
        if not inspect(connection).has_table(VERSION_TABLE):
            return False
        current = connection.scalar(select(column("version_num")).select_from(table(VERSION_TABLE)))
    newest = max(path.name for path in MIGRATIONS.glob("versions/*.py"))
    return current == newest.partition("_")[0]  # a migration's file begins with its revision
