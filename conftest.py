"""What all tests need: a Python that executes assertions, and a Ctrl-C that works.

This file is not in ``tests`` because pytest would then put ``tests`` on the path, where torch finds
``tests/triton`` in place of the package.
"""

from __future__ import annotations

import signal
import sys

import pytest


def pytest_configure() -> None:
    """Restore Ctrl-C, which shells ignore for background jobs."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main() -> None:
    """Stop the run if Python executes no assertions; pytest itself only warns."""
    if not __debug__:
        raise pytest.UsageError(
            "Python executes no assertions: got PYTHONOPTIMIZE or -O (level "
            f"{sys.flags.optimize}), expected neither. "
            f"Run: env -u PYTHONOPTIMIZE {sys.executable} -m pytest"
        )
