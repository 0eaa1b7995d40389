"""Commits as the pages show them: subject and author, and the page of the project's forge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from ci.analysis.repository import CommitFacts, Repository
from ci.util.text import SHORT, commit_name

# By a word in the name of the host. A forge of any other name gets no link: none is better than
# one that leads nowhere.
_PATHS = {
    "github": "commit",
    "gitlab": "-/commit",
    "gitea": "commit",
    "forgejo": "commit",
    "codeberg": "commit",
    "gitee": "commit",
    "bitbucket": "commits",
}
_SCP_LIKE = re.compile(r"(?:[^@/:]+@)?(?P<host>[A-Za-z0-9.-]+):(?P<path>[^/:].*)")


@dataclass(frozen=True, kw_only=True)
class ShownCommit:
    """A commit, or that there is none."""

    name: str
    """``commit 0123456789ab with uncommitted changes``."""
    short: str
    facts: CommitFacts | None
    page: str | None
    """Its page on the forge."""

    @property
    def about(self) -> str:
        """``Fix a leak (Ada)``; empty if git does not know the commit."""
        return f"{self.facts.subject} ({self.facts.author})" if self.facts else ""


@dataclass(frozen=True, kw_only=True)
class Commits:
    """The commits that the repository of the project knows."""

    facts: Mapping[str, CommitFacts]
    page: str | None
    """Where the forge shows commits; their ids follow."""

    def of(self, commit: str | None, *, dirty: bool = False) -> ShownCommit:
        facts = self.facts.get(commit or "")
        return ShownCommit(
            name=commit_name(commit, dirty=dirty),
            short=f"{(commit or '')[:SHORT]}{'+' if dirty and commit else ''}" or "no commit",
            facts=facts,
            page=f"{self.page}{commit}" if self.page and facts else None,
        )


def read_commits(repository: Repository, commits: Iterable[str]) -> Commits:
    facts = repository.describe(commits)
    return Commits(facts=facts, page=commit_pages(repository.remote or "") if facts else None)


def commit_pages(remote: str) -> str | None:
    """``https://github.com/OWNER/NAME/commit/`` from any address of a remote; never its user."""
    if "://" in remote:
        try:
            parts = urlsplit(remote)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return None
        if parts.scheme not in ("http", "https", "ssh", "git"):
            return None
        is_web = parts.scheme in ("http", "https")  # the port of SSH is not that of the pages
        scheme = parts.scheme if is_web else "https"
        place, path = f"{host}:{port}" if is_web and port else host, parts.path
    elif found := _SCP_LIKE.fullmatch(remote):
        scheme, host, path = "https", found["host"].lower(), found["path"]
        place = host
    else:
        return None
    kind = next((it for word, it in _PATHS.items() if word in host), None)
    name = path.strip("/").removesuffix(".git")
    if kind is None or not re.fullmatch(r"[a-z0-9.-]+", host) or "/" not in name:
        return None
    return f"{scheme}://{place}/{quote(name)}/{kind}/"
