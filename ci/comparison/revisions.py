"""What git knows of a project: which commit a branch, a tag or a prefix is, and what led to it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ci import process
from ci.errors import UsageError
from ci.process import ProcessError, ProcessResult

_HASH = re.compile(r"[0-9a-f]{40,64}")
_NO_SUCH_REVISION = "Needed a single revision"


@dataclass(frozen=True, kw_only=True)
class Revision:
    """A revision as it was named, and the commit that it is."""

    name: str
    commit: str
    ancestors: tuple[str, ...]
    """The commit and all that led to it, the newest first."""


class Repository:
    """The git repository of a folder; there need not be one, nor git."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.silence: str | None = None
        """Why git does not answer here, once it was asked in vain."""

    def revision(self, name: str) -> Revision | None:
        """The commit of a branch, a tag or whatever git takes; ``None``: none of that name.

        Raises ``UsageError`` for the beginning of several commits.
        """
        found = self._git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        if found is None:
            return None
        commit = found.stdout.strip()
        if found.exit_code == 0 and _HASH.fullmatch(commit):
            return Revision(name=name, commit=commit, ancestors=self._ancestors(commit))
        if "is ambiguous" in found.stderr:
            message = f"'{name}' begins several commits of {self.folder}:\n{found.stderr.strip()}"
            raise UsageError(message, remedy="Write more of it.")
        if found.exit_code and _NO_SUCH_REVISION not in found.stderr:
            self.silence = " ".join(found.stderr.split()) or None
        return None

    @cached_property
    def is_shallow(self) -> bool:
        found = self._git("rev-parse", "--is-shallow-repository")
        return found is not None and found.stdout.strip() == "true"

    def _ancestors(self, commit: str) -> tuple[str, ...]:
        found = self._git("rev-list", "--topo-order", "--end-of-options", commit)
        return tuple(found.stdout.split()) if found else (commit,)

    def _git(self, *arguments: str) -> ProcessResult | None:
        # In English, because messages are compared.
        environment = {**process.inherited_environment(), "LC_ALL": "C"}
        try:
            return process.run(
                ["git", *arguments], cwd=self.folder, environment=environment, check=False
            )
        except ProcessError as error:  # no git, no such folder
            self.silence = str(error)
            return None
