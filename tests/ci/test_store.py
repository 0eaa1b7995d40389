"""The store gives back what it was given; migrations and tables agree."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import alembic.command
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Dialect, create_engine, func, select, text

from ci.details import Details
from ci.errors import InfrastructureError, UsageError
from ci.pytest_log import Outcome, TestOutcome
from ci.results import OverloadCount, RunResult
from ci.store import default_url, store
from ci.store.store import Store
from ci.store.tables import Base, DetailsRow, UtcDateTime
from ci.store.upgrade import configuration


def ran(*tests: TestOutcome) -> Details:
    return Details(tests=tests)


def outcomes(*node_ids: str) -> list[TestOutcome]:
    return [
        TestOutcome(node_id=node_id, outcome=Outcome.PASSED, seconds=0.5, reason=None)
        for node_id in node_ids
    ]


def stored_suites(results: Path) -> int:
    with create_engine(default_url(results)).connect() as connection:
        return connection.scalar(select(func.count()).select_from(DetailsRow)) or 0


def test_a_run_comes_back_as_it_was(published: RunResult, tmp_path: Path) -> None:
    with Store(default_url(tmp_path)) as store:
        store.save(published, {"moore": ran(*outcomes("a::b", "a::c"))})
        assert store.load(published.run_id) == published
        assert store.load() == published
    assert stored_suites(tmp_path) == 1


def test_a_simulated_device_comes_back_as_one(published: RunResult, tmp_path: Path) -> None:
    count = OverloadCount(
        slot=8, device="npu", active=3, executed=2, passed=2, simulated=True, kernels={"own": 2}
    )
    simulated = published.platforms[0].model_copy(update={"simulated": True, "overloads": (count,)})
    run = published.model_copy(update={"platforms": (simulated, published.platforms[1])})
    with Store(default_url(tmp_path)) as store:
        store.save(run, {})
        assert store.load(run.run_id) == run


def test_saving_again_replaces(published: RunResult, tmp_path: Path) -> None:
    shorter = published.model_copy(update={"platforms": published.platforms[:2]})
    with Store(default_url(tmp_path)) as store:
        store.save(
            published, {"nvidia": ran(*outcomes("a::b", "a::c")), "moore": ran(*outcomes("a::b"))}
        )
        store.save(shorter, {"nvidia": ran(*outcomes("a::b"))})
        assert store.load() == shorter
    assert stored_suites(tmp_path) == 1


def test_a_platform_brings_its_tests_once(published: RunResult, tmp_path: Path) -> None:
    first, second, *others = published.platforms
    changed = second.model_copy(update={"notes": ("judged anew",)})
    later = published.model_copy(update={"platforms": (first, changed, *others)})
    with Store(default_url(tmp_path)) as store:
        store.save(
            published, {name: ran(*outcomes("a::b")) for name in (first.platform, second.platform)}
        )
        assert store.holds(published.run_id, second)
        store.save(later, {})
        assert store.load() == later
        kept = [len(store.tests(later.run_id, p.platform)) for p in (first, second)]
        assert kept == [1, 0]  # of what is no more the same, the tests are not known
        assert not store.holds(published.run_id, second)


def test_the_latest_run_is_the_default(published: RunResult, tmp_path: Path) -> None:
    earlier = published.model_copy(
        update={"run_id": "z", "started_at": published.started_at.replace(year=2025)}
    )
    with Store(default_url(tmp_path)) as store:
        store.save(published, {})
        store.save(earlier, {})
        assert store.load().run_id == published.run_id


def test_of_runs_begun_in_one_second_the_latest_ended_last(
    published: RunResult, tmp_path: Path
) -> None:
    later = published.finished_at + timedelta(milliseconds=1)
    last = published.model_copy(update={"run_id": "a", "finished_at": later})
    with Store(default_url(tmp_path)) as store:
        store.save(last, {})
        store.save(published, {})
        assert store.load().run_id == "a"


def test_one_transaction_per_run(published: RunResult, tmp_path: Path) -> None:
    twice = {"nvidia": ran(*outcomes("a::b", "a::b"))}
    with Store(default_url(tmp_path)) as store:
        store.save(published, {"nvidia": ran(*outcomes("a::b"))})
        with pytest.raises(InfrastructureError, match=f"rejects run {published.run_id}"):
            store.save(published.model_copy(update={"project": "other"}), twice)
        assert store.load() == published
    assert stored_suites(tmp_path) == 1


def test_an_unknown_run_is_a_usage_error(published: RunResult, tmp_path: Path) -> None:
    with Store(default_url(tmp_path)) as store:
        with pytest.raises(UsageError, match="the store holds no run yet"):
            store.load()
        store.save(published, {})
        with pytest.raises(UsageError, match="the store holds no run 'x'") as caught:
            store.load("x")
        assert caught.value.remedy == f"The newest: {published.run_id}."
        with pytest.raises(UsageError, match=f"did you mean '{published.run_id}'"):
            store.load(published.run_id[:-1])


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "ci.db").write_text("this is not a database, and it is long enough to tell")
    with pytest.raises(InfrastructureError, match=r"ci\.db cannot be opened"):
        Store(default_url(tmp_path))


def test_reading_needs_no_lock(published: RunResult, tmp_path: Path) -> None:
    with Store(default_url(tmp_path)) as writer:
        writer.save(published, {})
    lock = tmp_path / "ci.db.lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()  # as out of reach as that of another user
    with Store(default_url(tmp_path)) as reader:
        assert reader.load() == published


def migrate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the program be a version newer, by a migration that adds a table."""
    migrations = tmp_path / "migrations"
    shutil.copytree(store.MIGRATIONS, migrations)
    migration = """\
from alembic import op
revision, down_revision = "9999", "0004"
def upgrade():
    op.execute("CREATE TABLE notes (text VARCHAR)")
"""
    (migrations / "versions" / "9999_notes.py").write_text(migration)
    monkeypatch.setattr(store, "MIGRATIONS", migrations)


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as database:
        return {name for (name,) in database.execute("select name from sqlite_master")}


def test_a_database_of_a_newer_version_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        migrate(newer, tmp_path)
        Store(default_url(tmp_path)).close()
    with pytest.raises(InfrastructureError, match=r"ci\.db is of a newer version") as caught:
        Store(default_url(tmp_path))
    assert caught.value.remedy == "Update this program."
    assert list(tmp_path.glob("*.backup")) == []


def test_a_database_is_copied_before_it_is_migrated(
    published: RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(default_url(tmp_path)) as old:
        old.save(published, {})
    migrate(monkeypatch, tmp_path)
    for _ in range(2):
        with Store(default_url(tmp_path)) as new:
            assert new.load() == published
    assert [path.name for path in tmp_path.glob("*.backup")] == ["ci.db.0004.backup"]
    backup = tables(tmp_path / "ci.db.0004.backup")
    assert "runs" in backup
    assert tables(tmp_path / "ci.db") - backup == {"notes"}


OLD_TABLES = {
    "runs": "('old', 'infini-ops', 'abc', 0, '2026-01-01 12:00:00', '2026-01-01 13:00:00', 'host')",
    "platforms": "(1, 'old', 0, 'cpu', 'CPU', 1, 1, 0, 0, 2, 0, 0, 0, NULL, 1.5, '1 passed', 2.0,"
    " 3.0, 5.0, 'passed', 'clean', '[]', '[\"full suite passed\"]', '{}', '{}')",
    "tests": "(1, 1, 't::a', 'passed', 0.5, NULL), (2, 1, 't::b', 'skipped', 0.5,"
    " 'no sample: none is recorded'), (3, 1, 't::c', 'skipped', 0.5, 'elsewhere')",
}


def test_a_database_of_the_first_version_is_read(tmp_path: Path) -> None:
    """Its tables are those that the first migration made, its rows those of that time."""
    with create_engine(default_url(tmp_path)).begin() as connection:
        config = configuration(store.MIGRATIONS)
        config.attributes["connection"] = connection
        alembic.command.upgrade(config, "0001")
        for table, rows in OLD_TABLES.items():
            connection.execute(text(f"INSERT INTO {table} VALUES {rows}"))  # noqa: S608
    with Store(default_url(tmp_path)) as opened:
        [platform] = opened.load("old").platforms
        tests = opened.tests("old", "cpu")
    assert (platform.overloads, platform.simulated) == ((), False)
    assert platform.notes == ("full suite passed",)
    assert [(test.node_id, test.skip_reason) for test in tests] == [
        ("t::a", None),
        ("t::b", "no sample"),
        ("t::c", None),
    ]
    assert (tmp_path / "ci.db.0001.backup").is_file()


def test_tests_come_back_platform_by_platform(published: RunResult, tmp_path: Path) -> None:
    skipped = replace(
        outcomes("a::c")[0], outcome=Outcome.SKIPPED, reason="x: y", skip_reason="no sample"
    )
    with Store(default_url(tmp_path)) as opened:
        opened.save(
            published, {"moore": ran(*outcomes("a::b"), skipped), "metax": ran(*outcomes("a::b"))}
        )
        assert opened.tests(published.run_id, "moore") == [*outcomes("a::b"), skipped]
        assert opened.tests(published.run_id, "nvidia") == []


def test_the_latest_run_that_tested_a_platform(published: RunResult, tmp_path: Path) -> None:
    without_log = published.platforms[0].model_copy(update={"pytest": None})
    later = published.model_copy(
        update={
            "run_id": "later",
            "started_at": published.started_at.replace(year=2027),
            "platforms": (without_log, published.platforms[1]),
        }
    )
    with Store(default_url(tmp_path)) as opened:
        with pytest.raises(UsageError, match="the store holds no run yet") as caught:
            opened.load(platform="moore")
        assert caught.value.remedy == "Run one: python -m ci run moore"
        opened.save(published, {})
        opened.save(later, {})
        assert opened.load(platform="nvidia") == published
        assert opened.load(platform="iluvatar") == opened.load("latest") == later
        with pytest.raises(UsageError, match="the store holds no run of cpu yet"):
            opened.load(platform="cpu")


def test_what_a_driver_refuses_is_a_typed_error(published: RunResult, tmp_path: Path) -> None:
    with (
        Store(default_url(tmp_path)) as opened,
        pytest.raises(InfrastructureError, match=f"rejects run {published.run_id}"),
    ):
        opened.save(published, {"nvidia": ran(*outcomes("half a \udce9 character"))})


def test_a_time_with_a_zone_is_converted_and_one_without_is_utc() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for read in (noon.replace(tzinfo=None), noon.astimezone(timezone(timedelta(hours=8)))):
        assert UtcDateTime().process_result_value(read, Dialect()) == noon


def test_migrations_make_the_tables(tmp_path: Path) -> None:
    Store(default_url(tmp_path)).close()
    with create_engine(default_url(tmp_path)).connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), Base.metadata)
    assert differences == [], "add a migration to ci/store/migrations/versions"
