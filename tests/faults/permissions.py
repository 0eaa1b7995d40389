"""Files and folders that must not be written or read."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from ci.model.results import Harness, Product
from ci.store.folder import default_url
from ci.store.store import Store
from tests.faults.model import Fault
from tests.faults.running import FaultRun

KIND = "Missing permissions"
GREEN = {"test_it.py": "def test_a(): pass\n"}
PASSED = "pytest ended with status 0: 1 passed, 0 skipped"
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


def passes(name: str, around: Around | None, **more: object) -> Fault:
    """Return a fault that does not matter to a run."""
    return Fault(
        name=name,
        kind=KIND,
        files=GREEN,
        prefix=ORDINARY,
        around=around,
        product=Product.PASSED,
        harness=Harness.CLEAN,
        evidence=(PASSED,),
        exits=(0,),
        results="1 passed",
        **more,  # type: ignore[arg-type]
    )


def refuses(name: str, around: Around, shown: str, code: int = 3, **more: object) -> Fault:
    """Return a fault with which a run cannot begin."""
    return Fault(
        name=name,
        kind=KIND,
        files=GREEN,
        prefix=ORDINARY,
        around=around,
        product=None,
        harness=None,
        shown=(shown,),
        exits=(code,),
        kept=(),
        **more,  # type: ignore[arg-type]
    )


FAULTS = (
    refuses(
        "the folder of results is read-only",
        without(READ_ONLY, lambda run: run.results),
        "results: … cannot be written to: Permission denied; expected a writable folder …",
    ),
    Fault(
        name="the store is read-only; `import` once it can be written",
        kind=KIND,
        files=GREEN,
        prefix=ORDINARY,
        around=without(0o400, store_file),
        then=make_writable_and_import,
        product=Product.PASSED,
        harness=Harness.CLEAN,
        evidence=(PASSED,),
        shown=("the store cannot save run …: attempt to write a readonly database\n…import …",),
        exits=(3, 0),
        results="1 passed",
    ),
    passes("the sources are read-only", without(READ_ONLY, lambda run: run.project)),
    refuses(
        "a file of the sources must not be read",
        without(NONE, lambda run: run.project / "cpu" / "test_it.py"),
        "…/test_it.py: this file of the sources cannot be read: Permission denied\n…",
    ),
    refuses(
        "the configuration must not be read",
        without(NONE, lambda run: run.project / "ci.yaml"),
        "…/ci.yaml: cannot be read: …",
        code=2,
    ),
    passes(
        "the folder of temporary files is read-only",
        without(READ_ONLY, lambda run: run.temporary),
    ),
    passes(
        "the home folder is read-only",
        without(READ_ONLY, lambda run: run.folder / "home"),
        environment={"HOME": "{run}/home"},
    ),
    passes(
        "there is no home folder",
        around=None,
        environment={"HOME": "{run}/nowhere"},
    ),
    refuses(
        "the engine's socket belongs to others",
        closed_socket,
        "no Docker Engine answers at …: [Errno 13] Permission denied: …\n"
        "join the group that owns the engine's socket (docker), or use --engine host",
        environment={"DOCKER_HOST": "unix://{run}/engine.sock"},
    ),
)
