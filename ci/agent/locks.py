"""Locks on devices, shared by all runs of all users of a machine and of its containers.

A lock is a ``flock`` on a file in a common folder, so the kernel releases it when the last process
that has the file open ends. Files are never removed: a file without a lock has no meaning.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ci.agent.time_limits import DEAD_RUN_GRACE_S
from ci.util.lines import parse_object

# Any user may create a lock, but not remove another user's, as in /tmp and /run/lock.
FOLDER_MODE = 0o1777
FILE_MODE = 0o666
LONGEST_OWNER = 1 << 16  # bytes; a run writes a few hundred


class LockFolder:
    """Takes locks for one owner, whose name is shown to runs that wait for the same lock.

    A lock is held by a file descriptor, also in a child process that inherits it. Closing the
    descriptor releases the lock of this process.
    """

    def __init__(
        self, folder: str, owner: dict[str, Any], grace_s: float = DEAD_RUN_GRACE_S
    ) -> None:
        self._folder = Path(folder)
        self._owner = {**owner, **_identity()}
        self._grace_s = grace_s
        # Orphaned locks, and when their processes were sent SIGTERM.
        self._terminated: dict[tuple[object, ...], float] = {}

    def make(self) -> None:
        """Create the folder if it is missing; raises ``OSError`` if that is impossible."""
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        with _no_umask(), suppress(FileExistsError):
            self._folder.mkdir(FOLDER_MODE)
        os.close(self._open("folder"))  # it may exist but not be writable

    def take(self, name: str) -> int | None:
        """Take a lock and return its descriptor; ``None``: another process holds the lock."""
        descriptor = self._open(name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        content = json.dumps({**self._owner, "since": time.time()}).encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)
        return descriptor

    def holder(self, name: str) -> str | None:
        """Return the holder of a lock, if any; end leftover processes of a dead run."""
        descriptor = self._open(name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            owner = read_owner(descriptor)
        finally:
            os.close(descriptor)
        if owner is None:
            return owner_text(None)
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(owner["since"]))
        run = f"{owner_text(owner)} since {since}"
        mine = _identity()
        here = all(owner[key] == mine[key] for key in ("boot", "namespace"))
        # An owner in another PID namespace cannot be checked from here.
        if not here or _start_ticks(owner["pid"]) == owner["started"]:
            return run
        self._reap(name, owner)
        return f"leftover processes of {run}, which has died"

    def record_use(self, name: str) -> None:
        """Record that what a lock protects is used now.

        In a file of its own: a run that only looks for a free device writes to its lock, too.
        """
        descriptor = open_shared(self._use_path(name))
        try:
            os.utime(descriptor)
        finally:
            os.close(descriptor)

    def last_use(self, name: str) -> int:
        """Return when `record_use` was called last, in ns since 1970; 0: never since the boot."""
        try:
            return self._use_path(name).stat().st_mtime_ns
        except OSError:
            return 0

    def _open(self, name: str) -> int:
        return open_shared(self._path(name))

    def _use_path(self, name: str) -> Path:
        return self._folder / f"{lock_name(name)}.used"

    def _path(self, name: str) -> Path:
        return self._folder / f"{lock_name(name)}.lock"

    def _reap(self, name: str, owner: dict[str, Any]) -> None:
        """End the processes that hold a dead run's lock: SIGTERM, then SIGKILL after a while."""
        dead = (name, owner["pid"], owner["started"])
        first = dead not in self._terminated
        start = self._terminated.setdefault(dead, time.monotonic())
        if not first and time.monotonic() - start < self._grace_s:
            return
        for pid in _lock_holders(self._path(name), owner["pid"]):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM if first else signal.SIGKILL)


def open_shared(path: Path) -> int:
    """Open a file that any user may write to, or create it; returns its descriptor.

    With fs.protected_regular, O_CREAT is refused for an existing file of another user, even for
    root.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        with _no_umask(), suppress(FileExistsError):
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, FILE_MODE)


@contextmanager
def _no_umask() -> Iterator[None]:
    """Create files with permissions for all users from the start."""
    mask = os.umask(0)
    try:
        yield
    finally:
        os.umask(mask)


def _lock_holders(path: Path, owner: int) -> list[int]:
    """Return the processes that still hold the lock that ``owner`` took.

    The kernel reports them. An open file proves nothing: processes that only try to lock have it
    open too, and the next holder may not have written its name yet.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended, or belongs to another user
            if any(_holds_lock(entry, path, owner) for entry in (folder / "fd").iterdir()):
                found.append(int(folder.name))
    return found


def _holds_lock(descriptor: Path, path: Path, owner: int) -> bool:
    """Look in fdinfo for ``lock: 1: FLOCK ADVISORY WRITE 123 fe:00:45 0 EOF``."""
    with suppress(OSError):
        if descriptor.samefile(path):
            facts = (descriptor.parent.parent / "fdinfo" / descriptor.name).read_text()
            taken = re.search(r"^lock:.* FLOCK .* WRITE +(\d+) ", facts, re.MULTILINE)
            # In a nested PID namespace the number of an ended process is 0.
            return taken is not None and int(taken[1]) in (0, owner)
    return False


def _identity() -> dict[str, Any]:
    """Return facts that distinguish this process from any other on any machine."""
    return {
        "pid": os.getpid(),
        "started": _start_ticks(os.getpid()),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "namespace": os.readlink("/proc/self/ns/pid"),
    }


def _start_ticks(pid: int) -> int | None:
    """Return clock ticks from boot to a process's start; they differ if a PID is reused."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def lock_name(name: str) -> str:
    """Return the name of a lock's file, without the suffix."""
    return re.sub("[^A-Za-z0-9-]", "_", name)


def owner_text(owner: dict[str, Any] | None) -> str:
    """``run r1 (nvidia) of user me``, if the lock's file names its owner."""
    if owner is None:
        return "a run that has not recorded its name"
    return f"run {owner['run']} ({owner['platform']}) of user {owner['user']}"


def read_owner(descriptor: int) -> dict[str, Any] | None:
    """Return the owner in a lock's file; ``None`` if it is not, or not yet, completely written."""
    try:
        owner = parse_object(os.pread(descriptor, LONGEST_OWNER, 0).decode(errors="replace"))
        # Containers can write to it.
        words = [owner[name] for name in ("run", "platform", "user", "boot", "namespace")]
        time.gmtime(owner["since"])
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return None
    sound = all(type(word) is str for word in words) and type(owner.get("pid")) is int
    return owner if sound and type(owner.get("started", "")) in (int, type(None)) else None
