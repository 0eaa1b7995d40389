"""Folders of results that were made elsewhere: what is found in them, and whether to trust it.

Nothing in such a folder is followed or believed before it was looked at: a link could lead to any
file of this machine, and a name in ``results.json`` becomes a path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ci.engines.workfolder import STATE
from ci.errors import UsageError
from ci.gc.folders import is_going_on, is_regular
from ci.platforms import PLATFORMS
from ci.records import LOCK_FILE
from ci.request import RUN_ID
from ci.results import RunResult, read_results

RESULTS = "results.json"
NOT_COPIED = (LOCK_FILE, STATE)  # they speak of processes of the machine that made them


def runs_in(folder: Path) -> list[Path]:
    """The folders of runs: ``folder`` itself, or those below it. Links are not followed."""
    if not folder.is_dir():
        message = f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}"
        raise UsageError(message, remedy="Name a folder; unpack an archive first.")
    if found := list(_runs_in(folder)):
        return found
    message = f"{folder}: no {RESULTS} in it or below, expected the results of a run"
    raise UsageError(message, remedy="Name a folder results/<run id>, or one that holds several.")


def _runs_in(folder: Path) -> Iterator[Path]:
    for parent, folders, _ in os.walk(folder):
        # One without results was not copied as a whole: it is told, not passed over.
        if is_regular(Path(parent) / RESULTS) or RUN_ID.fullmatch(Path(parent).name):
            yield Path(parent)
            folders.clear()
        else:
            folders[:] = sorted(name for name in folders if not name.startswith("."))


def read_run(folder: Path) -> RunResult:
    """The results of a run that has come to rest, and whose names can be paths of this machine."""
    if is_going_on(folder):
        message = f"{folder}: its run is still going on"
        raise UsageError(message, remedy="Wait for its end, and import it again.")
    if not is_regular(folder / RESULTS):
        message = f"{folder}: no {RESULTS} in it, which every run has from its beginning"
        raise UsageError(message, remedy="Copy the folder once more, as a whole.")
    run = read_results(folder / RESULTS)
    if faults := list(_faults(run)):
        raise UsageError(f"{folder / RESULTS}: " + "; ".join(faults))
    return run


def _faults(run: RunResult) -> Iterator[str]:
    if not RUN_ID.fullmatch(run.run_id):
        expected = "such as 20260101T120000Z-0123abcd-00ff"
        yield f"run_id: got {run.run_id!r}, expected one {expected}"
    names = [result.platform for result in run.platforms]
    for name in dict.fromkeys(names):
        if name not in PLATFORMS:
            yield f"platforms: got {name!r}, expected some of {', '.join(PLATFORMS)}"
        elif names.count(name) > 1:
            yield f"platforms: {name} is there {names.count(name)} times"
    if run.started_at.tzinfo is None or run.finished_at.tzinfo is None:
        yield "started_at, finished_at: expected times with a zone"


def copy_files(folder: Path, target: Path) -> int:
    """Copy the regular files and folders; return how many other things were left out."""
    left_out = 0
    for parent, folders, names in os.walk(folder):
        copy = target / Path(parent).relative_to(folder)
        copy.mkdir(parents=True, exist_ok=True)
        left_out += sum((Path(parent) / name).is_symlink() for name in folders)
        for name in names:
            if not is_regular(Path(parent) / name):
                left_out += 1
            elif name not in NOT_COPIED:
                shutil.copyfile(Path(parent) / name, copy / name)
    return left_out
