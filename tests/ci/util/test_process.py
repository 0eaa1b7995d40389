"""The subprocess wrapper, with real programs."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

import pytest

from ci.errors import ExitCode
from ci.util import process
from ci.util.process import STORE_VARIABLE, ProcessError, run


def test_both_streams_and_exit_code() -> None:
    result = run(["sh", "-c", "echo out; echo err >&2; exit 3"], check=False)
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert result.seconds > 0


def test_lines_as_they_come_with_streams_merged() -> None:
    lines: list[str] = []
    result = run(["sh", "-c", "echo out; echo err >&2; printf rest"], on_line=lines.append)
    assert lines == ["out", "err", "rest"]
    assert result.stdout == "out\nerr\nrest"


def test_folder_and_environment(tmp_path: Path) -> None:
    program = "import os; print(os.getcwd(), os.environ.get('A'), 'HOME' in os.environ)"
    result = run([sys.executable, "-c", program], cwd=tmp_path, environment={"A": "1"})
    assert result.stdout == f"{tmp_path} 1 False\n"


def test_no_program_gets_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, "postgresql+psycopg://ci:SECRET@db/ci")
    monkeypatch.setenv("AMBIENT", "yes")
    seen = run(["env"]).stdout
    assert "AMBIENT=yes\n" in seen
    assert "SECRET" not in seen


def test_no_program_gets_the_settings_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_own_variables", set())
    monkeypatch.setenv("GIVEN", "by the user")
    monkeypatch.setenv("MADE", "later")
    monkeypatch.delenv("MADE")
    process.set_for_this_program({"GIVEN": "1", "MADE": "1"})
    assert os.environ["MADE"] == "1"
    seen = run(["env"]).stdout
    assert "GIVEN=by the user\n" in seen
    assert "MADE" not in seen


def test_output_that_is_no_utf_8() -> None:
    command = ["printf", r"caf\351"]
    assert run(command).stdout == "caf\N{REPLACEMENT CHARACTER}"
    kept = run(command, decoding_errors="surrogateescape").stdout
    assert os.fsencode(kept) == b"caf\xe9"


def test_words_are_never_seen_by_a_shell() -> None:
    assert run(["echo", "$HOME; ls", "*"]).stdout == "$HOME; ls *\n"


def test_missing_program() -> None:
    with pytest.raises(ProcessError, match=r"^no-such-program was not found$") as error:
        run(["no-such-program"])
    assert error.value.remedy == "install no-such-program or put it on PATH"
    assert error.value.exit_code is ExitCode.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("program", "folder", "message"),
    [
        ("{}/data.txt", "", r"data\.txt cannot be run: Permission denied"),
        ("true", "nowhere", r"cannot run true: .*/nowhere is not a folder"),
    ],
)
def test_what_cannot_be_run(tmp_path: Path, program: str, folder: str, message: str) -> None:
    (tmp_path / "data.txt").write_text("text")
    with pytest.raises(ProcessError, match=message):
        run([program.format(tmp_path)], cwd=tmp_path / folder)


def test_failure_quotes_the_last_lines() -> None:
    with pytest.raises(ProcessError, match=r"failed with exit code 2\n    11\n(.*\n)*    30$"):
        run(["sh", "-c", "seq 30 >&2; exit 2"])


def test_time_out_ends_the_whole_group(tmp_path: Path) -> None:
    # The grandchild holds the pipe open: killing the shell alone would block for ever.
    pid_file = tmp_path / "pid"
    message = r"exceeded its time limit of 2 s and was killed\n    begun"
    with pytest.raises(ProcessError, match=message):
        run(["sh", "-c", f"sleep 600 & echo $! > {pid_file}; echo begun; wait"], timeout_s=2)
    assert ended(int(pid_file.read_text()))


def test_error_in_the_callback_ends_the_program() -> None:
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt(line)

    with pytest.raises(KeyboardInterrupt) as error:
        run(["sh", "-c", "echo $$; exec sleep 600"], on_line=interrupt)
    assert ended(int(str(error.value)))


def ended(pid: int) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    readable, _, _ = select.select([handle], [], [], 30)
    os.close(handle)
    return bool(readable)
