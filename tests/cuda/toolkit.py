"""The CUDA toolkit of the dependency group `cuda`, and how CMake finds it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "cuda"


def find_nvcc() -> Path:
    """The wheels' compiler; without one the test is skipped."""
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec else None
    found = [path for folder in folders or () for path in Path(folder).glob("cu*/bin/nvcc")]
    if not found:
        pytest.skip("the dependency group `cuda` is not installed")
    return max(found)


def find_cuobjdump() -> Path:
    """Return Triton's; the wheels of the toolkit do not contain one."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        pytest.skip("the dependency group `triton` is not installed")
    return Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def configure(build: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs CMake for a build without torch."""
    common = ["-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}", "-DWITH_TORCH=OFF"]
    common.append("-DAUTO_DETECT_DEVICES=OFF")
    command = [
        "cmake",
        "-S",
        str(ROOT),
        "-B",
        str(build),
        *common,
        *(f"-D{option}" for option in options),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)
