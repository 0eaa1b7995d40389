"""Resolve BASE and HEAD: a run, the latest run, a commit, a branch, a tag or a contract's file.

This module also selects the platforms on which two references can be compared, and the runs along
their commits.

A name is looked up as a run, then as a commit of the store, then as a revision in git, then as a
branch that runs recorded. The whole text is tried before the text without its last part, since
branch names may contain slashes too.

If BASE is a branch, HEAD is compared with the commit where it left that branch, the merge base.
What the branch gained since is not HEAD's doing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

from ci.analysis.ancestry import Ancestry, ReadParents
from ci.analysis.repository import Repository
from ci.errors import UsageError
from ci.plan.lineage import REMOTE
from ci.store.rows import LATEST, CommitParents, RunHead, RunMeasures
from ci.util.invocation import command
from ci.util.text import SHORT, commit_name, counted, join_names, near_match

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
NEAREST = 3
"""Measured commits up to the merge base whose median is the base of noisy measures."""


@dataclass(frozen=True, kw_only=True)
class MergeBase:
    """The commit where HEAD left the branch that BASE names."""

    commit: str
    nearest: tuple[str, ...]
    """The nearest measured commits, itself first if it is one; three if there are so many."""
    newest: ReferenceRuns
    """The branch itself, with what it gained since."""

    @property
    def gained(self) -> int | None:
        """The number of commits that the branch gained since, if they are known."""
        commits = self.newest.commits
        return commits.index(self.commit) if self.commit in commits else None


@dataclass(frozen=True, kw_only=True)
class ReferenceRuns:
    """The runs that a reference stands for, one on each platform."""

    name: str
    platform: str | None
    """The platform in the reference, if any."""
    runs: Mapping[str, RunHead]
    """Runs by platform; the platforms of a commit may have different runs."""
    commits: tuple[str, ...] = ()
    """The named commit and its ancestors, newest first; empty if the reference names a run.

    Only those with runs, if git does not know them.
    """
    branch: str | None = None
    """The branch that the reference names, if it names one."""
    merge_base: MergeBase | None = None
    """Where HEAD left the branch; then ``commits`` begin there."""
    passed_over: Mapping[str, RunHead] = field(default_factory=dict)
    """Nearer runs by platform that have only selected operators."""

    @property
    def project(self) -> str:
        return next(iter(self.runs.values())).project

    def origin(self, platform: str) -> str:
        """``commit 0123456789ab, 3 commits before main``; empty if the reference names a run."""
        run = self.runs[platform]
        place = _place(run, {commit: number for number, commit in enumerate(self.commits)})
        if place is None:
            return ""
        name = "the merge base" if self.merge_base else self.name
        here = f", {name}" if self.merge_base else f" of {name}"
        before = f", {counted(place, 'commit')} before {name}" if place else here
        return f"{commit_name(run.commit)}{before}"


def _place(run: RunHead, places: Mapping[str, int]) -> int | None:
    """The place of a run's commit; a test merge of a pull request stands for its commit."""
    return next((places[it] for it in (run.commit, run.tip) if it and it in places), None)


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
    read_parents: ReadParents

    def find_pair(self, base: str | None, head: str) -> tuple[ReferenceRuns, ReferenceRuns]:
        """Find the runs of two references. A commit means runs of the project of the other one.

        Without ``base``, it is the branch that HEAD will be merged into; for a commit of the main
        branch, the commits before it.
        """
        second = self.find_runs(head)
        finder = self._limit_to_project(second.project)
        if base is None:
            run = next(iter(second.runs.values()))
            base = run.target or finder._ancestry.main
            if base in (None, run.branch, head):
                return finder._before(head, second, base), second
        first = self.find_runs(base)
        if first.project != second.project and first.commits:
            first = finder.find_runs(base)
        elif first.project != second.project and second.commits:
            second = self._limit_to_project(first.project).find_runs(head)
        first = self._limit_to_project(second.project)._leave_branch(first, second)
        return first, _drop_shared_runs(second, first)

    def history(self, side: ReferenceRuns) -> tuple[str, ...]:
        """The commit and its ancestors, newest first, as far as git or the run know them."""
        run = next(iter(side.runs.values()))
        if side.commits or run.commit is None:
            return side.commits
        return self.repository.commits(run.commit) or self._recorded(run)

    def _recorded(self, run: RunHead) -> tuple[str, ...]:
        """The commit of a run and its ancestors, as the run recorded them."""
        recorded = self.read_parents([run.run_id]).get(run.run_id, CommitParents())
        return (run.commit, *recorded.ancestors) if run.commit else ()

    @cached_property
    def _ancestry(self) -> Ancestry:
        return Ancestry(self.heads, self.read_parents)

    def _before(self, name: str, head: ReferenceRuns, main: str | None) -> ReferenceRuns:
        """The nearest runs before a commit of the main branch; ``name`` is HEAD's."""
        commits = self.history(head)
        runs = self._nearest_runs(self._runs_along(commits[1:]))
        if main is not None and runs:
            before = f"{commits[0][:SHORT]}~1"
            return ReferenceRuns(name=before, platform=None, runs=runs, commits=commits[1:])
        reason = "no run recorded a branch"
        remedy = f"Name both: {command('compare', 'BASE', name)}"
        if main is not None:
            reason = f"no commit of '{main}' before '{name}' has a run"
            remedy = self._unshallow or remedy
        message = f"compare: got no BASE, and {reason}: expected two references"
        raise UsageError(message, remedy=remedy)

    def _leave_branch(self, base: ReferenceRuns, head: ReferenceRuns) -> ReferenceRuns:
        """BASE at the commit where HEAD left its branch, if it is a branch that went on since."""
        run = next(iter(head.runs.values()))
        if base.branch is None or run.commit is None or base.project != head.project:
            return base
        shared = self._merge_base(base, run)
        if shared in (None, run.commit, run.tip, base.commits[0]):
            return base
        clean = [it for it in self.heads if it.begun and not it.dirty]
        clean = [it for it in clean if it.whole] or clean
        measured = {commit for it in clean for commit in (it.commit, it.tip)}
        line = self.repository.line(shared) or self._line_to(shared, base.branch, run)
        if measured.isdisjoint(line):  # then a commit of a merged branch is the nearest
            line = self.repository.commits(shared) or line
        found = self._find_on_commits(base.name, base.platform, line)
        nearest = [commit for commit in line if commit in measured][:NEAREST]
        nearest = nearest or [str(it.commit) for it in found.runs.values()][:1]
        left = MergeBase(commit=shared, nearest=tuple(nearest), newest=base)
        return replace(found, branch=base.branch, merge_base=left)

    def _line_to(self, shared: str, branch: str, run: RunHead) -> tuple[str, ...]:
        """The measured commits of a branch up to one that it shares with HEAD, newest first."""
        places = self._places(branch)
        if shared not in places:
            recorded = self._recorded(run)
            return recorded[recorded.index(shared) :] if shared in recorded else (shared,)
        commits = self._ancestry.line(branch).commits
        return (shared, *(it for it in commits if places.get(it, places[shared]) < places[shared]))

    def _places(self, branch: str) -> Mapping[str, int]:
        """The places of the commits on a branch, as its runs recorded them."""
        known = branch in self._ancestry.branches
        return self._ancestry.line(branch).places if known else {}

    def _merge_base(self, base: ReferenceRuns, run: RunHead) -> str | None:
        """Where a run's commit left BASE: as it recorded it, else as git or the store know it."""
        if run.merge_base and run.target == base.branch and run.merge_base != run.commit:
            return run.merge_base
        if found := self.repository.merge_base(base.commits[0], run.tested or ""):
            return found
        known = {*base.commits, *self._places(base.branch or "")}
        return next((commit for commit in self._recorded(run) if commit in known), None)

    def _limit_to_project(self, project: str) -> ReferenceFinder:
        return replace(self, heads=[run for run in self.heads if run.project == project])

    def commit(self, name: str) -> str | None:
        """The commit that ``name`` means, whether it has a run or not; ``None`` for a run."""
        if any(run.run_id == name for run in self.heads):
            return None
        return self._commit(name) or next((line[0] for line in self._branch_lines(name)), None)

    def find_runs(self, text: str) -> ReferenceRuns:
        """Find the runs of one reference."""
        if not self.heads:
            remedy = f"Run a platform first: {command('run', 'cpu')}"
            raise UsageError("the store holds no run yet", remedy=remedy)
        whole = text.rstrip("/")
        name, slash, last = whole.rpartition("/")
        readings = [(whole, None), (name, last)] if slash else [(whole, None)]
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
            lines = self._branch_lines(name)
            for number, commits in enumerate(lines, start=1):
                try:
                    found = self._find_on_commits(name, platform, commits)
                except UsageError:
                    if number == len(lines):
                        raise
                else:
                    return replace(found, branch=self._branch(name))
        raise self._unknown_error(text)

    def _branch_lines(self, name: str) -> list[tuple[str, ...]]:
        """The commits of a revision, newest first: as git knows them, and as runs recorded them.

        A clone may be shallow or older than the runs; a branch that was never pushed has no runs.
        """
        commits = self.repository.commits(name) or self.repository.commits(f"{REMOTE}{name}")
        recorded: tuple[str, ...] = ()
        if name in self._ancestry.branches:
            recorded = self._ancestry.line(name).commits
        return [line for line in (commits, recorded) if line]

    def _branch(self, name: str) -> str | None:
        """The branch that a name means, if it means one."""
        known = self.repository.branch(name) or self.repository.branch(f"{REMOTE}{name}")
        return known or (name if name in self._ancestry.branches else None)

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
        known = self._runs_along(commits)
        runs = self._nearest_runs(known)
        if not runs or platform not in (None, *runs):
            newest = [run for run in self.heads if run in known]
            raise self._no_run_error(name, platform, commits, newest)
        passed_over = {
            each: run
            for each, chosen in runs.items()
            for run in known[: known.index(chosen)]
            if each in run.begun and not run.dirty and run.tested != chosen.tested
        }
        return ReferenceRuns(
            name=name, platform=platform, runs=runs, commits=commits, passed_over=passed_over
        )

    def _runs_along(self, commits: Sequence[str]) -> list[RunHead]:
        """The runs of these commits, in their order; of one commit, the newest first."""
        order = {commit: number for number, commit in enumerate(commits)}
        placed = ((_place(run, order), run) for run in self.heads)
        found = [(place, run) for place, run in placed if place is not None]
        return [run for _, run in sorted(found, key=lambda it: it[0])]

    @staticmethod
    def _nearest_runs(known: Sequence[RunHead]) -> dict[str, RunHead]:
        """The first run of each platform, without uncommitted changes.

        If possible, one with all operators.
        """
        runs: dict[str, RunHead] = {}
        clean = [run for run in known if not run.dirty]
        places = [(each, run) for run in clean for each in run.whole]
        places += [(each, run) for run in clean for each in run.begun]
        for each, run in places:
            runs.setdefault(each, run)
        return runs

    @property
    def _unshallow(self) -> str:
        """How to get the commits that a shallow clone lacks; empty if it is whole."""
        if not self.repository.is_shallow:
            return ""
        folder = self.repository.folder
        return f"{folder} is a shallow clone. Fetch its history: git fetch --unshallow"

    def _no_run_error(
        self, name: str, platform: str | None, commits: Sequence[str], known: Sequence[RunHead]
    ) -> UsageError:
        """The error for a commit that exists but has no run."""
        wanted = f" with '{platform}'" if platform else ""
        count = counted(len(commits), "commit")
        message = f"'{name}' is commit {commits[0][:SHORT]}: the store holds no run{wanted}"
        message += f" of it or its ancestors ({count})"
        if platforms := sorted({it for run in known if not run.dirty for it in run.platforms}):
            hint = near_match(platform, platforms)
            message += f", but has runs with {', '.join(platforms)}{hint}"
        changed = [run for run in known if run.dirty and platform in (None, *run.platforms)]
        if changed:
            message += "; runs with uncommitted changes belong to no commit"
            remedy = f"Name the run itself: {join_names([run.run_id for run in changed])}"
        else:
            remedy = self._unshallow or _how_to_run(commits[0], platform or "cpu")
        return UsageError(message, remedy=remedy)

    def _unknown_error(self, text: str) -> UsageError:
        names, folder = [run.run_id for run in self.heads], self.repository.folder
        hint = near_match(text.partition("/")[0], [*names, LATEST])
        git_error = f" ({self.repository.git_error})" if self.repository.git_error else ""
        message = f"the store holds no run '{text}'{hint}, and no commit that begins with it; git"
        message += f" finds no such branch, tag or commit in {folder}{git_error}"
        remedy = f"The newest runs: {join_names(names)}. {self._unshallow}".rstrip()
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
    message = f"'{base.name}' and '{head.name}' are the same run, {run.run_id}: nothing to compare"
    selected = idle.passed_over.get(platform)
    if selected:
        message += f"; run {selected.run_id} has only selected operators"
    raise UsageError(message, remedy=_how_to_run(idle.commits[0], platform, whole=bool(selected)))


def _how_to_run(commit: str, platform: str, *, whole: bool = False) -> str:
    run = command("run", platform, *(("--select", "all") if whole else ()))
    return f"Run it: git checkout {commit[:SHORT]} && {run}"


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
        hint = near_match(name, side.runs)
        wanted = f", not '{name}'{hint}" if name else ", expected one of them"
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
