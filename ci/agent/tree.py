"""A stage's process tree: wait for it, end it, read what it used."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

ENDING = {signal.SIGTERM, signal.SIGINT}
RESCAN_S = 0.1
KILL_TIMEOUT_S = 30.0  # a process stuck in the kernel (a hung device) may never go

UNKNOWN_COUNTERS: dict[str, int | None] = {"oom_kills": None, "memory_limit_hits": None}


def prepare_supervisor() -> None:
    """Make this process the parent of every orphan below it, and end it with its own parent."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING | {signal.SIGCHLD})


def restore_signals() -> None:
    """Undo, in a freshly forked command, the signal mask of its supervisor."""
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


class ProcessTree:
    """All descendants of the calling process; ``main`` is the one whose status counts."""

    def __init__(self, main: int) -> None:
        self._main = main
        self._empty = False
        self.status: int | None = None  # as os.waitpid has it; None while running

    def wait(self, timeout_s: float) -> str | None:
        """Wait for ``main``; return None, or why waiting ended early."""
        deadline = time.monotonic() + timeout_s
        while not self._reap() and self.status is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return "timed_out"
            received = signal.sigtimedwait(ENDING | {signal.SIGCHLD}, left)
            if received is not None and received.si_signo != signal.SIGCHLD:
                return "interrupted"
        return None

    def end(self, grace_s: float) -> None:
        """End every process that is left: SIGTERM, ``grace_s``, then SIGKILL."""
        self._end_with(signal.SIGTERM, grace_s)
        self._end_with(signal.SIGKILL, KILL_TIMEOUT_S)

    def _end_with(self, number: signal.Signals, timeout_s: float) -> None:
        """Signal every process once, those included that start only meanwhile."""
        told: set[int] = set()
        deadline = time.monotonic() + timeout_s
        while not self._reap() and time.monotonic() < deadline:
            for pid in descendants(os.getpid()):
                if pid not in told:
                    told.add(pid)
                    # Ended meanwhile, or another user's (sudo): nothing more can be done.
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
            signal.sigtimedwait({signal.SIGCHLD}, RESCAN_S)

    def _reap(self) -> bool:
        """Collect whatever has ended; return whether nothing is left."""
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


def descendants(ancestor: int) -> list[int]:
    """Return the processes below ``ancestor``, whatever session they moved to."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    found = list(children.get(ancestor, []))
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return found


def exit_code(status: int) -> int:
    """Translate a wait status to the exit code that a shell would show."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def usage() -> dict[str, object]:
    """Return what all waited-for descendants of this process have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "cpu_user_s": used.ru_utime,
        "cpu_system_s": used.ru_stime,
        "peak_rss_bytes": used.ru_maxrss * 1024,  # of the largest process; Linux counts in KiB
    }


def memory_counters() -> dict[str, int | None]:
    """Return what the kernel counts in this control group, as far as it tells.

    ``oom_kills``: processes killed for memory, also those killed because the machine had none
    left. ``memory_limit_hits``: how often an allocation met the limit of the group itself,
    which only the second version of control groups tells.
    """
    for folder, is_first_version in _groups():
        kills = _numbers(folder / ("memory.oom_control" if is_first_version else "memory.events"))
        if "oom_kill" not in kills:
            continue
        # The first version has memory.failcnt, which stays 0 in a Linux 6.18 that kills.
        hits = None if is_first_version else kills.get("oom")
        return {"oom_kills": kills["oom_kill"], "memory_limit_hits": hits}
    return dict(UNKNOWN_COUNTERS)


def increase(before: dict[str, int | None], after: dict[str, int | None]) -> dict[str, int | None]:
    """Return how much each counter grew; None where that is not known."""
    grown = {}
    for name, end in after.items():
        start = before[name]
        grown[name] = None if start is None or end is None else max(end - start, 0)
    return grown


def _numbers(path: Path) -> dict[str, int]:
    """Read lines like ``oom_kill 2``."""
    try:
        pairs = [line.rpartition(" ") for line in path.read_text().splitlines()]
        return {name: int(number) for name, _, number in pairs}
    except (OSError, ValueError):
        return {}


def _groups() -> list[tuple[Path, bool]]:
    """Return the folders of this process's group and, in a container, of the mount.

    True with those of the first version of control groups.
    """
    candidates = []
    groups = Path("/proc/self/cgroup")
    for line in groups.read_text().splitlines() if groups.exists() else []:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            candidates.append(("/sys/fs/cgroup", group, False))
        elif "memory" in controllers.split(","):
            candidates.append(("/sys/fs/cgroup/memory", group, True))
    nested = [(Path(mount + group), version) for mount, group, version in candidates]
    return nested + [(Path(mount), version) for mount, _, version in candidates]
