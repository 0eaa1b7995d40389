"""The store's face: one transaction per save; the tables are brought up to date on opening."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from ci.errors import InfrastructureError, UsageError
from ci.facts.environment_key import environment_key
from ci.facts.measures import measures_of
from ci.facts.suite import Outcomes, outcomes_of
from ci.model.details import NO_DETAILS, BuildDetails, Details, Rerun
from ci.model.results import SCHEMA_VERSION, PlatformResult, RunResult
from ci.model.tests import TestOutcome
from ci.store import blobs
from ci.store.connect import bring_up_to_date, cause, connect, reading, shown, writing
from ci.store.queries import NEWEST_FIRST, Queries
from ci.store.rows import LATEST, Acceptance
from ci.store.tables import ACCEPTED, BLOBS, DETAILS, ENVIRONMENT_KEYS, MEASURED, PLATFORMS, RUNS
from ci.util.invocation import command
from ci.util.text import join_names, near_match


class Store(Queries):
    """Saves and loads runs; SQLite or PostgreSQL."""

    def __init__(self, url: str) -> None:
        super().__init__(connect(url))
        self._decoded: dict[str, Sequence[Any]] = {}
        self._outcomes: dict[tuple[str, str], Outcomes] = {}
        try:
            bring_up_to_date(self._engine)
        except BaseException:
            self.close()
            raise

    def save(self, run: RunResult, details: Mapping[str, Details]) -> None:
        """Save a run, in place of an earlier save of it.

        ``details`` are those of platforms that have just ended: one that is stored as it is, and
        that ``details`` does not name, keeps its own.
        """
        self._outcomes.clear()  # those of this run may be others now
        try:
            with writing(self._engine) as connection:
                save(connection, run, details)
        # A driver's own checks, and durations that are no numbers.
        except (SQLAlchemyError, ValueError, OverflowError) as error:
            message = f"the store rejects run {run.run_id}: {cause(error)}"
            raise InfrastructureError(message) from error

    def accept(self, accepted: Acceptance) -> None:
        """Record that a change is as it should be; once more gives it another reason."""
        try:
            with writing(self._engine) as connection:
                _put(connection, ACCEPTED, asdict(accepted))
        except (SQLAlchemyError, ValueError) as error:
            message = f"the store rejects what was accepted: {cause(error)}"
            raise InfrastructureError(message) from error

    def load(self, run_id: str | None = None, *, platform: str | None = None) -> RunResult:
        """Load a run, by default the latest, or the latest that tested a platform."""
        query = select(RUNS).order_by(*NEWEST_FIRST).limit(1)
        if run_id not in (None, LATEST):
            query = query.where(RUNS.c.run_id == run_id)
        elif platform is not None:
            tested = PLATFORMS.c.tested & (PLATFORMS.c.platform == platform)
            query = query.where(RUNS.c.run_id.in_(select(PLATFORMS.c.run_id).where(tested)))
        with reading(self._engine) as connection:
            row = connection.execute(query).one_or_none()
            if row is None:
                known = connection.scalars(select(RUNS.c.run_id).order_by(*NEWEST_FIRST)).all()
                raise _missing(run_id, platform, known)
            if row.document["schema_version"] > SCHEMA_VERSION:
                message = f"the store {shown(self._engine)} is of a newer version of this program:"
                message += f" run {row.run_id} has results of version"
                message += f" {row.document['schema_version']}, expected at most {SCHEMA_VERSION}"
                raise InfrastructureError(message, remedy="Update this program.")
            of_run = select(PLATFORMS.c.document).where(PLATFORMS.c.run_id == row.run_id)
            platforms = connection.scalars(of_run.order_by(PLATFORMS.c.position)).all()
            # Of its times, the columns are in UTC, whatever the zone was that the run came with.
            values = {**row.document, **_columns(row), "platforms": platforms}
            return RunResult.model_validate(values)

    def holds(self, run_id: str, result: PlatformResult) -> bool:
        """Tell whether a platform of a run is stored as it is."""
        query = select(PLATFORMS.c.document).where(
            PLATFORMS.c.run_id == run_id, PLATFORMS.c.platform == result.platform
        )
        with reading(self._engine) as connection:
            document = connection.scalar(query)
            return document is not None and PlatformResult.model_validate(document) == result

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
            query = select(DETAILS.c.node_ids, DETAILS.c.outcomes, DETAILS.c.durations)
            row = self._details(query, run_id, platform)
            if row is None or row.durations is None:
                self._outcomes[place] = outcomes_of(())
            else:
                self._outcomes[place] = Outcomes(
                    read_names=lambda: self._shared(row.node_ids, blobs.names),
                    read_endings=lambda: self._shared(row.outcomes, blobs.endings),
                    read_seconds=lambda: blobs.seconds(row.durations),
                    digest=(row.node_ids, row.outcomes),
                )
        return self._outcomes[place]

    def _shared(self, digest: str, decode: Callable[[bytes], Sequence[Any]]) -> Sequence[Any]:
        """A list that runs share, decoded once for all of them."""
        if digest not in self._decoded:
            query = select(BLOBS.c.content).where(BLOBS.c.digest == digest)
            with reading(self._engine) as connection:
                self._decoded[digest] = decode(connection.execute(query).scalar_one())
        return self._decoded[digest]

    def reruns(self, run_id: str, platform: str) -> list[Rerun]:
        """Load what was tried again on one platform of a run."""
        row = self._details(select(DETAILS.c.reruns), run_id, platform)
        return blobs.reruns(row[0]) if row and row[0] else []

    def build_details(self, run_id: str, platform: str) -> BuildDetails | None:
        """Load what the build of one platform of a run was made of."""
        row = self._details(select(DETAILS.c.build), run_id, platform)
        return blobs.build_details(row[0]) if row and row[0] else None

    def _details(self, query: Any, run_id: str, platform: str) -> Any:
        query = query.join(PLATFORMS, DETAILS.c.platform_id == PLATFORMS.c.id).where(
            PLATFORMS.c.run_id == run_id, PLATFORMS.c.platform == platform
        )
        with reading(self._engine) as connection:
            return connection.execute(query).one_or_none()

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _missing(run_id: str | None, platform: str | None, known: Sequence[str]) -> UsageError:
    if run_id in (None, LATEST):
        of_platform = f" of {platform}" if platform and known else ""
        remedy = f"Run one: {command('run', platform or 'cpu')}"
        return UsageError(f"the store holds no run{of_platform} yet", remedy=remedy)
    message = f"the store holds no run '{run_id}'" + near_match(run_id, [*known, LATEST])
    remedy = f"The newest: {join_names(known)}." if known else "It holds none yet."
    return UsageError(message, remedy=remedy)


def save(connection: Connection, run: RunResult, details: Mapping[str, Details]) -> None:
    """Save a run in place of an earlier save of it."""
    document = run.model_dump(mode="json", exclude={"platforms"})
    # This locks the run: whoever saves it too has to wait.
    _put(connection, RUNS, {**_columns(run), "document": document})
    keys = {result.platform: environment_key(result) for result in run.platforms}
    components = {key.digest: asdict(key) for key in keys.values()}
    _add_missing(connection, ENVIRONMENT_KEYS, "components", components)
    suites = {name: blobs.suite_blobs(it.tests) for name, it in details.items() if it.tests}
    shared = (it for suite in suites.values() for it in (suite.node_ids, suite.outcomes))
    lists = {it.digest: it.text for it in shared}
    for digest in connection.scalars(select(BLOBS.c.digest).where(BLOBS.c.digest.in_(lists))):
        del lists[digest]  # compressing it would take longer than all the rest
    contents = {digest: zlib.compress(text) for digest, text in lists.items()}
    _add_missing(connection, BLOBS, "content", contents)
    of_run = PLATFORMS.c.run_id == run.run_id
    # The rows of what is stored as it is stay, with what is beside them; the rest is replaced.
    kept = {
        row.platform: row.id
        for row in connection.execute(select(PLATFORMS).where(of_run))
        if row.platform not in details
        and PlatformResult.model_validate(row.document) in run.platforms
    }
    connection.execute(delete(PLATFORMS).where(of_run, PLATFORMS.c.id.not_in(kept.values())))
    for position, result in enumerate(run.platforms):
        name = result.platform
        # Also of a kept row: its document has the version of the run's, which may be a newer one.
        values = {"position": position, "document": result.model_dump(mode="json")}
        if name in kept:
            row = update(PLATFORMS).where(PLATFORMS.c.id == kept[name])
            connection.execute(row.values(values))
            continue
        new = insert(PLATFORMS).values(
            run_id=run.run_id,
            platform=name,
            product=result.verdict.product,
            tested=result.pytest is not None,
            environment_key=keys[name].digest,
            **values,
        )
        place = {"platform_id": connection.scalar(new.returning(PLATFORMS.c.id))}
        connection.execute(insert(MEASURED).values(**place, measures=measures_of(result)))
        if beside := _details_values(details.get(name, NO_DETAILS), suites.get(name)):
            connection.execute(insert(DETAILS).values(**place, **beside))


def _details_values(details: Details, suite: blobs.SuiteBlobs | None) -> dict[str, Any]:
    """What there is of them, by column."""
    values = {
        "node_ids": suite and suite.node_ids.digest,
        "outcomes": suite and suite.outcomes.digest,
        "durations": suite and suite.durations,
        "reruns": details.reruns and blobs.reruns_blob(details.reruns),
        "build": details.build and blobs.build_blob(details.build),
    }
    return {name: value for name, value in values.items() if value}


def _columns(run: RunResult | Row[Any]) -> dict[str, Any]:
    """What a row of a run has beside its document."""
    return {it.name: getattr(run, it.name) for it in RUNS.columns if it.name != "document"}


def _put(connection: Connection, table: Table, values: Mapping[str, Any]) -> None:
    """Insert a row, or give the one of the same primary key other values."""
    keys = [column.name for column in table.primary_key]
    others = {name: value for name, value in values.items() if name not in keys}
    statement = _insert(connection, table).values(values)
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=others))


def _insert(connection: Connection, table: Table) -> Any:
    """An insert that can handle a row that is there; both databases spell it alike."""
    from sqlalchemy.dialects import postgresql, sqlite  # 0.1 s, which who only reads saves

    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table)


def _add_missing(
    connection: Connection, table: Table, column: str, rows: Mapping[str, Any]
) -> None:
    """Add what nobody else has added meanwhile.

    In order of the digests: of two that add some of the same, PostgreSQL lets the second wait for
    the first, and so never each for the other.
    """
    for digest, value in sorted(rows.items()):
        statement = _insert(connection, table).values({"digest": digest, column: value})
        connection.execute(statement.on_conflict_do_nothing())
