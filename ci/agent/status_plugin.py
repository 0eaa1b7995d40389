"""A plugin of pytest's: writes what pytest ended with, for a stage that wraps pytest.

It is copied out of the agent's archive and imported by every pytest of the stage, and acts in
the one that writes the run's own per-test log. It lies beside two files: ``report-log`` names
that log, and ``status`` is what it writes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Generator

import pytest

FOLDER = Path(__file__).resolve().parent
STATUS = FOLDER / "status"

# Of a pytest that the same stage ran before. This one may leave before any hook is called.
with suppress(OSError):
    STATUS.unlink()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_cmdline_main(config: Any) -> Generator[None, Any, None]:
    """Called around all that pytest does; its result is the exit code, unless it raises.

    The log's own last record is older: hooks may change the exit status after it.
    """
    outcome = yield
    if outcome.excinfo is None and _is_ours(config):
        with suppress(OSError):  # it is missed as evidence, never a reason to fail
            STATUS.write_text(str(int(outcome.get_result() or 0)), encoding="utf-8")


def _is_ours(config: Any) -> bool:
    """Tell whether this is the run's own pytest, in a process below the stage's main one."""
    log = getattr(config.option, "report_log", None)  # not there without pytest-reportlog
    if log is None or hasattr(config, "workerinput"):  # of pytest-xdist, with the same options
        return False
    if os.getpid() == os.getsid(0):  # the main one: its exit code is pytest's own, and known
        return False
    try:
        return (FOLDER / "report-log").read_text(encoding="utf-8") == str(Path(log).resolve())
    except OSError:
        return False
