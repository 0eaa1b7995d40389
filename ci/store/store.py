"""One transaction per save; the schema is brought up to date on opening."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from filelock import FileLock
from sqlalchemy import Connection, Engine, create_engine, event, insert, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from ci.errors import InfrastructureError, UsageError
from ci.pytest_log import TestOutcome
from ci.results import PlatformResult, RunResult
from ci.store.convert import (
    TEST_COLUMNS,
    platform_result,
    platform_row,
    run_result,
    set_run,
    test_outcome,
)
from ci.store.tables import OutcomeRow, PlatformRow, RunRow
from ci.text import first_names, near_match

DATABASE = "ci.db"
MIGRATIONS = Path(__file__).parent / "migrations"
LOCK_TIMEOUT_S = 60
LATEST = "latest"  # names the newest run, as it does beside the results


def default_url(results: Path) -> str:
    """The SQLite database beside the results."""
    return f"sqlite:///{(results / DATABASE).resolve()}"


class Store:
    """Saves and loads runs; any SQLAlchemy URL."""

    def __init__(self, url: str) -> None:
        self._engine = _connect(url)
        masked = make_url(url).render_as_string(hide_password=True)
        try:
            if not _up_to_date(self._engine):  # else reading is enough, without a lock
                with _migration_lock(url):
                    _migrate(self._engine)
        except CommandError as error:  # Alembic has no migration of that name
            message = f"the store {masked} is of a newer version of this program: {error}"
            raise InfrastructureError(message, remedy="Update this program.") from error
        except SQLAlchemyError as error:
            raise InfrastructureError(f"the store {masked} cannot be opened: {error}") from error

    def save(self, run: RunResult, tests: Mapping[str, Sequence[TestOutcome]]) -> None:
        """Save a run, in place of an earlier save of it.

        ``tests`` are those of platforms that have just ended: one that is stored as it is, and
        that ``tests`` does not name, keeps its own.
        """
        try:
            with Session(self._engine) as session, session.begin():
                _save(session, run, tests)
        except (SQLAlchemyError, ValueError) as error:  # ValueError: a driver's own checks
            raise InfrastructureError(f"the store rejects run {run.run_id}: {error}") from error

    def load(self, run_id: str | None = None, *, platform: str | None = None) -> RunResult:
        """Load a run, by default the latest, or the latest that tested a platform."""
        query = select(RunRow).order_by(*_NEWEST_FIRST).limit(1)
        if run_id not in (None, LATEST):
            query = query.where(RunRow.run_id == run_id)
        elif platform is not None:
            tested = (PlatformRow.platform == platform) & PlatformRow.passed.is_not(None)
            query = query.where(RunRow.platforms.any(tested))
        with Session(self._engine) as session:
            row = session.scalars(query).one_or_none()
            if row is None:
                raise _missing(run_id, platform, self._run_ids(session))
            return run_result(row)

    def tests(self, run_id: str, platform: str) -> list[TestOutcome]:
        """Load the tests of one platform of a run, without what operator tests recorded."""
        query = (
            select(*TEST_COLUMNS)
            .join(PlatformRow, OutcomeRow.platform_id == PlatformRow.id)
            .where(PlatformRow.run_id == run_id, PlatformRow.platform == platform)
            .order_by(OutcomeRow.id)
        )
        with Session(self._engine) as session:
            return [test_outcome(*row) for row in session.execute(query)]

    def holds(self, run_id: str, result: PlatformResult) -> bool:
        """Tell whether a platform of a run is stored as it is."""
        query = select(PlatformRow).where(
            PlatformRow.run_id == run_id, PlatformRow.platform == result.platform
        )
        with Session(self._engine) as session:
            row = session.scalars(query).one_or_none()
            return row is not None and platform_result(row) == result

    def _run_ids(self, session: Session) -> Sequence[str]:
        return session.scalars(select(RunRow.run_id).order_by(*_NEWEST_FIRST)).all()

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# A start is known to the second only, and short runs share one.
_NEWEST_FIRST = (RunRow.started_at.desc(), RunRow.finished_at.desc(), RunRow.run_id.desc())


def _missing(run_id: str | None, platform: str | None, known: Sequence[str]) -> UsageError:
    if run_id in (None, LATEST):
        of_platform = f" of {platform}" if platform and known else ""
        remedy = f"Run one: python -m ci run {platform or 'cpu'}"
        return UsageError(f"the store holds no run{of_platform} yet", remedy=remedy)
    message = f"the store holds no run '{run_id}'" + near_match(run_id, [*known, LATEST])
    remedy = f"The newest: {first_names(known)}." if known else "It holds none yet."
    return UsageError(message, remedy=remedy)


def _save(session: Session, run: RunResult, tests: Mapping[str, Sequence[TestOutcome]]) -> None:
    row = session.get(RunRow, run.run_id) or RunRow()
    set_run(row, run)
    kept = {
        platform.platform: platform
        for platform in row.platforms
        if platform.platform not in tests and platform_result(platform) in run.platforms
    }
    row.platforms = list(kept.values())
    session.add(row)
    session.flush()  # the others are gone before new rows take their names
    for position, result in enumerate(run.platforms):
        if result.platform in kept:
            kept[result.platform].position = position
        else:
            row.platforms.append(platform_row(result, position))
    session.flush()  # gives the platforms their keys
    rows = [
        _test_values(platform.id, test)
        for platform in row.platforms
        for test in tests.get(platform.platform, ())
    ]
    if rows:
        session.execute(insert(OutcomeRow), rows)


def _test_values(platform_id: int, test: TestOutcome) -> dict[str, Any]:
    return {
        "platform_id": platform_id,
        "node_id": test.node_id,
        "outcome": test.outcome.value,
        "seconds": test.seconds,
        "reason": test.reason,
        "skip_reason": test.skip_reason,
    }


def _connect(url: str) -> Engine:
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        if database := engine.url.database:
            Path(database).parent.mkdir(parents=True, exist_ok=True)
        event.listen(engine, "connect", _enforce_foreign_keys)
    return engine


def _enforce_foreign_keys(connection: Any, _: object) -> None:
    connection.execute("PRAGMA foreign_keys = ON")  # off by default in SQLite


def _migration_lock(url: str) -> FileLock | nullcontext[None]:
    """Two first runs at once must not both create the tables. SQLite has no lock for it."""
    database = make_url(url).database
    if not url.startswith("sqlite:") or not database:
        return nullcontext()
    return FileLock(f"{database}.lock", timeout=LOCK_TIMEOUT_S)


def _up_to_date(engine: Engine) -> bool:
    with engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    return current == ScriptDirectory.from_config(_migrations()).get_current_head()


def _migrations() -> alembic.config.Config:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def _migrate(engine: Engine) -> None:
    config = _migrations()
    migrations = ScriptDirectory.from_config(config)
    with engine.begin() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
        if current == migrations.get_current_head():
            return
        if current is not None:
            migrations.get_revision(current)  # raises for one of a newer version
            _back_up(connection, current)
        config.attributes["connection"] = connection
        alembic.command.upgrade(config, "head")


def _back_up(connection: Connection, revision: str) -> None:
    """Copy a SQLite file: there, a migration that fails half-way cannot be taken back."""
    database = connection.engine.url.database
    if connection.dialect.name != "sqlite" or not database:
        return
    with closing(sqlite3.connect(f"{database}.{revision}.backup")) as backup:
        original: Any = connection.connection.driver_connection
        original.backup(backup)
