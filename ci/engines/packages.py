"""Packages that this machine lacks, and the command that installs them.

Standard library only: ``noxfile.py`` checks before anything is installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ci.engines.checks import Finding, Severity, problem
from ci.errors import PrerequisiteError

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
    return install(packages) if packages else None


def missing_package(subject: str, found: str, package: str, expected: str | None = None) -> Finding:
    """Return a problem that installing a package solves.

    No package adds to a Python other than the distribution's.
    """
    if "{python}" in PACKAGES[package][0] and packaged_python(sys.executable) is None:
        return problem(subject, found, remedy=COMPLETE_PYTHON)
    lacking = problem(subject, found, expected=expected, remedy=install([package]))
    return replace(lacking, package=package)


def packaged_python(python: str) -> str | None:
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


def install(packages: Sequence[str], python: str | None = None) -> str:
    """Return the command that installs packages, those for Pythons for the package ``python``."""
    manager = package_manager()
    python = python or (packaged_python(sys.executable) if manager else None) or "python3"
    names = [
        (fedora if manager in ("dnf", "yum") else debian).format(python=python)
        for debian, fedora in map(PACKAGES.__getitem__, packages)
    ]
    if manager is None:
        return f"Install these packages (Debian's names): {', '.join(names)}."
    return install_command(manager, names)
