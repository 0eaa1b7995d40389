"""The Pythons of this machine: pyenv's, Debian's, uv's and those on PATH."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ci.util.process import ProcessError, run

# Runs in the interpreter that it describes. For a launcher or a virtual environment, it describes
# the Python behind it.
_DESCRIBE = """
import json, os, sys, sysconfig
print(json.dumps({
    "executable": os.path.realpath(sys.executable),
    "version": "%d.%d.%d" % sys.version_info[:3],
    "header": os.path.join(sysconfig.get_path("include"), "Python.h"),
    "is_free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
}))
"""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """One installed Python."""

    executable: Path
    version: str  # "3.13.0"
    header: Path  # Python.h, which may be missing
    is_free_threaded: bool


def find_interpreters(version: str) -> list[Interpreter]:
    """Return every interpreter of a version ("3.13"), each once, without those that do not start.

    pyenv's launchers on PATH start only for the versions that its settings select.
    """
    found: dict[Path, Interpreter] = {}
    for candidate in _candidates(version):
        interpreter = _describe(candidate) if candidate.exists() else None
        if interpreter and interpreter.version.startswith(f"{version}."):
            found.setdefault(interpreter.executable, interpreter)
    return [*found.values()]


def places() -> list[str]:
    """Return the places that are searched for interpreters, for messages."""
    return ["PATH", "/usr/bin", "/usr/local/bin", str(_pyenv() / "versions"), str(_uv())]


def _candidates(version: str) -> Iterator[Path]:
    name = f"python{version}"
    folders = [*os.environ.get("PATH", "").split(os.pathsep), "/usr/bin", "/usr/local/bin"]
    yield from (Path(folder, name) for folder in folders if folder)
    yield from sorted((_pyenv() / "versions").glob(f"{version}.*/bin/{name}"))
    yield from sorted(_uv().glob(f"*/bin/{name}"))


def _pyenv() -> Path:
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")


def _uv() -> Path:
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    return Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv/python")


def _describe(candidate: Path) -> Interpreter | None:
    try:
        finished = run([str(candidate), "-I", "-c", _DESCRIBE], timeout_s=60)
    except ProcessError:
        return None
    facts = json.loads(finished.stdout)
    return Interpreter(
        executable=Path(facts["executable"]),
        version=facts["version"],
        header=Path(facts["header"]),
        is_free_threaded=facts["is_free_threaded"],
    )
