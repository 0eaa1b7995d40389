"""What all tests need: a Python that executes assertions, a Ctrl-C that works, CMake itself, and
temporary files of their own.

This file is not in ``tests`` because pytest would then put ``tests`` on the path, where torch finds
``tests/triton`` in place of the package. With this file, pytest puts the repository on the path:
tests import helpers by their full names, such as ``tests.ci.workplace``. Only those of
``tests/ops`` have bare names, since a vendor's image may have a package ``tests`` of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest


def pytest_configure() -> None:
    """Restore Ctrl-C, which shells ignore for background jobs, and call CMake without Python."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _find_cmake_itself()


def _find_cmake_itself() -> None:
    """Put the program before the Python script that starts it: 0.1 CPU-seconds in every run."""
    spec = find_spec("cmake")
    script = Path(sys.executable).with_name("cmake")
    if spec is None or spec.origin is None or shutil.which("cmake") != str(script):
        return  # another CMake comes first
    programs = Path(spec.origin).with_name("data") / "bin"
    if (programs / "cmake").exists():
        os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main() -> None:
    """Stop the run if Python executes no assertions; pytest itself only warns."""
    if not __debug__:
        raise pytest.UsageError(
            "Python executes no assertions: got PYTHONOPTIMIZE or -O (level "
            f"{sys.flags.optimize}), expected neither. "
            f"Run: env -u PYTHONOPTIMIZE {sys.executable} -m pytest"
        )


@pytest.fixture(scope="session", autouse=True)
def temporary_folder_of_inner_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let every pytest that a test starts keep its files inside of ours.

    In the user's folder, it would first remove what our last run has left: for over a minute.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DEBUG_TEMPROOT", str(tmp_path_factory.getbasetemp()))
        yield
