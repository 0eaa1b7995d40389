"""Connections to the database of a store, whose tables are created or upgraded when it is opened.

Only who opens a store imports SQLAlchemy, which takes 0.3 s: not the workers of a run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, SQLAlchemyError

from ci.errors import InfrastructureError, UsageError
from ci.util.invocation import command

EXPECTED = (
    "INFINI_CI_DB is sqlite:////FOLDER/FILE or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE."
)
CONNECT_TIMEOUT_S = "10"  # else a host that drops packets holds a run for two minutes
# A save holds the lock for less than a second; this is a queue of many.
SQLITE_TIMEOUT_S = 120
POSTGRESQL_LOCK = 0x696E66696E69  # any number that nobody else takes: "infini"
MIGRATIONS = Path(__file__).parent / "migrations"


def connect(url: str) -> Engine:
    """An engine for a database; nothing is asked of that yet."""
    parsed = _parsed(url)
    backend = parsed.get_backend_name()
    if backend not in _BACKENDS:
        raise UsageError(f"the store cannot be in {backend}", remedy=EXPECTED)
    return _BACKENDS[backend](parsed)


def missing_file(url: str) -> Path | None:
    """The file of a store in SQLite, where there is none: opening the store would make it."""
    parsed = _parsed(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        return None
    file = Path(parsed.database)
    return None if file.exists() else file


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:  # ValueError: a port that is no number
        raise UsageError("the store's URL cannot be read", remedy=EXPECTED) from error


def shown(engine: Engine) -> str:
    """The store's name in a message, without its password, which may also be a parameter."""
    return engine.url.set(query={}).render_as_string()


def cause(error: Exception) -> str:
    """What the database says, without the statement and its values."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig else error
    return " ".join(str(original).split())


def refill_remedy() -> str:
    """What to do about a store that cannot be read: the folders of the runs have all of them."""
    again = command("import", "RESULTS", "--results", "RESULTS")
    return f"Move it away, and fill another from the folders of the runs: {again}"


def remedy_for(error: Exception) -> str | None:
    """What to do about a store that is damaged; nothing helps where it just does not answer."""
    # SQLite's word for "malformed" and "not a database"; a lock or a lost connection is a subclass.
    is_damage = isinstance(error, ValueError) or type(error) is DatabaseError
    return refill_remedy() if is_damage else None


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One view of what is stored, whatever is saved meanwhile."""
    try:
        with engine.connect() as connection:
            if engine.dialect.name == "postgresql":  # else of each statement; SQLite has no other
                connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection
    except (SQLAlchemyError, ValueError) as error:  # ValueError: text that is none, in what is kept
        message = f"the store {shown(engine)} cannot be read: {cause(error)}"
        raise InfrastructureError(message, remedy=remedy_for(error)) from error


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes; it waits for others that do."""
    with engine.connect().execution_options(writing=True) as connection, connection.begin():
        yield connection


def _postgresql(url: URL) -> Engine:
    query = {"connect_timeout": CONNECT_TIMEOUT_S, **url.query}
    try:
        return create_engine(
            url.set(drivername="postgresql+psycopg", query=query),
            pool_pre_ping=True,  # between two saves lie hours, which not every network outlasts
        )
    except ImportError as error:  # psycopg, or the C library that it needs
        message = f"the store is in PostgreSQL, and its driver cannot be loaded: {error}"
        raise UsageError(message, remedy="python -m pip install --group postgresql") from error


def _sqlite(url: URL) -> Engine:
    engine = create_engine(url.set(drivername="sqlite"), connect_args={"timeout": SQLITE_TIMEOUT_S})
    if database := engine.url.database:
        Path(database).parent.mkdir(parents=True, exist_ok=True)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


_BACKENDS: Mapping[str, Callable[[URL], Engine]] = {"sqlite": _sqlite, "postgresql": _postgresql}


def _prepare(connection: Any, _: object) -> None:
    connection.isolation_level = None  # the module begins no transactions of its own
    connection.execute("PRAGMA foreign_keys = ON")  # off by default in SQLite


def _begin(connection: Connection) -> None:
    """A transaction that is to write takes the lock at once, and waits for it if it must.

    One that took it after its first read would have to give up where another has written since.
    The journal stays the one that SQLite rolls back from: WAL would let readers go on during a
    save, and needs memory that all share, which a network file system has not.
    """
    is_writing = connection.get_execution_options().get("writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")


def bring_up_to_date(engine: Engine) -> None:
    """Create the tables of a new store; carry out the migrations that another has not seen yet."""
    try:
        with engine.connect() as connection:
            if _is_current(connection):  # reading is enough, without a lock
                return
        with writing(engine) as connection:
            # Two first runs at once must not both create the tables. SQLite is locked already.
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"SELECT pg_advisory_xact_lock({POSTGRESQL_LOCK})"))
            if not _is_current(connection):  # else another run has just done it
                _migrate(connection)
    except (SQLAlchemyError, ValueError) as error:
        message = f"the store {shown(engine)} cannot be opened: {cause(error)}"
        raise InfrastructureError(message, remedy=remedy_for(error)) from error


def _is_current(connection: Connection) -> bool:
    """Whether no migration is missing; raises where none leads from a store's version to ours."""
    # A migration's file begins with its revision, and later ones have greater numbers.
    known = sorted(path.name.partition("_")[0] for path in MIGRATIONS.glob("versions/*.py"))
    revision = _revision(connection)
    if revision is None or revision in known:
        return revision == known[-1]
    is_older = revision < known[0]
    message = f"the store {shown(connection.engine)} is of {'an older' if is_older else 'a newer'}"
    message += f" version of this program: got revision {revision}, expected {known[-1]}"
    remedy = refill_remedy() if is_older else "Update this program."
    raise InfrastructureError(message, remedy=remedy)


def _revision(connection: Connection) -> str | None:
    """The newest migration that a store has seen; ``None``: it has no tables yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return str(connection.scalar(text("SELECT version_num FROM alembic_version")))


def _migrate(connection: Connection) -> None:
    """Carry out all missing migrations, or none; what they change is kept beside."""
    # Imported here: Alembic takes 0.11 s and 12 MB, and is seldom needed.
    from alembic.command import upgrade
    from alembic.config import Config

    # A migration may be wrong, and there is no way back.
    if revision := _revision(connection):
        back_up = _copy_file if connection.dialect.name == "sqlite" else _copy_tables
        back_up(connection, revision)
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    upgrade(config, "head")


def _copy_file(connection: Connection, revision: str) -> None:
    """Copy a SQLite file, which nobody else can change meanwhile.

    Through a connection of its own: SQLite copies from none that is about to write.
    """
    if database := connection.engine.url.database:
        copy = f"{database}.{revision}.backup"
        try:
            with (
                closing(sqlite3.connect(database)) as original,
                closing(sqlite3.connect(copy)) as to,
            ):
                original.backup(to)
        except sqlite3.Error as error:
            message = f"the store {database} is of an older version, and no copy of it can be kept"
            remedy = "Make that a file that can be written, or upgrade a copy of the store."
            raise InfrastructureError(f"{message} in {copy}: {error}", remedy=remedy) from error


def _copy_tables(connection: Connection, revision: str) -> None:
    """Copy each table beside itself: a schema of their own would take another privilege."""
    for name in inspect(connection).get_table_names():
        if not name.startswith("backup_"):
            copy = f"backup_{revision}_{name}"
            connection.execute(text(f'DROP TABLE IF EXISTS "{copy}"'))
            connection.execute(text(f'CREATE TABLE "{copy}" AS TABLE "{name}"'))
