"""A pytest plugin: record each run of pytest in a stage that calls it in a wrapper.

It is copied out of the agent's archive. Every pytest process of the stage imports it. Each run has
its own file in ``statuses``: created empty at the start, then filled with the exit status. So no
run hides another. The ending of its name is ``.log`` if the run writes the per-test log that the
file ``report-log`` beside this one names, ``.own`` if its process is the stage's own, and
``.other``. A pytest that another one started, as tests of plugins do, is not a run, nor is one that
only prints what it collects.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Generator

import pytest

FOLDER = Path(__file__).resolve().parent
STATUSES = FOLDER / "statuses"
# Options of pytest with which it runs no test, under the names that pytest gives them.
PRINTING = ("version", "help", "markers", "showfixtures", "show_fixtures_per_test", "collectonly")


class _Runs:
    """The runs of this process: a script may call ``pytest.main`` several times."""

    count = 0
    file: Path | None = None
    """That of the run which has begun, until its tests do."""
    depth = 0
    """Number of calls of ``pytest.main`` whose tests run."""


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> None:
    """Create the file, before any file of the suite is imported and may end the process."""
    options = early_config.known_args_namespace
    if _Runs.depth or any(getattr(options, name, None) for name in PRINTING):
        return
    with suppress(OSError):
        process, parent = _process(os.getpid())
        if not _runs_pytest(parent):
            # A process that replaces itself, as `exec` does, continues its run.
            name = f"{process}-{_Runs.count}.{_kind(options)}"
            _Runs.file, _Runs.count = STATUSES / name, _Runs.count + 1
            _Runs.file.touch()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_cmdline_main() -> Generator[None, Any, None]:
    """Write the exit code of the whole pytest process, unless it raises.

    The last record of the log is older: hooks may change the exit status after it.
    """
    file, _Runs.file = _Runs.file, None
    _Runs.depth += 1
    outcome = yield
    _Runs.depth -= 1
    if outcome.excinfo is None and file is not None:
        with suppress(OSError):  # lost evidence is no reason to fail
            file.write_text(str(int(outcome.get_result() or 0)), encoding="utf-8")


def _process(number: int) -> tuple[str, int]:
    """Return a name that no other process has, before or after, and the number of the parent."""
    fields = Path(f"/proc/{number}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return f"{number}-{fields[19]}", int(fields[1])  # with the time of its start


def _runs_pytest(number: int) -> bool:
    """Return whether a run of pytest is in progress in a process or in one that started it."""
    running = {it.name.rpartition("-")[0] for it in STATUSES.iterdir() if not it.stat().st_size}
    with suppress(OSError):  # the first process has no parent, and others may be hidden
        while running:
            process, number = _process(number)
            if process in running:
                return True
    return False


def _kind(options: Any) -> str:
    if os.getpid() == os.getsid(0):
        return "own"
    log = getattr(options, "report_log", None)  # missing without pytest-reportlog
    ours = (FOLDER / "report-log").read_text(encoding="utf-8")
    return "log" if log is not None and str(Path(log).resolve()) == ours else "other"
