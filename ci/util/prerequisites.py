"""Prerequisites of a run on this machine: checks, findings, and the command that installs them.

Standard library only: ``noxfile.py`` checks before anything is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import shlex
import shutil
import socket
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from ci.errors import PrerequisiteError
from ci.util.git import find_work_tree, git
from ci.util.interpreters import (
    Interpreter,
    find_vendors,
    locate,
    own_interpreter,
    read_interpreter,
)
from ci.util.invocation import command
from ci.util.process import ProcessError, run


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    UNKNOWN = "unknown"  # no check could decide; this is not ok
    WARNING = "warning"
    PROBLEM = "problem"  # a run would fail


@dataclass(frozen=True)
class Finding:
    """One result of a check: what was found and, unless it is ok, the remedy.

    ``package`` is the key in ``PACKAGES`` of the missing package.
    ``configuration`` marks a problem of the configuration, not of the infrastructure.
    """

    level: Severity
    subject: str
    found: str
    _: KW_ONLY
    expected: str | None = None
    remedy: str | None = None
    package: str | None = None
    configuration: bool = False


def ok(subject: str, found: str) -> Finding:
    return Finding(Severity.OK, subject, found)


def unknown(subject: str, found: str, *, remedy: str | None = None) -> Finding:
    return Finding(Severity.UNKNOWN, subject, found, remedy=remedy)


def warning(subject: str, found: str, *, expected: str, remedy: str) -> Finding:
    return Finding(Severity.WARNING, subject, found, expected=expected, remedy=remedy)


def problem(
    subject: str, found: str, *, expected: str | None = None, remedy: str | None
) -> Finding:
    return Finding(Severity.PROBLEM, subject, found, expected=expected, remedy=remedy)


LOW_DISK_BYTES = 5 * 10**9  # one platform's build has failed with less
LEAST_DISK_BYTES = 5 * 10**8  # an environment with only pip and pytest takes a tenth of it
# For torch, the build tools and their output. Without a build: LEAST_DISK_BYTES.
BUILD_BYTES = 2 * 10**9
# GCC takes 1.3 GB to compile torch's headers, and less without them. One GCC runs per processor.
LOW_MEMORY_BYTES = 4 * 10**9
LEAST_MEMORY_BYTES = 10**9

# The package's name on Debian and its derivatives, and on Fedora and its derivatives. On Fedora
# the interpreter's own package includes venv.
PACKAGES = {
    "git": ("git", "git"),
    "venv": ("{python}-venv", "{python}"),
    "compiler": ("g++", "gcc-c++"),
    "headers": ("{python}-dev", "{python}-devel"),
}
COMPLETE_PYTHON = (
    "Use a complete Python, such as the distribution's. No package adds this to another Python."
)
INSTALL = {
    "apt-get": "apt-get update && apt-get install --yes --no-install-recommends",
    "dnf": "dnf install -y",
    "yum": "yum install -y",
}

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

DOCKER_SOCKET = "unix:///var/run/docker.sock"
CONNECT_S = 2.0  # an engine in this network answers within milliseconds
GIT_S = 5.0  # each of these git commands reads only a few files


def check_git(source: Path) -> Finding:
    """Check git, from which a run takes the commit and the list of source files."""
    folders = (source, *source.resolve().parents)
    try:
        version = run(["git", "--version"], timeout_s=GIT_S).stdout.strip()
    except ProcessError as error:
        if any(os.path.lexists(folder / ".git") for folder in folders):
            expected = "git, since a result names the commit of its sources"
            return _missing_package("git", str(error), "git", expected)
        version = "no git"
    try:
        if find_work_tree(source) is not None:
            git(source, "rev-parse", "--git-dir")
            return ok("git", version)
    except ProcessError as error:
        expected = "a repository that git can read"
        remedy = error.remedy or "Clone the sources again."
        return problem("git", str(error), expected=expected, remedy=remedy)
    return warning(
        "git",
        f"{version}; {source} is not in a repository",
        expected="sources in git, since results name the commit",
        remedy=f"Clone the repository, or run: git init {shlex.quote(str(source))}",
    )


def check_folder(
    subject: str, path: Path, *, remedy: str, least: int = LEAST_DISK_BYTES
) -> Finding:
    """Check that a run can write to a folder, and that ``least`` bytes are free there."""
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not there.is_dir():
        wrong = problem(subject, f"{there} is not a folder", expected="a folder", remedy=remedy)
        return replace(wrong, configuration=True)
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(4096))
            file.flush()
        free = shutil.disk_usage(there).free
    except OSError as error:
        return problem(
            subject,
            f"{there} cannot be written to: {error.strerror or error}",
            expected="a writable folder with free space",
            remedy=remedy,
        )
    return check_disk(subject, str(path.absolute()), free, remedy=remedy, least=least)


def check_disk(
    subject: str, where: str, free: int, *, remedy: str, least: int = LEAST_DISK_BYTES
) -> Finding:
    """Check the free space."""
    found = f"{where}: {_gigabytes(free)} free"
    remedy = f"{command('gc')} removes leftovers of old runs. {remedy}"
    return _judge_room(subject, found, free, least=least, low=LOW_DISK_BYTES, remedy=remedy)


def _judge_room(
    subject: str, found: str, available: int, *, least: int, low: int, remedy: str
) -> Finding:
    """A run fails with less than ``least`` bytes, and may fail with less than ``low``."""
    if available < least:
        expected = f"at least {_gigabytes(least)}"
        return problem(subject, found, expected=expected, remedy=remedy)
    if available < low:
        return warning(subject, found, expected=_gigabytes(low), remedy=remedy)
    return ok(subject, found)


def check_results(path: Path) -> Finding:
    """Check the results folder."""
    return check_folder("results", path, remedy="Name another folder with --results.")


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
    return _missing_package(subject, found, "venv")


def check_headers(python: Interpreter) -> Finding:
    """Check for the headers of a Python, which the library's module includes."""
    subject, path = "Python headers", Path(python.include, "Python.h")
    if path.is_file():
        return ok(subject, str(path.parent))
    missing = f"{path} does not exist"
    if python.path == sys.executable:
        return _missing_package(subject, missing, "headers")
    expected, packaged = f"the headers of {python}", _packaged_python(python.path)
    if packaged is None:
        return problem(subject, missing, expected=expected, remedy=COMPLETE_PYTHON)
    return problem(subject, missing, expected=expected, remedy=_install(["headers"], packaged))


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
        return _missing_package(subject, text, "compiler", expected)
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
    return _judge_room(
        "memory",
        f"{_gigabytes(min(found))} available",
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


def check_first_use(
    root: Path, words: Sequence[str], environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Check the prerequisites of ``python3 noxfile.py WORDS`` where nox is not installed.

    Sessions that run platforms have the prerequisites of `run` and, on the host engine, those of
    that engine. If a site file chooses the engines, or another project's configuration the sources,
    `run` checks the rest: reading these files takes a YAML parser.
    """
    yield check_folder("checkout", root, remedy=f"Copy it: cp -r {shlex.quote(str(root))} ~/")
    split = words.index("--") if "--" in words else len(words)
    of_nox, of_run = words[:split], words[split + 1 :]
    runs = any(word == "release" or word.startswith("build-") for word in of_nox)
    if not runs or {"--list", "-l", "--help", "-h"} & set(of_nox):
        yield check_venv()
        return
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--engine", "--source", "--results", "--config", "--bundle", "--python"):
        options.add_argument(name)
    chosen, _ = options.parse_known_args(of_run)
    yield check_results(root / (chosen.results or environ.get("INFINI_CI_RESULTS") or "results"))
    config = root / (chosen.config or "ci.yaml")
    own = not chosen.bundle and config.resolve().is_relative_to(root)
    if not (chosen.source or own):
        yield check_venv()
        return
    source = root / (chosen.source or "")
    yield check_git(source)
    site = environ.get("INFINI_CI_SITE") or (config.parent / "ci.site.yaml").exists()
    named = any(name.startswith("INFINI_CI_ENGINE_") for name in environ)
    by_itself = chosen.engine in (None, "auto") and not (site or named)
    yield check_venv()  # for the environments of nox
    if chosen.engine == "host" or (by_itself and not docker_answers(environ)):
        path = locate(chosen.python) if chosen.python else sys.executable
        if not chosen.python and check_headers(own_interpreter()).level is Severity.PROBLEM:
            # `run` reads the requirements, and decides whether it uses this one.
            path = find_vendors() or path
        yield check_python(path)
        if isinstance(python := read_interpreter(path), Interpreter):
            yield from check_host_engine(source, environ, pythons=[python])


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


def require(subject: str, findings: Iterable[Finding]) -> None:
    """Raise ``PrerequisiteError`` if there is a problem, with all problems in one message.

    ``subject`` is what the prerequisites are for, such as ``a run``.
    """
    problems = [found for found in findings if found.level is Severity.PROBLEM]
    if problems:
        subjects = ", ".join(found.subject for found in problems)
        lines = ""
        for found in problems:
            lines += f"\n  {found.subject}: {found.found}"
            lines += f"; expected {found.expected}" if found.expected else ""
            lines += f". {found.remedy}" if found.remedy and not found.package else ""
        message = f"this machine lacks prerequisites of {subject}: {subjects}{lines}"
        raise PrerequisiteError(message, remedy=install_line(problems))


def install_line(findings: Iterable[Finding]) -> str | None:
    """Return the command that installs every missing package; ``None``: no package is missing."""
    missing = [found.package for found in findings if found.level is Severity.PROBLEM]
    packages = [package for package in dict.fromkeys(missing) if package]
    return _install(packages) if packages else None


def docker_answers(environ: Mapping[str, str]) -> bool:
    """Return whether a Docker Engine accepts a connection.

    Also true for an engine that is reached by ssh or by a context: only `run` can connect to
    these, as this takes more than the standard library.
    """
    url = environ.get("DOCKER_HOST") or DOCKER_SOCKET
    home = Path(environ.get("HOME") or "/")
    settings = Path(environ.get("DOCKER_CONFIG") or home / ".docker", "config.json")
    if not environ.get("DOCKER_HOST"):
        chosen = bool(environ.get("DOCKER_CONTEXT"))
        with suppress(OSError):
            chosen |= "currentContext" in settings.read_text(errors="replace")
        if chosen:
            return True
    address = urlsplit(url)
    try:
        if address.scheme == "tcp":
            peer = (address.hostname or "localhost", address.port or 2375)
            socket.create_connection(peer, timeout=CONNECT_S).close()
        elif address.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(CONNECT_S)
                connection.connect(address.path)
    except (OSError, ValueError):
        return False
    return True


def _missing_package(
    subject: str, found: str, package: str, expected: str | None = None
) -> Finding:
    """Return a problem that installing a package solves.

    No package adds to a Python other than the distribution's.
    """
    if "{python}" in PACKAGES[package][0] and _packaged_python(sys.executable) is None:
        return problem(subject, found, remedy=COMPLETE_PYTHON)
    lacking = problem(subject, found, expected=expected, remedy=_install([package]))
    return replace(lacking, package=package)


def _packaged_python(python: str) -> str | None:
    """Return an interpreter's package name: ``python3`` for the default, else ``python3.12``."""
    real = os.path.realpath(python)
    if real == os.path.realpath("/usr/bin/python3"):
        return "python3"
    return Path(real).name if Path(real).parent == Path("/usr/bin") else None


def package_manager() -> str | None:
    """Return the package manager of this machine.

    Fedora may have an apt-get that installs nothing.
    """
    debian = Path("/etc/debian_version").exists()
    managers = ("apt-get", "dnf", "yum") if debian else ("dnf", "yum", "apt-get")
    return next(filter(shutil.which, managers), None)


def install_command(manager: str, names: Sequence[str]) -> str:
    """Return the command that installs packages, as this user has to run it."""
    command = f"{INSTALL[manager]} {shlex.join(names)}"
    if os.geteuid() == 0:
        return command
    if shutil.which("sudo"):
        return command.replace(manager, f"sudo {manager}")
    return f"su -c {shlex.quote(command)}"


def _install(packages: Sequence[str], python: str | None = None) -> str:
    """Return the command that installs packages, those for Pythons for the package ``python``."""
    manager = package_manager()
    python = python or (_packaged_python(sys.executable) if manager else None) or "python3"
    names = [
        (fedora if manager in ("dnf", "yum") else debian).format(python=python)
        for debian, fedora in map(PACKAGES.__getitem__, packages)
    ]
    if manager is None:
        return f"Install these packages (Debian's names): {', '.join(names)}."
    return install_command(manager, names)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 10**9 else f"{count / 1e6:.0f} MB"
