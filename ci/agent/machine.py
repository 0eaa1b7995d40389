"""Facts about the machine and the tools that the stages ran with."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, Mapping, Sequence

from ci.agent.time_limits import TOOL_S
from ci.agent.user import StageUser
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
_VERSION = re.compile(r"\d+\.\d+")

# Run by the Python of the stages, which may differ from the agent's, in the project's folder.
PYTHON_PROBE = """
import sys
sys.path[:] = [it for it in sys.path if it]  # not the modules of that folder
import fnmatch, importlib.machinery, importlib.metadata, json, os, platform, re, urllib.parse
entries = list(importlib.metadata.distributions())
found = [entry.metadata for entry in entries]  # each parsed once
packages = {entry["Name"]: entry["Version"] for entry in found if entry["Name"]}

def is_this_project(entry):
    origin = json.loads(entry.read_text("direct_url.json") or "{}")
    folder = urllib.parse.unquote(origin.get("url", "").partition("file://")[2])
    editable = origin.get("dir_info", {}).get("editable")
    return not editable and os.path.isdir(folder) and os.path.samefile(folder, ".")

is_safe = getattr(sys.flags, "safe_path", False)  # the current folder is not searched

def is_uncompiled_in_the_sources(file):
    package, _, rest = file.partition("/")
    is_in_sources = rest and not is_safe and os.path.isfile(os.path.join(package, "__init__.py"))
    is_module = file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
    return is_in_sources and is_module and not os.path.exists(file)

def is_test(name):
    return any(fnmatch.fnmatch(name, it) for it in ("test_*.py", "*_test.py", "conftest.py"))

def modules_in_the_sources(package):
    # Without those of tests, which are often left out of what is installed.
    tree = [(folder, names) for folder, _, names in os.walk(package)]
    usual = ("test", "tests")
    tests = [it for it, names in tree if os.path.basename(it) in usual or any(map(is_test, names))]
    for folder, names in tree:
        if any((folder + "/").startswith(it + "/") for it in tests if it != package):
            continue
        holds_tests = any(it.startswith(folder + "/") for it in tests) and folder != package
        for name in names:
            file = os.path.join(folder, name)
            if name.endswith(".py") and not is_test(name) and os.path.getsize(file):
                if not (holds_tests and name == "__init__.py"):
                    yield file

def missing_modules(installed, projects):
    if is_safe or not projects:
        return []
    roots = {file.partition("/")[0] for file in installed if "/" in file}
    roots |= {re.sub("[-.]", "_", name) for name in projects}
    sources = (it for it in roots if os.path.isfile(os.path.join(it, "__init__.py")))
    files = {file for it in sources for file in modules_in_the_sources(it)} - {*installed}
    names = (file[:-len(".py")].replace("/", ".") for file in files)
    return sorted(re.sub(r"\\.__init__$", "", name) for name in names)

def unmet_build_requirements():
    try:
        import tomllib
    except ImportError:
        from pip._vendor import tomli as tomllib
    from pip._vendor.packaging.requirements import Requirement

    def is_met(it):
        return it.specifier.contains(versions.get(normal(it.name), ""), prereleases=True)

    def normal(name):
        return re.sub("[-_.]+", "-", name).lower()

    versions = {normal(name): version for name, version in packages.items()}
    with open("pyproject.toml", "rb") as file:
        required = tomllib.load(file)["build-system"]["requires"]
    asked = [it for it in map(Requirement, required) if not it.marker or it.marker.evaluate()]
    return [str(it) for it in asked if normal(it.name) not in versions or not is_met(it)]

try:
    unmet = unmet_build_requirements() if os.path.exists("pyproject.toml") else []
except Exception:
    unmet = []
try:
    own = [entry for entry in entries if is_this_project(entry)]
    files = [str(file) for it in own for file in it.files or ()]
    unpackaged = missing_modules(files, [it.metadata["Name"] for it in own])
except Exception:  # any tool may have written the metadata
    files, unpackaged = [], []
missing = filter(is_uncompiled_in_the_sources, files)
uncompiled = sorted(file.partition(".")[0].replace("/", ".") for file in missing)
facts = {"python": platform.python_version(), "packages": packages, "uncompiled": uncompiled}
print(json.dumps({**facts, "unpackaged": unpackaged, "unmet": unmet}))
"""


def machine_facts() -> dict[str, str | int | None]:
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
    }


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
) -> dict[str, object]:
    """Return the versions of Python, its packages, and the build tools.

    ``uncompiled``: modules of the project that are installed, but missing in its sources.
    ``unpackaged``: those that its sources have, but what was installed does not.
    ``unmet``: requirements of its build that are not installed.
    """

    def printed(*command: str) -> str:
        return tool_output(command, variables, workspace, user) or ""

    def version(*command: str) -> str | None:
        return next((line.strip() for line in printed(*command, "--version").splitlines()), None)

    found = read_tools(printed("python3", "-c", PYTHON_PROBE))
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
    """Read the output of ``PYTHON_PROBE``; the stages' Python may be any program."""
    try:
        found = parse_object(text)
    except ValueError:
        found = {}
    python, packages = found.get("python"), found.get("packages")
    modules = {name: found.get(name) for name in ("uncompiled", "unpackaged", "unmet")}
    return {
        "python": python if isinstance(python, str) else None,
        "packages": packages if isinstance(packages, dict) else {},
        **{name: it if isinstance(it, list) else [] for name, it in modules.items()},
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
