"""The file ``ci-accepted.yaml`` of a project: the rises of cost that its reviewers accept."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from pathlib import Path

import yaml

from ci.errors import ConfigError
from ci.facts.acceptance import Acceptance, AcceptedFile
from ci.plan.load import load_accepted, load_config
from ci.plan.source import git
from ci.util.files import write_atomically
from ci.util.invocation import ACCEPTED_FILE, CONFIG_FILE
from ci.util.process import ProcessError

HEADER = """\
# Accepted rises of build and test cost. `python -m ci history` writes this file with --accept and
# edits it with --withdraw. Review it like source code.
"""
UNBROKEN = 1_000_000
"""Columns: a line per key, whatever its length, is the easiest to review."""


class _Dumper(yaml.SafeDumper):
    """Writes equal dates in full: the loader refuses aliases."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def read_accepted(folder: Path, project: str) -> tuple[Acceptance, ...] | None:
    """Read the file in a project's folder.

    ``None`` if it does not exist or is of another project. Raises ``ConfigError`` with all
    findings.
    """
    path = folder / ACCEPTED_FILE
    if not path.exists():
        return None
    found = load_accepted(path)
    return found.accepted if found.project == project else None


def write_accepted(folder: Path, project: str, accepted: Sequence[Acceptance]) -> Path:
    """Write the file in a project's folder, and return its path.

    Raises ``ConfigError`` if the folder is that of another project.
    """
    path = folder / ACCEPTED_FILE
    file, owner = (
        (path, load_accepted(path).project)
        if path.exists()
        else (folder / CONFIG_FILE, load_config(folder / CONFIG_FILE).project)
    )
    if owner != project:
        message = f"{file}: project: got '{owner}', expected '{project}', the project of the runs"
        raise ConfigError(message, remedy="Name the folder of that project: --source DIR")
    content = AcceptedFile(project=project, accepted=tuple(accepted))
    data = content.model_dump(exclude_none=True)
    for entry in data["accepted"]:
        entry["quantity"] = entry["quantity"].value
    text = yaml.dump(
        {"project": project, "accepted": [*data["accepted"]]},
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=UNBROKEN,
    )
    write_atomically(path, HEADER + text)
    return path


def acceptor(folder: Path) -> str:
    """The name of the user who accepts: as in commits of the project, else that of the account."""
    try:
        name = git(folder, "config", "user.name", check=False).strip()
    except ProcessError:
        name = ""
    return name or _account()


def _account() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no variable has it, and the account has no name
        return "unknown"
