"""Facts about the machine and the tools that the stages ran with."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path

PROBE_TIMEOUT_S = 60.0

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


def tools(variables: dict[str, str], workspace: str) -> dict[str, object]:
    """Describe the Python and its packages, and the build tools."""

    def probe(*command: str) -> str | None:
        return _output(list(command), variables, workspace)

    found = probe("python3", "-c", PYTHON_PROBE)
    python = json.loads(found) if found else {"python": None, "packages": {}}
    return {
        **python,
        "compiler": _first_line(probe("c++", "--version")),
        "cmake": _first_line(probe("cmake", "--version")),
        "ninja": _first_line(probe("ninja", "--version")),
        "torch": python["packages"].get("torch"),
    }


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
