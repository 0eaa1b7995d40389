"""Stores and results of other versions of the program: which load, and how others are refused."""

from __future__ import annotations

import ast
import csv
import json
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

from ci.cli import main
from ci.errors import ExitCode, InfrastructureError
from ci.facts.acceptance import accept_level
from ci.model.details import Details
from ci.model.results import SCHEMA_VERSION, Lineage, RunResult
from ci.store import connect
from ci.store.connect import refill_remedy
from ci.store.folder import default_url
from ci.store.rows import CommitParents
from ci.store.store import Store
from ci.store.tables import METADATA
from ci.util.invocation import REPOSITORY
from ci.util.process import run as run_process
from tests.ci.foreign_runs import RUN_ID, small, write_run
from tests.ci.made_results import made_test
from tests.ci.postgresql_server import connected

TESTS = Details(tests=[made_test("t::a")])
ADDS_A_TABLE = "op.execute('CREATE TABLE notes (text VARCHAR)')"


@pytest.fixture
def saved_url(published: RunResult, store_url: str) -> str:
    """A store of one run, with one test of one platform."""
    with Store(store_url) as store:
        store.save(published, {"nvidia": TESTS})
    return store_url


def newest() -> str:
    return max(path.name for path in connect.MIGRATIONS.glob("versions/*.py")).partition("_")[0]


def make_older(url: str, revision: str) -> None:
    """A store as a version before the documents wrote it, in all columns that are read."""
    with connected(url) as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text(f"INSERT INTO alembic_version VALUES ('{revision}')"))  # noqa: S608
        connection.execute(text("CREATE TABLE runs (run_id VARCHAR(64) NOT NULL)"))
        connection.execute(text("INSERT INTO runs VALUES ('old')"))


def contents(url: str, prefix: str = "") -> dict[str, Sequence[Any]]:
    """The rows of every table, or of those whose names begin so."""
    with connected(url) as connection:
        return {
            name: connection.execute(text(f'SELECT * FROM "{name}"')).all()  # noqa: S608
            for name in inspect(connection).get_table_names()
            if name.startswith(prefix)
        }


def backed_up(url: str, revision: str) -> dict[str, Sequence[Any]]:
    """The rows of every table before an upgrade."""
    if url.startswith("sqlite"):
        return contents(f"{url}.{revision}.backup")
    prefix = f"backup_{revision}_"
    return {name.removeprefix(prefix): rows for name, rows in contents(url, prefix).items()}


ACCEPTED_0005 = """
CREATE TABLE accepted (project VARCHAR(64), platform VARCHAR(64), measure VARCHAR,
run_id VARCHAR(64), "commit" VARCHAR(64), level DOUBLE PRECISION, reason VARCHAR,
accepted_at TIMESTAMP, PRIMARY KEY (project, platform, measure, run_id))
"""


DROP_0011 = "ALTER TABLE lineages DROP COLUMN asked_by"  # a later version added it


def make_accepted_older(url: str, revision: str) -> None:
    """A store of revision 0005 or 0006, with an accepted rise."""
    values = "'p', 'cpu', 'a.b.wall_s', 'run-7', NULL, 9.5, 'kernels', '2026-01-02 03:04:05'"
    with connected(url) as connection:
        for table in ("accepted", "alarms", "alarm_rises", "alarm_messages"):
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text(DROP_0011))
        connection.execute(text(ACCEPTED_0005))
        connection.execute(text(f"INSERT INTO accepted VALUES ({values})"))  # noqa: S608
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{revision}'"))  # noqa: S608


def add_migration(monkeypatch: pytest.MonkeyPatch, folder: Path, statement: str) -> None:
    """Let the program be a version newer."""
    migrations = folder / "migrations"
    shutil.copytree(connect.MIGRATIONS, migrations)
    migration = f"""\
from alembic import op
revision, down_revision = "9999", "{newest()}"
def upgrade():
    {statement}
"""
    (migrations / "versions" / "9999_notes.py").write_text(migration)
    monkeypatch.setattr(connect, "MIGRATIONS", migrations)


@pytest.mark.parametrize("revision", ["0001", "0002", "0003", "0004"])
def test_an_older_store_is_refused_and_left_alone(revision: str, store_url: str) -> None:
    make_older(store_url, revision)
    before = contents(store_url)
    message = "was written by an older version of this program: "
    message += f"got revision {revision}, expected {newest()}$"
    with pytest.raises(InfrastructureError, match=message) as caught:
        Store(store_url)
    assert caught.value.remedy == refill_remedy()
    assert contents(store_url) == before


def test_the_remedy_for_an_older_store_fills_a_new_one(
    published: RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / RUN_ID, small(published))
    make_older(default_url(tmp_path), "0004")
    file = tmp_path / "ci.db"
    before = file.read_bytes()
    assert main(["report", "--results", str(tmp_path)]) == ExitCode.INFRASTRUCTURE
    error = capsys.readouterr().err
    assert f"{file} was written by an older version of this program" in error
    assert "rebuild it from the folders of the runs: python -m ci import RESULTS" in error
    kept = file.rename(tmp_path / "old.db")
    assert main(["import", str(tmp_path), "--results", str(tmp_path)]) == ExitCode.PASSED
    assert "the run was missing in the store and is stored now" in capsys.readouterr().out
    with Store(default_url(tmp_path)) as store:
        assert store.load() == small(published)
        assert len(store.tests(RUN_ID, "nvidia")) == 2
    assert kept.read_bytes() == before


def test_a_store_of_a_newer_version_is_left_alone(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        add_migration(newer, tmp_path, ADDS_A_TABLE)
        Store(store_url).close()
    before = contents(store_url)
    message = "was written by a newer version of this program: "
    message += f"got revision 9999, expected {newest()}$"
    with pytest.raises(InfrastructureError, match=message) as caught:
        Store(store_url)
    assert caught.value.remedy == "Update this program."
    assert contents(store_url) == before
    assert list(tmp_path.glob("*.backup")) == []


def test_a_store_of_this_version_is_opened_as_it_is(
    published: RunResult, saved_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(saved_url)
    assert [tuple(row) for row in before["alembic_version"]] == [(newest(),)]
    monkeypatch.setitem(sys.modules, "alembic.command", None)  # it takes 0.11 s to import
    with Store(saved_url) as store:
        assert store.load() == published
    assert contents(saved_url) == before
    assert list(tmp_path.glob("*.backup")) == []


def test_a_store_is_copied_once_before_it_is_migrated(
    published: RunResult, saved_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision, before = newest(), contents(saved_url)
    add_migration(monkeypatch, tmp_path, ADDS_A_TABLE)
    for _ in range(2):
        with Store(saved_url) as new:
            assert new.load() == published
            assert len(new.tests(published.run_id, "nvidia")) == 1
    added = contents(saved_url).keys() - before.keys()
    assert {name for name in added if not name.startswith("backup_")} == {"notes"}
    assert backed_up(saved_url, revision) == before


def test_a_store_without_lineages_is_upgraded(published: RunResult, saved_url: str) -> None:
    """Revision 0005 had no such table, and its documents had no lineage."""
    runs = METADATA.tables["runs"]
    document = published.model_dump(mode="json", exclude={"platforms", "lineage"})
    make_accepted_older(saved_url, "0005")
    with connected(saved_url) as connection:
        connection.execute(text("DROP TABLE lineages"))
        connection.execute(runs.update().values(document={**document, "schema_version": 4}))
    with Store(saved_url) as store:
        assert store.load() == published
        [head] = store.heads()
        assert (head.branch, head.depth) == (None, None)
        assert store.parents([head.run_id]) == {head.run_id: CommitParents()}
        lineage = Lineage(branch="main", depth=3, merge_commit=True, parents=("a" * 40, "b" * 40))
        store.save(published.model_copy(update={"lineage": lineage}), {})
        [head] = store.heads()
        assert (head.branch, head.depth, head.target, head.tip) == ("main", 3, None, "b" * 40)
    assert "lineages" not in backed_up(saved_url, "0005")


def test_acceptances_of_an_older_store_are_kept(store_url: str) -> None:
    """Revision 0006 had one column for stage and quantity, and no authors."""
    Store(store_url).close()
    make_accepted_older(store_url, "0006")
    with Store(store_url) as store:
        [accepted] = store.accepted("p")
    assert accepted == accept_level(
        "a.b.wall_s",
        9.5,
        platform="cpu",
        run="run-7",
        reason="kernels",
        who="unknown",
        date=date(2026, 1, 2),
    )


NOTICES_0008 = """
CREATE TABLE notices (id INTEGER PRIMARY KEY, project VARCHAR(64), address VARCHAR(16),
platform VARCHAR(64), measure VARCHAR, run_id VARCHAR(64), level DOUBLE PRECISION,
sent_at TIMESTAMP)
"""


def test_alarms_that_an_older_store_sent_are_kept(store_url: str) -> None:
    """Revision 0008 had the rises that were sent, those of one message at one time."""
    Store(store_url).close()
    rows = [
        ("one", "cpu", "install.wall_s", "run-7", "01"),
        ("one", "moore", "install.wall_s", "run-7", "01"),
        ("two", "cpu", "install.wall_s", "run-7", "02"),
        ("one", "nvidia", "install.wall_s", "run-7", "03"),
    ]
    with connected(store_url) as connection:
        for table in ("alarms", "alarm_rises", "alarm_messages"):
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text(DROP_0011))
        connection.execute(text(NOTICES_0008))
        for number, (address, platform, measure, run_id, day) in enumerate(rows):
            place = f"{number}, 'p', '{address}', '{platform}', '{measure}', '{run_id}'"
            values = f"{place}, 9.5, '2026-01-{day} 03:04:05'"
            connection.execute(text(f"INSERT INTO notices VALUES ({values})"))  # noqa: S608
        connection.execute(text("UPDATE alembic_version SET version_num = '0008'"))
    with Store(store_url) as store:
        first, second = store.alarm_records("p")
        sent = [store.alarm_messages("p", address) for address in ("one", "two")]
    assert [it.platform for it in first.rises] == ["cpu", "moore"]
    assert [it.platform for it in second.rises] == ["nvidia"]
    assert {it.run_id for it in first.rises} == {"run-7"}
    assert [{*it} for it in sent] == [{first.alarm_id, second.alarm_id}, {first.alarm_id}]
    assert sent[1][first.alarm_id].sent_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert "notices" in backed_up(store_url, "0008")


def test_an_upgrade_that_fails_changes_nothing(
    published: RunResult, saved_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = contents(saved_url)
    with monkeypatch.context() as newer:
        add_migration(newer, tmp_path, "op.execute('SELECT * FROM nowhere')")
        with pytest.raises(InfrastructureError, match=r"cannot be opened: .*nowhere"):
            Store(saved_url)
    assert contents(saved_url) == before
    with Store(saved_url) as store:
        assert len(store.tests(published.run_id, "nvidia")) == 1


def test_a_sqlite_store_that_cannot_be_copied_is_not_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(default_url(tmp_path)).close()
    before = (tmp_path / "ci.db").read_bytes()
    copy = f"ci.db.{newest()}.backup"
    (tmp_path / copy).mkdir()  # as where nothing may be written, also for root
    add_migration(monkeypatch, tmp_path, ADDS_A_TABLE)
    message = rf"needs an upgrade, but cannot be backed up to .*{copy}: "
    with pytest.raises(InfrastructureError, match=message):
        Store(default_url(tmp_path))
    assert (tmp_path / "ci.db").read_bytes() == before


def test_migrations_make_the_tables(store_url: str) -> None:
    Store(store_url).close()
    with connected(store_url) as connection:
        differences = compare_metadata(MigrationContext.configure(connection), METADATA)
    assert differences == [], "add a migration to ci/store/migrations/versions"


def test_migrations_are_frozen() -> None:
    """What changes with the program must not change what a migration does."""
    for path in connect.MIGRATIONS.rglob("*.py"):
        imported = [
            name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in [getattr(node, "module", None), *(alias.name for alias in node.names)]
        ]
        assert not [name for name in imported if name and name.partition(".")[0] == "ci"], path


ADDED_FIELD = "energy_j"
# Saves a run with the new field beside the earlier runs, and queries all of them.
LATER = f"""\
import sys
from pathlib import Path
from ci.cli import main
from ci.store.folder import default_url, read_results
from ci.store.store import Store

results, elsewhere, output = sys.argv[1:]
options = ["--results", results]
assert main(["import", elsewhere, *options]) == 0
[path] = Path(elsewhere).glob("*/results.json")
with Store(default_url(Path(results))) as store:
    before = store.load("before")
    assert [stage.{ADDED_FIELD} for stage in before.platforms[0].stages] == [None] * 3
    assert store.load(read_results(path).run_id) == read_results(path)
    [*stages, last] = before.platforms[0].stages
    last = last.model_copy(update={{"{ADDED_FIELD}": 9.5}})
    platform = before.platforms[0].model_copy(update={{"stages": (*stages, last)}})
    platforms = (platform, *before.platforms[1:])
    after = before.model_copy(update={{"run_id": "after", "platforms": platforms}})
    store.save(after, {{}})
    assert store.load("after") == after
    store.save(before, {{}})
    assert len(store.tests("before", "nvidia")) == 1  # it is as it was
assert main(["report", "before", *options]) == 0
assert main(["export", "--format", "csv", "--output", output, *options]) == 0
"""


def test_a_new_field_of_a_stage_touches_its_model_alone(
    published: RunResult, tmp_path: Path
) -> None:
    """A later version, whose ``StageResult`` has one field more, on the store of this one."""
    later, results, elsewhere = (tmp_path / name for name in ("later", "results", "elsewhere"))
    program = shutil.copytree(
        REPOSITORY / "ci", later / "ci", ignore=shutil.ignore_patterns("__pycache__")
    )
    model = program / "model" / "results.py"
    source = model.read_text()
    for old, new in (
        (f"SCHEMA_VERSION = {SCHEMA_VERSION}", f"SCHEMA_VERSION = {SCHEMA_VERSION + 1}"),
        ("    in_total: bool\n", f"    in_total: bool\n    {ADDED_FIELD}: float | None = None\n"),
    ):
        assert source.count(old) == 1
        source = source.replace(old, new)
    model.write_text(source)
    before = small(published, "before")
    with Store(default_url(results)) as store:
        store.save(before, {"nvidia": TESTS})
    write_run(elsewhere / RUN_ID, small(published))

    script = [sys.executable, "-c", LATER, str(results), str(elsewhere), str(tmp_path / "out")]
    paths = os.pathsep.join(map(str, (later, REPOSITORY)))  # the second for ``codegen``
    run_process(script, cwd=later, environment={**os.environ, "PYTHONPATH": paths})

    with (tmp_path / "out" / "stages.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[-2:] == ["in_total", ADDED_FIELD]
    assert [row[ADDED_FIELD] for row in rows if row["run_id"] != "after"] == [""] * 12
    assert [row[ADDED_FIELD] for row in rows if row["run_id"] == "after"][2] == "9.5"
    with Store(default_url(results)) as store:  # and this version on the store of the later one
        assert {head.run_id for head in store.heads()} == {"before", "after", RUN_ID}
        message = (
            "newer version of this program: run after: got results of version"
            f" {SCHEMA_VERSION + 1}, expected at most {SCHEMA_VERSION}"
        )
        with pytest.raises(InfrastructureError, match=message) as caught:
            store.load("after")
    assert caught.value.remedy == "Update this program."


@pytest.mark.parametrize(
    ("version", "missing"), [(1, {"overloads", "simulated", "build"}), (3, {"build"})]
)
def test_a_document_of_an_earlier_version_is_loaded(
    published: RunResult, saved_url: str, version: int, missing: set[str]
) -> None:
    """As a program of then would have stored it."""
    with Store(saved_url) as store:
        with connected(saved_url) as connection:
            head = json.loads(published.to_json()) | {"schema_version": version}
            del head["platforms"]
            runs, platforms = METADATA.tables["runs"], METADATA.tables["platforms"]
            connection.execute(runs.update().values(document=head))
            for result in published.platforms:
                document = result.model_dump(mode="json", exclude=missing)
                of_result = platforms.c.platform == result.platform
                connection.execute(platforms.update().where(of_result).values(document=document))
        assert store.load() == published
        assert store.holds(published.run_id, published.platforms[0])
        store.save(published, {})
        assert len(store.tests(published.run_id, "nvidia")) == 1
