"""Resolve BASE and HEAD: a run, the latest run, a commit, a branch, a tag or a contract's file.

This module also selects the platforms on which two references can be compared, and the runs along
their commits.

A name is looked up as a run, then as a commit of the store, then as a revision in git. The whole
text is tried before the text without its last part, since branch names may contain slashes too.
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
class ReferenceRuns:
    """The runs that a reference stands for, one on each platform."""

    name: str
    platform: str | None
    """The platform in the reference, if any."""
    runs: Mapping[str, RunHead]
    """Runs by platform; the platforms of a commit may have different runs."""
    commits: tuple[str, ...] = ()
    """The named commit and its ancestors, newest first; empty if the reference names a run."""

    @property
    def project(self) -> str:
        return next(iter(self.runs.values())).project

    def origin(self, platform: str) -> str:
        """``commit 0123456789ab, 3 commits before main``; empty if the reference names a run."""
        commit = self.runs[platform].commit
        if not self.commits or commit is None:
            return ""
        place = self.commits.index(commit)
        before = f", {counted(place, 'commit')} before {self.name}" if place else ""
        return f"{commit_name(commit)}{before or f' of {self.name}'}"

    def history(self, repository: Repository) -> tuple[str, ...]:
        """The commit and its ancestors, newest first, as far as git knows them."""
        commit = next(iter(self.runs.values())).commit
        return self.commits or (repository.commits(commit) or (commit,) if commit else ())


def contract_file(text: str) -> Path | None:
    """The path of a contract's file, if ``text`` names one."""
    path = Path(text)
    if path.suffix not in (".yaml", ".yml"):
        return None
    if not path.is_file():
        raise UsageError(f"{path}: no such file, expected a contract")
    return path


@dataclass(frozen=True)
class ReferenceFinder:
    """Finds the runs that references stand for."""

    heads: Sequence[RunHead]
    """All runs of the store, newest first."""
    repository: Repository

    def find_pair(self, base: str, head: str) -> tuple[ReferenceRuns, ReferenceRuns]:
        """Find the runs of two references. A commit means runs of the project of the other one."""
        first, second = self.find_runs(base), self.find_runs(head)
        if first.project != second.project and first.commits:
            first = self._limit_to_project(second.project).find_runs(base)
        elif first.project != second.project and second.commits:
            second = self._limit_to_project(first.project).find_runs(head)
        return first, _drop_shared_runs(second, first)

    def _limit_to_project(self, project: str) -> ReferenceFinder:
        return replace(self, heads=[run for run in self.heads if run.project == project])

    def find_runs(self, text: str) -> ReferenceRuns:
        """Find the runs of one reference."""
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
                    message = f"run {run.run_id}: got platform '{platform}', expected {known}{hint}"
                    remedy = f"Name a platform of it: {run.run_id}/{run.platforms[0]}"
                    raise UsageError(message, remedy=remedy)
                runs = dict.fromkeys(run.platforms, run)
                return ReferenceRuns(name=name, platform=platform, runs=runs)
            if commit := self._commit(name):
                commits = self.repository.commits(commit) or (commit,)
                return self._find_on_commits(name, platform, commits)
        for name, platform in readings:
            if commits := self.repository.commits(name):
                return self._find_on_commits(name, platform, commits)
        raise self._unknown_error(text)

    def _commit(self, name: str) -> str | None:
        """The only commit of the store that begins with ``name``."""
        start = name.lower()
        if not _COMMIT.fullmatch(start):
            return None
        commits = {run.commit for run in self.heads if run.commit}
        found = [commit for commit in commits if commit.startswith(start)]
        if len(found) > 1:
            message = f"'{name}' is ambiguous: {len(found)} commits of the store begin with it"
            message += f": {join_names(sorted(found))}"
            raise UsageError(message, remedy="Write more digits of the commit.")
        return found[0] if found else None

    def _find_on_commits(
        self, name: str, platform: str | None, commits: tuple[str, ...]
    ) -> ReferenceRuns:
        """Find, for each platform, the nearest commit with a run, and its newest run."""
        place = {commit: number for number, commit in enumerate(commits)}
        known = [run for run in self.heads if run.commit in place]
        runs: dict[str, RunHead] = {}
        for run in sorted(known, key=lambda run: place[run.commit or ""]):
            for each in run.begun if not run.dirty else ():
                runs.setdefault(each, run)
        if not runs or platform not in (None, *runs):
            raise self._no_run_error(name, platform, commits, known)
        return ReferenceRuns(name=name, platform=platform, runs=runs, commits=commits)

    def _no_run_error(
        self, name: str, platform: str | None, commits: Sequence[str], known: Sequence[RunHead]
    ) -> UsageError:
        """The error for a commit that exists but has no run."""
        wanted = f" with '{platform}'" if platform else ""
        count = counted(len(commits), "commit")
        message = (
            f"'{name}' is commit {commits[0][:SHORT]}: the store holds no run{wanted} of it or"
        )
        message += f" its ancestors ({count})"
        if platforms := sorted({it for run in known if not run.dirty for it in run.platforms}):
            message += (
                f", but has runs with {', '.join(platforms)}{near_match(platform, platforms)}"
            )
        changed = [run for run in known if run.dirty and platform in (None, *run.platforms)]
        folder = self.repository.folder
        if changed:
            message += "; runs with uncommitted changes belong to no commit"
            remedy = f"Name the run itself: {join_names([run.run_id for run in changed])}"
        elif self.repository.is_shallow:
            remedy = f"{folder} is a shallow clone. Fetch its history: git fetch --unshallow"
        else:
            remedy = _how_to_run(commits[0], platform or "cpu")
        return UsageError(message, remedy=remedy)

    def _unknown_error(self, text: str) -> UsageError:
        names, folder = [run.run_id for run in self.heads], self.repository.folder
        hint = near_match(text.partition("/")[0], [*names, LATEST])
        git_error = f" ({self.repository.git_error})" if self.repository.git_error else ""
        message = f"the store holds no run '{text}'{hint}, and no commit that begins with it; git"
        message += f" finds no such branch, tag or commit in {folder}{git_error}"
        remedy = f"The newest runs: {join_names(names)}."
        if self.repository.is_shallow:
            remedy += f" {folder} is a shallow clone. Fetch its history: git fetch --unshallow"
        return UsageError(message, remedy=remedy)


def _drop_shared_runs(head: ReferenceRuns, base: ReferenceRuns) -> ReferenceRuns:
    """HEAD without the runs that it shares with BASE, which would be compared with themselves."""
    if not (head.commits and base.commits) or head.commits[0] == base.commits[0]:
        return head
    runs = {name: run for name, run in head.runs.items() if run is not base.runs.get(name)}
    if runs and head.platform in (None, *runs):
        return replace(head, runs=runs)
    platform = head.platform or next(iter(head.runs))
    run = head.runs[platform]
    idle = base if run.commit == head.commits[0] else head
    raise UsageError(
        f"'{base.name}' and '{head.name}' are the same run, {run.run_id}: nothing to compare",
        remedy=_how_to_run(idle.commits[0], platform),
    )


def _how_to_run(commit: str, platform: str) -> str:
    return f"Run it: git checkout {commit[:SHORT]} && {command('run', platform)}"


# Platforms


def platform_pairs(base: ReferenceRuns, head: ReferenceRuns) -> list[tuple[str, str]]:
    """Pair the platforms that both have, or those named on one or both sides."""
    if base.platform or head.platform:
        return [(choose_platform(base, head.platform), choose_platform(head, base.platform))]
    if shared := [(platform, platform) for platform in base.runs if platform in head.runs]:
        return shared
    first, second = next(iter(base.runs)), next(iter(head.runs))
    if len(base.runs) == len(head.runs) == 1:
        return [(first, second)]
    message = f"no common platform: {_platforms_text(base)}, {_platforms_text(head)}"
    remedy = f"Name one platform of each: {base.name}/{first} {head.name}/{second}"
    raise UsageError(message, remedy=remedy)


def choose_platform(side: ReferenceRuns, other: str | None) -> str:
    """The platform that a reference names, else the only possible one."""
    if side.platform is None and len(side.runs) == 1:
        return next(iter(side.runs))
    name = side.platform or other
    if name is None or name not in side.runs:
        wanted = (
            f", not '{name}'{near_match(name, side.runs)}" if name else ", expected one of them"
        )
        remedy = f"Name a platform of it: {side.name}/{next(iter(side.runs))}"
        raise UsageError(f"{_platforms_text(side)}{wanted}", remedy=remedy)
    return name


def _platforms_text(side: ReferenceRuns) -> str:
    return f"{'' if side.commits else 'run '}{side.name} has {', '.join(side.runs)}"


# Commits, and the runs along them

BEFORE = 100  # runs to read before BASE, twice as many as levels are judged by
BETWEEN = 400  # runs between the two; of more, only every second, third, ... is read
AFTER = 20  # runs to read after HEAD, which confirm its level: as many as WALL_ALONE needs


def commit_places(base: Sequence[str], head: Sequence[str]) -> dict[str, int]:
    """The place of every commit on one line; ``base`` and ``head`` are newest first.

    Commits that only HEAD has come last: their runs are judged by those of BASE.
    """
    order = dict.fromkeys([*reversed(base), *reversed(head)])
    return {commit: place for place, commit in enumerate(order)}


def order_runs(
    rows: Sequence[RunHead], commits: Mapping[str, int] | None, base: RunHead, head: RunHead
) -> list[RunHead]:
    """Order runs along a line of commits; ``rows`` are in order of time.

    Without commits, return all runs in order of time.
    """
    if commits is None:
        return list(rows)
    # If git does not know their commits, BASE comes first and HEAD last.
    fallback = {base.run_id: -1, head.run_id: len(commits)}

    def place(row: RunHead) -> tuple[int, bool, datetime]:
        known = commits.get(row.commit or "", fallback.get(row.run_id, 0))
        return known, row.dirty, row.started_at  # uncommitted changes come after their commit

    clean = [it for it in rows if it.run_id in fallback or (it.commit in commits and not it.dirty)]
    return sorted(clean, key=place)


def runs_to_read(rows: Sequence[RunHead], base: RunHead, head: RunHead) -> list[RunHead]:
    """Select the runs of a long line to read: enough to know the levels of both sides."""
    run_ids = [row.run_id for row in rows]
    first, last = sorted((run_ids.index(base.run_id), run_ids.index(head.run_id)))
    between = rows[first + 1 : last]
    thinned = between[:: len(between) // BETWEEN + 1]
    ends = (rows[max(0, first - BEFORE) : first + 1], rows[max(first + 1, last) : last + AFTER + 1])
    return [*ends[0], *thinned, *ends[1]]


def newest_run_of(rows: Sequence[RunMeasures], commits: Collection[str]) -> RunMeasures | None:
    """The last run on the line whose commit is one of ``commits``."""
    clean = (row for row in reversed(rows) if not row.dirty and row.commit in commits)
    return next(clean, None)


_HASH = re.compile(r"[0-9a-f]{40,64}")
_NO_SUCH_REVISION = "Needed a single revision"


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

    @cached_property
    def is_shallow(self) -> bool:
        found = self._git("rev-parse", "--is-shallow-repository")
        return found is not None and found.stdout.strip() == "true"

    def _git(self, *arguments: str) -> ProcessResult | None:
        # In English, because the messages of git are compared.
        environment = {**process.inherited_environment(), "LC_ALL": "C"}
        try:
            return process.run(
                ["git", *arguments], cwd=self.folder, environment=environment, check=False
            )
        except ProcessError as error:  # no git, no such folder
            self.git_error = str(error)
            return None
