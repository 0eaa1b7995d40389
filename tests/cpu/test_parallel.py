"""The threads of the CPU kernels, by a program that is compiled with them alone."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler is installed")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("parallel") / "program"
    sources = [Path(__file__).with_name("parallel_program.cc"), ROOT / "src/cpu/parallel.cc"]
    options = ["-std=c++17", "-O1", "-pthread", f"-I{ROOT / 'src'}", "-o", str(program)]
    flags = shlex.split(os.environ.get("CXXFLAGS", ""))
    subprocess.run(["c++", *flags, *options, *sources], check=True)
    return program


@pytest.mark.parametrize(
    "check",
    ["callers", "coverage", "exceptions", "exit", "fork", "nested", "one_cpu", "several_threads"],
)
def test_parallel(program: Path, check: str) -> None:
    finished = subprocess.run(
        [program, check], capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 0, finished.stderr
