"""What the host engine needs on this machine.

Standard library only: ``noxfile.py`` checks before anything is installed.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ci.engines.checks import (
    COMPLETE_PYTHON,
    LEAST_DISK_BYTES,
    Finding,
    Severity,
    check_folder,
    gigabytes,
    install,
    judge_room,
    missing_package,
    ok,
    packaged_python,
    problem,
)
from ci.util.interpreters import Interpreter, locate, own_interpreter, read_interpreter
from ci.util.process import ProcessError, run

# For torch, the build tools and their output. Without a build: LEAST_DISK_BYTES.
BUILD_BYTES = 2 * 10**9
# GCC takes 1.3 GB to compile torch's headers, and less without them. One GCC runs per processor.
LOW_MEMORY_BYTES = 4 * 10**9
LEAST_MEMORY_BYTES = 10**9

COMPILERS = ("c++", "CC", "g++", "clang++")  # the order in which CMake looks for one
# Variables that can also choose a compiler.
CMAKE_SETTINGS = ("CMAKE_ARGS", "SKBUILD_CMAKE_ARGS", "SKBUILD_CMAKE_DEFINE")
CHOSEN = re.compile("CMAKE_(CXX_COMPILER|TOOLCHAIN_FILE)\\b")
# Variables that compilers, and wrappers such as ccache and hipcc, read: the compiler and its flags,
# and where it looks for programs, headers and libraries.
COMPILER_INPUTS = re.compile(
    r"CXX|CXXFLAGS|CMAKE_TOOLCHAIN_FILE|\w*(PATH|HOME|ROOT|DIR|PREFIX)|(CCACHE|CCC|GCC|LD)_\w+"
)
COMPILE_S = 60.0  # GCC takes 0.3 s; a wrapper may first request a license from a server
# The program is also linked, since a compiler without its library can still compile it. CMake
# links its test programs too.
PROGRAM = """\
#include <string>
#include <string_view>
int main() { if constexpr (std::string_view("ab").size() == 2) return int(std::string().size()); }
"""
BUILD_FILES = ("CMakeLists.txt", "meson.build")
BUILD_TOOLS = ("cython", "meson-python", "nanobind", "pybind11", "scikit-build")


def check_temporary_folder(*, least: int) -> Finding:
    """Check the folder in which the host engine creates its environment and starts programs."""
    subject, remedy = "temporary folder", "Name another folder with TMPDIR."
    try:
        path = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        expected = "a writable folder"
        return problem(subject, str(error.strerror), expected=expected, remedy=remedy)
    found = check_folder(subject, path, remedy=remedy, least=least)
    if found.level is not Severity.PROBLEM and os.statvfs(path).f_flag & os.ST_NOEXEC:
        text = f"{path} is mounted noexec, so programs in it cannot be started"
        expected = "a folder in which programs can be started"
        return problem(subject, text, expected=expected, remedy=remedy)
    return found


def check_venv() -> Finding:
    """Check that this Python can create virtual environments."""
    subject, version = "Python venv", f"Python {platform.python_version()} ({sys.executable})"
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if not missing:
        return ok(subject, version)
    lack = " and no ".join(missing)
    found = f"{version} has no {lack}, so it cannot create a virtual environment"
    return missing_package(subject, found, "venv")


def check_headers(python: Interpreter) -> Finding:
    """Check for the headers of a Python, which the library's module includes."""
    subject, path = "Python headers", Path(python.include, "Python.h")
    if path.is_file():
        return ok(subject, str(path.parent))
    missing = f"{path} does not exist"
    if python.path == sys.executable:
        return missing_package(subject, missing, "headers")
    expected, packaged = f"the headers of {python}", packaged_python(python.path)
    if packaged is None:
        return problem(subject, missing, expected=expected, remedy=COMPLETE_PYTHON)
    return problem(subject, missing, expected=expected, remedy=install(["headers"], packaged))


def check_compiler(environ: Mapping[str, str], *, tried: bool = True) -> Finding:
    """Check that the C++ compiler that CMake would choose builds a C++17 program.

    Unless it is to be ``tried``, which takes 0.4 s, only look for the compiler.
    """
    subject, expected = "C++ compiler", "one that supports -std=c++17, such as GCC 9 or Clang 10"
    by_setting = _choosing_settings(environ)
    if by_setting or environ.get("CMAKE_TOOLCHAIN_FILE"):
        where = ", ".join(by_setting) or "CMAKE_TOOLCHAIN_FILE"
        return ok(subject, f"the one that {where} chooses, not tried")
    named = environ.get("CXX", "")
    search = environ.get("PATH", os.defpath)
    found = next(filter(None, (shutil.which(name, path=search) for name in COMPILERS)), None)
    words = shlex.split(named) or ([found] if found else [])
    if not words:
        text = f"none of {', '.join(COMPILERS)} is on PATH"
        return missing_package(subject, text, "compiler", expected)
    if shutil.which(words[0], path=search) is None:
        text = f"CXX names '{words[0]}', which was not found"
        return problem(subject, text, expected=expected, remedy="Correct CXX, or unset it.")
    shown = f"CXX={named}" if named else words[0]
    if not tried:
        return ok(subject, f"{shown}, not tried")
    with tempfile.TemporaryDirectory(prefix="infini-ci-compiler-") as temporary:
        Path(temporary, "program.cc").write_text(PROGRAM)
        options = shlex.split(environ.get("CXXFLAGS", ""))
        try:
            run(
                [*words, *options, "-std=c++17", "program.cc", "-o", "program"],
                cwd=Path(temporary),
                environment={**environ, "LC_ALL": "C"},
                timeout_s=COMPILE_S,
            )
        except ProcessError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = next((line for line in lines if "error" in line), lines[-1])
            text = f"{shown} cannot build a C++17 program: {reason}"
            remedy = "Install a newer compiler. If PATH has an older one first, set CXX."
            return problem(subject, text, expected=expected, remedy=remedy)
    return ok(subject, f"{shown} builds C++17")


def _choosing_settings(environ: Mapping[str, str]) -> list[str]:
    """Return CMake's settings that choose a compiler."""
    return [name for name in CMAKE_SETTINGS if CHOSEN.search(environ.get(name, ""))]


def _check_compilers(environs: Iterable[Mapping[str, str]], *, tried: bool) -> Iterator[Finding]:
    """Yield the distinct findings; compile once for each compiler with its flags and paths."""
    distinct: dict[frozenset[str], Mapping[str, str]] = {}
    for environ in environs:
        read = (f"{n}={environ[n]}" for n in environ if COMPILER_INPUTS.fullmatch(n))
        distinct.setdefault(frozenset([*read, *_choosing_settings(environ)]), environ)
    checks = (check_compiler(environ, tried=tried) for environ in distinct.values())
    yield from dict.fromkeys(checks)


def check_memory(*, builds: bool) -> Finding:
    """Check the memory that a run may use, on this machine and in its container, if any."""
    found: list[int] = []
    with suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = {line.split()[0]: int(line.split()[1]) for line in lines}
        found.append((kilobytes["MemAvailable:"] + kilobytes["SwapFree:"]) * 1024)
    with suppress(OSError, ValueError):  # a container's own limit; "max" means no limit
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    if not found:
        return ok("memory", "this machine does not report it")
    return judge_room(
        "memory",
        f"{gigabytes(min(found))} available",
        min(found),
        least=LEAST_MEMORY_BYTES if builds else 0,
        low=LOW_MEMORY_BYTES,
        remedy="Stop other programs, or build with fewer processes: CMAKE_BUILD_PARALLEL_LEVEL=1",
    )


def check_python(name: str) -> Finding:
    """Check a Python that a user named for the environment of the host engine."""
    found = read_interpreter(locate(name))
    if isinstance(found, Interpreter):
        return ok("Python", str(found))
    remedy = "Name a Python that starts, by its path or as a program on PATH: --python PATH."
    return replace(problem("Python", found, remedy=remedy), configuration=True)


def check_host_engine(
    source: Path, *environs: Mapping[str, str], pythons: Sequence[Interpreter] = ()
) -> Iterator[Finding]:
    """Check what the host engine needs to fill its environments and to build ``source`` in each.

    CMake and ninja come from pip. They need a compiler, the headers of ``pythons`` (by default this
    one), of which the environments are made, and a temporary folder that programs can start in.
    """
    builds = compiles_cpp(source)
    room = check_temporary_folder(least=BUILD_BYTES if builds else LEAST_DISK_BYTES)
    yield room
    yield check_memory(builds=builds)
    tried = builds and room.level is not Severity.PROBLEM
    headers = map(check_headers, pythons or [own_interpreter()])
    for found in (*_check_compilers(environs, tried=tried), *headers):
        if found.level is Severity.PROBLEM and not builds:
            expected = "present, if pip compiles something here"
            found = replace(found, level=Severity.WARNING, expected=expected)
        yield found


def compiles_cpp(source: Path) -> bool:
    """Return whether a project compiles C++, judged by its build files and requirements."""
    if any((source / name).is_file() for name in BUILD_FILES):
        return True
    with suppress(OSError, tomllib.TOMLDecodeError, AttributeError):
        project = tomllib.loads((source / "pyproject.toml").read_text(errors="replace"))
        requires = project.get("build-system", {}).get("requires", [])
        if any(str(name).lower().startswith(BUILD_TOOLS) for name in requires):
            return True
    with suppress(OSError):
        return "ext_modules" in (source / "setup.py").read_text(errors="replace")
    return False
