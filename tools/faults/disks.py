"""Disks that are full: small file systems, mounted for one run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ci.facts.sentences import on_stages, on_tests
from ci.model.verdicts import Harness, Product
from tools.faults.model import NOT_STARTED, PASSES, REFUSED, SLOW, Fault, Left
from tools.faults.running import FaultRun

KIND = "Full disks"
ENOUGH = 1 << 30  # a run begins only with 500 MB of free space for its results
LITTLE = 1 << 20
LOUD = {
    "test_it.py": "import time\ndef test_a():\n    print('begun'); time.sleep(2)\n"
    "    for _ in range(4000): print('x' * 1000)\n"
}
FULL_HERE = "the disk of this machine is full: the run on the Docker Engine at … failed: …"


@contextmanager
def limited(folder: Path, size: int) -> Iterator[None]:
    """Mount a file system of ``size`` bytes at a folder; skip if this machine does not let us.

    The disk is a sparse file, so its size is taken from no memory and no disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    disk = folder.with_name(f"{folder.name}.disk")
    with disk.open("wb") as file:
        file.truncate(size)
    for command in (
        ["mkfs.ext4", "-q", "-m", "0", str(disk)],
        ["mount", "-o", "loop", str(disk), str(folder)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            disk.unlink()
            pytest.skip(f"no disk of limited size: {done.stderr.strip()}")
    (folder / "lost+found").rmdir()
    try:
        yield
    finally:
        # A process that has just been killed may still hold a file.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        disk.unlink()


def fill(folder: Path) -> None:
    """Take all of a disk's free space."""
    with (folder / "filler").open("wb") as file, suppress(OSError):
        free = os.statvfs(folder)
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
    with (folder / "rest").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def empty(folder: Path) -> None:
    """Give back what ``fill`` took."""
    for name in ("filler", "rest"):
        (folder / name).unlink()


def on_disk(
    name: str, size: int, *, full: bool = False
) -> Callable[[FaultRun], AbstractContextManager[object]]:
    """Return what puts a folder of the run on a disk of its own; ``full``: without any space."""

    @contextmanager
    def around(run: FaultRun) -> Iterator[Path]:
        with limited(run.folder / name, size):
            if full:
                fill(run.folder / name)
            yield run.folder / name

    return around


def fill_it(run: FaultRun, platform: str) -> None:
    run.wait_for(platform)
    fill(run.setting)


def make_room(run: FaultRun) -> None:
    empty(run.setting)


def make_room_and_import(run: FaultRun) -> None:
    empty(run.setting)
    run.wait(run.start("import", str(run.results)))


@contextmanager
def small_temporary(run: FaultRun) -> Iterator[None]:
    """Offer less space for temporary files than the sources need."""
    (run.project / "large").write_bytes(os.urandom(4 * LITTLE))
    with limited(run.temporary, LITTLE):
        yield


FAULTS = (
    replace(
        PASSES,
        name="the disk of the results is full while the tests run; `--resume` after making room",
        kind=KIND,
        files=LOUD,
        around=on_disk("results", ENOUGH),
        act=fill_it,
        then=make_room,
        shown=("pytest.log cannot be written while the stage runs: No space left on device",),
        exits=(3, 0),
        left=Left.CONTAINER,
    ),
    replace(
        REFUSED,
        name="the disk of the results is full before the run",
        kind=KIND,
        around=on_disk("results", ENOUGH, full=True),
        shown=("results: … cannot be written to: No space left on device; expected …",),
    ),
    replace(
        REFUSED,
        name="the disk of the results is too small",
        kind=KIND,
        around=on_disk("results", 8 * LITTLE),
        shown=("results: … MB free; expected at least 500 MB. …",),
    ),
    replace(
        REFUSED,
        name="the disk of the store is full before the run",
        kind=KIND,
        environment={"INFINI_CI_DB": "sqlite:///{run}/store/ci.db"},
        around=on_disk("store", LITTLE, full=True),
        shown=("the store … cannot be opened: …full\nMake room there, …",),
    ),
    replace(
        PASSES,
        name="the disk of the store is full while the tests run; `import` after making room",
        kind=KIND,
        files=SLOW,
        environment={"INFINI_CI_DB": "sqlite:///{run}/store/ci.db"},
        around=on_disk("store", LITTLE),
        act=fill_it,
        then=make_room_and_import,
        shown=("the store cannot save run …: database or disk is full",),
        exits=(3, 0),
    ),
    replace(
        NOT_STARTED,
        name="the disk of the temporary files has no room for the sources",
        kind=KIND,
        around=small_temporary,
        evidence=(on_stages.platform_failed(FULL_HERE),),
    ),
    Fault(
        name="the shared memory of the container is full",
        kind=KIND,
        files={"test_it.py": "def test_a(): open('/dev/shm/x', 'wb').write(bytes(1 << 27))\n"},
        product=Product.FAILED,
        harness=Harness.CLEAN,
        evidence=(on_tests.failed_tests(1, 0, 0, ["…/test_it.py::test_a"]),),
        exits=(1,),
        results="1 failed",
    ),
)
