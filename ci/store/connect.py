"""The store: runs, platforms, stages and tests in one SQL database.

Only who opens it imports SQLAlchemy, which takes 0.3 s: not the workers of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, SQLAlchemyError

from ci.errors import InfrastructureError, UsageError
from ci.util.invocation import command

if TYPE_CHECKING:
    pass


def damaged() -> str:
    """What to do about a store that cannot be read."""
    again = command("import", "RESULTS", "--results", "RESULTS")
    return f"Move it away, and fill another from the folders of the runs: {again}"


EXPECTED = (
    "INFINI_CI_DB is sqlite:////FOLDER/FILE or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE."
)
CONNECT_TIMEOUT_S = "10"
# A save holds the lock for less than a second; this is a queue of many.
SQLITE_TIMEOUT_S = 120


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


def remedy_for(error: Exception) -> str | None:
    """What to do about a store that is damaged; nothing helps where it just does not answer."""
    # SQLite's word for "malformed" and "not a database"; a lock or a lost connection is a subclass.
    is_damage = isinstance(error, ValueError) or type(error) is DatabaseError
    return damaged() if is_damage else None


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
