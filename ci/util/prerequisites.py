"""What runs need of this machine: checks, their findings, and the one line that installs the rest.

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
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from ci.errors import PrerequisiteError
from ci.util.invocation import command
from ci.util.process import ProcessError, run


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    UNKNOWN = "unknown"  # no check could decide, which is not ok
    WARNING = "warning"
    PROBLEM = "problem"  # a run would fail


@dataclass(frozen=True)
class Finding:
    """One answer of a check: what was found and, unless it is ok, what to do.

    ``package`` is the key in ``PACKAGES`` of what would add what is missing.
    ``configuration``: a problem is one of the configuration, not of the infrastructure.
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


LITTLE_BYTES = 5 * 10**9  # less has been too little for one platform's build
TOO_LITTLE_BYTES = 5 * 10**8  # an environment of pip and pytest alone takes a tenth of it
# torch, the build tools and what they build; without a build, TOO_LITTLE_BYTES.
BUILD_BYTES = 2 * 10**9
# GCC takes 1.3 GB for torch's headers, less for what does without; one runs on each processor.
LITTLE_MEMORY_BYTES = 4 * 10**9
TOO_LITTLE_MEMORY_BYTES = 10**9

# What Debian and its kin call a package, and what Fedora and its kin do: they have venv in the
# interpreter's own.
PACKAGES = {
    "git": ("git", "git"),
    "venv": ("{python}-venv", "{python}"),
    "compiler": ("g++", "gcc-c++"),
    "headers": ("{python}-dev", "{python}-devel"),
}
COMPLETE_PYTHON = (
    "Use a complete Python, such as the distribution's: no package has this for another."
)
INSTALL = {
    "apt-get": "apt-get update && apt-get install --yes --no-install-recommends",
    "dnf": "dnf install -y",
    "yum": "yum install -y",
}

COMPILERS = ("c++", "CC", "g++", "clang++")  # the order in which CMake looks for one
# Where else a compiler may be chosen.
CMAKE_SETTINGS = ("CMAKE_ARGS", "SKBUILD_CMAKE_ARGS", "SKBUILD_CMAKE_DEFINE")
CHOSEN = re.compile("CMAKE_(CXX_COMPILER|TOOLCHAIN_FILE)\\b")
COMPILE_S = 60.0  # GCC takes 0.3 s; a wrapper may first ask a server for a licence
# Also linked: a compiler without its library compiles this. CMake links such programs too.
PROGRAM = """\
#include <string>
#include <string_view>
int main() { if constexpr (std::string_view("ab").size() == 2) return int(std::string().size()); }
"""
BUILD_FILES = ("CMakeLists.txt", "meson.build")
BUILD_TOOLS = ("cython", "meson-python", "nanobind", "pybind11", "scikit-build")

DOCKER_SOCKET = "unix:///var/run/docker.sock"
CONNECT_S = 2.0  # an engine of this network that answers does so within milliseconds
GIT_S = 5.0  # neither question reads more than a few files


def git(source: Path) -> Finding:
    """The commit of a result is git's, and so is the list of files that a run takes."""
    folders = (source, *source.resolve().parents)
    repository = next((folder for folder in folders if (folder / ".git").exists()), None)
    try:
        version = run(["git", "--version"], timeout_s=GIT_S).stdout.strip()
    except ProcessError as error:
        if repository is not None:
            expected = "git: a result names the commit of its sources"
            return _lacking("git", str(error), "git", expected)
        version = "no git"
    if repository is None:
        return warning(
            "git",
            f"{version}; {source} is in no repository",
            expected="sources in git: without it no result names its commit",
            remedy="Clone the repository, or run git init there.",
        )
    inside = run(["git", "-C", str(source), "rev-parse", "--git-dir"], check=False, timeout_s=GIT_S)
    if inside.exit_code == 0:
        return ok("git", version)
    said = (inside.stderr.strip() or f"exit code {inside.exit_code}").splitlines()[0]
    return problem(
        "git",
        f"git cannot read the repository {repository}: {said}",
        expected="a repository of yours",
        remedy=f"git config --global --add safe.directory {shlex.quote(str(repository))}",
    )


def folder(subject: str, path: Path, *, remedy: str, least: int = TOO_LITTLE_BYTES) -> Finding:
    """Judge a folder that a run writes to: the right to write there, and ``least`` bytes."""
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
            expected="a folder of yours with room",
            remedy=remedy,
        )
    return disk(subject, str(path.absolute()), free, remedy=remedy, least=least)


def disk(
    subject: str, where: str, free: int, *, remedy: str, least: int = TOO_LITTLE_BYTES
) -> Finding:
    """Judge how much is free."""
    found = f"{where}: {_gigabytes(free)} free"
    remedy = f"{command('gc')} removes what old runs left. {remedy}"
    return _judge_room(subject, found, free, least=least, little=LITTLE_BYTES, remedy=remedy)


def _judge_room(
    subject: str, found: str, available: int, *, least: int, little: int, remedy: str
) -> Finding:
    """With less than ``least`` bytes a run fails, with less than ``little`` it may."""
    if available < least:
        expected = f"at least {_gigabytes(least)}"
        return problem(subject, found, expected=expected, remedy=remedy)
    if available < little:
        return warning(subject, found, expected=_gigabytes(little), remedy=remedy)
    return ok(subject, found)


def results(path: Path) -> Finding:
    """Where results go."""
    return folder("results", path, remedy="Name another folder with --results.")


def temporary_folder(*, least: int) -> Finding:
    """Where the host engine makes its environment, whose programs it starts there."""
    subject, remedy = "temporary folder", "Name another folder with TMPDIR."
    try:
        path = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        return problem(subject, str(error.strerror), expected="one to write to", remedy=remedy)
    found = folder(subject, path, remedy=remedy, least=least)
    if found.level is not Severity.PROBLEM and os.statvfs(path).f_flag & os.ST_NOEXEC:
        text = f"{path} is mounted noexec: no program there can be started"
        return problem(subject, text, expected="a folder for programs", remedy=remedy)
    return found


def venv() -> Finding:
    """Whether this Python makes virtual environments."""
    subject, version = "Python venv", f"Python {platform.python_version()} ({sys.executable})"
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if not missing:
        return ok(subject, version)
    found = f"{version} has no {' and no '.join(missing)}, so it makes no virtual environment"
    return _lacking(subject, found, "venv")


def headers() -> Finding:
    """Whether the headers of this Python are here: what the library's module includes."""
    path = Path(sysconfig.get_path("include"), "Python.h")
    if path.is_file():
        return ok("Python headers", str(path.parent))
    return _lacking("Python headers", f"{path} is not there", "headers")


def compiler(environ: Mapping[str, str], *, can_write: bool = True) -> Finding:
    """Whether the C++ compiler that CMake would take makes a program of C++17.

    Without a temporary folder, ``can_write``, it is only looked for.
    """
    subject, expected = "C++ compiler", "one that takes -std=c++17, such as GCC 9 or Clang 10"
    by_setting = [name for name in CMAKE_SETTINGS if CHOSEN.search(environ.get(name, ""))]
    if by_setting or environ.get("CMAKE_TOOLCHAIN_FILE"):
        where = ", ".join(by_setting) or "CMAKE_TOOLCHAIN_FILE"
        return ok(subject, f"the one that {where} chooses, not tried")
    named = environ.get("CXX", "")
    search = environ.get("PATH", os.defpath)
    found = next(filter(None, (shutil.which(name, path=search) for name in COMPILERS)), None)
    words = shlex.split(named) or ([found] if found else [])
    if not words:
        text = f"none of {', '.join(COMPILERS)} is on PATH"
        return _lacking(subject, text, "compiler", expected)
    if shutil.which(words[0], path=search) is None:
        text = f"CXX names '{words[0]}', which was not found"
        return problem(subject, text, expected=expected, remedy="Correct CXX, or unset it.")
    shown = f"CXX={named}" if named else words[0]
    if not can_write:
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
            text = f"{shown} does not build a program of C++17: {reason}"
            remedy = "Install a newer compiler, and name it in CXX where another is found first."
            return problem(subject, text, expected=expected, remedy=remedy)
    return ok(subject, f"{shown} builds C++17")


def memory(*, builds: bool) -> Finding:
    """How much memory a run may take: of the machine, and of the container around this."""
    found: list[int] = []
    with suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = {line.split()[0]: int(line.split()[1]) for line in lines}
        found.append((kilobytes["MemAvailable:"] + kilobytes["SwapFree:"]) * 1024)
    with suppress(OSError, ValueError):  # a container's own limit, "max" where it has none
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    if not found:
        return ok("memory", "this machine does not report it")
    return _judge_room(
        "memory",
        f"{_gigabytes(min(found))} available",
        min(found),
        least=TOO_LITTLE_MEMORY_BYTES if builds else 0,
        little=LITTLE_MEMORY_BYTES,
        remedy="End other programs, or build with fewer processes: CMAKE_BUILD_PARALLEL_LEVEL=1",
    )


def host_engine(source: Path, *environs: Mapping[str, str]) -> Iterator[Finding]:
    """What the host engine needs to make its environments and to build ``source`` in each.

    CMake and ninja come from pip. They need what a compiler brings, and a temporary folder whose
    programs can be started.
    """
    builds = compiles(source)
    yield venv()
    room = temporary_folder(least=BUILD_BYTES if builds else TOO_LITTLE_BYTES)
    yield room
    yield memory(builds=builds)
    can_write = room.level is not Severity.PROBLEM
    compilers = dict.fromkeys(compiler(environ, can_write=can_write) for environ in environs)
    for found in (*compilers, headers()):
        if found.level is Severity.PROBLEM and not builds:
            expected = "nothing, unless pip compiles something here"
            found = replace(found, level=Severity.WARNING, expected=expected)
        yield found


def first_use(root: Path, words: Sequence[str], environ: Mapping[str, str]) -> Iterator[Finding]:
    """What ``python3 noxfile.py WORDS`` needs of this machine, where nox is not installed.

    Sessions that run platforms need what `run` needs, and on the host engine what that needs.
    Where a site's file chooses engines, or another project's configuration its sources, it is left
    to `run`: reading them takes a YAML parser.
    """
    yield folder("checkout", root, remedy=f"Copy it: cp -r {shlex.quote(str(root))} ~/")
    split = words.index("--") if "--" in words else len(words)
    of_nox, of_run = words[:split], words[split + 1 :]
    runs = any(word == "release" or word.startswith("build-") for word in of_nox)
    if not runs or {"--list", "-l", "--help", "-h"} & set(of_nox):
        yield venv()
        return
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--engine", "--source", "--results", "--config", "--bundle"):
        options.add_argument(name)
    chosen, _ = options.parse_known_args(of_run)
    yield results(root / (chosen.results or environ.get("INFINI_CI_RESULTS") or "results"))
    config = root / (chosen.config or "ci.yaml")
    own = not chosen.bundle and config.resolve().is_relative_to(root)
    if not (chosen.source or own):
        yield venv()
        return
    source = root / (chosen.source or "")
    yield git(source)
    site = environ.get("INFINI_CI_SITE") or (config.parent / "ci.site.yaml").exists()
    named = any(name.startswith("INFINI_CI_ENGINE_") for name in environ)
    by_itself = chosen.engine in (None, "auto") and not (site or named)
    if chosen.engine == "host" or (by_itself and not docker_answers(environ)):
        yield from host_engine(source, environ)
    else:
        yield venv()


def compiles(source: Path) -> bool:
    """Tell whether a project evidently compiles C++: by its build files and build requirements."""
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


def refuse(what: str, findings: Iterable[Finding]) -> None:
    """Raise ``PrerequisiteError`` where there is a problem, with every problem in one message."""
    problems = [found for found in findings if found.level is Severity.PROBLEM]
    if problems:
        subjects = ", ".join(found.subject for found in problems)
        lines = ""
        for found in problems:
            lines += f"\n  {found.subject}: {found.found}"
            lines += f"; expected {found.expected}" if found.expected else ""
            lines += f". {found.remedy}" if found.remedy and not found.package else ""
        message = f"this machine lacks what {what}: {subjects}{lines}"
        raise PrerequisiteError(message, remedy=install_line(problems))


def install_line(findings: Iterable[Finding]) -> str | None:
    """The command that installs every package that a problem is about, if there are any."""
    missing = [found.package for found in findings if found.level is Severity.PROBLEM]
    packages = [package for package in dict.fromkeys(missing) if package]
    return _install(packages) if packages else None


def docker_answers(environ: Mapping[str, str]) -> bool:
    """Tell whether a Docker Engine accepts a connection, or one is named that only `run` can ask.

    An engine by ssh or by a context needs more than the standard library.
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


def _lacking(subject: str, found: str, package: str, expected: str | None = None) -> Finding:
    """A problem that a package solves, if it is none of a Python other than the distribution's."""
    if "{python}" in PACKAGES[package][0] and _packaged_python() is None:
        return problem(subject, found, remedy=COMPLETE_PYTHON)
    lacking = problem(subject, found, expected=expected, remedy=_install([package]))
    return replace(lacking, package=package)


def _packaged_python() -> str | None:
    """What packages call this interpreter: python3 where it is the default, else python3.12."""
    real = os.path.realpath(sys.executable)
    if real == os.path.realpath("/usr/bin/python3"):
        return "python3"
    return f"python3.{sys.version_info.minor}" if Path(real).parent == Path("/usr/bin") else None


def package_manager() -> str | None:
    """What installs packages here; a Fedora may have an apt-get that installs nothing."""
    debian = Path("/etc/debian_version").exists()
    managers = ("apt-get", "dnf", "yum") if debian else ("dnf", "yum", "apt-get")
    return next(filter(shutil.which, managers), None)


def install_command(manager: str, names: Sequence[str]) -> str:
    """The line that installs packages, for this user."""
    command = f"{INSTALL[manager]} {shlex.join(names)}"
    if os.geteuid() == 0:
        return command
    if shutil.which("sudo"):
        return command.replace(manager, f"sudo {manager}")
    return f"su -c {shlex.quote(command)}"


def _install(packages: Sequence[str]) -> str:
    manager = package_manager()
    python = (_packaged_python() if manager else None) or "python3"
    names = [
        (fedora if manager in ("dnf", "yum") else debian).format(python=python)
        for debian, fedora in map(PACKAGES.__getitem__, packages)
    ]
    if manager is None:
        return f"Install what Debian calls {', '.join(names)}."
    return install_command(manager, names)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 10**9 else f"{count / 1e6:.0f} MB"
