"""The user of the stages, where it is not the agent's own, and how files pass between the two.

In a container without devices the agent is root, with three capabilities: SETUID and SETGID to
start a stage as another user, KILL to end it. A stage has no capability and cannot gain one. So the
container's log, the events and the results belong to the agent alone: no stage can write to them,
signal the agent or look into it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pwd
import tempfile
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ContextManager, Iterator

from ci.agent.artifacts import open_regular
from ci.util.files import copy_file, open_for_replacement, remove_folder

PR_SET_NO_NEW_PRIVS = 38
F_SETPIPE_SZ = 1031  # fcntl has the name from Python 3.10 on
LARGEST_PIPE = 1 << 20  # Linux's limit for the size of a pipe, so one read empties it


@dataclass(frozen=True)
class StageUser:
    """A user of this system, with the groups that a container engine would give it."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    @classmethod
    def find(cls, uid: int) -> StageUser:
        """Look the user up in ``/etc/passwd``, as an engine does for a number."""
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            return cls(uid, gid=0, groups=(0,), home="/")
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
        return cls(uid, gid=entry.pw_gid, groups=tuple(groups), home=entry.pw_dir)

    def become(self) -> None:
        """Become this user for good, without any capability."""
        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        os.setgroups(self.groups)
        os.setgid(self.gid)
        os.setuid(self.uid)

    @contextmanager
    def access(self) -> Iterator[None]:
        """Open files with the rights of this user; it cannot reach the agent meanwhile."""
        groups, gid, uid = os.getgroups(), os.getegid(), os.geteuid()
        os.setgroups(self.groups)
        os.setegid(self.gid)
        os.seteuid(self.uid)
        try:
            yield
        finally:
            os.seteuid(uid)
            os.setegid(gid)
            os.setgroups(groups)


class Handover:
    """Where stages write files of the results: there, or in a folder of their own."""

    def __init__(self, results: Path, user: StageUser | None) -> None:
        self.results = results
        self.user = user
        self._written = results
        if user is not None:
            self._written = self._private_folder() / "files"
            self._written.mkdir()
            self._written.chmod(0o777)
        self._shared: Path | None = None

    def access(self) -> ContextManager[None]:
        """Open files with the rights of the stages."""
        return nullcontext() if self.user is None else self.user.access()

    def path(self, name: str) -> Path:
        """Return where a stage writes a file of the results."""
        return self._written / name

    def take(self, name: str) -> bool:
        """Copy a file that a stage has written into the results, if it is a regular one.

        Returns whether it was left out, because it is too large or the disk is full.
        """
        if self.user is None:
            return False
        try:
            with self.access():
                content = open_regular(self.path(name), os.O_NOFOLLOW)
        except OSError:  # no stage wrote it
            return False
        with content, suppress(OSError), open_for_replacement(self.results / name) as file:
            copy_file(content, file)
            return False
        return True

    def shared_file(self, name: str) -> Path | None:
        """Create a file that every user can write; ``None``: there is no room for it.

        It is in no folder of the results: those of another user may not be open to a stage's.
        """
        try:
            if self._shared is None:
                self._shared = make_public(self._private_folder())
            path = self._shared / name
            path.touch()
            path.chmod(0o666)
        except OSError:
            return None
        return path

    @contextmanager
    def log(self, name: str) -> Iterator[tuple[Path, LogPipe | None]]:
        """Yield the path to which a stage writes a log, and the pipe that is there, if any.

        Of several processes that open the log, none can replace the lines of another.
        """
        log = self.results / name
        try:
            pipe = LogPipe(self._private_folder() / name, log)
        except OSError:
            if self.user is not None:
                raise
            yield log, None  # such as a full disk: pytest reports it
            return
        try:
            yield pipe.path, pipe
        finally:
            pipe.close()
            with suppress(OSError):
                remove_folder(pipe.path.parent)

    def _private_folder(self) -> Path:
        """Create a folder that only the agent can change, and the stages can read."""
        folder = Path(tempfile.mkdtemp(prefix="infini-ci-"))
        return folder if self.user is None else make_public(folder)

    @contextmanager
    def private_file(self, content: str) -> Iterator[str]:
        """Yield the name of a file that only the stages' user can read, and remove the file."""
        with self.access():
            file, name = tempfile.mkstemp(prefix="infini-ci-")
            with os.fdopen(file, "w") as target:
                target.write(content)
        try:
            yield name
        finally:
            with suppress(OSError), self.access():
                Path(name).unlink()

    def remove(self) -> None:
        own = self._written.parent if self.user is not None else None
        for folder in filter(None, (own, self._shared)):
            with suppress(OSError):
                remove_folder(folder)


class LogPipe:
    """A named pipe whose content the agent appends to a log: no stage can take a line back."""

    def __init__(self, path: Path, log: Path) -> None:
        self.path = path
        os.mkfifo(path)
        path.chmod(0o622)  # everyone may write, only the agent reads
        # Open for writing too: no end of the file comes when a stage closes it.
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        with suppress(OSError):  # the user's pipes take too much memory already
            fcntl.fcntl(self.descriptor, F_SETPIPE_SZ, LARGEST_PIPE)
        self._log = log.open("wb", buffering=0)
        self.is_cut = False
        """Whether the log lacks its end, for want of space."""

    def copy(self) -> None:
        """Append to the log what is in the pipe now."""
        try:
            content = os.read(self.descriptor, LARGEST_PIPE)
        except BlockingIOError:
            return
        try:
            if not self.is_cut:
                self._log.write(content)
        except OSError:  # a full disk: a log without its end never passes
            self.is_cut = True

    def close(self) -> None:
        self.copy()
        os.close(self.descriptor)
        self._log.close()
        with suppress(OSError):  # a stage of the agent's own user may have removed it
            self.path.unlink()


def make_public(folder: Path) -> Path:
    """Let every user read a folder that only its owner can change."""
    folder.chmod(0o755)
    return folder
