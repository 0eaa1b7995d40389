"""Facts about the machine and the tools that the stages ran with."""

from __future__ import annotations

import ctypes
import os
import pkgutil
import platform
import re
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any, Mapping, Sequence

from ci.agent.time_limits import TOOL_S
from ci.agent.user import StageUser
from ci.protocol.agent_files import PIP_REPORTS_OF_ENVIRONMENT
from ci.util.lines import parse_object
from ci.util.text import mask_credentials

CPUINFO = Path("/proc/cpuinfo")
# Variable that restricts a build of this library to some operators.
SELECTION = "INFINI_OPS_TORCH_OPS"
# Variables that change what is compiled, the tools, or the parallelism, and variables that disable
# instructions of the processor.
OPTIONS = re.compile(
    r"(ONEDNN|DNNL)_MAX_CPU_ISA|ATEN_CPU_CAPABILITY|INFINI_OPS_CPU_ISA|SKBUILD_\w+|CMAKE_(ARGS|GENERATOR|BUILD_TYPE|BUILD_PARALLEL_LEVEL)|MAX_JOBS"
    r"|CC|CXX|CUDACXX|CUDAARCHS|(C|CXX|CPP|LD|CUDA|NVCC_APPEND_|NVCC_PREPEND_)FLAGS"
)
# Where glibc keeps the results of `cpuid`, by Linux's names of the features: leaf (0: 1, 1: 7, 6: 7
# with subleaf 1), register (eax first) and bit. Sources: sys/platform/x86.h; Intel's manual,
# volume 2, CPUID.
CPUID = {
    "sse4_2": (0, 2, 20),
    "avx": (0, 2, 28),
    "fma": (0, 2, 12),
    "f16c": (0, 2, 29),
    "avx2": (1, 1, 5),
    "avx_vnni": (6, 0, 4),
    "avx_ne_convert": (6, 3, 5),
    "avx512f": (1, 1, 16),
    "avx512dq": (1, 1, 17),
    "avx512bw": (1, 1, 30),
    "avx512vl": (1, 1, 31),
    "avx512_vnni": (1, 2, 11),
    "avx512_bf16": (6, 0, 5),
    "avx512_fp16": (1, 3, 23),
    "amx_tile": (1, 3, 24),
}
REGISTERS = 4
# The summary has the widest vector set, and every extension.
VECTORS = {
    "AVX-512": ("avx512f", "avx512dq", "avx512bw", "avx512vl"),
    "AVX2": ("avx2", "fma", "f16c"),
    "AVX": ("avx",),
    "SSE4.2": ("sse4_2",),
}
EXTENSIONS = {
    "VNNI": ("avx_vnni", "avx512_vnni"),
    "NE-CONVERT": ("avx_ne_convert",),
    "BF16": ("avx512_bf16",),
    "FP16": ("avx512_fp16",),
    "AMX": ("amx_tile",),
}
# The reference job: 0.2 s in all, of which an interruption spoils only a part.
REFERENCE_JOBS = 11
REFERENCE_WORDS = 20_000
_VERSION = re.compile(r"\d+\.\d+")

# Runs the program of its argument, without the modules of the current folder.
RUN_PROGRAM = "import sys; sys.path[:] = filter(None, sys.path); exec(sys.argv[1])"


def machine_facts() -> dict[str, str | int | float | None]:
    """Return the facts about the machine that affect how long a stage takes."""
    return {
        "hostname": platform.node(),
        "cpu_model": _field(CPUINFO, "model name", ":"),
        "instruction_sets": instruction_sets(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "os": _field(Path("/etc/os-release"), "PRETTY_NAME", "="),
        "reference_cpu_s": reference_cpu_s(),
    }


def reference_cpu_s() -> float:
    """Return the CPU seconds of a job that never changes: how fast the machine is right now.

    The median of several jobs. Like a compiler, they make strings, look them up and sort them.
    """
    taken = []
    for _ in range(REFERENCE_JOBS):
        begin = time.process_time()
        # Multiples of a prime, so that the words are in no order.
        words = [f"{number * 2_654_435_761 % 2**32:08x}" for number in range(REFERENCE_WORDS)]
        places = {word: place for place, word in enumerate(words)}
        sorted(words, key=lambda word: word[::-1] + str(places[word]))
        taken.append(time.process_time() - begin)
    return sorted(taken)[REFERENCE_JOBS // 2]


def instruction_sets() -> str | None:
    """Return an x86 processor's instruction sets, ``AVX-512 VNNI``; ``None`` for any other."""
    if platform.machine() != "x86_64":
        return None
    found = _cpuid()
    if found is None:  # glibc before 2.33, or another C library
        found = set((_field(CPUINFO, "flags", ":") or "").split())
    vectors = [name for name, features in VECTORS.items() if found.issuperset(features)]
    extensions = [name for name, features in EXTENSIONS.items() if found.intersection(features)]
    return " ".join([*(vectors[:1] or ["SSE2"]), *extensions])


def _cpuid() -> set[str] | None:
    """Return the features that this process may use, also under an emulator, unlike ``/proc``."""
    try:
        leaf = ctypes.CDLL(None).__x86_get_cpuid_feature_leaf
    except (AttributeError, OSError):
        return None
    leaf.restype = ctypes.POINTER(ctypes.c_uint * (2 * REGISTERS))  # existing, then active
    return {
        name
        for name, (number, register, bit) in CPUID.items()
        if leaf(number).contents[REGISTERS + register] >> bit & 1
    }


def tool_facts(
    variables: Mapping[str, str],
    workspace: Path,
    device_compiler: str | None = None,
    user: StageUser | None = None,
    reports: Sequence[str] = (),
) -> dict[str, object]:
    """Return the versions of Python, its packages, and the build tools.

    ``reports`` are pip's own, of what the stages installed.

    ``uncompiled``: modules of the project that are installed, but missing in its sources.
    ``unpackaged``: those that its sources have, but what was installed does not.
    ``unmet``: requirements of its build that are not installed.
    ``installed_files``: files from which a distribution was installed.
    ``origins``: where distributions came from, as their installers recorded it.
    ``torch_builds``: how torch and its extensions were built.
    """

    def printed(*command: str) -> str:
        return tool_output(command, variables, workspace, user) or ""

    def version(*command: str) -> str | None:
        return next((line.strip() for line in printed(*command, "--version").splitlines()), None)

    # By the Python of the stages, which may differ from the agent's, in the project's folder.
    probe = pkgutil.get_data(__package__ or "", "python_probe.py") or b""
    arguments = (PIP_REPORTS_OF_ENVIRONMENT, *reports)
    found = read_tools(printed("python3", "-c", RUN_PROGRAM, probe.decode(), *arguments))
    try:  # CXX may hold options too
        compiler = shlex.split(variables.get("CXX", "")) or ["c++"]
    except ValueError:  # an unbalanced quote, which no build system accepts either
        compiler = ["c++"]
    device = printed(device_compiler, "--version").splitlines() if device_compiler else []
    versions = [line.strip() for line in device if _VERSION.search(line)]  # nvcc's is in line 4
    return {
        **found,
        "compiler": version(*compiler),
        "device_compiler": f"{device_compiler}: {versions[0]}" if versions else None,
        "cmake": version("cmake"),
        "ninja": version("ninja"),
        "torch": found["packages"].get("torch"),
    }


def read_tools(text: str) -> dict[str, Any]:
    """Read the output of ``python_probe``; the stages' Python may be any program."""
    try:
        found = parse_object(text)
    except ValueError:
        found = {}
    python, packages = found.get("python"), found.get("packages")
    names = ("uncompiled", "unpackaged", "unmet", "installed_files")
    modules = {name: found.get(name) for name in names}
    stack = {name: found.get(name) for name in ("origins", "torch_builds")}
    return {
        "python": python if isinstance(python, str) else None,
        "packages": packages if isinstance(packages, dict) else {},
        **{name: it if isinstance(it, list) else [] for name, it in modules.items()},
        **{name: it if isinstance(it, dict) else {} for name, it in stack.items()},
    }


def tool_output(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path | None = None,
    user: StageUser | None = None,
) -> str | None:
    """Return a tool's output; ``None``: it is missing, fails or does not end.

    It runs as ``user``: the code under test may have replaced it.
    """
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TOOL_S,
            check=False,
            preexec_fn=user.become if user else None,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def build_settings(stages: Sequence[Mapping[str, str]]) -> dict[str, object]:
    """Return the build settings in the environments of the stages."""
    chosen = {}
    for name in sorted({name for variables in stages for name in variables}):
        if name == SELECTION or OPTIONS.fullmatch(name):
            values = [variables[name] for variables in stages if name in variables]
            # Each value once, in the order of the stages.
            chosen[name] = mask_credentials(" | ".join(dict.fromkeys(values)))
    operators = chosen.pop(SELECTION, "")
    return {"selection": {"operators": operators} if operators else {}, "options": chosen}


def _field(path: Path, key: str, separator: str) -> str | None:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return None
    pairs = (line.partition(separator) for line in lines)
    return next((value.strip().strip('"') for name, _, value in pairs if name.strip() == key), None)
