"""What BASE and HEAD name: a run, the latest, a commit, a branch, a tag, a contract's file.

Also the platforms that two of them can be compared on, and the runs along their commits.

Names are looked for in this order: a run, a commit that the store knows, what git makes of it. The
whole text comes before the text without its last part, since a branch may have slashes as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

from ci.errors import UsageError
from ci.store.rows import LATEST, RunHead, RunMeasures
from ci.util import process
from ci.util.invocation import command
from ci.util.process import ProcessError, ProcessResult
from ci.util.text import SHORT, commit_name, counted, join_names, near_match

_COMMIT = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The run of what was named, on every platform."""

    name: str
    platform: str | None
    """The one that was named, if any."""
    runs: Mapping[str, RunHead]
    """By platform; of a commit each platform may have been run apart."""
    commits: tuple[str, ...] = ()
    """The commit that was named and all that led to it, the newest first; none: a run was named."""

    @property
    def project(self) -> str:
        return next(iter(self.runs.values())).project

    def origin(self, platform: str) -> str:
        """``commit 0123456789ab, 3 commits before main``; empty where a run was named."""
        commit = self.runs[platform].commit
        if not self.commits or commit is None:
            return ""
        place = self.commits.index(commit)
        before = f", {counted(place, 'commit')} before {self.name}" if place else ""
        return f"{commit_name(commit)}{before or f' of {self.name}'}"

    def led_by(self, repository: Repository) -> tuple[str, ...]:
        """The commits that led to it, the newest first, as far as git knows them."""
        commit = next(iter(self.runs.values())).commit
        return self.commits or (repository.commits(commit) or (commit,) if commit else ())


def contract_file(text: str) -> Path | None:
    """The file of a contract, if it names one."""
    path = Path(text)
    if path.suffix not in (".yaml", ".yml"):
        return None
    if not path.is_file():
        raise UsageError(f"{path}: no such contract")
    return path


@dataclass(frozen=True)
class Finder:
    """Finds the runs that references name."""

    heads: Sequence[RunHead]
    """All runs of the store, the newest first."""
    repository: Repository

    def both(self, base: str, head: str) -> tuple[Runs, Runs]:
        """What two references name; a commit means runs of the project of the other's run."""
        first, second = self.runs(base), self.runs(head)
        if first.project != second.project and first.commits:
            first = self._of_project(second.project).runs(base)
        elif first.project != second.project and second.commits:
            second = self._of_project(first.project).runs(head)
        return first, _without_shared(second, first)

    def _of_project(self, project: str) -> Finder:
        return replace(self, heads=[run for run in self.heads if run.project == project])

    def runs(self, text: str) -> Runs:
        """What ``text`` names."""
        if not self.heads:
            remedy = f"Run a platform first: {command('run', 'cpu')}"
            raise UsageError("the store holds no run yet", remedy=remedy)
        whole = text.rstrip("/")
        readings: list[tuple[str, str | None]] = [(whole, None)]
        if "/" in whole:
            name, _, last = whole.rpartition("/")
            readings.append((name, last))
        named = {LATEST: self.heads[0]} | {run.run_id: run for run in self.heads}
        for name, platform in readings:
            if run := named.get(name):
                if platform not in (None, *run.platforms):
                    hint, known = near_match(platform, run.platforms), ", ".join(run.platforms)
                    raise UsageError(f"run {run.run_id} has {known}, not '{platform}'{hint}")
                runs = dict.fromkeys(run.platforms, run)
                return Runs(name=name, platform=platform, runs=runs)
            if commit := self._commit(name):
                commits = self.repository.commits(commit) or (commit,)
                return self._of_commits(name, platform, commits)
        for name, platform in readings:
            if commits := self.repository.commits(name):
                return self._of_commits(name, platform, commits)
        raise self._unknown(text)

    def _commit(self, name: str) -> str | None:
        """The one commit of the store that begins so."""
        start = name.lower()
        if not _COMMIT.fullmatch(start):
            return None
        commits = {run.commit for run in self.heads if run.commit}
        found = [commit for commit in commits if commit.startswith(start)]
        if len(found) > 1:
            message = f"'{name}' begins {len(found)} commits of the store"
            raise UsageError(f"{message}: {join_names(sorted(found))}", remedy="Write more of it.")
        return found[0] if found else None

    def _of_commits(self, name: str, platform: str | None, commits: tuple[str, ...]) -> Runs:
        """For every platform the nearest commit that was run with it, and its newest run."""
        place = {commit: number for number, commit in enumerate(commits)}
        known = [run for run in self.heads if run.commit in place]
        runs: dict[str, RunHead] = {}
        for run in sorted(known, key=lambda run: place[run.commit or ""]):
            for each in run.begun if not run.dirty else ():
                runs.setdefault(each, run)
        if not runs or platform not in (None, *runs):
            raise self._never_run(name, platform, commits, known)
        return Runs(name=name, platform=platform, runs=runs, commits=commits)

    def _never_run(
        self, name: str, platform: str | None, commits: Sequence[str], known: Sequence[RunHead]
    ) -> UsageError:
        """The commit exists, and no run of it does."""
        wanted = f" with '{platform}'" if platform else ""
        count = counted(len(commits), "commit")
        message = f"'{name}' is commit {commits[0][:SHORT]}: of it and what led to it"
        message += f" ({count}) the store holds no run{wanted}"
        if platforms := sorted({it for run in known if not run.dirty for it in run.platforms}):
            message += f", but runs with {', '.join(platforms)}{near_match(platform, platforms)}"
        changed = [run for run in known if run.dirty and platform in (None, *run.platforms)]
        folder = self.repository.folder
        if changed:
            message += "; runs with uncommitted changes stand for no commit"
            remedy = f"Name the run itself: {join_names([run.run_id for run in changed])}"
        elif self.repository.is_shallow:
            remedy = f"{folder} is a shallow clone: fetch the rest, git fetch --unshallow"
        else:
            remedy = _how_to_run(commits[0], platform or "cpu")
        return UsageError(message, remedy=remedy)

    def _unknown(self, text: str) -> UsageError:
        names, folder = [run.run_id for run in self.heads], self.repository.folder
        hint = near_match(text.partition("/")[0], [*names, LATEST])
        silence = f" ({self.repository.silence})" if self.repository.silence else ""
        message = f"the store holds no run '{text}'{hint}, nor a commit of that beginning; in"
        message += f" {folder} it is no branch, tag or commit{silence}"
        remedy = f"The newest runs: {join_names(names)}."
        if self.repository.is_shallow:
            remedy += f" {folder} is a shallow clone: git fetch --unshallow"
        return UsageError(message, remedy=remedy)


def _without_shared(head: Runs, base: Runs) -> Runs:
    """HEAD without what it shares with BASE: that would be compared with itself, and be equal."""
    if not (head.commits and base.commits) or head.commits[0] == base.commits[0]:
        return head
    runs = {name: run for name, run in head.runs.items() if run is not base.runs.get(name)}
    if runs and head.platform in (None, *runs):
        return replace(head, runs=runs)
    platform = head.platform or next(iter(head.runs))
    run = head.runs[platform]
    idle = base if run.commit == head.commits[0] else head
    raise UsageError(
        f"'{base.name}' and '{head.name}' mean one run, {run.run_id}: nothing of either to compare",
        remedy=_how_to_run(idle.commits[0], platform),
    )


def _how_to_run(commit: str, platform: str) -> str:
    return f"Run it: git checkout {commit[:SHORT]} && {command('run', platform)}"


# Platforms


def pairs_of(base: Runs, head: Runs) -> list[tuple[str, str]]:
    """The platforms that both have; or those that are named, on either side or on both."""
    if base.platform or head.platform:
        return [(one_platform(base, head.platform), one_platform(head, base.platform))]
    if shared := [(platform, platform) for platform in base.runs if platform in head.runs]:
        return shared
    first, second = next(iter(base.runs)), next(iter(head.runs))
    if len(base.runs) == len(head.runs) == 1:
        return [(first, second)]
    message = f"no platform is the same: {_has(base)}, {_has(head)}"
    remedy = f"Name one of each: {base.name}/{first} {head.name}/{second}"
    raise UsageError(message, remedy=remedy)


def one_platform(side: Runs, other: str | None) -> str:
    """The platform that is named, or the one that can be meant."""
    if side.platform is None and len(side.runs) == 1:
        return next(iter(side.runs))
    name = side.platform or other
    if name is None or name not in side.runs:
        wanted = f", not '{name}'{near_match(name, side.runs)}" if name else ": name one"
        remedy = f"{side.name}/{next(iter(side.runs))}"
        raise UsageError(f"{_has(side)}{wanted}", remedy=remedy)
    return name


def _has(side: Runs) -> str:
    return f"{'' if side.commits else 'run '}{side.name} has {', '.join(side.runs)}"


# Commits, and the runs along them

BEFORE = 100  # runs before BASE that are read: levels are judged by half as many
BETWEEN = 400  # of more, every second, third, ... one
AFTER = 20  # runs after HEAD, which confirm its level: as many as WALL_ALONE takes


def places(base: Sequence[str], head: Sequence[str]) -> dict[str, int]:
    """The place of every commit in a line, from the ancestors of both, the newest first.

    What only HEAD has comes last: its runs are judged by those of BASE.
    """
    order = dict.fromkeys([*reversed(base), *reversed(head)])
    return {commit: place for place, commit in enumerate(order)}


def line(
    rows: Sequence[RunHead], commits: Mapping[str, int] | None, base: RunHead, head: RunHead
) -> list[RunHead]:
    """The runs of a line in its order, of those that are given in the order of time.

    Without commits to go by, all runs in the order of time.
    """
    if commits is None:
        return list(rows)
    # Where git does not know them: before all, and after all.
    fallback = {base.run_id: -1, head.run_id: len(commits)}

    def place(row: RunHead) -> tuple[int, bool, datetime]:
        known = commits.get(row.commit or "", fallback.get(row.run_id, 0))
        return known, row.dirty, row.started_at  # what was changed on top of a commit comes later

    clean = [it for it in rows if it.run_id in fallback or (it.commit in commits and not it.dirty)]
    return sorted(clean, key=place)


def window(rows: Sequence[RunHead], base: RunHead, head: RunHead) -> list[RunHead]:
    """What is looked at of a long line: enough to know the levels of both."""
    run_ids = [row.run_id for row in rows]
    first, last = sorted((run_ids.index(base.run_id), run_ids.index(head.run_id)))
    between = rows[first + 1 : last]
    thinned = between[:: len(between) // BETWEEN + 1]
    ends = (rows[max(0, first - BEFORE) : first + 1], rows[max(first + 1, last) : last + AFTER + 1])
    return [*ends[0], *thinned, *ends[1]]


def newest_of(rows: Sequence[RunMeasures], commits: Collection[str]) -> RunMeasures | None:
    """The last run of a line that is of these commits."""
    clean = (row for row in reversed(rows) if not row.dirty and row.commit in commits)
    return next(clean, None)


_HASH = re.compile(r"[0-9a-f]{40,64}")
_NO_SUCH_REVISION = "Needed a single revision"


class Repository:
    """The git repository of a folder; there need not be one, nor git."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.silence: str | None = None
        """Why git does not answer here, once a call has failed."""

    def commits(self, name: str) -> tuple[str, ...]:
        """The commit of a branch, a tag or whatever git takes, and all that led to it, the newest
        first; empty: there is none of that name.

        Raises ``UsageError`` for the beginning of several commits.
        """
        found = self._git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        if found is None:
            return ()
        commit = found.stdout.strip()
        if found.exit_code == 0 and _HASH.fullmatch(commit):
            led_to = self._git("rev-list", "--topo-order", "--end-of-options", commit)
            return tuple(led_to.stdout.split() if led_to else ()) or (commit,)
        if "is ambiguous" in found.stderr:
            message = f"'{name}' begins several commits of {self.folder}:\n{found.stderr.strip()}"
            raise UsageError(message, remedy="Write more of it.")
        if found.exit_code and _NO_SUCH_REVISION not in found.stderr:
            self.silence = " ".join(found.stderr.split()) or None
        return ()

    @cached_property
    def is_shallow(self) -> bool:
        found = self._git("rev-parse", "--is-shallow-repository")
        return found is not None and found.stdout.strip() == "true"

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
