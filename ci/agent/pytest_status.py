"""What pytest ends with inside of a wrapper, which may return another code.

A command such as ``sh -c 'pytest; clean-up'`` returns what its author likes. A small plugin of
pytest's reports pytest's own exit status. It comes as a package on ``PYTHONPATH``, and by that
alone: a wrapper that cleans its environment has no plugin, rather than one that pytest cannot
import.
"""

from __future__ import annotations

import os
import pkgutil
import re
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Iterator, Sequence

PACKAGE = "infini_ci_status"
METADATA = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1\n"
ENTRY_POINTS = f"[pytest11]\n{PACKAGE} = {PACKAGE}\n"


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
        """Return ``pytest_status``, pytest's exit status; nothing where it is not known."""
        try:
            text = (self._folder / "status").read_text(encoding="utf-8") if self._folder else ""
            return {"pytest_status": int(text)}
        except (OSError, ValueError):
            return {}


@contextmanager
def status_of(stage: dict[str, Any], log: Path) -> Iterator[PytestStatus]:
    """Ask the pytest that writes ``log`` for its status, where a stage wraps one."""
    with ExitStack() as stack:
        if stage["kind"] != "pytest" or is_pytest(stage["command"]):  # its code is pytest's
            yield PytestStatus()
            return
        try:
            made = tempfile.TemporaryDirectory(prefix="infini-ci-status-")
            folder = Path(stack.enter_context(made))
            _write_package(folder, log)
        except OSError:  # no room: nothing is known, and the tests run all the same
            yield PytestStatus()
        else:
            yield PytestStatus(folder)


def _write_package(folder: Path, log: Path) -> None:
    metadata = folder / f"{PACKAGE}-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(METADATA, encoding="utf-8")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    source = pkgutil.get_data(__package__ or "", "status_plugin.py")
    (folder / f"{PACKAGE}.py").write_bytes(source or b"")
    (folder / "report-log").write_text(str(log.resolve()), encoding="utf-8")


def is_pytest(command: Sequence[str]) -> bool:
    """Tell whether a command is pytest itself: ``pytest``, ``python -m pytest``."""
    name = Path(command[0]).name
    if re.match(r"python[0-9.]*$", name):
        return ("-m", "pytest") in zip(command, command[1:])
    return name in ("pytest", "py.test")
