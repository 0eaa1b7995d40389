"""Runs one command and measures its whole process tree.

The command is started by a small forked supervisor, not by the agent itself, because the
kernel's counters for waited-for children (CPU time, largest resident set) only ever grow:
a fresh supervisor starts them at zero for every stage. The supervisor is a child subreaper,
so that daemons and orphans of the stage are counted, and ended, with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable

from . import tree

GRACE_S = 10.0  # between SIGTERM and SIGKILL when a stage must end
LEFTOVER_GRACE_S = 2.0  # the same for what a finished stage leaves running


class Stage:
    """A running command and its supervisor."""

    def __init__(
        self,
        command: list[str],
        *,
        environment: dict[str, str],
        workspace: str,
        timeout_s: float,
    ) -> None:
        self._output, output = os.pipe()
        self._result, result = os.pipe()
        # The supervisor takes its signals with sigtimedwait: blocked from its birth on.
        self._start = time.monotonic()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, tree.ENDING)
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._output)
                outcome = _supervise(command, environment, workspace, timeout_s, output)
                os.write(result, json.dumps(outcome).encode())
            finally:
                os._exit(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(output)
        os.close(result)

    def end(self) -> None:
        """Ask the supervisor to end the stage; ``follow`` then returns in a while."""
        os.kill(self._pid, signal.SIGTERM)

    def follow(self, write: Callable[[bytes], None]) -> dict[str, object]:
        """Pass on the output as it comes; return the measurements when all has ended."""
        with os.fdopen(self._output, "rb", buffering=0) as output:
            for chunk in iter(lambda: output.read(65536), b""):
                write(chunk)
        with os.fdopen(self._result, "rb") as result:
            written = result.read()
        _, status = os.waitpid(self._pid, 0)
        if written:
            outcome: dict[str, object] = json.loads(written)
            return outcome
        # Somebody killed the supervisor itself, so the agent's own counters must do.
        return {**_finished(self._start, status, None), "oom_kills": None}


def _supervise(
    command: list[str],
    environment: dict[str, str],
    workspace: str,
    timeout_s: float,
    output: int,
) -> dict[str, object]:
    tree.prepare_supervisor()
    kills = tree.oom_kills()
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
            preexec_fn=tree.restore_signals,  # this process has no threads
        )
    except OSError as error:
        os.write(output, f"{command[0]}: {error.strerror}\n".encode())
        os.close(output)
        code = 127 if isinstance(error, FileNotFoundError) else 126  # as a shell would
        return {**_finished(start, code << 8, None), "oom_kills": None}
    os.close(output)
    processes = tree.ProcessTree(process.pid)
    cause = processes.wait(timeout_s)
    if cause is not None:
        processes.end(GRACE_S)
    outcome = _finished(start, processes.status, cause)
    processes.end(LEFTOVER_GRACE_S)
    after = tree.oom_kills()
    killed = None if kills is None or after is None else after - kills
    return {**outcome, **tree.usage(), "oom_kills": killed}


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
