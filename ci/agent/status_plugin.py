"""A pytest plugin: write pytest's exit status, for a stage that runs pytest in a wrapper.

It is copied out of the agent's archive. Every pytest process of the stage imports it, but it acts
only in those that write the run's own per-test log, which the file ``report-log`` beside it names.
Each such process has its own file in ``statuses``: created empty at the start, then filled with the
exit status. So no process hides the exit status of another.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Generator

import pytest

FOLDER = Path(__file__).resolve().parent
STATUS = FOLDER / "statuses" / f"{os.getpid()}-{time.time_ns()}"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> None:
    """Create the file, before any file of the suite is imported and may end the process."""
    if _is_ours(early_config.known_args_namespace):
        with suppress(OSError):
            STATUS.touch()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_cmdline_main(config: Any) -> Generator[None, Any, None]:
    """Write the exit code of the whole pytest process, unless it raises.

    The last record of the log is older: hooks may change the exit status after it.
    """
    outcome = yield
    if outcome.excinfo is None and _is_ours(config.option):
        with suppress(OSError):  # lost evidence is no reason to fail
            STATUS.write_text(str(int(outcome.get_result() or 0)), encoding="utf-8")


def _is_ours(options: Any) -> bool:
    """Return whether this is the run's own pytest, in a child of the stage's main process."""
    log = getattr(options, "report_log", None)  # missing without pytest-reportlog
    if log is None or os.getpid() == os.getsid(0):  # the stage's own: its exit code is pytest's
        return False
    try:
        # Workers of pytest-xdist have the same options. They set this variable when they run, so
        # only processes that tests start have it from their beginning.
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
        if run.encode() not in Path("/proc/self/environ").read_bytes():
            return False
        return (FOLDER / "report-log").read_text(encoding="utf-8") == str(Path(log).resolve())
    except OSError:
        return False
