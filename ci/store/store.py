"""The store: opening it upgrades its tables, and each save is one transaction."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Table, delete, func, insert, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from ci.errors import InfrastructureError, UnreadableRunError, UsageError
from ci.facts.acceptance import Acceptance
from ci.facts.environment_key import environment_key
from ci.facts.measures import measures_of
from ci.facts.suite import Outcomes, outcomes_of
from ci.model.details import NO_DETAILS, BuildDetails, Details, Rerun
from ci.model.outcomes import TestOutcome
from ci.model.results import SCHEMA_VERSION, PlatformResult, RunResult, parse_run
from ci.store import blobs
from ci.store.connect import (
    Unreadable,
    connect,
    database_message,
    import_all,
    is_damaged,
    missing_file,
    read_transaction,
    refill_remedy,
    store_errors,
    upgrade_tables,
    write_transaction,
)
from ci.store.queries import NEWEST_FIRST, StoreQueries, environment_fault, selections
from ci.store.rows import LATEST, AlarmMessage, AlarmRecord, RunHead
from ci.store.tables import (
    ACCEPTED,
    ALARM_MESSAGES,
    ALARM_RISES,
    ALARMS,
    BLOBS,
    DETAILS,
    ENVIRONMENT_KEYS,
    LINEAGES,
    MEASURED,
    PLATFORMS,
    RUNS,
)
from ci.util.invocation import command
from ci.util.text import join_names, near_match


class Store(StoreQueries):
    """Saves and loads runs in SQLite or PostgreSQL."""

    def __init__(self, url: str) -> None:
        super().__init__(connect(url))
        self._decoded: dict[str, Sequence[Any]] = {}
        self._outcomes: dict[tuple[str, str], Outcomes] = {}
        try:
            upgrade_tables(self._engine)
        except BaseException:
            self.close()
            raise

    def save(self, run: RunResult, details: Mapping[str, Details]) -> None:
        """Save a run, replacing an earlier save of it.

        ``details`` has the platforms that have just ended. A platform that is not in ``details``
        keeps its stored details if its result is unchanged.
        """
        self._outcomes.clear()  # the outcomes of this run may have changed
        try:
            with write_transaction(self._engine) as connection:
                save(connection, run, details)
        # ValueError and OverflowError: checks of the driver, and durations that are no numbers.
        except (SQLAlchemyError, ValueError, OverflowError) as error:
            file = missing_file(str(self._engine.url))
            why = f"{file} was removed while it was open" if file else database_message(error)
            message = f"the store cannot save run {run.run_id}: {why}"
            remedy = f"Its results are in its folder. Store them later: {import_all()}"
            if is_damaged(error):
                remedy = refill_remedy()
            raise InfrastructureError(message, remedy=remedy) from error

    def mirror_accepted(self, project: str, accepted: Sequence[Acceptance]) -> bool:
        """Replace the acceptances of a project if they differ; return whether they did."""
        with suppress(InfrastructureError):  # a damaged copy is replaced
            if self.accepted(project) == [*accepted]:
                return False
        rows = [
            {"project": project, "position": position, **it.model_dump()}
            for position, it in enumerate(accepted)
        ]
        with self._writing("the store cannot save the acceptances") as connection:
            connection.execute(delete(ACCEPTED).where(ACCEPTED.c.project == project))
            if rows:
                connection.execute(insert(ACCEPTED), rows)
        return True

    def save_alarms(self, project: str, records: Sequence[AlarmRecord]) -> None:
        """Save alarms, each in place of what is known of it. Rises are added, not removed."""
        failure = "the store cannot save the alarms: their states and ids may be lost"
        position = func.coalesce(func.max(ALARMS.c.position), 0) + 1
        with self._writing(failure) as connection:
            new = connection.execute(
                select(position).where(ALARMS.c.project == project)
            ).scalar_one()
            known = {
                row.alarm_id: row.position
                for row in connection.execute(select(ALARMS).where(ALARMS.c.project == project))
            }
            for number, record in enumerate(records, start=new):
                values = asdict(record)
                rises = values.pop("rises")
                own = {"project": project, "position": known.get(record.alarm_id, number)}
                _upsert(connection, ALARMS, {**values, **own})
                place = {"project": project, "alarm_id": record.alarm_id}
                for rise in rises:
                    _upsert(connection, ALARM_RISES, {**rise, **place})

    def save_message(self, project: str, address: str, message: AlarmMessage) -> None:
        """Save what was sent last of an alarm to the address with this digest."""
        failure = "the store cannot save which alarms were sent: they will be sent again"
        place = {"project": project, "address": address}
        with self._writing(failure) as connection:
            _upsert(connection, ALARM_MESSAGES, {**asdict(message), **place})

    @contextmanager
    def _writing(self, failure: str) -> Iterator[Connection]:
        """Begin a transaction that writes; the message of its error begins with ``failure``."""
        with store_errors(self._engine, failure), write_transaction(self._engine) as connection:
            yield connection

    def load(self, run_id: str | None = None, *, platform: str | None = None) -> RunResult:
        """Load a run: by default the latest, or the latest one that tested ``platform``.

        Of a platform, the latest one with all operators, if there is one.

        Raises ``UnreadableRunError`` for a named run that cannot be read. Without a name, such runs
        are skipped.
        """
        query = select(RUNS.c.run_id).order_by(*NEWEST_FIRST)
        if is_named := run_id not in (None, LATEST):
            query = query.where(RUNS.c.run_id == run_id)
        elif platform is not None:
            tested = PLATFORMS.c.tested & (PLATFORMS.c.platform == platform)
            query = query.where(RUNS.c.run_id.in_(select(PLATFORMS.c.run_id).where(tested)))
        with read_transaction(self._engine) as connection:
            names = [*connection.scalars(query)]
            if platform is not None:
                selected = selections(connection)
                names.sort(key=lambda name: platform in selected.get(name, {}))
            for name in names:
                try:
                    return self._load(connection, name)
                except UnreadableRunError as error:
                    if is_named:
                        raise
                    self.skip(error)
            known = connection.scalars(select(RUNS.c.run_id).order_by(*NEWEST_FIRST)).all()
            raise _missing(run_id, platform, known)

    def find(self, run_id: str) -> RunResult | None:
        """Load the run of this id, if there is one.

        Raises ``UnreadableRunError`` if it cannot be read.
        """
        known = select(RUNS.c.run_id).where(RUNS.c.run_id == run_id)
        with read_transaction(self._engine) as connection:
            return self._load(connection, run_id) if connection.scalar(known) else None

    def load_platform(self, run_id: str, platform: str) -> PlatformResult:
        """Load one platform of a run; raises ``UnreadableRunError`` if it cannot be read."""
        with read_transaction(self._engine) as connection:
            return self._load(connection, run_id, platform).platform(platform)

    def load_or_skip(self, run_id: str) -> RunResult | None:
        """Load a run; ``None`` for one that cannot be read, which is then skipped."""
        try:
            return self.load(run_id)
        except UnreadableRunError as error:
            self.skip(error)
            return None

    def _load(self, connection: Connection, run_id: str, platform: str | None = None) -> RunResult:
        """Read a run with all its platforms, or with one."""
        row = connection.execute(select(RUNS).where(RUNS.c.run_id == run_id)).one()
        of_run = select(PLATFORMS.c.document).where(PLATFORMS.c.run_id == run_id)
        if platform is not None:
            of_run = of_run.where(PLATFORMS.c.platform == platform)
        platforms = connection.scalars(of_run.order_by(PLATFORMS.c.position)).all()
        document = row.document
        try:
            for it in (document, *platforms):
                if not isinstance(it, dict):
                    raise ValueError(it.reason if isinstance(it, Unreadable) else "not an object")
            # The columns win over the document: their times are in UTC, not in the run's own zone.
            columns = _columns(RUNS, row, without="document")
            return parse_run({**document, **columns, "platforms": platforms})
        except ValueError as error:
            version = document.get("schema_version") if isinstance(document, dict) else None
            newer = isinstance(version, int) and version > SCHEMA_VERSION
            raise self.unreadable(run_id, error, newer=newer) from error

    def damaged_runs(self) -> Iterator[tuple[UnreadableRunError, RunHead]]:
        """Read every run, and yield those with damaged rows; not those of newer versions."""
        for head in self.heads():
            try:
                self.load(head.run_id)
                self._check_rows(head.run_id)
            except UnreadableRunError as error:
                if error.damaged:
                    yield error, head

    def _check_rows(self, run_id: str) -> None:
        """Read the rows beside the results of a run; raises ``UnreadableRunError``.

        Lists of tests are not read: other runs share them, and a run without them is still shown.
        """
        query = (
            select(PLATFORMS.c.platform, MEASURED.c.measures, ENVIRONMENT_KEYS.c.components)
            .select_from(PLATFORMS)
            .join(MEASURED, MEASURED.c.platform_id == PLATFORMS.c.id)
            .join(ENVIRONMENT_KEYS, ENVIRONMENT_KEYS.c.digest == PLATFORMS.c.environment_key)
            .where(PLATFORMS.c.run_id == run_id)
        )
        with read_transaction(self._engine) as connection:
            for row in connection.execute(query):
                fault = environment_fault(row.components)
                if error := self.row_error(run_id, row.platform, row.measures, fault):
                    raise error

    def remove(self, run_id: str) -> None:
        """Remove a run with all its rows, and what no other run shares with it.

        A damaged key would not be replaced by saving the run again.
        """
        key, digest = PLATFORMS.c.environment_key, ENVIRONMENT_KEYS.c.digest
        lists = DETAILS.c.node_ids, DETAILS.c.outcomes
        of_run = PLATFORMS.c.run_id == run_id
        with self._writing(f"the store cannot remove run {run_id}") as connection:
            if connection.dialect.name == "postgresql":
                # A save writes this table first, so it waits. It might share what is removed here.
                connection.execute(text("LOCK TABLE runs IN EXCLUSIVE MODE"))
            own = connection.scalars(select(key).where(of_run)).all()
            beside = select(*lists).join(PLATFORMS, PLATFORMS.c.id == DETAILS.c.platform_id)
            shared = {it for row in connection.execute(beside.where(of_run)) for it in row if it}
            connection.execute(delete(RUNS).where(RUNS.c.run_id == run_id))
            unused = digest.in_(own) & digest.not_in(select(key))
            connection.execute(delete(ENVIRONMENT_KEYS).where(unused))
            used = [
                it
                for column in lists
                for it in connection.scalars(select(column).where(column.in_(shared)))
            ]
            connection.execute(delete(BLOBS).where(BLOBS.c.digest.in_(shared.difference(used))))

    def holds(self, run_id: str, result: PlatformResult) -> bool:
        """Whether exactly this result of a run is stored."""
        query = select(PLATFORMS.c.document).where(
            PLATFORMS.c.run_id == run_id, PLATFORMS.c.platform == result.platform
        )
        with read_transaction(self._engine) as connection:
            return _platform_result(connection.scalar(query)) == result

    def tests(self, run_id: str, platform: str) -> list[TestOutcome]:
        """Load the tests of one platform of a run, in order of their node ids.

        Records of operator tests are not stored. Durations are stored in microseconds.
        """
        node_ids, outcomes = BLOBS.alias(), BLOBS.alias()
        query = (
            select(node_ids.c.content, outcomes.c.content, DETAILS.c.durations)
            .join(node_ids, DETAILS.c.node_ids == node_ids.c.digest)
            .join(outcomes, DETAILS.c.outcomes == outcomes.c.digest)
        )
        row = self._details(query, run_id, platform)
        return blobs.decode_suite(*row) if row else []

    def outcomes(self, run_id: str, platform: str) -> Outcomes:
        """The same tests as columns; each is loaded on first use and cached."""
        place = (run_id, platform)
        if place not in self._outcomes:
            query = select(DETAILS.c.node_ids, DETAILS.c.outcomes, DETAILS.c.durations)
            row = self._details(query, run_id, platform)
            if row is None or row.durations is None:
                self._outcomes[place] = outcomes_of(())
            else:
                self._outcomes[place] = Outcomes(
                    read_names=lambda: self._shared(row.node_ids, blobs.decode_names),
                    read_endings=lambda: self._shared(row.outcomes, blobs.decode_endings),
                    read_seconds=lambda: blobs.decode_seconds(row.durations),
                    digest=(row.node_ids, row.outcomes),
                )
        return self._outcomes[place]

    def _shared(self, digest: str, decode: Callable[[bytes], Sequence[Any]]) -> Sequence[Any]:
        """Load a list that runs share; decode it once for all of them."""
        if digest not in self._decoded:
            query = select(BLOBS.c.content).where(BLOBS.c.digest == digest)
            with read_transaction(self._engine) as connection:
                self._decoded[digest] = decode(connection.execute(query).scalar_one())
        return self._decoded[digest]

    def reruns(self, run_id: str, platform: str) -> list[Rerun]:
        """Load the reruns of tests on one platform of a run."""
        row = self._details(select(DETAILS.c.reruns), run_id, platform)
        return blobs.decode_reruns(row[0]) if row and row[0] else []

    def build_details(self, run_ids: Collection[str], platform: str) -> dict[str, BuildDetails]:
        """Load the parts of the builds on one platform of a few runs, by run."""
        query = (
            select(PLATFORMS.c.run_id, DETAILS.c.build)
            .join(PLATFORMS, DETAILS.c.platform_id == PLATFORMS.c.id)
            .where(PLATFORMS.c.run_id.in_(run_ids), PLATFORMS.c.platform == platform)
        )
        with read_transaction(self._engine) as connection:
            found = connection.execute(query).all()
        return {run_id: blobs.decode_build_details(build) for run_id, build in found if build}

    def _details(self, query: Any, run_id: str, platform: str) -> Any:
        query = query.join(PLATFORMS, DETAILS.c.platform_id == PLATFORMS.c.id).where(
            PLATFORMS.c.run_id == run_id, PLATFORMS.c.platform == platform
        )
        with read_transaction(self._engine) as connection:
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
    remedy = f"The newest runs: {join_names(known)}." if known else "It holds no runs yet."
    return UsageError(message, remedy=remedy)


_LINEAGE = [it.name for it in LINEAGES.columns if it.name not in ("run_id", "asked_by")]


def save(connection: Connection, run: RunResult, details: Mapping[str, Details]) -> None:
    """Save a run, replacing an earlier save of it."""
    document = run.model_dump(mode="json", exclude={"platforms"})
    columns = _columns(RUNS, run, without="document")
    # This locks the run: another process that saves it has to wait.
    _upsert(connection, RUNS, {**columns, "document": document})
    lineage = {it: getattr(run.lineage, it) for it in _LINEAGE}
    asked_by = next((it.asked_by for it in run.platforms if it.asked_by), None)
    _upsert(connection, LINEAGES, {"run_id": run.run_id, "asked_by": asked_by, **lineage})
    keys = {result.platform: environment_key(result) for result in run.platforms}
    components = {key.digest: asdict(key) for key in keys.values()}
    _add_missing(connection, ENVIRONMENT_KEYS, "components", components)
    suites = {name: blobs.encode_suite(it.tests) for name, it in details.items() if it.tests}
    shared = (it for suite in suites.values() for it in (suite.node_ids, suite.outcomes))
    lists = {it.digest: it.text for it in shared}
    for digest in connection.scalars(select(BLOBS.c.digest).where(BLOBS.c.digest.in_(lists))):
        del lists[digest]  # already stored: compressing it would take longer than all the rest
    contents = {digest: zlib.compress(text) for digest, text in lists.items()}
    _add_missing(connection, BLOBS, "content", contents)
    of_run = PLATFORMS.c.run_id == run.run_id
    # Rows of unchanged results stay, with their details and measures; the others are replaced.
    kept = {
        row.platform: row.id
        for row in connection.execute(select(PLATFORMS).where(of_run))
        if row.platform not in details and _platform_result(row.document) in run.platforms
    }
    connection.execute(delete(PLATFORMS).where(of_run, PLATFORMS.c.id.not_in(kept.values())))
    for position, result in enumerate(run.platforms):
        name = result.platform
        # Kept rows are updated too: a document has the run's schema version, which may be newer.
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


def _platform_result(document: object) -> PlatformResult | None:
    """The result in a row; ``None`` if there is no row or it is damaged."""
    try:
        return PlatformResult.model_validate(document)
    except ValidationError:
        return None


def _details_values(details: Details, suite: blobs.SuiteBlobs | None) -> dict[str, Any]:
    """The columns of a row of details; missing ones are left out."""
    values = {
        "node_ids": suite and suite.node_ids.digest,
        "outcomes": suite and suite.outcomes.digest,
        "durations": suite and suite.durations,
        "reruns": details.reruns and blobs.encode_reruns(details.reruns),
        "build": details.build and blobs.encode_build(details.build),
    }
    return {name: value for name, value in values.items() if value}


def _columns(table: Table, source: object, *, without: str) -> dict[str, Any]:
    """The values of a table's row, from attributes of the same names."""
    return {it.name: getattr(source, it.name) for it in table.columns if it.name != without}


def _upsert(connection: Connection, table: Table, values: Mapping[str, Any]) -> None:
    """Insert a row, or update the row with the same primary key."""
    keys = [column.name for column in table.primary_key]
    others = {name: value for name, value in values.items() if name not in keys}
    statement = _insert(connection, table).values(values)
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=others))


def _insert(connection: Connection, table: Table) -> Any:
    """An insert with ``ON CONFLICT`` clauses, which both databases spell alike."""
    from sqlalchemy.dialects import postgresql, sqlite  # 0.1 s, which readers do without

    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table)


def _add_missing(
    connection: Connection, table: Table, column: str, rows: Mapping[str, Any]
) -> None:
    """Add the rows that no other process has added meanwhile.

    They are added in order of their digests, so that two processes that add the same rows cannot
    deadlock in PostgreSQL: the second waits for the first.
    """
    for digest, value in sorted(rows.items()):
        statement = _insert(connection, table).values({"digest": digest, column: value})
        connection.execute(statement.on_conflict_do_nothing())
