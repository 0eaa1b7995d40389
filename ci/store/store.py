"""One transaction per save; the schema is brought up to date on opening."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, column, create_engine, event, insert, inspect, select, table
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from ci.details import NO_DETAILS, Details
from ci.errors import InfrastructureError, UsageError
from ci.pytest_log import TestOutcome
from ci.results import PlatformResult, RunResult
from ci.store import LATEST
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

MIGRATIONS = Path(__file__).parent / "migrations"
VERSION_TABLE = "alembic_version"


class Store:
    """Saves and loads runs; any SQLAlchemy URL."""

    def __init__(self, url: str) -> None:
        self._engine = _connect(url)
        try:
            if not _up_to_date(self._engine):  # else reading is enough, without a lock
                # Imported here: Alembic takes 0.11 s and 12 MB, and is seldom needed.
                from ci.store.upgrade import upgrade

                upgrade(self._engine, MIGRATIONS)
        except SQLAlchemyError as error:
            message = f"the store {self._engine.url} cannot be opened: {error}"
            raise InfrastructureError(message) from error

    def save(self, run: RunResult, details: Mapping[str, Details]) -> None:
        """Save a run, in place of an earlier save of it.

        ``details`` are those of platforms that have just ended: one that is stored as it is, and
        that ``details`` does not name, keeps its own.
        """
        try:
            with Session(self._engine) as session, session.begin():
                _save(session, run, details)
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


def _save(session: Session, run: RunResult, details: Mapping[str, Details]) -> None:
    row = session.get(RunRow, run.run_id) or RunRow()
    set_run(row, run)
    kept = {
        platform.platform: platform
        for platform in row.platforms
        if platform.platform not in details and platform_result(platform) in run.platforms
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
        for test in details.get(platform.platform, NO_DETAILS).tests
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


def _up_to_date(engine: Engine) -> bool:
    with engine.connect() as connection:
        if not inspect(connection).has_table(VERSION_TABLE):
            return False
        current = connection.scalar(select(column("version_num")).select_from(table(VERSION_TABLE)))
    newest = max(path.name for path in MIGRATIONS.glob("versions/*.py"))
    return current == newest.partition("_")[0]  # a migration's file begins with its revision
