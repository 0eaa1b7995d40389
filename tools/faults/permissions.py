"""Files and folders that must not be written or read."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from ci.store.folder import default_url
from ci.store.store import Store
from tools.faults.model import PASSES, REFUSED
from tools.faults.running import FaultRun

KIND = "Missing permissions"
# Root without these capabilities needs a file's permissions, as any other user does.
ORDINARY = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
READ_ONLY, NONE = 0o500, 0
Around = Callable[[FaultRun], AbstractContextManager[object]]


def without(permissions: int, place: Callable[[FaultRun], Path]) -> Around:
    """Return what takes permissions of a file or folder away for the time of a run."""

    @contextmanager
    def around(run: FaultRun) -> Iterator[Path]:
        path = place(run)
        if not path.exists():
            path.mkdir()
        before = path.stat().st_mode
        path.chmod(permissions)
        yield path
        path.chmod(before)

    return around


def store_file(run: FaultRun) -> Path:
    """Make an empty store, and return its file."""
    run.results.mkdir()
    Store(default_url(run.results)).close()
    return run.results / "ci.db"


def make_writable_and_import(run: FaultRun) -> None:
    run.setting.chmod(0o600)
    run.wait(run.start("import", str(run.results)))


@contextmanager
def closed_socket(run: FaultRun) -> Iterator[None]:
    """Listen at a socket that no one may connect to."""
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(run.folder / "engine.sock"))
        line.listen()
        (run.folder / "engine.sock").chmod(NONE)
        yield


UNNOTICED = replace(PASSES, kind=KIND, prefix=ORDINARY)
UNUSABLE = replace(REFUSED, kind=KIND, prefix=ORDINARY)
FAULTS = (
    replace(
        UNUSABLE,
        name="the folder of results is read-only",
        around=without(READ_ONLY, lambda run: run.results),
        shown=("results: … cannot be written to: Permission denied; expected a writable folder …",),
    ),
    replace(
        UNNOTICED,
        name="the store is read-only; `import` once it can be written",
        around=without(0o400, store_file),
        then=make_writable_and_import,
        shown=("the store cannot save run …: attempt to write a readonly database\n…import …",),
        exits=(3, 0),
    ),
    replace(
        UNNOTICED,
        name="the sources are read-only",
        around=without(READ_ONLY, lambda run: run.project),
    ),
    replace(
        UNUSABLE,
        name="a file of the sources must not be read",
        around=without(NONE, lambda run: run.project / "cpu" / "test_it.py"),
        shown=("…/test_it.py: this file of the sources cannot be read: Permission denied\n…",),
    ),
    replace(
        UNUSABLE,
        name="the configuration must not be read",
        around=without(NONE, lambda run: run.project / "ci.yaml"),
        shown=("…/ci.yaml: cannot be read: …",),
        exits=(2,),
    ),
    replace(
        UNNOTICED,
        name="the folder of temporary files is read-only",
        around=without(READ_ONLY, lambda run: run.temporary),
    ),
    replace(
        UNNOTICED,
        name="the home folder is read-only",
        around=without(READ_ONLY, lambda run: run.folder / "home"),
        environment={"HOME": "{run}/home"},
    ),
    replace(
        UNNOTICED,
        name="there is no home folder",
        around=None,
        environment={"HOME": "{run}/nowhere"},
    ),
    replace(
        UNUSABLE,
        name="the engine's socket belongs to others",
        around=closed_socket,
        shown=(
            "no Docker Engine answers at …: [Errno 13] Permission denied: …\n"
            "join the group that owns the engine's socket (docker), or use --engine host",
        ),
        environment={"DOCKER_HOST": "unix://{run}/engine.sock"},
    ),
)
