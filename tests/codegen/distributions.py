"""The distribution `infini-codegen`, built, and an environment that has it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.built import built_once

ROOT = Path(__file__).resolve().parents[2]


def run(*command: object, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, without the paths of the caller's Python."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    return subprocess.run(
        words, cwd=folder, env=inherited | variables, capture_output=True, text=True, check=False
    )


def wheel_of(folder: Path) -> Path:
    [wheel] = folder.glob("*.whl")
    return wheel


def build_distribution(factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the source distribution and the wheel."""

    def build(folder: Path) -> None:
        command = (sys.executable, "-m", "hatchling", "build", "--directory", folder)
        done = run(*command, folder=ROOT / "codegen")
        assert done.returncode == 0, done.stderr

    return built_once(factory, "infini-codegen", build)


def install_distribution(built: Path, folder: Path) -> Path:
    """Return the Python of an environment that has the wheel, and the packages of this one."""
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index")
    done = run(*pip, "--quiet", wheel_of(built), folder=folder)
    assert done.returncode == 0, done.stderr
    packages = next(folder.glob("lib/python*/site-packages"))
    ours = [each for each in sys.path if each.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(ours))
    return python
