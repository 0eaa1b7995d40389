"""The one way to run another program: argument lists, both streams, typed errors."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import IO, cast

from ci.errors import InfrastructureError

LAST_LINES = 20  # of a program's output: its error comes last, and the message fits a terminal
STORE_VARIABLE = "INFINI_CI_DB"  # URL of the store, password included


class ProcessError(InfrastructureError):
    """A program that could not be started, took too long, or failed."""


@dataclass(frozen=True, kw_only=True)
class ProcessResult:
    """What a finished program left behind; ``stderr`` is empty when streamed."""

    exit_code: int
    stdout: str
    stderr: str
    seconds: float


def inherited_environment() -> dict[str, str]:
    """Return the caller's environment for another program, without what opens the store.

    Other programs, such as tests and ``setup.py``, must not write to the store.
    """
    return {name: value for name, value in os.environ.items() if name != STORE_VARIABLE}


def run(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    on_line: Callable[[str], None] | None = None,
    check: bool = True,
    decoding_errors: str = "replace",
) -> ProcessResult:
    """Run ``command`` to its end and return its exit code and output.

    Without an ``environment`` it gets ``inherited_environment()``.
    With ``on_line`` the two streams are merged and every line is passed on as it comes, however
    long that takes. Without it, the whole process group is killed when ``timeout_s`` is up. An
    interrupt (Ctrl-C) ends the group as well. ``check`` turns a failure into ``ProcessError``.
    Output that is no UTF-8 is decoded as ``decoding_errors`` says: "surrogateescape" keeps names of
    files.
    """
    start = monotonic()
    process = _start(command, cwd, environment, decoding_errors, merged=on_line is not None)
    wrong = None
    try:
        if on_line is None:
            stdout, stderr = process.communicate(timeout=timeout_s)
        else:
            stdout, stderr = _read_lines(process, on_line), ""
        if check and process.returncode != 0:
            wrong = f"failed with exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        _kill_group(process)
        stdout, stderr = process.communicate()
        wrong = f"took longer than {timeout_s:g} s and was ended"
    except BaseException:
        _kill_group(process)
        process.wait()
        raise
    if wrong is not None:
        raise ProcessError(f"{shlex.join(command)} {wrong}{last_lines(stderr or stdout)}")
    return ProcessResult(
        exit_code=process.returncode,
        stdout=stdout,
        stderr=stderr,
        seconds=monotonic() - start,
    )


def _start(
    command: Sequence[str],
    cwd: Path | None,
    environment: Mapping[str, str] | None,
    decoding_errors: str,
    *,
    merged: bool,
) -> subprocess.Popen[str]:
    if cwd is not None and not cwd.is_dir():
        raise ProcessError(f"cannot run {shlex.join(command)}: {cwd} is not a folder")
    try:
        return subprocess.Popen(
            list(command),
            cwd=cwd,
            env=inherited_environment() if environment is None else dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            encoding="utf-8",
            errors=decoding_errors,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise ProcessError(
            f"{command[0]} was not found",
            remedy=f"install {command[0]} or put it on PATH",
        ) from error
    except OSError as error:
        raise ProcessError(f"{command[0]} cannot be run: {error.strerror}") from error


def _read_lines(process: subprocess.Popen[str], on_line: Callable[[str], None]) -> str:
    lines = []
    with cast(IO[str], process.stdout) as output:
        for line in output:
            lines.append(line)
            on_line(line.rstrip("\n"))
    process.wait()
    return "".join(lines)


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Kill the process and all that it started; it leads a group of its own."""
    with suppress(ProcessLookupError):  # it may have ended by itself meanwhile
        os.killpg(process.pid, signal.SIGKILL)


def last_lines(output: str) -> str:
    """The end of a program's output, as a message quotes it: each line below it, indented."""
    return "".join(f"\n    {line}" for line in output.strip().splitlines()[-LAST_LINES:])


SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextmanager
def interrupts_go_to(handler: Handler) -> Iterator[None]:
    """Let ``handler`` have every Ctrl-C and cancel in place of a ``KeyboardInterrupt``."""
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
