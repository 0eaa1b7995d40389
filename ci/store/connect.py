"""Connections to a store's database, whose tables are created or upgraded on opening.

SQLAlchemy takes 0.3 s to import, so only code that opens a store imports it: not the workers of a
run.
"""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    OperationalError,
    SQLAlchemyError,
    StatementError,
)

from ci.errors import InfrastructureError, UsageError
from ci.util.invocation import command
from ci.util.terminal import complain
from ci.util.text import mask_credentials, strip_controls

EXPECTED = (
    "Set INFINI_CI_DB to sqlite:////FOLDER/FILE or"
    " postgresql+psycopg://USER:PASSWORD@HOST/DATABASE."
)
CONNECT_TIMEOUT_S = "10"  # without it, a host that drops packets delays a run by two minutes
# A save holds the lock for less than a second, so this lasts for a queue of many saves.
LOCK_TIMEOUT_S = 120.0
ANNOUNCED_S = 3.0  # of waiting, after which a message names who has the lock
LOCKED = "database is locked"  # SQLite's message
LOCK_TIMEOUT = "lock timeout"  # in PostgreSQL's
FULL = "disk is full"  # in SQLite's
NOT_OPENED = "unable to open database file"  # SQLite's
LONGEST_COMMAND = 100  # characters of a command line in a message
POSTGRESQL_LOCK = 0x696E66696E69  # "infini": any number that no other program uses
MIGRATIONS = Path(__file__).parent / "migrations"


def connect(url: str) -> Engine:
    """Create an engine for a database, without connecting to it."""
    parsed = _parsed(url)
    backend = parsed.get_backend_name()
    if backend not in _BACKENDS:
        message = f"INFINI_CI_DB: got a database of {backend}, expected SQLite or PostgreSQL"
        raise UsageError(message, remedy=EXPECTED)
    return _BACKENDS[backend](parsed)


def missing_file(url: str) -> Path | None:
    """The file of a SQLite store if it does not exist; opening the store would create it."""
    parsed = _parsed(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        return None
    file = Path(parsed.database)
    return None if file.exists() else file


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:  # ValueError: the port is not a number
        message = "INFINI_CI_DB: got a value that is not a database URL"
        raise UsageError(message, remedy=EXPECTED) from error


def masked_url(engine: Engine) -> str:
    """The store's URL for messages, without passwords: parameters can contain one, too."""
    return engine.url.set(query={}).render_as_string()


def database_message(error: Exception) -> str:
    """The database's own message, without the statement and its values."""
    original = error.orig if isinstance(error, StatementError) and error.orig else error
    return " ".join(str(original).split())


@dataclass(frozen=True)
class Unreadable:
    """The value of a column with JSON that cannot be read; it is of no type that readers accept."""

    reason: str


def _read_json(text: str | bytes) -> Any:
    """Read JSON with pydantic's parser, which takes a quarter of the time of the standard library.

    NaN and infinity are not JSON.
    """
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        return Unreadable(f"not JSON: {error}")


# Options of an engine. A row that cannot be read must not keep others of its query from being read.
_JSON: Mapping[str, Any] = {
    "json_deserializer": _read_json,
    "json_serializer": partial(json.dumps, allow_nan=False),
}


def refill_remedy() -> str:
    """How to rebuild an unreadable store: the folders of the runs contain all its data."""
    return f"Move it away, then rebuild it from the folders of the runs: {import_all()}"


def remedy_for(error: Exception, engine: Engine) -> str | None:
    """The remedy for a damaged store, or for a server that does not answer or let the user in."""
    if FULL in str(error):
        return "Make room there, then run again."
    if NOT_OPENED in str(error):
        return "Check that its folder can be written to, and that no folder has the file's name."
    if LOCKED in str(error) or LOCK_TIMEOUT in str(error):
        return f"Another program held its lock for {LOCK_TIMEOUT_S:g} s. End it, then run again."
    if isinstance(error, ValueError) or is_damaged(error):
        return refill_remedy()
    if isinstance(error, OperationalError) and engine.dialect.name == "postgresql":
        what = "Check that the server runs, and the host, user and password in INFINI_CI_DB. To go"
        what += " on without it, unset INFINI_CI_DB: runs are then stored in RESULTS/ci.db. Later,"
        return f"{what} with INFINI_CI_DB set again, store them on the server: {import_all()}"
    return None


def is_damaged(error: Exception) -> bool:
    """Whether an error is of a SQLite file that is damaged, or is none.

    SQLite raises DatabaseError itself for "malformed" and "not a database", and a subclass of it
    for a lock or a lost connection.
    """
    return type(error) is DatabaseError


def import_all() -> str:
    """The command that stores all runs of a folder of results."""
    return command("import", "RESULTS", "--results", "RESULTS")


@contextmanager
def store_errors(engine: Engine, failure: str) -> Iterator[None]:
    """Raise ``InfrastructureError`` for an error of the store; its message names the failure."""
    try:
        yield
    except (SQLAlchemyError, ValueError) as error:  # ValueError: stored text is not valid text
        message = f"{failure}: {database_message(error)}"
        raise InfrastructureError(message, remedy=remedy_for(error, engine)) from error


@contextmanager
def read_transaction(engine: Engine) -> Iterator[Connection]:
    """Connect for reading: one consistent view, also while another run saves."""
    with (
        store_errors(engine, f"the store {masked_url(engine)} cannot be read"),
        engine.connect() as connection,
    ):
        if engine.dialect.name == "postgresql":  # whose default is a view per statement
            connection.execution_options(isolation_level="REPEATABLE READ")
        yield connection


@contextmanager
def write_transaction(engine: Engine) -> Iterator[Connection]:
    """Begin a transaction that writes; it waits for other writers."""
    with engine.connect().execution_options(writing=True) as connection, connection.begin():
        yield connection


def _postgresql(url: URL) -> Engine:
    limit = f"-c lock_timeout={LOCK_TIMEOUT_S * 1000:.0f}"
    query = {"connect_timeout": CONNECT_TIMEOUT_S, "options": limit, **url.query}
    try:
        return create_engine(
            url.set(drivername="postgresql+psycopg", query=query),
            **_JSON,
            pool_pre_ping=True,  # a network can drop the connection in the hours between two saves
        )
    except ImportError as error:  # psycopg, or the C library that it needs
        message = f"the store is in PostgreSQL, but its driver cannot be loaded: {error}"
        remedy = "Install it: python -m pip install --group postgresql"
        raise InfrastructureError(message, remedy=remedy) from error


def _sqlite(url: URL) -> Engine:
    limit = {"timeout": ANNOUNCED_S}
    engine = create_engine(url.set(drivername="sqlite"), connect_args=limit, **_JSON)
    if database := engine.url.database:
        Path(database).parent.mkdir(parents=True, exist_ok=True)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    event.listen(engine, "commit", partial(_wait_for_lock, statement="COMMIT"))
    return engine


_BACKENDS: Mapping[str, Callable[[URL], Engine]] = {"sqlite": _sqlite, "postgresql": _postgresql}


def _prepare(connection: Any, _: object) -> None:
    connection.isolation_level = None  # else the sqlite3 module begins transactions by itself
    connection.execute("PRAGMA foreign_keys = ON")  # off by default in SQLite


def _begin(connection: Connection) -> None:
    """Begin a transaction; one that will write waits for the lock at once.

    If it took the lock only after its first read, it would fail whenever another had written since.
    The journal remains SQLite's rollback journal: with WAL, readers could continue during a save,
    but WAL needs shared memory, which a network file system does not have.
    """
    if connection.get_execution_options().get("writing", False):
        _wait_for_lock(connection, "BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql("BEGIN")
        _wait_for_lock(connection, "SELECT 1 FROM sqlite_master LIMIT 1")  # takes the lock


def _wait_for_lock(connection: Connection, statement: str) -> None:
    """Execute a statement that takes a lock; report who has it if that takes long."""
    try:
        connection.exec_driver_sql(statement)
    except OperationalError as error:
        if LOCKED not in str(error):
            raise
        file = str(connection.engine.url.database)
        limit = f"for at most {LOCK_TIMEOUT_S:g} s"
        complain(f"waiting for the store {file} {limit}: {_lock_holder(file)}")
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {LOCK_TIMEOUT_S * 1000:.0f}")
        try:
            connection.exec_driver_sql(statement)
        finally:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {ANNOUNCED_S * 1000:.0f}")


def _lock_holder(file: str) -> str:
    """Return who has a lock on a file, as the kernel lists it, and the remedy."""
    status = Path(file).stat()
    device = status.st_dev
    place = f"{os.major(device):02x}:{os.minor(device):02x}:{status.st_ino}"
    # Lines like ``1: POSIX  ADVISORY  WRITE 123 fe:00:456 1073741824 1073742335``
    listed: list[str] = []
    with suppress(OSError):  # only Linux has it
        listed = Path("/proc/locks").read_text().splitlines()
    words_of = (line.split() for line in listed)
    found = {int(words[4]) for words in words_of if place in words and "->" not in words}
    for pid in sorted(found - {os.getpid()}):
        with suppress(OSError):  # it has ended, or is in another container
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            command = mask_credentials(" ".join(words.split("\0")).strip())
            name = strip_controls(command)[:LONGEST_COMMAND]
            return f"process {pid} ({name}) has locked it. If it hangs: kill {pid}"
    return f"another program has locked it. To see which: fuser --verbose {shlex.quote(file)}"


def upgrade_tables(engine: Engine) -> None:
    """Create the tables of a new store, or apply the missing migrations to an older one."""
    with store_errors(engine, f"the store {masked_url(engine)} cannot be opened"):
        with engine.connect() as connection:
            if _is_current(connection):  # checking needs no lock
                return
        with write_transaction(engine) as connection:
            # Two first runs at once must not both create the tables. SQLite already holds a lock.
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"SELECT pg_advisory_xact_lock({POSTGRESQL_LOCK})"))
            if not _is_current(connection):  # else another run has just done it
                _migrate(connection)


def _is_current(connection: Connection) -> bool:
    """Whether no migration is missing; raises if the store's version cannot be upgraded to ours."""
    # The file name of a migration begins with its revision; later ones have greater numbers.
    known = sorted(path.name.partition("_")[0] for path in MIGRATIONS.glob("versions/*.py"))
    revision = _revision(connection)
    if revision is None or revision in known:
        return revision == known[-1]
    is_older = revision < known[0]
    version = "an older" if is_older else "a newer"
    message = f"the store {masked_url(connection.engine)} was written by {version} version of this"
    message += f" program: got revision {revision}, expected {known[-1]}"
    remedy = refill_remedy() if is_older else "Update this program."
    raise InfrastructureError(message, remedy=remedy)


def _revision(connection: Connection) -> str | None:
    """The newest migration of a store; ``None`` if it has no tables yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return str(connection.scalar(text("SELECT version_num FROM alembic_version")))


def _migrate(connection: Connection) -> None:
    """Apply all missing migrations or none, after a backup of the tables."""
    # Imported here: Alembic takes 0.11 s and 12 MB, and is rarely needed.
    from alembic.command import upgrade
    from alembic.config import Config

    # A migration may be wrong, and it cannot be undone.
    if revision := _revision(connection):
        back_up = _copy_file if connection.dialect.name == "sqlite" else _copy_tables
        back_up(connection, revision)
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    upgrade(config, "head")


def copy_database(database: str | Path, copy: str | Path) -> None:
    """Copy a SQLite file in one step, so that no other can write between two of its pages."""
    with closing(sqlite3.connect(database)) as original, closing(sqlite3.connect(copy)) as to:
        original.backup(to)


def _copy_file(connection: Connection, revision: str) -> None:
    """Copy a SQLite file; its lock keeps others from changing it meanwhile.

    The copy needs its own connection: SQLite refuses to copy from one that is about to write.
    """
    database = str(connection.engine.url.database)
    copy = f"{database}.{revision}.backup"
    try:
        copy_database(database, copy)
    except sqlite3.Error as error:
        message = f"the store {database} needs an upgrade, but cannot be backed up to {copy}"
        remedy = "Make that file writable, or upgrade a copy of the store."
        raise InfrastructureError(f"{message}: {error}", remedy=remedy) from error


def _copy_tables(connection: Connection, revision: str) -> None:
    """Copy each table beside itself: a separate schema would need another privilege."""
    for name in inspect(connection).get_table_names():
        if not name.startswith("backup_"):
            copy = f"backup_{revision}_{name}"
            connection.execute(text(f'DROP TABLE IF EXISTS "{copy}"'))
            connection.execute(text(f'CREATE TABLE "{copy}" AS TABLE "{name}"'))
