"""What all tests need: a Python that executes assertions, and a Ctrl-C that works.

Here and not in ``tests``, which pytest would then put on the path: with ``tests/triton`` for the
package of that name, which torch looks for.
"""

from __future__ import annotations

import signal
import sys

import pytest


def pytest_configure() -> None:
    """Has Ctrl-C end what it should: a shell's background jobs are started to ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main() -> None:
    """Stops a run whose helpers would assert nothing; pytest itself only warns."""
    if not __debug__:
        raise pytest.UsageError(
            "Python executes no assertions: got PYTHONOPTIMIZE or -O (level "
            f"{sys.flags.optimize}), expected neither. "
            f"Run: env -u PYTHONOPTIMIZE {sys.executable} -m pytest"
        )
