"""A PostgreSQL server of the tests' own, from Debian's package `postgresql`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, text

from ci.store.connect import connect, write_transaction

INSTALLED = Path("/usr/lib/postgresql")
LOCKED = "locked"  # a user of the database who needs a password; the others need none
USER = "postgres"  # the package makes this user; the server refuses to run as root
READY = "database system is ready to accept connections"
SETTINGS = {
    "listen_addresses": "",  # a Unix socket alone
    "fsync": "off",  # nothing here has to outlive a power failure
    "log_min_messages": "log",  # no one reads it later, and a full pipe would stop the server
    "log_checkpoints": "off",
}


@dataclass
class Server:
    """It listens on a Unix socket in a folder."""

    folder: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def new_store(self) -> str:
        """The URL of an empty store: a schema, since a database takes 50 ms."""
        url = f"postgresql+psycopg://ci@/postgres?host={self.folder}"
        schema = f"store_{next(self._numbers)}"
        with connected(url) as connection:
            connection.execute(text(f"CREATE SCHEMA {schema}"))
        return f"{url}&options={quote(f'-csearch_path={schema}')}"


def missing() -> str | None:
    """Why there can be no server."""
    if not list(INSTALLED.glob("*/bin/initdb")):
        return "Debian's package postgresql is not installed"
    if importlib.util.find_spec("psycopg") is None:
        return "the dependency group postgresql is not installed"
    return None


@contextmanager
def running_server() -> Iterator[Server]:
    """One that ends with the caller, also where that is killed."""
    with tempfile.TemporaryDirectory(prefix="ci-postgresql-") as name:
        folder = Path(name)
        if os.getuid() == 0:
            shutil.chown(folder, USER)
        data = folder / "data"
        options = ["-U", "ci", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        initdb = [*_program("initdb"), "-D", data, *options]
        subprocess.run(initdb, check=True, capture_output=True, cwd=folder)
        rules = data / "pg_hba.conf"  # the first rule that fits decides
        rules.write_text(f"local all {LOCKED} scram-sha-256\n{rules.read_text()}")
        settings = [word for pair in SETTINGS.items() for word in ("-c", "=".join(pair))]
        postgres = [*_program("postgres"), "-D", data, "-k", folder, *settings]
        with subprocess.Popen(postgres, stderr=subprocess.PIPE, text=True, cwd=folder) as server:
            try:
                _wait(server)
                yield Server(folder)
            finally:
                server.send_signal(signal.SIGINT)  # does not wait for connections to end


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A transaction that sees a store's tables as they are."""
    engine = connect(url)
    try:
        with write_transaction(engine) as connection:
            yield connection
    finally:
        engine.dispose()


def _program(name: str) -> list[str | Path]:
    """The newest installed one, as a user without privileges."""
    newest = max(INSTALLED.glob("*/bin"), key=lambda path: float(path.parent.name))
    become = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.getuid() == 0 else []
    return ["setpriv", "--pdeathsig=INT", *become, newest / name]


def _wait(server: subprocess.Popen[str]) -> None:
    assert server.stderr is not None
    lines = []
    for line in server.stderr:
        lines.append(line)
        if READY in line:
            return
    raise RuntimeError(f"PostgreSQL does not start: {''.join(lines)}")
