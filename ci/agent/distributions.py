"""The wheels and source distributions of a run: named in commands, and copied into the results.

The code under test makes them: their folder may hold anything, as in ``ci.agent.artifacts``.
"""

from __future__ import annotations

import os
import re
import zipfile
from contextlib import nullcontext, suppress
from dataclasses import replace
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Callable, ContextManager, Iterator

from ci.agent.artifacts import open_regular, remove_results
from ci.protocol.distributions import (
    KEPT,
    MOST_DISTRIBUTIONS,
    SDIST,
    WHEEL,
    WHEEL_SUFFIX,
    is_distribution,
)
from ci.protocol.events import ArtifactCut, ArtifactMissing, Event, SourcesRemoved
from ci.protocol.job import DistributionJob, StagePlan
from ci.util.files import copy_file, open_for_replacement

MOST_MEMBERS = 100_000  # of a wheel; that of torch has 20,000
MOST_ENTRIES = 1000  # of the folder
SOURCE_ROOTS = ("", "src", "lib", "python")  # where projects keep what they package
MODULE_SUFFIXES = (".py", *EXTENSION_SUFFIXES)
# Tests that a wheel contains are still to run.
_TEST = re.compile(r"(.*/)?(tests?/.*|test_[^/]*\.py|[^/]*_test\.py|conftest\.py)")


class Distributions:
    """The distributions of one run; does nothing without a job.

    With ``access`` the workspace is read and changed with the rights of the stages.
    """

    def __init__(
        self,
        job: DistributionJob | None,
        workspace: Path,
        results: Path,
        access: Callable[[], ContextManager[None]] = nullcontext,
    ) -> None:
        self._job = job
        self._workspace, self._results, self._access = workspace, results, access
        self._given = [Path(it) for it in job.given] if job else []
        self._is_collected = False

    @property
    def are_given(self) -> bool:
        return bool(self._given)

    def begin(self) -> None:
        """Remove older files, such as those in the sources: they are not of this run."""
        if self._job is not None:
            remove_results(self._workspace / self._job.folder, self._access)

    def completed(self, stage: StagePlan) -> tuple[StagePlan, Event | None]:
        """Return a stage with the files in its command, and what was removed from the sources.

        A word is repeated for each of several files. Without a file it becomes their pattern, so
        that the command fails with a message that has it.
        """
        named = [it for it in (WHEEL, SDIST) if any(it in word for word in stage.command)]
        if self._job is None or not named:
            return stage, None
        wheels = [it for it in self._given if it.suffix == WHEEL_SUFFIX] or self._made_wheels()
        sdists = [it for it in self._given if it.suffix != WHEEL_SUFFIX]
        files = {WHEEL: wheels, SDIST: sdists}
        command = []
        for word in stage.command:
            name = next((it for it in files if it in word), "")
            paths = [*map(str, files[name])] or [f"{self._job.folder}/*"] if name else [""]
            command += [word.replace(name, path) if name else word for path in paths]
        removed = None
        if self._given and WHEEL in named:
            with self._access():
                removed = SourcesRemoved(stage.name, _remove_modules(wheels, self._workspace))
        return replace(stage, command=tuple(command)), removed

    def collect(self) -> Event | None:
        """Copy the files into the results, at the first call; return an event if some are missing.

        It is called before the tests, which may build and remove distributions themselves.
        """
        if self._is_collected or self._job is None:
            return None
        self._is_collected = True
        folder, shown = self._results / KEPT, self._job.folder
        with self._access():
            made, left_out = _entries(self._workspace / shown)
        found = [*self._given, *made]
        if not found and not left_out:
            return ArtifactMissing(name=KEPT, path=f"{shown}/*{WHEEL_SUFFIX}")
        remove_results(folder)  # a stage of the agent's own user may have put a link there
        try:
            folder.mkdir()
        except OSError:  # such as a full disk
            return ArtifactCut(name=KEPT, path=shown, left_out=left_out + len(found))
        for path in found:
            try:
                with open_for_replacement(folder / path.name) as file, self._open(path) as content:
                    copy_file(content, file)
            except OSError:  # it is too large, was replaced, or the disk is full
                left_out += 1
        return ArtifactCut(name=KEPT, path=shown, left_out=left_out) if left_out else None

    def _open(self, path: Path) -> BinaryIO:
        with self._access():
            return open_regular(path, os.O_NOFOLLOW)

    def _made_wheels(self) -> list[Path]:
        """Return the wheels that stages made, relative to the workspace."""
        folder = self._job.folder if self._job else ""
        with self._access():
            made, _ = _entries(self._workspace / folder)
        return [Path(folder, it.name) for it in made if it.suffix == WHEEL_SUFFIX]


def _entries(folder: Path) -> tuple[list[Path], int]:
    """Return the distributions in a folder, and the number of other things there."""
    found: list[Path] = []
    left_out = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, MOST_ENTRIES):
            is_one = is_distribution(entry.name) and entry.is_file(follow_symlinks=False)
            if is_one and len(found) < MOST_DISTRIBUTIONS // 2:  # the others may be given
                found.append(Path(entry.path))
            else:
                left_out += 1
    return sorted(found), left_out


def _remove_modules(wheels: list[Path], workspace: Path) -> int:
    """Remove what wheels contain from the sources, so that no test imports it from there.

    Data and tests stay. Returns the number of removed files.
    """
    removed = 0
    root = os.path.realpath(workspace)
    for name in {name for wheel in wheels for name in _modules(workspace / wheel)}:
        for above in SOURCE_ROOTS:
            path = workspace / above / name
            with suppress(OSError, ValueError):
                # No link of the sources leads out of them.
                if f"{os.path.realpath(path.parent)}/".startswith(f"{root}/"):
                    path.unlink()
                    removed += 1
    return removed


def _modules(wheel: Path) -> Iterator[str]:
    """Yield the modules of a wheel, as they are installed; none of an unreadable one."""
    with suppress(OSError, zipfile.BadZipFile, ValueError), zipfile.ZipFile(wheel) as archive:
        for name in islice(archive.namelist(), MOST_MEMBERS):
            parts = PurePosixPath(name).parts
            if parts and parts[0].endswith(".data"):  # its `purelib` and `platlib` are packages
                parts = parts[2:]
            plain = "/".join(parts)
            is_module = plain.endswith(MODULE_SUFFIXES) and ".." not in parts
            if is_module and not name.startswith("/") and not _TEST.fullmatch(plain):
                yield plain
