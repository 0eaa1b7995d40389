"""Pythons of this machine: which one has its vendor's torch, and what a named one is.

Standard library only: ``noxfile.py`` asks before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ci.util.files import RECIPES
from ci.util.lines import parse_object
from ci.util.process import ProcessError, TimeLimitError, inherited_environment, run
from ci.util.text import first_line

# The same program as in the recipe of images.
VENDOR_PACKAGES = RECIPES / "vendor_packages.py"
OLDEST = (3, 10)  # what the library and pip's newest versions support
LOOK_S = 60.0  # a Python starts in 0.02 s; on a cold network file system in seconds
IMPORT_S = (
    20.0  # torch is imported in 2 s, with cold files in 10; `doctor` waits 25 s for all checks
)
# Variables with which a Python finds other packages than its own; stages do not get them either.
PATH_VARIABLES = ("PYTHONPATH", "PYTHONHOME")
# Python 2 must understand it, to state its version.
_LOOK = """\
import json, sys, sysconfig
facts = {"version": list(sys.version_info[:3]), "include": sysconfig.get_path("include")}
print(json.dumps(facts))
"""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A Python: its program, its version and the folder of its headers."""

    path: str
    version: tuple[int, ...]
    include: str

    @property
    def release(self) -> str:
        return ".".join(map(str, self.version))

    def __str__(self) -> str:
        return f"Python {self.release} ({self.path})"


def own_interpreter() -> Interpreter:
    """Return the Python of this process."""
    return Interpreter(
        path=sys.executable, version=sys.version_info[:3], include=sysconfig.get_path("include")
    )


def locate(name: str) -> str:
    """Return the path of a Python that a user named, by a path or as a program on PATH."""
    if os.sep in name:
        return os.path.abspath(os.path.expanduser(name))  # noqa: PTH100, PTH111 - keeps links
    return shutil.which(name) or name


def read_interpreter(path: str) -> Interpreter | str:
    """Return what a Python is, or why the host engine cannot use it."""
    if path == sys.executable:
        return own_interpreter()
    if os.sep not in path:
        return f"{path} is not on PATH"
    if not os.path.lexists(path):
        return f"{path} does not exist"
    if not (Path(path).is_file() and os.access(path, os.X_OK)):
        return f"{path} is not a program"
    try:
        answer = run(
            [path, "-c", _LOOK],
            environment=_variables(),
            cwd=Path("/"),  # a module of the current folder would be found first
            timeout_s=LOOK_S,
            check=False,
        )
        facts = parse_object(answer.stdout)
        version, include = tuple(map(int, facts["version"])), str(facts["include"])
    except ProcessError as error:
        return first_line(str(error))
    except (ValueError, KeyError, TypeError):
        reason = first_line(answer.stderr) or "it prints no version"
        return f"{path} is not a working Python: {reason}"
    found = Interpreter(path=path, version=version, include=include)
    if version < OLDEST:
        return f"{path} is Python {found.release}, expected {'.'.join(map(str, OLDEST))} or newer"
    return found


def find_vendors() -> str | None:
    """Return the first known Python that has torch: see ``docker/vendor_packages.py``."""
    return _ask(sys.executable, "find")


def has_torch(path: str) -> bool:
    """Return whether a Python finds a torch."""
    return _ask(path, "has-torch") is not None


@cache
def import_torch(path: str) -> tuple[str | None, str]:
    """Return the version of the torch that a Python imports, or ``None`` and why it cannot.

    Raises ``TimeLimitError`` if it takes too long.
    """
    command = [path, "-c", "import torch; print(torch.__version__)"]
    try:
        done = run(
            command, environment=_variables(), cwd=Path("/"), timeout_s=IMPORT_S, check=False
        )
    except TimeLimitError:
        raise
    except ProcessError as error:
        return None, first_line(str(error))
    if done.exit_code == 0:
        return _last_line(done.stdout), ""
    return None, _last_line(done.stderr) or f"exit code {done.exit_code}"


def _ask(python: str, word: str) -> str | None:
    try:
        answer = run(
            [python, str(VENDOR_PACKAGES), word], environment=_variables(), timeout_s=LOOK_S
        )
    except ProcessError:  # `read_interpreter` reports a Python that does not work
        return None
    return _last_line(answer.stdout) or None


def _last_line(text: str) -> str:
    """Return the answer of a Python: a vendor's may print a banner, or warnings, before it."""
    return text.strip().rpartition("\n")[2].strip()


def _variables() -> Mapping[str, str]:
    inherited = inherited_environment()
    return {name: value for name, value in inherited.items() if name not in PATH_VARIABLES}
