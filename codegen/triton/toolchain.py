"""The Triton to compile with: which Python has it, and what of it a kernel depends on."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codegen.errors import GenerationError

PINNED = "3.9.0"  # of the dependency group `triton`
OLDEST = (3, 4)
_CHOOSE = "Set TRITON_PYTHON_EXECUTABLE to a Python that has Triton, or WITH_TRITON to OFF."

# Without importing triton, which takes a second, and without asking for the distribution of this
# name: the one of some builds of torch is called otherwise.
_FIND = """
import importlib.util, json, pathlib, re
spec = importlib.util.find_spec("triton")
if spec and spec.origin:
    origin = pathlib.Path(spec.origin)
    folder = origin.parent
    version = re.search(r"^__version__ = .([^'\\"]+)", origin.read_text(), re.MULTILINE)
    print(json.dumps({
        "folder": str(folder),
        "version": version[1] if version else "of unknown version",
        "assemblers": sorted(map(str, folder.glob("backends/nvidia/bin/ptxas*"))),
    }))
"""


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """An installed Triton."""

    python: tuple[str, ...]  # the command
    version: str
    assemblers: str  # what its own ptxas, of which it may have several, say of their versions


def find_toolchain(python: str) -> Toolchain:
    """Asks a Python. An isolated build hides the environment's packages by variables; ``-I``
    ignores those."""
    for flags in ((), ("-I",)):
        command = (python, *flags)
        if answer := _run([*command, "-c", _FIND], python).strip():
            found = _parse(answer, python)
            _check_version(found, python)
            said = [_run([path, "--version"], python) for path in found["assemblers"]]
            return Toolchain(python=command, version=found["version"], assemblers="".join(said))
    raise GenerationError(f"{python} has no Triton. {_remedy(python)}")


def _parse(answer: str, python: str) -> Any:
    try:
        return json.loads(answer)
    except ValueError as error:
        raise GenerationError(
            f"{python} is no Python: it printed {answer[:40]!r}. {_CHOOSE}"
        ) from error


def _check_version(found: Mapping[str, str], python: str) -> None:
    match = re.match(r"(\d+)\.(\d+)", found["version"])
    if not match or (int(match[1]), int(match[2])) < OLDEST:
        raise GenerationError(
            f"{found['folder']} is Triton {found['version']}; expected "
            f"{'.'.join(map(str, OLDEST))} or later. {_remedy(python)}"
        )


def _remedy(python: str) -> str:
    return (
        f"Run `{python} -m pip install triton=={PINNED}`, set TRITON_PYTHON_EXECUTABLE to a Python "
        "that has it, or set WITH_TRITON to OFF."
    )


def _run(command: list[str], python: str) -> str:
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise GenerationError(
            f"{command[0]!r} can't be run ({error.strerror}). {_CHOOSE}"
        ) from error
    if finished.returncode:
        said = finished.stderr.strip() or f"exit code {finished.returncode}"
        raise GenerationError(f"{command[0]} failed: {said}. {_remedy(python)}")
    return finished.stdout
