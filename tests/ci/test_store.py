"""The store gives back what it was given; migrations and tables agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, func, select

from ci.errors import InfrastructureError, UsageError
from ci.pytest_log import Outcome, TestOutcome
from ci.results import RunResult
from ci.store import Store, default_url
from ci.store.tables import Base, OutcomeRow


def outcomes(*node_ids: str) -> list[TestOutcome]:
    return [
        TestOutcome(node_id=node_id, outcome=Outcome.PASSED, seconds=0.5, reason=None)
        for node_id in node_ids
    ]


def stored_tests(results: Path) -> int:
    with create_engine(default_url(results)).connect() as connection:
        return connection.scalar(select(func.count()).select_from(OutcomeRow)) or 0


def test_a_run_comes_back_as_it_was(published: RunResult, tmp_path: Path) -> None:
    with Store(default_url(tmp_path)) as store:
        store.save(published, {"moore": outcomes("a::b", "a::c")})
        assert store.load(published.run_id) == published
        assert store.load() == published
    assert stored_tests(tmp_path) == 2


def test_saving_again_replaces(published: RunResult, tmp_path: Path) -> None:
    shorter = published.model_copy(update={"platforms": published.platforms[:2]})
    with Store(default_url(tmp_path)) as store:
        store.save(published, {"nvidia": outcomes("a::b", "a::c"), "moore": outcomes("a::b")})
        store.save(shorter, {"nvidia": outcomes("a::b")})
        assert store.load() == shorter
    assert stored_tests(tmp_path) == 1


def test_the_latest_run_is_the_default(published: RunResult, tmp_path: Path) -> None:
    earlier = published.model_copy(
        update={"run_id": "z", "started_at": published.started_at.replace(year=2025)}
    )
    with Store(default_url(tmp_path)) as store:
        store.save(published, {})
        store.save(earlier, {})
        assert store.load().run_id == published.run_id


def test_one_transaction_per_run(published: RunResult, tmp_path: Path) -> None:
    twice = {"nvidia": outcomes("a::b", "a::b")}
    with Store(default_url(tmp_path)) as store:
        store.save(published, {"nvidia": outcomes("a::b")})
        with pytest.raises(InfrastructureError, match=f"rejects run {published.run_id}"):
            store.save(published.model_copy(update={"project": "other"}), twice)
        assert store.load() == published
    assert stored_tests(tmp_path) == 1


def test_an_unknown_run_is_a_usage_error(published: RunResult, tmp_path: Path) -> None:
    with Store(default_url(tmp_path)) as store:
        with pytest.raises(UsageError, match="the store holds no run yet"):
            store.load()
        store.save(published, {})
        with pytest.raises(UsageError, match="the store holds no run 'x'"):
            store.load("x")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "ci.db").write_text("this is not a database, and it is long enough to tell")
    with pytest.raises(InfrastructureError, match=r"ci\.db cannot be opened"):
        Store(default_url(tmp_path))


def test_migrations_make_the_tables(tmp_path: Path) -> None:
    Store(default_url(tmp_path)).close()
    with create_engine(default_url(tmp_path)).connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), Base.metadata)
    assert differences == [], "add a migration to ci/store/migrations/versions"
