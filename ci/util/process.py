"""Run other programs: argument lists, both output streams, typed errors."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import IO, cast

from ci.errors import InfrastructureError

LAST_LINES = 20  # of a program's output: errors come last, and the message must fit a terminal
STORE_VARIABLE = "INFINI_CI_DB"  # URL of the store, password included
NOTIFY_VARIABLE = "INFINI_CI_NOTIFY"  # URL of a webhook, which is a secret
PASSPHRASE_VARIABLE = "INFINI_CI_KEY_PASSPHRASE"  # noqa: S105 - of the key of `attest`
TOKEN_VARIABLE = "SIGSTORE_ID_TOKEN"  # noqa: S105 - of `attest`; GitLab and cosign use it, too
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class ProcessError(InfrastructureError):
    """A program could not be started, took too long, or failed."""


class TimeLimitError(ProcessError):
    """A program took too long and was killed."""


def end_with_parent() -> None:
    """Have this process killed when its parent ends; only Linux can do it."""
    if sys.platform == "linux":
        import ctypes  # which few commands need

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class ProcessResult:
    """The result of a finished program; ``stderr`` is empty when the output was streamed."""

    exit_code: int
    stdout: str
    stderr: str
    seconds: float


# Variables that other programs, such as tests and ``setup.py``, do not get. They must not write to
# the store, nor send alarms, nor sign.
_own_variables = {STORE_VARIABLE, NOTIFY_VARIABLE, PASSPHRASE_VARIABLE, TOKEN_VARIABLE}


def set_for_this_program(settings: Mapping[str, str]) -> None:
    """Set the variables that the user has not set, for this program only."""
    missing = settings.keys() - os.environ.keys()
    os.environ.update({name: settings[name] for name in missing})
    _own_variables.update(missing)


def inherited_environment() -> dict[str, str]:
    """Return the caller's environment for another program, without this program's own variables."""
    return {name: value for name, value in os.environ.items() if name not in _own_variables}


def run(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    on_line: Callable[[str], None] | None = None,
    check: bool = True,
    decoding_errors: str = "replace",
    stdin: str | None = None,
) -> ProcessResult:
    """Run ``command``, wait for it, and return its exit code and output.

    Args:
        environment: ``inherited_environment()`` by default.
        timeout_s: Seconds after which the whole process group is killed. Not applied with
            ``on_line``.
        on_line: Called with every line as it comes; the two streams are merged.
        check: Raise ``ProcessError`` for an exit code other than 0.
        decoding_errors: How to decode output that is not UTF-8. "surrogateescape" preserves file
            names.
        stdin: Text for the standard input, which is empty otherwise. Not used with ``on_line``.

    An interrupt (Ctrl-C) kills the process group as well.
    """
    start = monotonic()
    merged, source = on_line is not None, subprocess.DEVNULL if stdin is None else subprocess.PIPE
    process = _start(command, cwd, environment, decoding_errors, merged=merged, stdin=source)
    try:
        if on_line is None:
            stdout, stderr = process.communicate(stdin, timeout=timeout_s)
        else:
            stdout, stderr = _read_lines(process, on_line), ""
    except subprocess.TimeoutExpired:
        _kill_group(process)
        try:
            stdout, stderr = process.communicate(timeout=KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            stdout = stderr = ""
        text = f"{shlex.join(command)} exceeded its time limit of {timeout_s:g} s and was killed"
        raise TimeLimitError(f"{text}{last_lines(stderr or stdout)}") from None
    except BaseException:
        _kill_group(process)
        process.wait()
        raise
    if check and process.returncode != 0:
        wrong = f"{shlex.join(command)} failed with exit code {process.returncode}"
        raise ProcessError(f"{wrong}{last_lines(stderr or stdout)}")
    seconds = monotonic() - start
    return ProcessResult(
        exit_code=process.returncode, stdout=stdout, stderr=stderr, seconds=seconds
    )


def _start(
    command: Sequence[str],
    cwd: Path | None,
    environment: Mapping[str, str] | None,
    decoding_errors: str,
    *,
    merged: bool,
    stdin: int,
) -> subprocess.Popen[str]:
    if cwd is not None and not cwd.is_dir():
        raise ProcessError(f"cannot run {shlex.join(command)}: {cwd} is not a folder")
    try:
        return subprocess.Popen(
            list(command),
            cwd=cwd,
            env=inherited_environment() if environment is None else dict(environment),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            encoding="utf-8",
            errors=decoding_errors,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        remedy = f"install {command[0]} or put it on PATH"
        raise ProcessError(f"{command[0]} was not found", remedy=remedy) from error
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
    """Kill the process and its descendants; it leads its own process group."""
    with suppress(ProcessLookupError):  # it may have ended in the meantime
        os.killpg(process.pid, signal.SIGKILL)


def last_lines(output: str) -> str:
    """Return the last lines of a program's output, indented, for the end of a message."""
    return "".join(f"\n    {line}" for line in output.strip().splitlines()[-LAST_LINES:])


SIGNALS = (signal.SIGINT, signal.SIGTERM)
KILL_TIMEOUT_S = 5.0  # a process that survives SIGKILL for so long hangs in the kernel
Handler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextmanager
def handle_interrupts(handler: Handler) -> Iterator[None]:
    """Call ``handler`` for every Ctrl-C and SIGTERM, in place of a ``KeyboardInterrupt``."""
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def delay_interrupt() -> Iterator[None]:
    """Raise the ``KeyboardInterrupt`` of the first Ctrl-C at the end of the block.

    A second Ctrl-C raises it at once. In other threads than the main one there is nothing to delay.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def receive(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    try:
        with handle_interrupts(receive):
            yield
    finally:
        if received:
            raise KeyboardInterrupt
