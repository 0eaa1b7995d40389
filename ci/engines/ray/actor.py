"""The actor that serves one platform of a run on a host of the pool.

Ray sends the class itself, so this module imports the standard library only: a host needs no
version of this program. The program comes as an archive, like the sources. It runs as a process
beside the actor, which only starts it and passes on what it writes. So every call returns soon, and
an actor that does not answer is a fault.

The files outlive the actor: a later one continues with them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from contextlib import suppress
from pathlib import Path

RESULTS = "results"
ARCHIVE = "results.tar"
SERVICE = "ci.engines.ray.service"  # the program's module that carries out the steps
SERVICE_LOG = "service.log"

INTERRUPTS = {signal.SIGINT}

COMPLETE = -1  # of a tree: it is here
BUSY = -2  # another platform's caller is sending it

IDLE_S = 60.0  # without a call: the caller has died
OLD_S = 14 * 24 * 3600.0  # of the files of a run or a tree that no one has used since
PIECE = 1 << 20
MOST_SENT = 60_000  # bytes in an answer; Ray puts 100 KB and more into its object store


class PlatformActor:
    """Serves one platform of a run; ``name`` is the actor's own, and that of its folder.

    Without a call for ``idle_s`` seconds, it ends its process, which must have nothing else to do.
    """

    def __init__(self, name: str, idle_s: float | None = None) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self._pool = cache / "infini-ci" / "pool"
        self._folder = self._pool / "runs" / name
        self._trees = self._pool / "trees"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._trees.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._forget_old()
        self._locks: dict[str, int] = {}
        self._hashes: dict[str, tuple[int, hashlib._Hash]] = {}
        self._service: subprocess.Popen[bytes] | None = None
        self._steps = os.open(os.devnull, os.O_WRONLY)  # the service's standard input
        self._step: str | None = None
        self._token = ""
        self._called = time.monotonic()
        if idle_s is not None:
            threading.Thread(target=self._end_when_idle, args=(idle_s,), daemon=True).start()

    def node(self) -> str:
        """Return the node of Ray that this actor is on."""
        import ray  # of the host

        self._called = time.monotonic()
        node: str = ray.get_runtime_context().get_node_id()
        return node

    def state(self) -> tuple[str | None, str]:
        """Return the last step that was started, and its token."""
        self._called = time.monotonic()
        return self._step, self._token

    # Trees: folders that are sent once to each host, named by the digest of their archive.

    def offer(self, digest: str) -> int:
        """Return how many bytes of a tree's archive are here, ``COMPLETE`` or ``BUSY``."""
        self._called = time.monotonic()
        tree, archive = self._trees / digest, self._trees / f"{digest}.tar"
        if tree.is_dir():
            os.utime(tree)
            return COMPLETE
        if digest not in self._locks:
            lock = os.open(self._trees / f"{digest}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return BUSY
            self._locks[digest] = lock
            if tree.is_dir():  # it was completed meanwhile
                self._unlock(digest)
                return COMPLETE
        archive.touch()
        size, known = 0, hashlib.sha256()
        with archive.open("rb") as file:
            while piece := file.read(PIECE):
                known.update(piece)
                size += len(piece)
        self._hashes[digest] = (size, known)
        return size

    def write(self, digest: str, offset: int, data: bytes) -> int:
        """Append to a tree's archive, and return its size; another offset changes nothing."""
        self._called = time.monotonic()
        size, known = self._hashes[digest]
        if offset == size:
            with (self._trees / f"{digest}.tar").open("ab") as file:
                file.write(data)
            known.update(data)
            size += len(data)
            self._hashes[digest] = (size, known)
        return size

    def complete(self, digest: str) -> bool:
        """Unpack a tree; return ``False``, and forget the archive, if it is damaged."""
        self._called = time.monotonic()
        archive, part = self._trees / f"{digest}.tar", self._trees / f"{digest}.part"
        try:
            if self._hashes.pop(digest)[1].hexdigest() != digest:
                return False
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            with tarfile.open(archive) as tar:
                # Checked above: these are the bytes of the caller, whose code runs here anyway.
                if hasattr(tarfile, "fully_trusted_filter"):  # Debian 12's 3.11 lacks it
                    tar.extractall(part, filter="fully_trusted")  # noqa: S202
                else:
                    tar.extractall(part)  # noqa: S202
            part.rename(self._trees / digest)
            return True
        finally:
            archive.unlink(missing_ok=True)
            self._unlock(digest)

    def _unlock(self, digest: str) -> None:
        os.close(self._locks.pop(digest))

    # Steps: requests to the program's service, one after the other.

    def receive(self, name: str, offset: int, data: bytes) -> None:
        """Write a part of a file of the run, which ends with it."""
        self._called = time.monotonic()
        self._folder.mkdir(exist_ok=True, mode=0o700)
        write_end(self._folder / name, offset, data)

    def start(self, step: str, token: str, program: str) -> None:
        """Start a step, whose request is here, with the program of that tree.

        A second call with the same token changes nothing. The events of the step are in the file
        that ``feed_name`` names.
        """
        self._called = time.monotonic()
        if token == self._token:
            return
        self._token = token
        (self._folder / f"{step}.answer").unlink(missing_ok=True)
        if self._service is None or self._service.poll() is not None:
            self._service = self._start_service(self._trees / program)
        self._step = step
        os.write(self._steps, f"{step} {token}\n".encode())

    def _start_service(self, program: Path) -> subprocess.Popen[bytes]:
        os.close(self._steps)
        theirs, self._steps = os.pipe()
        # An interrupt waits until the service can handle it: it inherits this mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
        try:
            with (self._folder / SERVICE_LOG).open("ab") as log, os.fdopen(theirs) as steps:
                return subprocess.Popen(
                    [sys.executable, "-m", SERVICE, str(self._folder), str(os.getpid())],
                    cwd=program,
                    env={**_own_variables(), "PYTHONPATH": str(program), "PYTHONSAFEPATH": "1"},
                    stdin=steps,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a signal to the actor's group is not for the stages
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _runs(self) -> bool:
        is_alive = self._service is not None and self._service.poll() is None
        return is_alive and not (self._folder / f"{self._step}.answer").exists()

    def interrupt(self) -> None:
        """Interrupt the running step, as Ctrl-C does."""
        self._called = time.monotonic()
        if self._service is not None and self._runs():
            self._service.send_signal(signal.SIGINT)

    def poll(self, offsets: dict[str, int]) -> tuple[dict[str, tuple[int, bytes]], bool]:
        """Return what files have beyond ``offsets``, and whether the step still runs.

        A file that was replaced by a shorter one begins at 0 again. Files without news are left
        out.
        """
        self._called = time.monotonic()
        running = self._runs()  # before the files are read: an ended step writes no more
        news, room = {}, MOST_SENT
        for name, offset in offsets.items():
            at, data = self._read(name, offset, room)
            if data or at != offset:
                news[name] = (at, data)
                room -= len(data)
        return news, running

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return the next bytes of a file of the run; empty at its end."""
        self._called = time.monotonic()
        return self._read(name, offset, size)[1]

    def _read(self, name: str, offset: int, room: int) -> tuple[int, bytes]:
        path = self._folder / name
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < offset:
                    offset = 0
                file.seek(offset)
                return offset, file.read(room)
        except OSError:
            return offset, b""

    def remove(self) -> None:
        """Remove the files of the run: it has ended, or a new attempt begins."""
        self._called = time.monotonic()
        self._end_service()
        shutil.rmtree(self._folder, ignore_errors=True)

    # The end.

    def leave(self) -> None:
        """End the actor; the files stay."""
        import ray

        self._end_service()
        ray.actor.exit_actor()

    def _end_service(self) -> None:
        if self._service is not None:
            self._service.kill()
            self._service.wait()

    def _end_when_idle(self, idle_s: float) -> None:
        """End this process if its caller has died, and give its place in the pool to others.

        A step that runs is never ended: like a container, it goes on without its caller.
        """
        while True:
            time.sleep(1.0)
            if not self._runs() and time.monotonic() - self._called > idle_s:
                self._end_service()
                os._exit(0)  # this thread cannot end the actor otherwise

    def _forget_old(self) -> None:
        for path in (*self._trees.iterdir(), *(self._pool / "runs").iterdir()):
            if path == self._folder or path.suffix == ".lock":  # another actor may hold the lock
                continue
            with suppress(FileNotFoundError):  # other actors rename and remove files, too
                if time.time() - path.stat().st_mtime <= OLD_S:
                    continue
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()


def write_end(path: Path, offset: int, data: bytes) -> None:
    """Write a part of a file, which ends with it."""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.seek(offset)
        file.write(data)
        file.truncate()


def feed_name(token: str) -> str:
    """Return the file with what the display gets of a step, an event per line."""
    return f"feed-{token}.jsonl"


def _own_variables() -> dict[str, str]:
    """Return the variables that the host was started with.

    Ray adds some to this process, such as one that hides all devices, and has a token in another.
    """
    words = Path("/proc/self/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    pairs = (word.partition("=") for word in words if "=" in word)
    return {name: value for name, _, value in pairs if not name.startswith("RAY_")}
