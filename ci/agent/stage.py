"""Run one command and measure its whole process tree.

The command is started by a small forked supervisor, not by the agent itself, because the
kernel's counters for waited-for children (CPU time, largest resident set) only grow: a fresh
supervisor starts them at zero for every stage. The supervisor is a child subreaper, so that
daemons and orphans of the stage are measured and ended with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from ci.agent.time_limits import GRACE_S, KILL_S, LEFTOVER_GRACE_S, OVERDUE_S
from ci.agent.user import StageUser
from ci.protocol.events import CommandEnd
from ci.util.text import signal_name

SUPERVISOR_FAILED = 70  # EX_SOFTWARE of sysexits.h

EVENTS = "memory.events"  # of cgroup v2
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

ENDING = {signal.SIGTERM, signal.SIGINT}
# Between two scans for processes that started while others were being ended. A scan of /proc takes
# a few milliseconds.
RESCAN_S = 0.1


@dataclass(frozen=True)
class StageCommand:
    """A command, its environment and limits; its processes inherit the descriptors."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    workspace: Path
    timeout_s: float
    inherited: Sequence[int] = ()
    user: StageUser | None = None  # None: the agent's own
    processors: Sequence[int] = ()  # the only ones to run on; empty: those of the agent


class SupervisorError(Exception):
    """The supervisor of a stage was killed, so the end of the stage is unknown."""


class Stage:
    """A running command and its supervisor."""

    def __init__(self, command: StageCommand) -> None:
        self.output, output = os.pipe()
        os.fchmod(output, 0o622)  # a stage of another user may open /dev/stdout
        self.result, result = os.pipe()
        # The supervisor takes its signals with sigtimedwait: blocked from its birth on.
        self._start = time.monotonic()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        self._pid = os.fork()
        if self._pid == 0:
            code = SUPERVISOR_FAILED
            try:
                os.close(self.output)
                os.write(result, json.dumps(asdict(_supervise(command, output))).encode())
                code = 0
            except BaseException:
                os.write(output, traceback.format_exc().encode())
            finally:
                os._exit(code)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._overdue = self._start + command.timeout_s + OVERDUE_S
        self._running = True
        os.close(output)
        os.close(result)

    def end(self) -> None:
        """Ask the supervisor, if it is still running, to end the stage."""
        if self._running:
            os.kill(self._pid, signal.SIGTERM)

    def wake_supervisor(self) -> None:
        """Continue a supervisor that SIGSTOP keeps from enforcing the time limit."""
        if time.monotonic() > self._overdue:
            self._overdue = time.monotonic() + OVERDUE_S
            os.kill(self._pid, signal.SIGCONT)

    def wait(self) -> int:
        """Wait for the supervisor, which has written its result; return its wait status."""
        os.close(self.output)
        os.close(self.result)
        self._running = False  # before waitpid, after which the PID may be reused
        _, status = os.waitpid(self._pid, 0)
        return status

    def end_leftovers(self, status: int) -> CommandEnd:
        """Return the end of a stage whose supervisor ended without a result, with ``status``.

        Ends every descendant of the agent, so that no other stage may run any more. Raises
        ``SupervisorError`` if the supervisor was killed.
        """
        ProcessTree(self._pid).end(LEFTOVER_GRACE_S)
        if os.WIFSIGNALED(status):
            raise SupervisorError(f"was killed by {signal_name(os.WTERMSIG(status))}")
        # It failed, and its traceback is in the log: use the agent's own counters.
        return _command_end(time.monotonic() - self._start, status or SUPERVISOR_FAILED << 8)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _supervise(command: StageCommand, output: int) -> CommandEnd:
    adopt_orphans()
    # End when the parent ends.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING | {signal.SIGCHLD})
    before = _memory_counters()
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            command.arguments,
            cwd=command.workspace if command.user is None else None,
            env=command.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=command.inherited,
            # Safe, as this process has no threads.
            preexec_fn=partial(_prepare, command),
        )
    except (OSError, subprocess.SubprocessError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"not run: {error}"
        os.write(output, f"{command.arguments[0]}: {reason}\n".encode())
        code = 127 if isinstance(error, FileNotFoundError) else 126  # as a shell would
        return _command_end(time.monotonic() - start, code << 8)
    processes = ProcessTree(process.pid)
    try:
        cause = processes.wait(command.timeout_s)
        if cause is not None:
            processes.end(GRACE_S)
        seconds, status = time.monotonic() - start, processes.status
    finally:
        processes.end(LEFTOVER_GRACE_S)
    return _command_end(seconds, status, cause, before)


def _prepare(command: StageCommand) -> None:
    """Restore the signal mask for the command, set its processors, and become its user."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if command.processors:
        os.sched_setaffinity(0, command.processors)
    if command.user is not None:
        command.user.become()
        os.chdir(command.workspace)  # now: only this user may be allowed to


class ProcessTree:
    """All descendants of the calling process; ``main`` is the one whose status counts."""

    def __init__(self, main: int) -> None:
        self._main = main
        self._empty = False
        self.status: int | None = None  # as os.waitpid has it; None while running

    def wait(self, timeout_s: float) -> str | None:
        """Wait for ``main``; return ``None``, or the reason why waiting ended early."""
        deadline = time.monotonic() + timeout_s
        while not self._reap() and self.status is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return "timed_out"
            received = signal.sigtimedwait(ENDING | {signal.SIGCHLD}, left)
            # Python returns garbage if SIGCONT comes after the deadline.
            if received is not None and received.si_signo in ENDING:
                return "interrupted"
        return None

    def end(self, grace_s: float) -> None:
        """End every process: SIGTERM, ``grace_s``, then SIGKILL."""
        for number, timeout_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_S)):
            signalled: set[int] = set()  # signal each process once, also one that starts meanwhile
            deadline = time.monotonic() + timeout_s
            while not self._reap() and time.monotonic() < deadline:
                for pid in _descendants(os.getpid()):
                    if pid not in signalled:
                        signalled.add(pid)
                        # It has ended, or belongs to another user (sudo): nothing more to do.
                        with suppress(ProcessLookupError, PermissionError):
                            os.kill(pid, number)
                signal.sigtimedwait({signal.SIGCHLD}, RESCAN_S)

    def _reap(self) -> bool:
        """Collect ended processes; return whether no process remains."""
        while not self._empty:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._empty = True
                break
            if pid == 0:
                break
            if pid == self._main:
                self.status = status
        return self._empty


def _descendants(ancestor: int) -> list[int]:
    """Return all descendants of ``ancestor``, in any session."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    found = list(children.get(ancestor, []))
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return found


def _command_end(
    seconds: float,
    status: int | None,
    cause: str | None = None,
    before: tuple[int | None, int | None] = (None, None),
) -> CommandEnd:
    """Return the end of a command from its wait status, ``None`` if it could not be killed.

    ``cause`` is why the agent ended it. Counts the resources that waited-for descendants of this
    process used, and the growth of the memory counters since ``before``.
    """
    status = int(signal.SIGKILL) if status is None else status
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    oom_kills, memory_limit_hits = (
        None if start is None or end is None else max(end - start, 0)
        for start, end in zip(before, _memory_counters())
    )
    return CommandEnd(
        seconds=seconds,
        exit_code=os.WEXITSTATUS(status) if number is None else 128 + number,  # as a shell does
        signal=number,
        timed_out=cause == "timed_out",
        cpu_user_s=used.ru_utime,
        cpu_system_s=used.ru_stime,
        peak_rss_bytes=used.ru_maxrss * 1024,  # Linux counts in KiB
        interrupted=cause == "interrupted",
        oom_kills=oom_kills,
        memory_limit_hits=memory_limit_hits,
    )


def _memory_counters() -> tuple[int | None, int | None]:
    """Return two counters of this control group, each ``None`` if the kernel does not report it.

    The first counts out-of-memory kills, also those because the machine ran out. The second counts
    how often an allocation reached the group's own limit; only cgroup v2 reports it.
    """
    for path in _counter_files():
        try:  # lines like ``oom_kill 2``
            pairs = [line.rpartition(" ") for line in path.read_text().splitlines()]
            counts = {name: int(number) for name, _, number in pairs}
        except (OSError, ValueError):
            continue
        if "oom_kill" in counts:
            # cgroup v1 has memory.failcnt, but on Linux 6.18 it stays 0 although it kills.
            return counts["oom_kill"], counts.get("oom") if path.name == EVENTS else None
    return None, None


def _counter_files() -> list[Path]:
    """Return the counter files of this process's group and, in a container, of the mount."""
    found = []
    groups = Path("/proc/self/cgroup")
    for line in groups.read_text().splitlines() if groups.exists() else []:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            found.append(("/sys/fs/cgroup", group, EVENTS))
        elif "memory" in controllers.split(","):  # cgroup v1
            found.append(("/sys/fs/cgroup/memory", group, "memory.oom_control"))
    nested = [Path(mount + group, name) for mount, group, name in found]
    return nested + [Path(mount, name) for mount, _, name in found]
