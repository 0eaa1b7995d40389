"""A plugin of pytest's: writes what pytest ended with, for a stage that wraps pytest.

It is copied out of the agent's archive and imported by every pytest of the stage, and acts in
those that write the run's own per-test log. It lies beside ``report-log``, which names that
log. Each such pytest has a file of its own in ``statuses``: empty from its start, and with its
exit status when it is known. So neither hides what another one ended with.
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
    """Called before any file of the suite is imported, which may end the process."""
    if _is_ours(early_config.known_args_namespace):
        with suppress(OSError):
            STATUS.touch()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_cmdline_main(config: Any) -> Generator[None, Any, None]:
    """Called around all that pytest does; its result is the exit code, unless it raises.

    The log's own last record is older: hooks may change the exit status after it.
    """
    outcome = yield
    if outcome.excinfo is None and _is_ours(config.option):
        with suppress(OSError):  # it is missed as evidence, never a reason to fail
            STATUS.write_text(str(int(outcome.get_result() or 0)), encoding="utf-8")


def _is_ours(options: Any) -> bool:
    """Tell whether this is the run's own pytest, in a process below the stage's main one."""
    log = getattr(options, "report_log", None)  # not there without pytest-reportlog
    if log is None or os.getpid() == os.getsid(0):  # the stage's own: its exit code is pytest's
        return False
    try:
        # pytest-xdist names the run to its workers, which have the same options, when they run;
        # what tests start inherits that.
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
        if run.encode() not in Path("/proc/self/environ").read_bytes():
            return False
        return (FOLDER / "report-log").read_text(encoding="utf-8") == str(Path(log).resolve())
    except OSError:
        return False
