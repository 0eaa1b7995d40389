"""The database of a store, and the errors for one that cannot be used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from ci.cli import main
from ci.errors import ExitCode, InfrastructureError
from ci.model.results import RunResult
from ci.store.connect import connect, masked_url
from ci.store.folder import default_url, open_store
from ci.store.store import Store
from ci.util.process import STORE_VARIABLE
from tests.ci.foreign_runs import RUN_ID, small, write_run
from tests.ci.postgresql_server import LOCKED, Server, connected

ENDS_OTHERS = """\
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


def test_the_variable_names_the_store(
    published: RunResult,
    store_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, store_url)
    with open_store(tmp_path / "results") as store:
        store.save(published, {})
    assert main(["report", "--results", str(tmp_path / "results")]) == ExitCode.PASSED
    assert "9206 passed, 8664 skipped" in capsys.readouterr().out
    assert not (tmp_path / "results").exists()


def test_an_empty_variable_counts_as_unset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, "")
    open_store(tmp_path).close()
    assert (tmp_path / "ci.db").is_file()


def test_a_store_that_is_only_read_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "misspelt" / "ci.db"
    monkeypatch.setenv(STORE_VARIABLE, f"sqlite:///{file}")
    assert main(["report", "--results", str(tmp_path)]) == ExitCode.USAGE
    assert f"INFINI_CI_DB: {file} does not exist\n" in capsys.readouterr().err
    assert not file.parent.exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("results/ci.db", "a value that is not a database URL"),
        ("postgresql+psycopg://user:secret@host:port/name", "a value that is not a database URL"),
        ("mysql://user:secret@host/name", "a database of mysql, expected SQLite or PostgreSQL"),
    ],
)
def test_a_url_of_no_database_is_a_usage_error(
    url: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, url)
    assert main(["report", "--results", str(tmp_path)]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert f"INFINI_CI_DB: got {message}\n" in error
    assert "Set INFINI_CI_DB to sqlite:////FOLDER/FILE or postgresql+psycopg://USER" in error
    assert "secret" not in error


def test_a_missing_driver_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    driver = "its driver cannot be loaded: .*psycopg"
    with pytest.raises(InfrastructureError, match=driver) as caught:
        Store("postgresql://user:secret@host/name")
    assert caught.value.remedy == "Install it: python -m pip install --group postgresql"


def test_a_server_that_does_not_answer_is_named_without_the_password(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="the dependency group postgresql is not installed")
    url = f"postgresql+psycopg://user:secret@/name?host={tmp_path}&password=secret"
    with pytest.raises(InfrastructureError, match=r"\*\*\*@/name cannot be opened: .*") as caught:
        Store(url)
    assert "No such file or directory" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.remedy is not None
    assert "Check that the server runs" in caught.value.remedy


def test_a_wrong_password_has_a_remedy_that_works(
    published: RunResult,
    postgresql: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = postgresql.new_store()
    with connected(url) as connection:
        connection.execute(text(f"CREATE ROLE {LOCKED} LOGIN PASSWORD 'right'"))
    monkeypatch.setenv(STORE_VARIABLE, url.replace("//ci@", f"//{LOCKED}:wrong@"))
    results = tmp_path / "results"
    for words in (["report"], ["import", str(tmp_path)], ["history", "cpu"]):
        assert main([*words, "--results", str(results)]) == ExitCode.INFRASTRUCTURE
        shown = capsys.readouterr().err
        assert "password authentication failed" in shown
        assert "Check that the server runs, and the host, user and password in" in shown
        assert "python -m ci import RESULTS --results RESULTS" in shown
        assert "wrong" not in shown
    monkeypatch.delenv(STORE_VARIABLE)
    write_run(tmp_path / "there" / RUN_ID, small(published))
    assert main(["import", str(tmp_path / "there"), "--results", str(results)]) == ExitCode.PASSED
    monkeypatch.setenv(STORE_VARIABLE, url)
    assert main(["import", str(results), "--results", str(results)]) == ExitCode.PASSED
    assert "missing in the store and is stored now" in capsys.readouterr().out
    with Store(url) as store:
        assert store.load() == small(published)


def test_a_save_that_fails_says_how_to_repair_it(
    published: RunResult, store: Store, store_url: str
) -> None:
    with connected(store_url) as connection:
        connection.execute(text("DROP TABLE details"))
        connection.execute(text("DROP TABLE measured"))
    with pytest.raises(InfrastructureError, match=r"cannot save run .*measured") as caught:
        store.save(published, {})
    assert caught.value.remedy is not None
    assert "Store them later: python -m ci import RESULTS" in caught.value.remedy


def test_what_cannot_be_read_is_a_typed_error(store: Store, store_url: str) -> None:
    with connected(store_url) as connection:
        connection.execute(text("DROP TABLE accepted"))
    with pytest.raises(InfrastructureError, match=r"cannot be read: .*accepted"):
        store.accepted("infini-ops")


def test_a_lost_connection_is_reopened(published: RunResult, postgresql: Server) -> None:
    url = postgresql.new_store()
    with Store(url) as store:
        store.save(published, {})
        with connected(url) as connection:
            ended = connection.execute(text(ENDS_OTHERS))
            assert ended.scalars().all() == [True]
        assert store.load() == published


def test_a_sqlite_store_is_shown_as_its_file(tmp_path: Path) -> None:
    assert masked_url(connect(default_url(tmp_path))) == f"sqlite:///{tmp_path}/ci.db"
