"""The wheels of a kit: for several versions of Python, and for systems older than this one."""

from __future__ import annotations

import platform as machine
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ci.errors import InfrastructureError, UsageError
from ci.util.interpreters import Interpreter, read_interpreter
from ci.util.process import ProcessError, run

OLDEST_PROGRAM = (3, 11)  # the Python that the program itself needs
TIMEOUT_S = 3600.0  # for several GB at 1 MB/s, if torch is downloaded
# The oldest systems that vendors' images have are Ubuntu 20.04 and RHEL 8; a wheel that is for this
# machine's glibc alone would not install there.
_PLATFORMS = (
    *("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014"),
    *("manylinux_2_12", "manylinux2010", "manylinux_2_5", "manylinux1", "linux"),
)


def own_version() -> str:
    """Return the version of this Python, as ``3.11``."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def parse_version(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def find_interpreter(version: str) -> str | None:
    """Return a Python of this version on this machine; ``None``: there is none that works."""
    if version == own_version():
        return sys.executable
    path = shutil.which(f"python{version}")
    found = path and read_interpreter(path)  # a shim of pyenv may lead nowhere
    return found.path if isinstance(found, Interpreter) else None


def check_versions(versions: Sequence[str]) -> None:
    """Raise ``UsageError`` for Pythons that a kit cannot be made for on this machine."""
    if all(parse_version(it) < OLDEST_PROGRAM for it in versions):
        message = f"--python: got {', '.join(versions)}, expected one of at least 3.11"
        raise UsageError(message, remedy=f"The program needs it. Add it: --python {own_version()}")
    for version in versions:
        if parse_version(version) < OLDEST_PROGRAM and find_interpreter(version) is None:
            # pip evaluates `python_version < "3.11"` for the Python that it runs on.
            message = f"--python: got {version}, expected a python{version} on this machine"
            remedy = "Only that Python knows which packages it needs. Install it."
            raise UsageError(message, remedy=remedy)


def download(folder: Path, version: str, wanted: Sequence[str]) -> None:
    """Put the wheels of ``wanted``, requirements and options of pip, into ``folder``.

    They are for a Python of this version on any Linux with glibc 2.28, as far as they exist;
    otherwise for this machine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    interpreter = find_interpreter(version)
    # There, and not in the folder of the caller: Python would import the modules of a source.
    pip = [sys.executable, "-m", "pip", *(["--python", interpreter] if interpreter else [])]
    # As for the host engine: one index that does not answer would cost minutes.
    pip += ["--retries", "1"]
    tags = [f"--platform={name}_{machine.machine()}" for name in _PLATFORMS]
    other = [*tags, f"--python-version={version}", "--only-binary=:all:"]
    try:
        run([*pip, "download", "--quiet", *other, *wanted], cwd=folder, timeout_s=TIMEOUT_S)
    except ProcessError as error:
        if interpreter is None:
            message = f"the wheels for Python {version} cannot be collected: {error}"
            remedy = (
                "Check the package index. If it has no wheel of a package, install a"
                f" python{version} here, which builds one."
            )
            raise InfrastructureError(message, remedy=remedy) from error
        # A package without a wheel is built here.
        run(
            [*pip, "wheel", "--quiet", "--wheel-dir", ".", *wanted], cwd=folder, timeout_s=TIMEOUT_S
        )
