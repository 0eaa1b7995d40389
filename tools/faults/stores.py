"""Stores that are locked, damaged, newer, elsewhere or gone."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

from ci.store.folder import default_url
from ci.store.store import Store
from tools.faults.model import PASSES, REFUSED, SLOW, Fault
from tools.faults.running import FaultRun

KIND = "Store"
REBUILD = "Move it away, then rebuild it from the folders of the runs: …import …"
Around = Callable[[FaultRun], AbstractContextManager[object]]


def made(change: Callable[[Path], None]) -> Around:
    """Return what changes an empty store before the run."""

    @contextmanager
    def around(run: FaultRun) -> Iterator[Path]:
        run.results.mkdir()
        Store(default_url(run.results)).close()
        change(run.results / "ci.db")
        yield run.results / "ci.db"

    return around


def execute(statement: str) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(statement)
            connection.commit()

    return change


def damage(file: Path) -> None:
    file.write_bytes(os.urandom(10_000))


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 3)


def make_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@contextmanager
def locked(run: FaultRun) -> Iterator[sqlite3.Connection]:
    """Hold the store's lock."""
    with (
        made(lambda _: None)(run) as file,
        closing(sqlite3.connect(str(file), check_same_thread=False, isolation_level=None)) as lock,
    ):
        lock.execute("BEGIN EXCLUSIVE")
        yield lock


def release_lock(run: FaultRun, _: str) -> None:
    """Release the store's lock once a run has said that it waits."""
    run.wait_for_text("waiting for the store")
    run.setting.execute("ROLLBACK")


@contextmanager
def garbage_server(run: FaultRun) -> Iterator[None]:
    """Answer as a PostgreSQL server never does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        run.environment["INFINI_CI_DB"] = f"postgresql+psycopg://ci:hidden@127.0.0.1:{port}/ci"

        def answer() -> None:
            while True:
                try:
                    line, _ = server.accept()
                except OSError:
                    return
                with line:
                    line.recv(1024)
                    line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        Thread(target=answer, daemon=True).start()
        yield


def during(change: Callable[[Path], None]) -> Callable[[FaultRun, str], None]:
    """Return the action that changes the store while the tests run."""

    def act(run: FaultRun, platform: str) -> None:
        run.wait_for(platform)
        change(run.results / "ci.db")

    return act


def move_away_and_import(run: FaultRun) -> None:
    """Do what the message says."""
    file = run.results / "ci.db"
    if file.exists():
        file.rename(run.folder / "damaged.db")
    run.wait(run.start("import", str(run.results)))


def rebuilt(name: str, change: Callable[[Path], None], shown: str) -> Fault:
    """Return a fault of the store in the middle of a run, after which `import` rebuilds it."""
    return replace(
        PASSES,
        name=f"{name} while the tests run; `import` rebuilds it",
        kind=KIND,
        files=SLOW,
        act=during(change),
        then=move_away_and_import,
        shown=(shown,),
        exits=(3, 0),
    )


@contextmanager
def no_server(_: FaultRun) -> Iterator[None]:
    yield


UNUSABLE = replace(REFUSED, kind=KIND)
FAULTS = (
    replace(
        PASSES,
        name="another program has locked the store, until the run has waited for 3 s",
        kind=KIND,
        around=locked,
        act=release_lock,
        shown=("waiting for the store … for at most 120 s: process … has locked it. …",),
    ),
    replace(
        UNUSABLE,
        name="the store is no database",
        around=made(damage),
        shown=("…: file is not a database\n" + REBUILD,),
    ),
    replace(
        UNUSABLE,
        name="two thirds of the store are lost",
        around=made(cut),
        shown=("… malformed\n" + REBUILD,),
    ),
    replace(
        UNUSABLE,
        name="a newer version has written the store",
        around=made(execute("UPDATE alembic_version SET version_num = '9999'")),
        shown=(
            "the store … was written by a newer version of this program: got revision 9999, …\n"
            "Update this program.",
        ),
    ),
    replace(
        UNUSABLE,
        name="a folder is in the place of the store",
        around=made(make_folder),
        shown=("the store … cannot be opened: unable to open database file\nCheck …",),
    ),
    rebuilt(
        "the store is removed", Path.unlink, "…/ci.db was removed while it was open\n…import …"
    ),
    rebuilt("the store is damaged", damage, "…: file is not a database\n" + REBUILD),
    rebuilt("a table of the store is removed", execute("DROP TABLE platforms"), "… no such table…"),
    replace(
        UNUSABLE,
        name="the PostgreSQL server is down",
        around=no_server,
        shown=(
            "…Connection refused…Check that the server runs, and the host, user and password in …",
        ),
        environment={"INFINI_CI_DB": "postgresql+psycopg://ci:hidden@127.0.0.1:1/ci"},
    ),
    replace(
        UNUSABLE,
        name="what answers as the PostgreSQL server is none",
        around=garbage_server,
        shown=("…Check that the server runs, and the host, user and password in …",),
    ),
)
