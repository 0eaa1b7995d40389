"""What waits for another program says so, and has a limit."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ci.errors import InfrastructureError
from ci.model.results import RunResult
from ci.plan import source
from ci.store import connect
from ci.store.store import Store
from ci.util import git
from ci.util.process import delay_interrupt


def test_hung_git_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text("#!/bin/sh\nsleep 600\n")
    (tmp_path / "bin/git").chmod(0o755)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(git, "GIT_TIMEOUT_S", 0.2)
    message = r"^git config --file \S+ --no-includes --list -z exceeded its time limit of 0\.2 s"
    with pytest.raises(InfrastructureError, match=message) as error:
        source.state(tmp_path)
    assert "a file system that does not answer" in str(error.value.remedy)


def test_special_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "talk"))
        with (tmp_path.parent / "archive.tar").open("wb") as archive:
            left_out = source.write_archive(tmp_path, archive)
    assert left_out == ("pipe (a FIFO)", "talk (a socket)")
    assert source.files(tmp_path) == [Path("a.py")]


def test_tracked_file_that_became_a_fifo(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)

    git("init")
    (tmp_path / "a.py").write_text("")
    (tmp_path / "b.py").write_text("")
    git("add", ".")
    (tmp_path / "b.py").unlink()
    os.mkfifo(tmp_path / "b.py")
    with (tmp_path.parent / "archive.tar").open("wb") as archive:
        assert source.write_archive(tmp_path, archive) == ("b.py (a FIFO)",)


def test_second_interrupt_is_not_delayed() -> None:
    reached = []

    def interrupt(times: int) -> None:
        with delay_interrupt():
            for number in range(times):
                signal.raise_signal(signal.SIGINT)
                reached.append(number)

    with pytest.raises(KeyboardInterrupt):
        interrupt(1)
    assert reached == [0]
    with pytest.raises(KeyboardInterrupt):
        interrupt(2)
    assert reached == [0, 0]


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(sys.argv[2])
connection.execute("SELECT count(*) FROM runs").fetchall()
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
print("released", flush=True)
"""
HELD = {
    "by a writer": ("BEGIN IMMEDIATE", "saved"),
    "by a reader": ("BEGIN", "saved"),
    "exclusively": ("BEGIN EXCLUSIVE", "read"),
}


@pytest.mark.parametrize("name", HELD)
def test_locked_store_says_so_and_has_a_limit(
    tmp_path: Path,
    published: RunResult,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(connect, "ANNOUNCED_S", 0.2)
    monkeypatch.setattr(connect, "LOCK_TIMEOUT_S", 1.0)
    file, (statement, what) = tmp_path / "ci.db", HELD[name]
    with Store(f"sqlite:///{file}") as store:
        store.save(published, {})
        act: Callable[[], object] = (
            (lambda: store.save(published, {})) if what == "saved" else (lambda: store.load())
        )
        command = [sys.executable, "-c", HOLDER, str(file), statement]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(InfrastructureError, match="database is locked") as error:
                act()
            said = capsys.readouterr().err
            assert f"waiting for the store {file} for at most 1 s: process {holder.pid} (" in said
            assert f"kill {holder.pid}" in said
            assert error.value.remedy is not None
            holder.stdin.write("\n")
        act()
    assert capsys.readouterr().err == ""


def test_free_store_is_used_in_silence(
    tmp_path: Path, published: RunResult, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(f"sqlite:///{tmp_path / 'ci.db'}") as store:
        store.save(published, {})
        assert store.load(published.run_id) == published
    assert capsys.readouterr().err == ""
    assert sqlite3.connect(tmp_path / "ci.db").execute("SELECT 1").fetchone() == (1,)
