"""The owners of changed files, as a ``CODEOWNERS`` file of GitHub, GitLab or Gitea names them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ci.analysis.alarm_tracking import TrackedAlarm
from ci.analysis.alarms import Alarm
from ci.analysis.platform_history import ProjectLine
from ci.errors import ConfigError
from ci.facts.files import read_text_file
from ci.gates.regression import Judgement
from ci.util.invocation import CONFIG_FILE

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")
"""Where the file may be; the first one counts."""
LARGEST_FILE = 3 << 20  # bytes: the limit of GitHub
_WORD = re.compile(r"(?:\\.|[^\s\\])+")


@dataclass(frozen=True, kw_only=True)
class OwnerRule:
    """One line: a pattern of paths, and their owners."""

    paths: re.Pattern[str]
    owners: tuple[str, ...]
    """Empty for files without an owner."""


def read_owner_rules(folder: Path) -> list[OwnerRule]:
    """Read the file of a repository; empty without one, or if it is too large or cannot be read."""
    for place in PLACES:
        path = folder / place
        try:
            if path.is_file() and path.stat().st_size <= LARGEST_FILE:
                return parse_owner_rules(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return []
    return []


def parse_owner_rules(text: str) -> list[OwnerRule]:
    """Parse the lines of a file.

    Headings of GitLab's sections are skipped. So are patterns that begin with ``!`` or have ``[``,
    which GitHub ignores, too.
    """
    rules = []
    for line in text.splitlines():
        pattern, *words = _WORD.findall(line) or [""]
        if pattern and not pattern.startswith(("#", "!")) and "[" not in pattern:
            # What follows a # is a comment.
            end = next((at for at, word in enumerate(words) if word.startswith("#")), None)
            rules.append(OwnerRule(paths=_path_pattern(pattern), owners=tuple(words[:end])))
    return rules


def _path_pattern(pattern: str) -> re.Pattern[str]:
    """The paths, without a leading slash, that a pattern matches: files, and all in folders."""
    inner = re.sub(r"\\(.)", r"\1", pattern).strip("/")
    is_anchored = "/" in pattern.rstrip("/")
    # `docs/*` has the files of docs, and not those of its folders.
    below = "" if inner.endswith("/*") else "/.+" if pattern.endswith("/") else "(?:/.+)?"
    words = {"**/": "(?:.+/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", inner)
    body = "".join(words.get(it) or re.escape(it) for it in parts)
    return re.compile(("" if is_anchored else "(?:.+/)?") + body + below)


def owners_of(files: Iterable[str], rules: Sequence[OwnerRule]) -> tuple[str, ...]:
    """The owners of files, those of most files first. The last rule that matches a file counts."""
    counts: Counter[str] = Counter()
    for file in files:
        rule = next((it for it in reversed(rules) if it.paths.fullmatch(file)), None)
        counts.update(rule.owners if rule else ())
    return tuple(owner for owner, _ in counts.most_common())


def add_owners(tracked: Sequence[TrackedAlarm], along: ProjectLine) -> list[TrackedAlarm]:
    """Name the owners of each open alarm: of the files that changed where it began, and platforms.

    A repository without a ``CODEOWNERS`` file, or without one of the commits, has none of files.
    """
    if not any(it.alarm for it in tracked):
        return [*tracked]
    rules, repository = read_owner_rules(along.repository.top), along.repository
    of_platforms = platform_owners(repository.folder, along.project)

    def owners(alarm: Alarm | None) -> tuple[str, ...]:
        if alarm is None:
            return ()
        files: Sequence[str] = ()
        before, first = alarm.before.commit, alarm.first.commit
        if rules and before and first and alarm.kind is Judgement.REGRESSION:
            files = repository.changed_files(before, first)
        own = (of_platforms[name] for name in alarm.platforms if name in of_platforms)
        return tuple(dict.fromkeys((*owners_of(files, rules), *own)))

    return [replace(it, owners=owners(it.alarm)) for it in tracked]


def platform_owners(folder: Path, project: str) -> dict[str, str]:
    """The owners of platforms in the project's ``ci.yaml``; none if that is another's or faulty."""
    if "owner" not in (read_text_file(folder / CONFIG_FILE) or ""):
        return {}
    from ci.plan.load import load_config  # 0.15 s, for open alarms only

    try:
        config = load_config(folder / CONFIG_FILE)
    except ConfigError:
        return {}
    settings = config.platforms if config.project == project else {}
    return {name: it.owner for name, it in settings.items() if it.owner}
