"""Checks one version of torch in steps, each with a log of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.compat.steps import (
    ROOT,
    Planned,
    Step,
    environment_steps,
    pip_install,
    requirements,
    run_steps,
)

METADATA_NAME = "torch_ops_metadata.json"
# Wheels of every torch from 2.4 on exist for it, and headers don't differ between Pythons.
WHEEL_PYTHON = "3.11"
# The files of a 900 MB wheel that compiling needs. CMake finds torch by its `__init__.py`.
UNPACKED = re.compile(r"torch/(include/|share/cmake/|version\.py$|__init__\.py$)|torchgen/")


@dataclass(frozen=True, kw_only=True)
class TorchOutcome:
    """The result of one version of torch; the counts are None if generation failed."""

    torch: str
    operators: int | None
    overloads: int | None
    skipped: int | None
    steps: tuple[Step, ...]

    def failed(self) -> list[Step]:
        return [step for step in self.steps if step.exit_code != 0]


def check_torch(version: str, folder: Path, *, headers_only: bool, full: bool) -> TorchOutcome:
    """Runs the steps up to the first that fails.

    Args:
        version: a release, "2.14.1".
        folder: the folder of this version, kept for the next run, which reuses torch from it.
        headers_only: only compile the sources, against the headers; else install, import, call.
        full: run the operator suite as well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    build = folder / "build"
    shutil.rmtree(build, ignore_errors=True)  # so that an earlier run saves no CPU-seconds
    planned = (
        _compile_against_headers(version, folder, build)
        if headers_only
        else _install(version, folder, build, full=full)
    )
    steps = run_steps(planned, folder)
    return _outcome(version, build / "generated" / METADATA_NAME, steps)


def _compile_against_headers(version: str, folder: Path, build: Path) -> Iterator[Planned]:
    headers = folder / "headers"
    if not headers.is_dir():
        with tempfile.TemporaryDirectory(dir=folder) as downloads:
            yield "download", _download(version, downloads), {}
            _unpack(next(Path(downloads).glob("*.whl")), headers)
    # CMake's search for torch must find the unpacked headers.
    environment = {"PYTHONPATH": str(headers)}
    options = ("-G", "Ninja", "-DWITH_TORCH=ON", "-DAUTO_DETECT_DEVICES=OFF")
    python = f"-DPython_EXECUTABLE={sys.executable}"
    yield "configured", ("cmake", "-S", ROOT, "-B", build, *options, python), environment
    # Objects only: there is no library to link with.
    yield "compiled", ("ninja", "-C", build, "-k0", *_objects(build)), {}


def _download(version: str, folder: str) -> tuple[str, ...]:
    pip = (sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:")
    return (*pip, "--python-version", WHEEL_PYTHON, "--dest", folder, f"torch=={version}")


def _unpack(wheel: Path, folder: Path) -> None:
    """Extract the headers; ``zipfile`` keeps every name inside the folder."""
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if UNPACKED.match(name)]
        archive.extractall(partial, names)
    partial.rename(folder)


def _objects(build: Path) -> list[str]:
    """The objects of this project, as ninja calls them."""
    commands = json.loads((build / "compile_commands.json").read_bytes())
    ours = (ROOT / "src", build / "generated")
    return [
        os.path.relpath(command["output"], build)
        for command in commands
        if any(Path(command["file"]).is_relative_to(folder) for folder in ours)
    ]


def _install(version: str, folder: Path, build: Path, *, full: bool) -> Iterator[Planned]:
    python = folder / "venv" / "bin" / "python"
    yield from environment_steps("environment", sys.executable, folder / "venv")
    yield "requirements", pip_install(python, f"torch=={version}", *requirements()), {}
    options = ("--no-build-isolation", "--no-deps", f"--config-settings=build-dir={build}")
    yield "compiled", pip_install(python, ROOT, *options), {}
    yield "imported", (python, "-c", "import infini.ops"), {}
    pytest = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    yield "smoke", (*pytest, ROOT / "tools/compat/test_smoke.py"), {}
    if full:
        yield "suite", (*pytest, "--numprocesses=auto", ROOT / "tests" / "ops"), {}


def _outcome(version: str, metadata: Path, steps: Sequence[Step]) -> TorchOutcome:
    if not metadata.exists():
        return TorchOutcome(
            torch=version, operators=None, overloads=None, skipped=None, steps=tuple(steps)
        )
    content = json.loads(metadata.read_bytes())
    return TorchOutcome(
        torch=content["torch_version"],
        operators=len({entry["name"] for entry in content["ops"]}),
        overloads=len(content["ops"]),
        skipped=len(content["skipped"]),
        steps=tuple(steps),
    )
