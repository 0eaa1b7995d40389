"""Stores of other versions: an older one is upgraded in place, a newer one is left alone."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import alembic.command
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from postgresql_server import connected
from sqlalchemy import inspect, text

from ci.errors import InfrastructureError
from ci.model.results import RunResult
from ci.store import store
from ci.store.location import default_url
from ci.store.store import Store
from ci.store.tables import METADATA
from ci.store.upgrade import configuration

ENVIRONMENT = '{"compiler": "g++ 12.2", "python": "3.11"}'
RUN = "'old', 'infini-ops', 'abc', {false}, '2026-01-01 12:00:00', '2026-01-01 13:00:00', 'host'"
PLATFORM = (
    "100, 'old', 0, 'cpu', 'CPU', {true}, 1, 0, 0, 2, 0, 0, 0, NULL, 1.5, '1 passed', 2.0, 3.0,"
    " 5.0, 'passed', 'clean', '[]', '[\"full suite passed\"]', :environment, '{{}}'"
)
STAGES = (
    "100, 100, 0, 'install', 2.0, 3.5, 0.5, 1024, 0, {true}",
    "101, 100, 1, 'pytest', 3.0, NULL, NULL, NULL, 0, {true}",
)
TESTS = (
    "1, 100, 't::b', 'passed', 0.1234567, NULL",
    "2, 100, 't::a', 'skipped', 0.5, 'no sample: none is recorded'",
    "3, 100, 't::c', 'skipped', 0.5, 'elsewhere'",
)
# What the first three versions had in their tables; later columns come last.
ROWS: dict[str, dict[str, Sequence[str]]] = {
    "0001": {"runs": [RUN], "platforms": [PLATFORM], "stages": STAGES, "tests": TESTS},
    "0002": {
        "runs": [RUN],
        "platforms": [f"{PLATFORM}, '[]'"],
        "stages": STAGES,
        "tests": [f"{TESTS[0]}, NULL", f"{TESTS[1]}, 'no sample'", f"{TESTS[2]}, NULL"],
    },
    "0003": {
        "runs": [RUN],
        "platforms": [f"{PLATFORM}, '[]', {{true}}"],
        "stages": STAGES,
        "tests": [f"{TESTS[0]}, NULL", f"{TESTS[1]}, 'no sample'", f"{TESTS[2]}, NULL"],
    },
}


def fill(url: str, revision: str) -> None:
    """Make a store as a version of old made it."""
    with connected(url) as connection:
        config = configuration(store.MIGRATIONS)
        config.attributes["connection"] = connection
        alembic.command.upgrade(config, revision)
        booleans = {"sqlite": ("0", "1")}.get(connection.dialect.name, ("false", "true"))
        for table, rows in ROWS[revision].items():
            for row in rows:
                values = row.format(false=booleans[0], true=booleans[1])
                statement = text(f"INSERT INTO {table} VALUES ({values})")  # noqa: S608
                bound = {"environment": ENVIRONMENT} if ":environment" in values else {}
                connection.execute(statement, bound)


def tables(url: str) -> set[str]:
    with connected(url) as connection:
        return set(inspect(connection).get_table_names())


def backed_up(url: str, revision: str, table: str) -> list[Any]:
    """The rows of a table before the upgrade."""
    prefix = ""
    if url.startswith("sqlite"):
        url += f".{revision}.backup"
    else:
        prefix = f"backup_{revision}_"
    with connected(url) as connection:
        return list(connection.execute(text(f'SELECT * FROM "{prefix}{table}"')))  # noqa: S608


@pytest.mark.parametrize("revision", ROWS)
def test_a_store_of_old_is_upgraded_and_reads_back(revision: str, store_url: str) -> None:
    fill(store_url, revision)
    with Store(store_url) as opened:
        run = opened.load("old")
        tests = opened.tests("old", "cpu")
        [measured] = opened.measured("cpu", project="infini-ops")
        [key] = opened.environment_keys([measured.key]).values()
    [platform] = run.platforms
    assert (run.commit, run.dirty, platform.notes) == ("abc", False, ("full suite passed",))
    assert (platform.simulated, platform.build) == (revision == "0003", None)
    assert [(test.node_id, test.seconds, test.skip_reason) for test in tests] == [
        ("t::a", 0.5, "no sample"),
        ("t::b", 0.123457, None),
        ("t::c", 0.5, None),
    ]
    assert measured.values == {
        "install.wall_s": 2.0,
        "install.cpu_s": 4.0,
        "install.peak_bytes": 1024.0,
        "pytest.wall_s": 3.0,
        "total.wall_s": 5.0,
    }
    assert (key.compiler, key.python) == ("g++ 12.2", "Python 3.11")
    assert len(backed_up(store_url, revision, "tests")) == 3


def test_an_upgraded_store_saves_as_a_new_one_does(published: RunResult, store_url: str) -> None:
    fill(store_url, "0003")
    with Store(store_url) as opened:
        opened.save(published, {})
        assert opened.load() == published
        assert [head.run_id for head in opened.heads()] == [published.run_id, "old"]


def test_an_upgrade_that_fails_changes_nothing(
    store_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fill(store_url, "0003")
    before = tables(store_url)
    with monkeypatch.context() as newer:
        add_migration(newer, tmp_path, "op.execute('SELECT * FROM nowhere')")
        with pytest.raises(InfrastructureError, match=r"cannot be opened: .*nowhere"):
            Store(store_url)
    assert tables(store_url) == before
    with Store(store_url) as opened:
        assert len(opened.tests("old", "cpu")) == 3


def add_migration(monkeypatch: pytest.MonkeyPatch, folder: Path, statement: str) -> None:
    """Let the program be a version newer."""
    migrations = folder / "migrations"
    shutil.copytree(store.MIGRATIONS, migrations)
    newest = max(path.name for path in migrations.glob("versions/*.py")).partition("_")[0]
    migration = f"""\
from alembic import op
revision, down_revision = "9999", "{newest}"
def upgrade():
    {statement}
"""
    (migrations / "versions" / "9999_notes.py").write_text(migration)
    monkeypatch.setattr(store, "MIGRATIONS", migrations)


ADDS_A_TABLE = "op.execute('CREATE TABLE notes (text VARCHAR)')"


def test_a_store_of_a_newer_version_is_left_alone(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        add_migration(newer, tmp_path, ADDS_A_TABLE)
        Store(store_url).close()
    before = tables(store_url)
    with pytest.raises(InfrastructureError, match="is of a newer version") as caught:
        Store(store_url)
    assert caught.value.remedy == "Update this program."
    assert tables(store_url) == before
    assert list(tmp_path.glob("*.backup")) == []


def test_a_store_is_copied_once_before_it_is_migrated(
    published: RunResult, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(store_url) as old:
        old.save(published, {})
    newest = max(path.name for path in store.MIGRATIONS.glob("versions/*.py")).partition("_")[0]
    before = tables(store_url)
    add_migration(monkeypatch, tmp_path, ADDS_A_TABLE)
    for _ in range(2):
        with Store(store_url) as new:
            assert new.load() == published
    added = tables(store_url) - before
    assert {name for name in added if not name.startswith("backup_")} == {"notes"}
    assert len(backed_up(store_url, newest, "platforms")) == len(published.platforms)


def test_migrations_make_the_tables(store_url: str) -> None:
    Store(store_url).close()
    with connected(store_url) as connection:
        differences = compare_metadata(MigrationContext.configure(connection), METADATA)
    assert differences == [], "add a migration to ci/store/migrations/versions"


def test_the_copy_of_a_sqlite_store_is_beside_it(tmp_path: Path) -> None:
    fill(default_url(tmp_path), "0002")
    Store(default_url(tmp_path)).close()
    assert [path.name for path in tmp_path.glob("*.backup")] == ["ci.db.0002.backup"]


def test_a_sqlite_store_that_cannot_be_copied_is_not_migrated(tmp_path: Path) -> None:
    fill(default_url(tmp_path), "0002")
    before = (tmp_path / "ci.db").read_bytes()
    (tmp_path / "ci.db.0002.backup").mkdir()  # as where nothing may be written, also for root
    with pytest.raises(InfrastructureError, match=r"no copy of it can be kept in .*0002\.backup: "):
        Store(default_url(tmp_path))
    assert (tmp_path / "ci.db").read_bytes() == before
