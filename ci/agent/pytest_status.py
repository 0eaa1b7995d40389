"""What pytest ends with inside of a wrapper, which may return any code.

A command such as ``sh -c 'pytest; clean-up'`` returns what its author likes. A small plugin of
pytest's reports pytest's own exit status. It is found through PYTHONPATH only: a wrapper that
cleans its environment has no plugin, rather than one that pytest cannot import.
"""

from __future__ import annotations

import os
import pkgutil
import re
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Sequence

PACKAGE = "infini_ci_status"
METADATA = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1\n"
ENTRY_POINTS = f"[pytest11]\n{PACKAGE} = {PACKAGE}\n"

INTERRUPTED = 2  # pytest's exit status
# What lies in the folder may be the work of the code under test.
MOST_STATUSES = 1000
LONGEST_STATUS = 16  # bytes
LARGEST_STATUS = 255


class PytestStatus:
    """The plugin in a folder of its own; without one, nothing is known."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def variables(self, python_path: str | None) -> dict[str, str]:
        """Return what a stage with this ``PYTHONPATH`` gets on top of its environment."""
        if self._folder is None:
            return {}
        return {"PYTHONPATH": os.pathsep.join(filter(None, [python_path, str(self._folder)]))}

    def found(self) -> dict[str, object]:
        """Return ``pytest_status``, pytest's exit status; nothing where it is not known.

        Of several pytests that wrote the log, one that failed counts, and then one without an
        end: what it would have found is in no log.
        """
        if self._folder is None:
            return {}
        try:
            with os.scandir(self._folder / "statuses") as entries:
                statuses = [_status(it.path) for _, it in zip(range(MOST_STATUSES), entries)]
        except OSError:
            return {}
        if statuses in ([], [None]):
            return {}
        failed = [status for status in statuses if status]
        return {"pytest_status": min(failed, default=INTERRUPTED if None in statuses else 0)}


def _status(path: str) -> int | None:
    """Read the exit status in a file; None for what is no such file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            text = os.read(file, LONGEST_STATUS)
        finally:
            os.close(file)
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) <= LARGEST_STATUS else None


@contextmanager
def status_of(stage: dict[str, Any], log: Path) -> Iterator[PytestStatus]:
    """Ask the pytests that write ``log`` for their status, where a stage wraps one."""
    folder: Path | None = None
    if stage["kind"] == "pytest" and not is_pytest(stage["command"]):  # its code is pytest's
        try:
            folder = Path(tempfile.mkdtemp(prefix="infini-ci-status-"))
            _write_package(folder, log)
        except OSError:  # no room: nothing is known, and the tests run all the same
            _remove(folder)
            folder = None
    try:
        yield PytestStatus(folder)
    finally:
        _remove(folder)


def is_pytest(command: Sequence[str]) -> bool:
    """Tell whether a command is pytest itself: ``pytest``, ``python -I -m pytest``."""
    program, arguments = Path(command[0]).name, iter(command[1:])
    if not re.match(r"python[0-9.]*$", program):
        return program in ("pytest", "py.test")
    for argument in arguments:
        if argument in ("-X", "-W"):
            next(arguments, None)
        elif argument == "-m":
            return next(arguments, None) == "pytest"
        elif not argument.startswith("-") or argument == "-c":
            return False
    return False


def _remove(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(str(folder), ignore_errors=True)  # the suite may have made it a link


def _write_package(folder: Path, log: Path) -> None:
    metadata = folder / f"{PACKAGE}-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(METADATA, encoding="utf-8")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    source = pkgutil.get_data(__package__ or "", "status_plugin.py")
    (folder / f"{PACKAGE}.py").write_bytes(source or b"")
    (folder / "report-log").write_text(str(log.resolve()), encoding="utf-8")
    (folder / "statuses").mkdir()
