"""What compilers cost: each one of a build, and the unit in which builds are compared.

CPU-seconds of one machine do not compare with those of another: two machines of one kind differed
by a factor of 1.7. A build in units does compare: a unit is one ``#include <torch/torch.h>``
compiled on the same machine, right before and after the build.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.context import ROOT, without_compiler_cache
from bench.rows import MeasurementError

INCLUDES = ("include", "include/torch/csrc/api/include")


def compile_unit(folder: Path) -> list[float]:
    """CPU-s of the unit, compiled once on each core at the same time, as a build compiles."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise MeasurementError("the unit is torch's largest header, but torch is not installed")
    torch = Path(found.origin).parent
    source = folder / "unit.cc"
    source.write_text("#include <torch/torch.h>\n", encoding="utf-8")
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-fPIC", "-c", str(source)]
    command += [f"-isystem{torch / include}" for include in INCLUDES]
    cores = len(os.sched_getaffinity(0))
    started = [
        subprocess.Popen(
            [*command, "-o", str(folder / f"unit{core}.o")],
            env=without_compiler_cache(),
            stdin=subprocess.DEVNULL,
        )
        for core in range(cores)
    ]
    costs = [_wait(compiler) for compiler in started]
    if codes := {compiler.returncode for compiler in started} - {0}:
        raise MeasurementError(f"the compiler of the unit ended with {codes.pop()}")
    return costs


def _wait(compiler: subprocess.Popen[bytes]) -> float:
    """Wait for a process; return its CPU-s, with those of the processes that it waited for."""
    _, status, usage = os.wait4(compiler.pid, 0)
    compiler.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def recording(records: Path) -> dict[str, str]:
    """The variables with which CMake records the cost of every compiler and linker in a file."""
    # Without site and the environment's variables, Python starts in 20 ms.
    program = ROOT / "bench" / "compiler_launcher.py"
    launcher = f"{sys.executable};-I;-S;{program};{records}"
    return dict.fromkeys(("CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CXX_LINKER_LAUNCHER"), launcher)


def read_records(records: Path, build_dir: Path) -> list[Mapping[str, Any]]:
    """The records of a build's own steps, without CMake's checks of the compiler."""
    if not records.exists():
        raise MeasurementError("the build called no compiler through CMAKE_CXX_COMPILER_LAUNCHER")
    log = (build_dir / ".ninja_log").read_text(encoding="utf-8")
    steps = [line.split("\t") for line in log.splitlines()]
    outputs = {step[3] for step in steps if len(step) > 3}
    lines = records.read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["output"] in outputs]
