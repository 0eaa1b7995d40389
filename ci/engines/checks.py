"""Checks of what a run needs: their findings, how they are carried out side by side, and remedies.

Standard library only: ``noxfile.py`` checks before anything is installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from threading import Thread
from time import monotonic

from ci.errors import CiError, ExitCode, InfrastructureError, PrerequisiteError
from ci.util.invocation import command

REQUEST_S = 5.0  # one request over the network
CHECK_S = 8.0  # one check: a request, its preparation, and the reading of its answer
LARGEST_CLOCK_DIFFERENCE_S = 60.0  # results tolerate minutes; NTP keeps clocks within a second
LOW_DISK_BYTES = 5 * 10**9  # one platform's build has failed with less
LEAST_DISK_BYTES = 5 * 10**8  # an environment with only pip and pytest takes a tenth of it


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


@dataclass(frozen=True)
class Check:
    """A check of ``subject``; ``look`` yields its findings."""

    subject: str
    look: Callable[[], Iterable[Finding]]
    limit_s: float = field(default=CHECK_S, kw_only=True)


class _CheckThread(Thread):
    """The thread of one check, a daemon: the program can end even if the check hangs."""

    def __init__(self, check: Check) -> None:
        super().__init__(daemon=True)
        self.check = check
        self.findings: list[Finding] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        subject = self.check.subject
        try:
            for found in self.check.look():
                self.findings.append(found)
        except CiError as error:
            self.findings += error_findings(subject, error)
        except OSError as error:
            self.findings += error_findings(subject, InfrastructureError(str(error)))
        except BaseException as error:
            self.error = error


def carry_out(checks: Sequence[Check]) -> list[Finding]:
    """Carry out ``checks`` at the same time; the findings come in their order."""
    threads = [_CheckThread(check) for check in checks]
    start = monotonic()
    for thread in threads:
        thread.start()
    findings: list[Finding] = []
    for thread in threads:
        check = thread.check
        thread.join(max(0.0, start + check.limit_s - monotonic()))
        is_late = thread.is_alive()
        if thread.error is not None:
            raise thread.error
        findings += thread.findings
        if is_late:
            findings.append(unknown(check.subject, f"no answer within {check.limit_s:g} s"))
    return findings


def error_findings(subject: str, error: CiError) -> Iterator[Finding]:
    """Yield a problem for each line of a typed error; the last one has the remedy."""
    *first, last = str(error).splitlines()
    configuration = error.exit_code is ExitCode.USAGE
    for line, remedy in (*((line, None) for line in first), (last, error.remedy)):
        yield Finding(Severity.PROBLEM, subject, line, remedy=remedy, configuration=configuration)


def judge_clock(subject: str, theirs: datetime, mine: datetime) -> Finding:
    """Judge the clock of another machine: ``theirs`` when this machine's was ``mine``."""
    difference = (theirs - mine).total_seconds()
    if abs(difference) <= LARGEST_CLOCK_DIFFERENCE_S:
        return ok(subject, "within a minute of this machine's")
    how = "ahead of" if difference > 0 else "behind"
    return warning(
        subject,
        f"{abs(difference):,.0f} s {how} this machine's",
        expected=f"at most {LARGEST_CLOCK_DIFFERENCE_S:g} s: certificates and the order of results"
        " depend on it",
        remedy="Correct the wrong one of the two, best by NTP (timedatectl set-ntp true).",
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
    found = f"{where}: {gigabytes(free)} free"
    remedy = f"{command('gc')} removes leftovers of old runs. {remedy}"
    return judge_room(subject, found, free, least=least, low=LOW_DISK_BYTES, remedy=remedy)


def judge_room(
    subject: str, found: str, available: int, *, least: int, low: int, remedy: str
) -> Finding:
    """A run fails with less than ``least`` bytes, and may fail with less than ``low``."""
    if available < least:
        expected = f"at least {gigabytes(least)}"
        return problem(subject, found, expected=expected, remedy=remedy)
    if available < low:
        return warning(subject, found, expected=gigabytes(low), remedy=remedy)
    return ok(subject, found)


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 10**9 else f"{count / 1e6:.0f} MB"


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
