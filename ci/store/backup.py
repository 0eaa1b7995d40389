"""Back up a store into one SQLite file, restore it into an empty store, and verify either.

A backup is itself a store: ``INFINI_CI_DB=sqlite:////FOLDER/FILE`` reads it. So a backup of
PostgreSQL can be restored into SQLite, and the other way round.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Connection, Engine, func, insert, select, text

from ci.errors import CiError, InfrastructureError, UsageError
from ci.store.connect import (
    connect,
    copy_database,
    masked_url,
    read_transaction,
    store_errors,
    write_transaction,
)
from ci.store.store import Store
from ci.store.tables import BLOBS, MEASURED, METADATA, PLATFORMS, RUNS
from ci.util.text import counted

ROWS = 200  # that are copied at once; a run's document has up to some megabytes
MOST_NAMED = 5
BACKUP_REMEDY = "Name a file that `store backup` wrote."


@contextmanager
def _engine(url: str) -> Iterator[Engine]:
    engine = connect(url)
    try:
        yield engine
    finally:
        engine.dispose()


def sqlite_url(file: Path) -> str:
    return f"sqlite:///{file.resolve()}"


def back_up(url: str, file: Path) -> int:
    """Write one state of a store, of which others may go on writing, and return its runs.

    The file appears when it is complete. Runs whose save has ended before are in it.
    """
    if file.exists():
        message = f"store backup: {file}: got an existing file, expected a new one"
        raise UsageError(message, remedy="Name another file, or remove this one.")
    if not file.parent.is_dir():
        raise UsageError(f"store backup: there is no folder {file.parent}")
    with (
        TemporaryDirectory(dir=file.parent, prefix=".store-backup-") as folder,
        _engine(url) as engine,
    ):
        copy = Path(folder, "store.db")
        if engine.dialect.name == "sqlite":
            _copy_sqlite(Path(str(engine.url.database)), copy)
        else:
            Store(sqlite_url(copy)).close()  # makes the tables
            with (
                _engine(sqlite_url(copy)) as target,
                read_transaction(engine) as source,
                store_errors(target, f"store backup: {file} cannot be written"),
                write_transaction(target) as connection,
            ):
                _copy_rows(source, connection)
        with _engine(sqlite_url(copy)) as made, read_transaction(made) as connection:
            runs = _count(connection)
        copy.replace(file)
    return runs


def _copy_sqlite(database: Path, copy: Path) -> None:
    try:
        copy_database(database, copy)
    except sqlite3.Error as error:
        message = f"store backup: {database} cannot be copied: {error}"
        remedy = "Make room there, or look at the store with: store verify"
        raise InfrastructureError(message, remedy=remedy) from error


def _copy_rows(source: Connection, target: Connection) -> None:
    """Copy all rows, those that others refer to first."""
    for table in METADATA.sorted_tables:
        found = source.execution_options(yield_per=ROWS).execute(select(table)).mappings()
        for rows in found.partitions(ROWS):
            target.execute(insert(table), [dict(row) for row in rows])


def _count(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(RUNS)).scalar_one()


def restore(file: Path, url: str) -> int:
    """Restore a backup into an empty store, all of it or nothing; return its runs.

    Raises ``UsageError`` if the store has anything in it, and ``InfrastructureError`` for a backup
    that does not verify.
    """
    _check_backup(file)
    with TemporaryDirectory(prefix="infini-ci-restore-") as folder:
        copy = Path(folder, "store.db")  # an older backup is upgraded
        shutil.copyfile(file, copy)
        if found := list(problems(sqlite_url(copy))):
            message = f"store restore: {file}: the backup is damaged: {found[0]}"
            raise InfrastructureError(message, remedy="Restore another backup.")
        Store(url).close()  # makes the tables
        with (
            _engine(sqlite_url(copy)) as backup,
            _engine(url) as engine,
            read_transaction(backup) as source,
            store_errors(engine, f"store restore: {masked_url(engine)} cannot be written"),
            write_transaction(engine) as target,
        ):
            _check_empty(target)
            _copy_rows(source, target)
            if engine.dialect.name == "postgresql":  # else the next id is one that is taken
                last = "(SELECT coalesce(max(id), 0) + 1 FROM platforms), false"
                sequence = "pg_get_serial_sequence('platforms', 'id')"
                target.execute(text(f"SELECT setval({sequence}, {last})"))
            return _count(target)


def _check_backup(file: Path) -> None:
    """Raise ``UsageError`` for what is no store: opening an empty file would make one of it."""
    if not file.is_file():
        message = f"store restore: {file}: {'got a folder' if file.exists() else 'no such file'}"
        raise UsageError(message, remedy=BACKUP_REMEDY)
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as backup:
            backup.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error as error:
        message = f"store restore: {file}: expected a backup of a store: {error}"
        raise UsageError(message, remedy=BACKUP_REMEDY) from None


def _check_empty(connection: Connection) -> None:
    for table in METADATA.sorted_tables:
        if connection.execute(select(table).limit(1)).first() is not None:
            runs = counted(_count(connection), "run")
            where = masked_url(connection.engine)
            message = f"store restore: {where}: got a store with {runs}, expected an empty one"
            remedy = "Name another store: INFINI_CI_DB, or --results FOLDER."
            raise UsageError(message, remedy=remedy)


def problems(url: str) -> Iterator[str]:
    """Read all of a store, and yield what is wrong with it; an older one is upgraded."""
    with Store(url) as store, _engine(url) as engine:
        if engine.dialect.name == "sqlite":
            with read_transaction(engine) as connection:
                yield from _sqlite_problems(connection)
        for error, _ in store.damaged_runs():
            yield str(error)
        with read_transaction(engine) as connection:
            yield from _blob_problems(connection)
            yield from _missing_rows(connection)
        for head in store.heads():
            for platform in head.platforms:
                try:
                    store.tests(head.run_id, platform)
                    store.reruns(head.run_id, platform)
                    store.build_details([head.run_id], platform)
                except (CiError, ValueError, TypeError, KeyError) as error:
                    yield f"run {head.run_id}: {platform}: its tests cannot be read: {error}"


def _sqlite_problems(connection: Connection) -> Iterator[str]:
    for (found,) in connection.execute(text("PRAGMA integrity_check")):
        if found != "ok":
            yield f"the file is damaged: {found}"
    for table, row, parent, _ in connection.execute(text("PRAGMA foreign_key_check")):
        yield f"row {row} of {table} refers to a row of {parent} that is missing"


def _blob_problems(connection: Connection) -> Iterator[str]:
    """Yield each shared list whose text is not that of its digest."""
    for digest, content in connection.execution_options(yield_per=ROWS).execute(
        select(BLOBS.c.digest, BLOBS.c.content)
    ):
        try:
            found = hashlib.sha256(zlib.decompress(content)).hexdigest()
        except zlib.error as error:
            yield f"list {digest[:12]}: cannot be unpacked: {error}"
            continue
        if found != digest:
            yield f"list {digest[:12]}: got the digest {found[:12]}, expected its own"


def _missing_rows(connection: Connection) -> Iterator[str]:
    """Yield runs of which a part is missing: a save writes all of it, or nothing."""
    query = select(RUNS.c.run_id).where(
        ~select(PLATFORMS.c.id).where(PLATFORMS.c.run_id == RUNS.c.run_id).exists()
    )
    for run_id in connection.scalars(query):
        yield f"run {run_id}: it has no platform"
    rows = select(PLATFORMS.c.run_id, PLATFORMS.c.platform).where(
        ~select(MEASURED.c.platform_id).where(MEASURED.c.platform_id == PLATFORMS.c.id).exists()
    )
    for run_id, platform in connection.execute(rows):
        yield f"run {run_id}: {platform}: its measures are missing"
