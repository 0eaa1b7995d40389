"""Facts about the machine and the tools that the stages ran with."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
from pathlib import Path
from typing import Mapping, Sequence

from .masking import mask_credentials

PROBE_TIMEOUT_S = 60.0
# What narrows a build of this library to some operators.
SELECTION = "INFINI_OPS_TORCH_OPS"
# What changes what is compiled, by what, or how much of it at once.
OPTIONS = re.compile(
    r"SKBUILD_\w+|CMAKE_(ARGS|GENERATOR|BUILD_TYPE|BUILD_PARALLEL_LEVEL)|MAX_JOBS"
    r"|CC|CXX|CUDACXX|CUDAARCHS|(C|CXX|CPP|LD|CUDA|NVCC_APPEND_|NVCC_PREPEND_)FLAGS"
)
_VERSION = re.compile(r"\d+\.\d+")

# Run by the stages' Python, which need not be the agent's.
PYTHON_PROBE = """
import importlib.metadata, json, platform
found = importlib.metadata.distributions()
packages = {entry.metadata["Name"]: entry.version for entry in found if entry.metadata["Name"]}
print(json.dumps({"python": platform.python_version(), "packages": packages}))
"""


def machine() -> dict[str, object]:
    """Describe the machine as far as it can change how long a stage takes."""
    return {
        "hostname": platform.node(),
        "cpu_model": _field(Path("/proc/cpuinfo"), "model name", ":"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "os": _field(Path("/etc/os-release"), "PRETTY_NAME", "="),
    }


def tools(
    variables: dict[str, str], workspace: str, device_compiler: str | None = None
) -> dict[str, object]:
    """Describe the Python and its packages, and the build tools."""

    def probe(*command: str) -> str | None:
        return _output(list(command), variables, workspace)

    found = probe("python3", "-c", PYTHON_PROBE)
    python = json.loads(found) if found else {"python": None, "packages": {}}
    return {
        **python,
        "compiler": _first_line(probe(*_compiler(variables), "--version")),
        "device_compiler": device_compiler
        and _version_line(device_compiler, probe(device_compiler, "--version")),
        "cmake": _first_line(probe("cmake", "--version")),
        "ninja": _first_line(probe("ninja", "--version")),
        "torch": python["packages"].get("torch"),
    }


def _compiler(variables: Mapping[str, str]) -> list[str]:
    """The C++ compiler that build systems take, which may have options of its own."""
    try:
        return shlex.split(variables.get("CXX", "")) or ["c++"]
    except ValueError:  # a quotation without an end, which no build system takes either
        return ["c++"]


def build_settings(stages: Sequence[Mapping[str, str]]) -> dict[str, object]:
    """Describe what the stages, by the environment of each, were asked to build and how."""
    names = sorted({name for variables in stages for name in variables})
    chosen = {
        name: mask_credentials(" | ".join(_values(name, stages)))
        for name in names
        if name == SELECTION or OPTIONS.fullmatch(name)
    }
    operators = chosen.pop(SELECTION, "")
    return {"selection": {"operators": operators} if operators else {}, "options": chosen}


def _values(name: str, stages: Sequence[Mapping[str, str]]) -> list[str]:
    """Each value of a variable once, in the order of the stages."""
    return list(dict.fromkeys(variables[name] for variables in stages if name in variables))


def _output(command: list[str], variables: dict[str, str], workspace: str) -> str | None:
    try:
        done = subprocess.run(
            command,
            env=variables,
            cwd=workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def _first_line(text: str | None) -> str | None:
    return text.splitlines()[0].strip() if text else None


def _version_line(name: str, text: str | None) -> str | None:
    """What a compiler says of its version, which nvcc does in its fourth line."""
    lines = [line.strip() for line in (text or "").splitlines() if _VERSION.search(line)]
    return f"{name}: {lines[0]}" if lines else None


def _field(path: Path, key: str, separator: str) -> str | None:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(separator)
        if name.strip() == key:
            return value.strip().strip('"')
    return None
