"""Locks on devices, shared by all runs of all users of a machine and of its containers.

A lock is a ``flock`` on a file of a common folder, so the kernel takes it back when the last
process that has it open has ended. Files are never removed: one without a lock means nothing.
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

from ci.util.lines import parse_object

# Anybody may make a lock, and remove none of another's; as /tmp and /run/lock are.
FOLDER_MODE = 0o1777
FILE_MODE = 0o666
LONGEST_OWNER = 1 << 16  # bytes; a run writes some hundred
REAP_GRACE_S = 20.0  # what a dead run left has SIGTERM's time to end; its supervisor takes 12 s


class LockFolder:
    """Takes locks for one owner, who is shown to those that want the same.

    A lock is a descriptor, which keeps it, also in a child that inherits it; closing it gives the
    lock up, as far as this process goes.
    """

    def __init__(self, folder: str, owner: dict[str, Any], grace_s: float = REAP_GRACE_S) -> None:
        self._folder = Path(folder)
        self._owner = {**owner, **_identity()}
        self._grace_s = grace_s
        # Orphaned locks, and when their processes were told to end.
        self._told: dict[tuple[object, ...], float] = {}

    def make(self) -> None:
        """Make the folder where it is missing; raises ``OSError`` where that is impossible."""
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        with _no_umask(), suppress(FileExistsError):
            self._folder.mkdir(FOLDER_MODE)
        os.close(self._open("folder"))  # it may be there and not for everybody

    def take(self, name: str) -> int | None:
        """Take a lock, or return None: somebody has it."""
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
        """Say who has a lock, if anybody; what a dead run left is told to end."""
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
        # Whether an owner elsewhere has died cannot be seen from here.
        if not here or _started(owner["pid"]) == owner["started"]:
            return run
        self._reap(name, owner)
        return f"what is left of {run}, which has died"

    def _open(self, name: str) -> int:
        """Open a lock's file, or make it.

        Where fs.protected_regular is set, O_CREAT is refused for a file that is there and another
        user's, even to root.
        """
        path = self._path(name)
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            with suppress(FileNotFoundError):
                return os.open(path, flags)
            with _no_umask(), suppress(FileExistsError):
                return os.open(path, flags | os.O_CREAT | os.O_EXCL, FILE_MODE)

    def _path(self, name: str) -> Path:
        return self._folder / f"{lock_name(name)}.lock"

    def _reap(self, name: str, owner: dict[str, Any]) -> None:
        """End the processes that keep a dead run's lock: SIGTERM, and SIGKILL when time is up."""
        dead = (name, owner["pid"], owner["started"])
        first = dead not in self._told
        start = self._told.setdefault(dead, time.monotonic())
        if not first and time.monotonic() - start < self._grace_s:
            return
        for pid in _keepers(self._path(name), owner["pid"]):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM if first else signal.SIGKILL)


@contextmanager
def _no_umask() -> Iterator[None]:
    """Make things for all users, from their first moment on."""
    mask = os.umask(0)
    try:
        yield
    finally:
        os.umask(mask)


def _keepers(path: Path, owner: int) -> list[int]:
    """The processes with a descriptor that still holds the lock that ``owner`` took.

    The kernel says so itself: others, who only try, have the file open too, and whoever took the
    lock this moment has not written yet that it is his.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if any(_holds(entry, path, owner) for entry in (folder / "fd").iterdir()):
                found.append(int(folder.name))
    return found


def _holds(descriptor: Path, path: Path, owner: int) -> bool:
    """Tell by ``lock: 1: FLOCK ADVISORY WRITE 123 fe:00:45 0 EOF``, if it is there."""
    with suppress(OSError):
        if descriptor.samefile(path):
            facts = (descriptor.parent.parent / "fdinfo" / descriptor.name).read_text()
            taken = re.search(r"^lock:.* FLOCK .* WRITE +(\d+) ", facts, re.MULTILINE)
            # Outside of the first PID namespace one that has ended is 0.
            return taken is not None and int(taken[1]) in (0, owner)
    return False


def _identity() -> dict[str, Any]:
    """What tells this process from any other of any machine."""
    return {
        "pid": os.getpid(),
        "started": _started(os.getpid()),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "namespace": os.readlink("/proc/self/ns/pid"),
    }


def _started(pid: int) -> int | None:
    """Clock ticks from boot to a process's start, so that its number used again is another."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def lock_name(name: str) -> str:
    """The name of a lock as that of its file, without the ending."""
    return re.sub("[^A-Za-z0-9-]", "_", name)


def owner_text(owner: dict[str, Any] | None) -> str:
    """``run r1 (nvidia) of user me``, as far as the lock's file names its owner."""
    if owner is None:
        return "a run that does not say which"
    return f"run {owner['run']} ({owner['platform']}) of user {owner['user']}"


def read_owner(descriptor: int) -> dict[str, Any] | None:
    """The owner that a lock's file names; none yet where it is only just being written."""
    try:
        owner = parse_object(os.pread(descriptor, LONGEST_OWNER, 0).decode(errors="replace"))
        # Containers can write to it.
        words = [owner[name] for name in ("run", "platform", "user", "boot", "namespace")]
        time.gmtime(owner["since"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    sound = all(type(word) is str for word in words) and type(owner.get("pid")) is int
    return owner if sound and "started" in owner else None
