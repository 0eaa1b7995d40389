"""Runs one command and measures its whole process tree.

The command is started by a small forked supervisor, not by the agent itself, because the
kernel's counters for waited-for children (CPU time, largest resident set) only ever grow:
a fresh supervisor starts them at zero for every stage. The supervisor is a child subreaper,
so that daemons and orphans of the stage are counted, and ended, with it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
import traceback
from contextlib import suppress

from . import tree
from .output import QUIET_S, StageOutput

GRACE_S = 10.0  # between SIGTERM and SIGKILL when a stage must end
LEFTOVER_GRACE_S = 2.0  # the same for what a finished stage leaves running
LARGEST_PIPE = 1 << 20  # Linux lets nobody make one larger, so one read empties it
SUPERVISOR_FAILED = 70  # EX_SOFTWARE of sysexits.h


class Stage:
    """A running command and its supervisor, both with the ``inherited`` descriptors."""

    def __init__(
        self,
        command: list[str],
        *,
        environment: dict[str, str],
        workspace: str,
        timeout_s: float,
        inherited: tuple[int, ...] = (),
    ) -> None:
        self._output, output = os.pipe()
        self._result, result = os.pipe()
        # The supervisor takes its signals with sigtimedwait: blocked from its birth on.
        self._start = time.monotonic()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, tree.ENDING)
        self._pid = os.fork()
        if self._pid == 0:
            code = SUPERVISOR_FAILED
            try:
                os.close(self._output)
                outcome = _supervise(command, environment, workspace, timeout_s, output, inherited)
                os.write(result, json.dumps(outcome).encode())
                code = 0
            except BaseException:
                os.write(output, traceback.format_exc().encode())
            finally:
                os._exit(code)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._running = True
        os.close(output)
        os.close(result)

    def end(self) -> None:
        """Ask the supervisor, if there still is one, to end the stage."""
        if self._running:
            os.kill(self._pid, signal.SIGTERM)

    def follow(self, output: StageOutput) -> dict[str, object]:
        """Pass on the output until the stage has ended; return the measurements."""
        written = self._pass_on(output)
        os.close(self._output)
        os.close(self._result)
        self._running = False  # now: once it is waited for, its number may be another process's
        _, status = os.waitpid(self._pid, 0)
        if written:
            outcome: dict[str, object] = json.loads(written)
            return outcome
        # The supervisor failed or was killed, so the agent's own counters must do.
        status = status or SUPERVISOR_FAILED << 8
        return {**_finished(self._start, status, None), **tree.UNKNOWN_COUNTERS}

    def _pass_on(self, output: StageOutput) -> bytes:
        """Pass on the output until the supervisor has ended; return what it has written.

        The output itself need not end: a process out of the supervisor's reach may hold it open.
        """
        written = b""
        reading = {self._output, self._result}
        while self._result in reading:
            printing, patience_s = output.waiting()
            ready, printable, _ = select.select(reading, printing, [], patience_s)
            for pipe in ready:
                chunk = os.read(pipe, LARGEST_PIPE)
                if not chunk:
                    reading.remove(pipe)
                elif pipe == self._output:
                    output.write(chunk)
                else:
                    written += chunk
            if printable:
                output.go_on()
            elif not ready and patience_s == QUIET_S:
                output.quiet()
        os.set_blocking(self._output, False)
        with suppress(BlockingIOError):
            output.write(os.read(self._output, LARGEST_PIPE))
        return written


def _supervise(
    command: list[str],
    environment: dict[str, str],
    workspace: str,
    timeout_s: float,
    output: int,
    inherited: tuple[int, ...],
) -> dict[str, object]:
    tree.prepare_supervisor()
    before = tree.memory_counters()
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            cwd=workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=inherited,
            preexec_fn=tree.restore_signals,  # this process has no threads
        )
    except OSError as error:
        os.write(output, f"{command[0]}: {error.strerror}\n".encode())
        code = 127 if isinstance(error, FileNotFoundError) else 126  # as a shell would
        return {**_finished(start, code << 8, None), **tree.UNKNOWN_COUNTERS}
    processes = tree.ProcessTree(process.pid)
    try:
        cause = processes.wait(timeout_s)
        if cause is not None:
            processes.end(GRACE_S)
        outcome = _finished(start, processes.status, cause)
    finally:
        processes.end(LEFTOVER_GRACE_S)
    counted = tree.increase(before, tree.memory_counters())
    return {**outcome, **tree.usage(), **counted}


def _finished(start: float, status: int | None, cause: str | None) -> dict[str, object]:
    """Describe the end of the command itself; no status means that it could not be killed."""
    status = int(signal.SIGKILL) if status is None else status
    outcome: dict[str, object] = {
        "seconds": time.monotonic() - start,
        "exit_code": tree.exit_code(status),
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        "timed_out": cause == "timed_out",
        **tree.usage(),
    }
    if cause == "interrupted":
        outcome["interrupted"] = True
    return outcome
