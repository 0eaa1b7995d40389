"""Packages of the distribution on this machine, into which the host engine installs nothing."""

from __future__ import annotations

from ci import process
from ci.plan import SystemPackages
from ci.prerequisites import install_command, package_manager

TIMEOUT_S = 30.0


def missing_packages(wanted: SystemPackages) -> str | None:
    """Return the line that installs what is not installed here, if anything is missing.

    Nothing is where no package manager can be asked.
    """
    manager = package_manager()
    if manager is None:
        return None
    names = wanted.apt if manager == "apt-get" else wanted.dnf
    missing = [name for name in names if not _is_installed(manager, name)]
    return install_command(manager, missing) if missing else None


def _is_installed(manager: str, name: str) -> bool:
    if manager == "apt-get":
        query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}\\n"]
    else:
        query = ["rpm", "--query", "--whatprovides", "--queryformat=installed\\n"]
    answer = process.run([*query, name], check=False, timeout_s=TIMEOUT_S)
    return "installed" in answer.stdout.splitlines()
