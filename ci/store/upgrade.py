"""Brings a store's tables up to date, by Alembic's migrations."""

from __future__ import annotations

import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from filelock import FileLock
from sqlalchemy import Connection, Engine

from ci.errors import InfrastructureError

LOCK_TIMEOUT_S = 60


def upgrade(engine: Engine, migrations: Path) -> None:
    """Carry out the migrations that a store has not seen yet."""
    try:
        with _lock(engine):
            _migrate(engine, configuration(migrations))
    except CommandError as error:  # Alembic has no migration of that name
        message = f"the store {engine.url} is of a newer version of this program: {error}"
        raise InfrastructureError(message, remedy="Update this program.") from error


def configuration(migrations: Path) -> alembic.config.Config:
    """What Alembic has to know about a folder of migrations."""
    config = alembic.config.Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    return config


def _lock(engine: Engine) -> FileLock | nullcontext[None]:
    """Two first runs at once must not both create the tables. SQLite has no lock for it."""
    database = engine.url.database
    if engine.dialect.name != "sqlite" or not database:
        return nullcontext()
    return FileLock(f"{database}.lock", timeout=LOCK_TIMEOUT_S)


def _migrate(engine: Engine, config: alembic.config.Config) -> None:
    migrations = ScriptDirectory.from_config(config)
    with engine.begin() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
        if current == migrations.get_current_head():  # another run has just done it
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
