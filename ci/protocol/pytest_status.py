"""pytest's exit status: which command has it, and how those of several processes are combined."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterable, Sequence

TESTS_FAILED, NO_TESTS = 1, 5
# The usual exit statuses of a pytest process, the best first: of several processes that share a
# suite, one for which no test was left says nothing. All other statuses are worse.
USUAL = (NO_TESTS, 0, TESTS_FAILED)


def severity(status: int) -> tuple[bool, int]:
    """Return the place of an exit status among those of processes that share a suite."""
    return (False, USUAL.index(status)) if status in USUAL else (True, status)


def worst_status(statuses: Iterable[int]) -> int:
    """Return the exit status that counts for pytest processes that share a suite."""
    return max(statuses, key=severity)


def is_pytest(command: Sequence[str]) -> bool:
    """Return whether a command is pytest itself: ``pytest``, ``python -I -m pytest``."""
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
