"""The Triton to compile with: which Python has it, and what of it a kernel depends on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass

from codegen.errors import GenerationError

PINNED = "3.9.0"  # of the dependency group `triton`
OLDEST = (3, 6)

# Without importing triton, which takes a second.
_FIND = """
import importlib.metadata, importlib.util, json, os, pathlib
spec = importlib.util.find_spec("triton")
if spec and spec.origin:
    folder = pathlib.Path(spec.origin).parent
    bundled = folder / "backends" / "nvidia" / "bin" / "ptxas"
    print(json.dumps({
        "folder": str(folder),
        "version": importlib.metadata.version("triton"),
        "ptxas": os.environ.get("TRITON_PTXAS_PATH") or str(bundled),
    }))
"""


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """An installed Triton."""

    python: tuple[str, ...]  # the command
    version: str
    ptxas: str  # what it says of its version


def find_toolchain(python: str) -> Toolchain:
    """Asks a Python. An isolated build hides the environment's packages by variables; ``-I``
    ignores those."""
    for flags in ((), ("-I",)):
        command = (python, *flags)
        if answer := _run([*command, "-c", _FIND], python).strip():
            found = json.loads(answer)
            _check_version(found["version"], found["folder"])
            ptxas = _run([found["ptxas"], "--version"], python)
            return Toolchain(python=command, version=found["version"], ptxas=ptxas)
    raise GenerationError(f"{python} has no Triton. {_remedy(python)}")


def _check_version(version: str, folder: str) -> None:
    match = re.match(r"(\d+)\.(\d+)", version)
    if not match or (int(match[1]), int(match[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise GenerationError(
            f"{folder} is Triton {version}; expected {oldest} or later. {_remedy('Python')}"
        )


def _remedy(python: str) -> str:
    return (
        f"Run `{python if python != 'Python' else sys.executable} -m pip install "
        f"triton=={PINNED}`, set TRITON_PYTHON_EXECUTABLE to a Python that has it, or set "
        "WITH_TRITON to OFF."
    )


def _run(command: list[str], python: str) -> str:
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise GenerationError(
            f"{command[0]} can't be run ({error.strerror}). {_remedy(python)}"
        ) from error
    if finished.returncode:
        raise GenerationError(f"{command[0]} failed: {finished.stderr.strip()}. {_remedy(python)}")
    return finished.stdout
