"""Packages of the distribution on this machine, into which the host engine installs nothing."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence

from ci import process
from ci.plan import SystemPackages

MANAGERS = ("apt-get", "dnf", "yum")  # in the order in which docker/install-tools looks for them
TIMEOUT_S = 30.0


def package_manager() -> str | None:
    """The program that installs packages on this machine, if it is one that we know."""
    return next((name for name in MANAGERS if shutil.which(name)), None)


def missing_packages(wanted: SystemPackages) -> tuple[str, ...]:
    """The packages that are not installed here; none where no package manager can be asked."""
    manager = package_manager()
    if manager is None:
        return ()
    names = wanted.apt if manager == "apt-get" else wanted.dnf
    return tuple(name for name in names if not _is_installed(manager, name))


def install_command(names: Sequence[str]) -> str:
    """The line that installs ``names`` here."""
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    return shlex.join([*sudo, package_manager() or MANAGERS[0], "install", "-y", *names])


def _is_installed(manager: str, name: str) -> bool:
    if manager == "apt-get":
        query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}\\n"]
    else:
        query = ["rpm", "--query", "--whatprovides", "--queryformat=installed\\n"]
    answer = process.run([*query, name], check=False, timeout_s=TIMEOUT_S)
    return "installed" in answer.stdout.splitlines()
