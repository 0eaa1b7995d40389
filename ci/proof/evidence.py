"""The files of a run that statements name, with their digests."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from ci.errors import InfrastructureError
from ci.facts.result_files import ResultFiles
from ci.model.outcomes import TestOutcome
from ci.model.results import Distribution, PlatformResult, RunResult
from ci.plan.project import KEPT_CONTRACTS
from ci.protocol.agent_files import ENGINE_EVENTS, ENVIRONMENT, EVENTS, JUNIT, PYTEST_LOG
from ci.store.folder import RESULTS_FILE, read_results
from ci.util.files import LARGEST_COPY
from ci.util.text import os_reason

MOST_PARTS = 16  # of a path in a run's folder; ours have three
RECORDS = (EVENTS, ENGINE_EVENTS, PYTEST_LOG, JUNIT)  # of a platform: the verdict follows from them


@dataclass(frozen=True, kw_only=True)
class FileDigest:
    """A file, by its path relative to ``results.json``, and its content."""

    path: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class PlatformEvidence:
    """What the files of a platform prove."""

    result: PlatformResult
    records: Sequence[FileDigest]
    configuration: Sequence[FileDigest]
    tests: Sequence[TestOutcome]
    """Every test in the per-test log; empty without one."""
    has_log: bool
    distributions: Sequence[Distribution]
    """Those that were kept, each with a path."""


@dataclass(frozen=True, kw_only=True)
class RunEvidence:
    """What the files of a run prove."""

    run: RunResult
    results: FileDigest
    platforms: Sequence[PlatformEvidence]


@contextmanager
def open_inside(folder: Path, path: str) -> Iterator[BufferedReader]:
    """Open a regular file below a folder, through no link.

    Raises ``ValueError`` if the path leads out of the folder or the file is none, ``OSError`` if
    it cannot be read. A pipe does not block.
    """
    *parents, name = parts = path.split("/")
    if not 1 <= len(parts) <= MOST_PARTS or {"", ".", ".."} & {*parts} or "\0" in path:
        raise ValueError(f"got the path {path!r:.100}, expected one inside of the run's folder")
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for parent in parents:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            above, here = here, os.open(parent, flags, dir_fd=here)
            os.close(above)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.fdopen(os.open(name, flags, dir_fd=here), "rb")
    finally:
        os.close(here)
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("got something else than a regular file")
        yield file


def sha256_inside(folder: Path, path: str) -> str:
    """SHA-256 of a file below a folder; raises as ``open_inside``, and for a huge file."""
    with open_inside(folder, path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_COPY:
            raise ValueError(f"got {size:,} bytes, expected at most {LARGEST_COPY:,}")
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_evidence(folder: Path) -> RunEvidence:
    """Read the run in a folder and the digests of its files.

    Raises ``InfrastructureError`` if a file cannot be read, or was changed after the run.
    """
    results = _digest(folder, RESULTS_FILE)
    run = read_results(folder / RESULTS_FILE)
    platforms = tuple(_platform(folder, it) for it in run.platforms)
    return RunEvidence(run=run, results=results, platforms=platforms)


def _platform(folder: Path, result: PlatformResult) -> PlatformEvidence:
    name = result.platform
    if "/" in name or name.startswith("."):
        got = f"got the platform {name!r}, expected the name of a folder"
        raise InfrastructureError(f"{folder / RESULTS_FILE}: {got}")
    records = _existing(folder, [f"{name}/{it}" for it in RECORDS])
    configured = (f"{name}/{ENVIRONMENT}", f"{KEPT_CONTRACTS}/{name}.yaml")
    has_log = any(it.path == f"{name}/{PYTEST_LOG}" for it in records)
    log = ResultFiles(folder=folder / name).log if has_log else None
    return PlatformEvidence(
        result=result,
        records=records,
        configuration=_existing(folder, configured),
        tests=log.tests if log else (),
        has_log=log is not None,
        distributions=[it for it in result.distributions if _is_kept(folder, it)],
    )


def _existing(folder: Path, paths: Collection[str]) -> list[FileDigest]:
    return [_digest(folder, it) for it in paths if os.path.lexists(folder / it)]


def _is_kept(folder: Path, distribution: Distribution) -> bool:
    """Whether the file is in the results; raises if it is another one than the run recorded."""
    if distribution.path is None:
        return False
    found = _digest(folder, distribution.path).sha256
    if found != distribution.sha256:
        message = f"got SHA-256 {found}, expected {distribution.sha256} as in {RESULTS_FILE}"
        remedy = "The file was changed after the run. Run the platform again."
        raise InfrastructureError(f"{folder / distribution.path}: {message}", remedy=remedy)
    return True


def _digest(folder: Path, path: str) -> FileDigest:
    try:
        return FileDigest(path=path, sha256=sha256_inside(folder, path))
    except OSError as error:
        raise InfrastructureError(f"{folder / path}: {os_reason(error)}") from error
    except ValueError as error:
        raise InfrastructureError(f"{folder / path}: {error}") from error
