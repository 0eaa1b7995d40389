"""The git repository of a project, as far as comparisons of commits need it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ci.errors import UsageError
from ci.util import git
from ci.util.process import ProcessError, ProcessResult

_HASH = re.compile(r"[0-9a-f]{40,64}")
_NO_SUCH_REVISION = "Needed a single revision"
BRANCHES = ("refs/heads/", "refs/remotes/")


@dataclass(frozen=True, kw_only=True)
class CommitFacts:
    """What the author of a commit wrote; it may be any text."""

    subject: str
    author: str


class Repository:
    """The git repository of a folder. Both the repository and git may be missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git_error: str | None = None
        """The error message of git, once a call has failed."""

    def commits(self, name: str) -> tuple[str, ...]:
        """The commit of a branch, a tag or another revision, and its ancestors, newest first.

        Empty if git finds none. Raises ``UsageError`` if several commits begin with ``name``.
        """
        found = self._git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        if found is None:
            return ()
        commit = found.stdout.strip()
        if found.exit_code == 0 and _HASH.fullmatch(commit):
            led_to = self._git("rev-list", "--topo-order", "--end-of-options", commit)
            return tuple(led_to.stdout.split() if led_to else ()) or (commit,)
        if "is ambiguous" in found.stderr:
            message = f"'{name}' is ambiguous: several commits of {self.folder} begin with it"
            message += f":\n{found.stderr.strip()}"
            raise UsageError(message, remedy="Write more digits of the commit.")
        if found.exit_code and _NO_SUCH_REVISION not in found.stderr:
            self.git_error = " ".join(found.stderr.split()) or None
        return ()

    def line(self, commit: str) -> tuple[str, ...]:
        """A commit and its first parents, newest first; empty if git does not know it."""
        return tuple(self._words("rev-list", "--first-parent", "--end-of-options", commit))

    def branch(self, name: str) -> str | None:
        """The branch that a revision names, without its remote; ``None`` for any other revision.

        ``HEAD`` is a place in the history, whatever branch is checked out.
        """
        if name in ("HEAD", "@"):
            return None
        found = self._words("rev-parse", "--symbolic-full-name", "--end-of-options", name)
        full = found[-1] if found else ""  # git repeats --end-of-options in its output
        for start in BRANCHES:
            if full.startswith(start):
                branch = full.removeprefix(start)
                return branch if start == BRANCHES[0] else branch.partition("/")[2]
        return None

    def tag_commit(self, tag: str) -> str | None:
        """The commit of a tag; ``None`` if git does not know the tag."""
        found = self._words("rev-parse", "--verify", "--quiet", f"refs/tags/{tag}^{{commit}}")
        return found[0] if found and _HASH.fullmatch(found[0]) else None

    def tagged(self, pattern: str) -> frozenset[str]:
        """The commits of all tags that match."""
        # An annotated tag has an object of its own, which names the commit.
        form = "--format=%(objectname) %(*objectname)"
        return frozenset(self._words("for-each-ref", form, f"refs/tags/{pattern}"))

    def last_tag(self, commit: str, pattern: str) -> str | None:
        """The newest tag before a commit that matches; ``None`` if git knows none.

        A tag of the commit itself, such as that of a release candidate, is not before it.
        """
        if not _HASH.fullmatch(commit):
            return None
        reachable = (f"--merged={commit}", f"--no-contains={commit}")
        # The last key is the first one: of tags of one second, the highest version is the newest.
        order = ("--sort=-version:refname", "--sort=-creatordate", "--count=1")
        form = "--format=%(refname:strip=2)"
        found = self._words("for-each-ref", *reachable, *order, form, f"refs/tags/{pattern}")
        return found[0] if found else None

    def merge_base(self, first: str, second: str) -> str | None:
        """The newest common commit of two commits, if git knows both and finds one."""
        found = self._words("merge-base", "--end-of-options", first, second)
        return found[0] if found and _HASH.fullmatch(found[0]) else None

    def commits_since(self, commit: str, tip: str) -> frozenset[str]:
        """The commits up to ``tip`` that have ``commit`` among their ancestors."""
        between = f"{commit}..{tip}"
        return frozenset(self._words("rev-list", "--ancestry-path", "--end-of-options", between))

    def changed_files(self, before: str, since: str) -> tuple[str, ...]:
        """The files in which two commits differ; empty if git does not know one of them."""
        if not (_HASH.fullmatch(before) and _HASH.fullmatch(since)):
            return ()
        options = ("--name-only", "--no-renames", "-z", before, since, "--")
        found = self._git("diff-tree", "-r", *options)
        names = found.stdout.split("\0") if found and found.exit_code == 0 else []
        return tuple(filter(None, names))

    def describe(self, commits: Iterable[str]) -> dict[str, CommitFacts]:
        """The subjects and authors of these commits, without those that git does not know."""
        names = "".join(f"{it}\n" for it in dict.fromkeys(commits) if _HASH.fullmatch(it))
        form = "--format=tformat:%H%x00%an%x00%s"
        options = ("--no-walk=unsorted", "--ignore-missing", "--stdin", "-z", form)
        found = self._git("log", *options, stdin=names) if names else None
        if found is None or found.exit_code:
            return {}
        words = found.stdout.split("\0")
        rows = zip(words[::3], words[1::3], words[2::3], strict=False)
        return {it: CommitFacts(author=author, subject=subject) for it, author, subject in rows}

    @cached_property
    def top(self) -> Path:
        """The folder of the whole repository: the project may be in one of its folders."""
        try:
            tree = git.find_work_tree(self.folder)
        except ProcessError:
            tree = None
        return tree.top if tree else self.folder

    @property
    def remote(self) -> str | None:
        """The address that ``origin`` is fetched from. It may contain a password."""
        try:
            return git.user_setting(self.folder, "remote.origin.url")
        except ProcessError:
            return None

    @cached_property
    def is_shallow(self) -> bool:
        return self._words("rev-parse", "--is-shallow-repository") == ["true"]

    def _words(self, *arguments: str) -> list[str]:
        """The words that git prints; none if it fails."""
        found = self._git(*arguments)
        return found.stdout.split() if found and found.exit_code == 0 else []

    def _git(self, *arguments: str, stdin: str | None = None) -> ProcessResult | None:
        try:
            return git.call(self.folder, *arguments, stdin=stdin)
        except ProcessError as error:  # no git, no such folder
            self.git_error = str(error)
            return None
