"""Backups of stores that others write to, and their restoration."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ci import cli
from ci.errors import ExitCode, InfrastructureError, UsageError
from ci.model.results import RunResult
from ci.store.backup import back_up, problems, restore, sqlite_url
from ci.store.folder import default_url
from ci.store.store import Store
from tests.ci.store.test_store_writers import FORK, PLATFORM, named, suite

WRITERS = 3
RUNS = 4  # of each
BACKUPS = 4


def write(url: str, run: RunResult, begin: Any, saved: Any, writer: int) -> None:
    """Save runs, and report each when its save has ended."""
    begin.wait()
    with Store(url) as store:
        for n in range(RUNS):
            own = named(run, f"run-{writer}-{n}", n)
            store.save(own, {PLATFORM: suite(n), "nvidia": suite(writer, n)})
            saved.put(own.run_id)


def test_backups_during_writes_have_whole_runs_and_all_that_had_ended(
    published: RunResult, store_url: str, tmp_path: Path
) -> None:
    Store(store_url).close()
    begin, saved = FORK.Barrier(WRITERS + 1), FORK.Queue()
    target = partial(write, store_url, published, begin, saved)
    writers = [FORK.Process(target=target, args=(n,)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    begin.wait()
    ended: set[str] = set()
    for number in range(BACKUPS):
        if len(ended) < WRITERS * RUNS:
            ended.add(saved.get())  # so that backups and saves take turns
        while not saved.empty():
            ended.add(saved.get())
        before = set(ended)
        file = tmp_path / f"backup-{number}"
        back_up(store_url, file)
        check_restored(file, tmp_path / f"restored-{number}", published, before)
    for _ in range(WRITERS * RUNS - len(ended)):
        ended.add(saved.get())
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    assert back_up(store_url, tmp_path / "last") == WRITERS * RUNS
    check_restored(tmp_path / "last", tmp_path / "restored", published, ended)


def check_restored(file: Path, folder: Path, run: RunResult, expected: set[str]) -> None:
    url = default_url(folder)
    count = restore(file, url)
    assert list(problems(url)) == []
    with Store(url) as store:
        names = {head.run_id for head in store.heads()}
        assert len(names) == count
        assert names >= expected
        for name in names:
            _, writer, n = name.split("-")
            assert store.load(name) == named(run, name, int(n))
            assert store.tests(name, PLATFORM) == suite(int(n)).tests
            assert store.tests(name, "nvidia") == suite(int(writer), int(n)).tests


def test_a_store_is_restored_into_another_database_and_goes_on(
    published: RunResult, store_url: str, tmp_path: Path
) -> None:
    here = default_url(tmp_path / "here")
    with Store(here) as store:
        store.save(published, {PLATFORM: suite(1)})
    back_up(here, tmp_path / "backup")
    assert restore(tmp_path / "backup", store_url) == 1
    with Store(store_url) as store:
        later = named(published, "later", 1)
        store.save(later, {PLATFORM: suite(2)})  # with an id that no row has
        assert store.load("later") == later
        assert store.tests(published.run_id, PLATFORM) == suite(1).tests
    assert list(problems(store_url)) == []
    expected = r"store restore: .*: got a store with 2 runs, expected an empty one"
    with pytest.raises(UsageError, match=expected):
        restore(tmp_path / "backup", store_url)


@pytest.fixture
def file(published: RunResult, tmp_path: Path) -> Path:
    url = default_url(tmp_path / "results")
    with Store(url) as store:
        store.save(published, {PLATFORM: suite(1)})
    back_up(url, tmp_path / "backup")
    return tmp_path / "backup"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE blobs SET content = substr(content, 1, 9)", "list .*: cannot be unpacked"),
        ("UPDATE blobs SET content = x'789c030000000001'", "got the digest e3b0c44298fc"),
        ("UPDATE runs SET document = '[]'", "not an object"),
        ("DELETE FROM blobs", "row . of details refers to a row of blobs that is missing"),
        ("DELETE FROM measured", "its measures are missing"),
        ("DELETE FROM platforms", "refers to a row of platforms that is missing"),
    ],
)
def test_a_damaged_backup_is_refused(
    file: Path, tmp_path: Path, statement: str, expected: str
) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)
    found = "\n".join(problems(sqlite_url(file)))
    with pytest.raises(InfrastructureError, match=r"store restore: .*: the backup is damaged: "):
        restore(file, default_url(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    assert re.search(expected, found)


def test_what_is_no_backup(file: Path, tmp_path: Path) -> None:
    url = default_url(tmp_path / "new")
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello\n" * 100)
    for name, expected in {
        "none": "no such file",
        "results": "got a folder",
        "empty": "expected a backup of a store: no such table",
        "text": "expected a backup of a store: file is not a database",
    }.items():
        with pytest.raises(UsageError, match=f"store restore: .*{name}: {expected}"):
            restore(tmp_path / name, url)
    with pytest.raises(UsageError, match="got an existing file, expected a new one"):
        back_up(url, file)
    with pytest.raises(UsageError, match="there is no folder"):
        back_up(url, tmp_path / "nowhere" / "backup")


def test_the_command(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = ("--results", str(tmp_path / "results"))
    assert cli.main(["store", "verify", *results]) == ExitCode.PASSED
    assert capsys.readouterr().out.startswith("1 run: all can be read\n1 run without a folder")
    assert cli.main(["store", "backup", str(tmp_path / "b"), *results]) == ExitCode.PASSED
    assert "1 run backed up" in capsys.readouterr().out
    new = ("--results", str(tmp_path / "new"))
    assert cli.main(["store", "restore", str(tmp_path / "b"), *new]) == ExitCode.PASSED
    (tmp_path / "new" / "20260101T120000Z-0123abcd-00aa").mkdir()
    (tmp_path / "new" / "20260101T120000Z-0123abcd-00aa" / "results.json").touch()
    assert cli.main(["store", "verify", *new]) == ExitCode.INFRASTRUCTURE
    assert "1 run in " in capsys.readouterr().out
    assert cli.main(["store", "backup", *results]) == ExitCode.USAGE
    assert cli.main(["store", "verify", str(file), *results]) == ExitCode.USAGE
    assert "store backup: got no FILE, expected one" in capsys.readouterr().err
