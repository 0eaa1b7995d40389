"""Folders of results: ``results/<run id>`` and what is in it."""

from __future__ import annotations

import os
import stat
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout
from pydantic import AwareDatetime, BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ci.engines.workfolder import STATE, WorkFolder
from ci.errors import InfrastructureError, UsageError
from ci.model.results import SCHEMA_VERSION, RunResult
from ci.plan.request import REQUEST_FILE
from ci.util.text import first_names

if TYPE_CHECKING:
    pass


LATEST = "latest"  # names the newest run, as it does beside the results
LARGEST_RESULTS = 1 << 27  # bytes; a run of seven platforms has 100,000


def read_results(path: Path) -> RunResult:
    """Read a ``results.json``."""
    try:
        if (size := path.stat().st_size) > LARGEST_RESULTS:
            message = f"{path}: got {size:,} bytes, expected at most {LARGEST_RESULTS:,}"
            raise InfrastructureError(message)
        return RunResult.model_validate_json(path.read_bytes())  # its reader has bounds too
    except OSError as error:
        raise InfrastructureError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        faults = first_names([_fault(each) for each in error.errors()], 3)
        message = f"{path}: not a results file up to version {SCHEMA_VERSION}: {faults}"
        raise InfrastructureError(message) from error


def _fault(fault: ErrorDetails) -> str:
    """``platforms.0.total_s: Input should be a finite number, got inf``."""
    place = ".".join(map(str, fault["loc"]))
    got = fault["input"]
    shown = f", got {got!r}" if isinstance(got, int | float | None) else ""
    return f"{place}: {fault['msg']}{shown}" if place else fault["msg"]


LOCK_FILE = ".lock"


def make_folder(folder: Path, option: str = "--results") -> None:
    """Make a folder that the command line names."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{option}: {folder}: there is a file in the way") from None


def only_caller(folder: Path) -> AbstractContextManager[object]:
    """A second caller would take the first one's container away. The kernel unlocks."""
    try:
        return FileLock(folder / LOCK_FILE).acquire(timeout=0)
    except Timeout:
        message = f"run {folder.name} is still going on"
        raise UsageError(message, remedy="Wait for it, or interrupt it where it runs.") from None


def link_latest(folder: Path) -> None:
    """Point ``results/latest`` to ``folder``, at once."""
    temporary = folder.parent / f".latest-{folder.name}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(folder.name)
    temporary.replace(folder.parent / "latest")


class _Request(BaseModel):
    """What every version of this program has written into a run's request."""

    project: str
    platforms: tuple[str, ...]
    started_at: AwareDatetime


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """The results of one run, finished or not."""

    path: Path
    project: str
    platforms: tuple[str, ...]
    used: datetime
    going_on: bool

    @property
    def run_id(self) -> str:
        return self.path.name


def run_folders(results: Path) -> tuple[RunFolder, ...]:
    """Every folder in ``results`` that says which run it is of."""
    requests = sorted(results.glob(f"*/{REQUEST_FILE}"))
    found = (_run_folder(path) for path in requests if not path.parent.is_symlink())
    return tuple(run for run in found if run is not None)


def is_going_on(folder: Path) -> bool:
    """Tell whether a caller or an agent, which can outlive its caller, is at work on a run."""
    locks = (folder / LOCK_FILE, *folder.glob(f"*/{STATE}"))
    return any(_held(lock) for lock in locks if is_regular(lock))


def is_regular(path: Path) -> bool:
    """Whether it is a file that can be read: no link to one, no pipe that blocks its reader."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def size_of(folder: Path) -> int:
    """Bytes of the files below ``folder``, as far as they can be seen."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # it has just gone
                total += (Path(parent) / name).lstat().st_size
    return total


def _run_folder(request: Path) -> RunFolder | None:
    path = request.parent
    try:
        asked = _Request.model_validate_json(request.read_bytes())
        return RunFolder(
            path=path,
            project=asked.project,
            platforms=asked.platforms,
            used=max([asked.started_at, *map(_changed, path.glob("results.json"))]),
            going_on=is_going_on(path),
        )
    except (OSError, ValidationError):  # of another user, or not written by this program
        return None


def _held(lock: Path) -> bool:
    """Both kinds of lock are the kernel's; to look at one takes no right to write."""
    return WorkFolder(path=lock.parent, state=lock).alive()


def _names(link: Path, folder: Path) -> bool:
    return link.is_symlink() and link.resolve() == folder.resolve()


def _changed(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _commands() -> list[str]:
    """The command lines of this machine's processes, as far as they can be seen."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            found.append(os.fsdecode(path.read_bytes()))
    return found
