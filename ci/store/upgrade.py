"""Brings a store's tables up to date, by Alembic's migrations."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import alembic.command
import alembic.config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, Engine, inspect, text

from ci.errors import InfrastructureError
from ci.store.connect import shown, writing

POSTGRESQL_LOCK = 0x696E66696E69  # any number that nobody else takes: "infini"


def upgrade(engine: Engine, migrations: Path) -> None:
    """Carry out the migrations that a store has not seen yet: all of them, or none."""
    try:
        with writing(engine) as connection:
            _lock(connection)
            _migrate(connection, configuration(migrations))
    except CommandError as error:  # Alembic has no migration of that name
        message = f"the store {shown(engine)} is of a newer version of this program: {error}"
        raise InfrastructureError(message, remedy="Update this program.") from error


def configuration(migrations: Path) -> alembic.config.Config:
    """What Alembic has to know about a folder of migrations."""
    config = alembic.config.Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    return config


def _lock(connection: Connection) -> None:
    """Two first runs at once must not both create the tables. SQLite is locked already."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({POSTGRESQL_LOCK})"))


def _migrate(connection: Connection, config: alembic.config.Config) -> None:
    migrations = ScriptDirectory.from_config(config)
    current = MigrationContext.configure(connection).get_current_revision()
    if current == migrations.get_current_head():  # another run has just done it
        return
    if current is not None:
        migrations.get_revision(current)  # raises for one of a newer version
        _back_up(connection, current)
    config.attributes["connection"] = connection
    alembic.command.upgrade(config, "head")


def _back_up(connection: Connection, revision: str) -> None:
    """Keep what a migration changes: it may be wrong, and there is no way back."""
    if connection.dialect.name == "sqlite":
        _copy_file(connection, revision)
    else:
        _copy_tables(connection, revision)


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
