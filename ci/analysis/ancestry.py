"""The lines of commits that runs belong to, from what the runs recorded: no clone is needed. Pure.

A line is a commit with its first parents. The line of the main branch has what was merged, one by
one. The line of another branch is that of its target up to their newest common commit, then its
own commits. The order of a line comes from the commits. Start times only order runs of one commit,
and runs whose place is not known: those of old versions, and of shallow clones with a gap.

A branch that was reset or rebased, or whose name changed, has the line of its newest commit: the
runs of commits that it no longer has are kept apart, and those under its former name are on it. So
are the runs of commits of a main branch that were not pushed, except for those of the reader.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from types import MappingProxyType

from ci.errors import UsageError
from ci.model.fields import MOST_ANCESTORS
from ci.model.results import MAIN_BRANCHES
from ci.store.rows import CommitParents, RunHead
from ci.util.text import SHORT, near_match

READ_EVERY = MOST_ANCESTORS // 2
"""Commits between two runs whose ancestors are read: these lists overlap by half."""
LEAST_DIGITS = 7
"""Of a commit that is named, as git shows it."""

ReadParents = Callable[[Collection[str]], Mapping[str, CommitParents]]
"""Read the recorded parents of the commits of runs, by the ids of the runs."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """The runs along one line of commits, oldest commit first."""

    branch: str | None
    """``None`` if no run recorded a branch: all runs, in order of time."""
    runs: tuple[RunHead, ...]
    places: Mapping[str, int] = field(default_factory=dict)
    """The place of every known commit of the line, measured or not."""
    abandoned: Mapping[str, tuple[RunHead, ...]] = field(default_factory=dict)
    """The runs of the branch on commits that it no longer has, by the newest of these commits."""

    @cached_property
    def commits(self) -> tuple[str, ...]:
        """The commits with runs, newest first."""
        clean = (run.commit for run in reversed(self.runs) if not run.dirty)
        return tuple(dict.fromkeys(commit for commit in clean if commit))


class Ancestry:
    """The branches of a project, as its runs recorded them."""

    def __init__(
        self,
        heads: Sequence[RunHead],
        read: ReadParents,
        read_own: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """``heads`` has all runs of the project, in any order.

        ``read_own`` returns the commits on the line of the reader's clone.
        """
        self._read_own = read_own
        self._heads = sorted(heads, key=lambda run: (run.started_at, run.run_id))
        self._recorded = _Recorded(read)
        self.branches = Counter(run.branch for run in self._heads if run.branch)

    @cached_property
    def main(self) -> str | None:
        """The main branch by its newest name, if it has runs; else the branch with most runs."""
        # Of several names, the newest that a run of this very branch recorded.
        own = (run.branch for run in reversed(self._heads) if run.branch == run.main_branch)
        named = Counter(run.main_branch for run in self._heads if run.main_branch in self.branches)
        candidates = (*own, *(name for name, _ in named.most_common()), *MAIN_BRANCHES)
        most = (name for name, _ in self.branches.most_common())
        return next((name for name in (*candidates, *most) if name in self.branches), None)

    def line(self, branch: str | None = None) -> Line:
        """The line of a branch, by default of the main one; or that which ends with a commit.

        A commit may be shortened to seven digits. Raises ``UsageError`` if no run recorded the
        branch.
        """
        if branch is not None and branch not in self.branches:
            return self._line_to(branch)
        branch = branch or self.main
        own = [run for run in self._heads if run.branch == branch]
        if branch is None:
            return Line(branch=None, runs=tuple(self._heads))
        if branch == self.main:
            return self._trunk(branch, own)
        targets = Counter(run.target for run in own if run.target in self.branches)
        target = targets.most_common(1)[0][0] if targets else self.main
        if target is None or target == branch:
            return self._trunk(branch, own)
        seeds = [run for run in self._heads if run.branch == target]
        return self._fork(branch, own, self._trunk(target, seeds))

    def _line_to(self, name: str) -> Line:
        """The line that ends with a commit."""
        known = [run for run in self._heads if name and run.commit and run.commit.startswith(name)]
        if len(name) >= LEAST_DIGITS and len({run.commit for run in known}) == 1:
            own = [run for run in self._heads if run.branch == known[0].branch]
            return self._trunk(name[:SHORT], own, known[0].commit)
        hint = near_match(name, self.branches)
        message = f"the store holds no run of branch '{name}'{hint}"
        branches = ", ".join(sorted(self.branches)) or "none"
        raise UsageError(message, remedy=f"Branches with runs: {branches}.")

    def _trunk(self, branch: str, own: Sequence[RunHead], end: str | None = None) -> Line:
        """The runs of a branch, and all others whose commits are on its line."""
        kept, abandoned = self._separate(own, end)
        places, known = self._places(kept), kept
        # Runs of other branches know the line further down, such as those from before a new name.
        while known:
            lowest = min((places[it.commit] for it in known if it.commit in places), default=0)
            known = [it for it in self._heads if places.get(it.commit or "", lowest) < lowest]
            places = self._places(known, places)
        mine = {run.run_id for run in kept}
        left = {run.commit for runs in abandoned.values() for run in runs}
        runs = [
            run
            for run in self._heads
            if run.run_id in mine
            # Without a branch: a run that does not say that it is elsewhere.
            or (run.branch is None and run.merge_base in (None, run.commit))
            or run.commit in places
            if run.commit not in left
        ]
        in_order = tuple(_in_order(runs, places))
        abandoned = {} if end else abandoned  # then the branch may have them
        return Line(branch=branch, runs=in_order, places=places, abandoned=abandoned)

    def _fork(self, branch: str, own: Sequence[RunHead], trunk: Line) -> Line:
        """The runs of the target up to the newest common commit, then those of the branch."""
        own, abandoned = self._separate(own)
        bases = {run.merge_base for run in own if run.merge_base}
        common = [trunk.places[commit] for commit in bases if commit in trunk.places]
        if not common:
            lists = (it.ancestors for it in self._recorded.load(own))
            nearest = (next((it for it in some if it in trunk.places), None) for some in lists)
            common = [trunk.places[commit] for commit in nearest if commit]
        fork = max(common, default=-1)
        mine = {run.run_id for run in own}
        before = [
            run
            for run, place in _placed(trunk.runs, trunk.places)
            if place <= fork and run.run_id not in mine
        ]
        runs = (*before, *_in_order(own, self._places(own, trunk.places)))
        shared = {commit: place for commit, place in trunk.places.items() if place <= fork}
        return Line(branch=branch, runs=runs, places=shared, abandoned=abandoned)

    def _separate(
        self, own: Sequence[RunHead], end: str | None = None
    ) -> tuple[Sequence[RunHead], dict[str, tuple[RunHead, ...]]]:
        """Separate the runs on the line of the newest commit, or of ``end``, from the others.

        The others are grouped by the newest commit of each line. A commit stays if it may be on the
        line: a shallow clone does not know it. It also stays if the line merged it, as a pull does.
        """
        first: dict[str, RunHead] = {}
        for run in own:
            # Nothing is known of the test merge of a pull request, which is no one's parent.
            if run.commit and (run.tip is None or run.commit == end):
                first.setdefault(run.commit, run)
        if not first:
            return own, {}
        commits = _Commits(first, self._recorded)
        places = self._places([*first.values()])
        highest = sorted(first, key=places.__getitem__, reverse=True)
        local = set() if end else self._local(own)
        shared = [it for it in first if it not in local]
        # The commit whose first run is the newest: an older one may be run again.
        tops = [it for it in highest if it not in local] if shared else highest
        line = commits.line(end) if end else commits.line_with((shared or [*first])[-1], tops)
        waiting = commits.apart_from(line, highest)
        abandoned = {}
        while waiting:
            newest = waiting[0]
            together = commits.line(newest).keys() & waiting
            abandoned[newest] = tuple(run for run in own if run.commit in together)
            waiting = [it for it in waiting if it not in together]
        ids = {run.run_id for runs in abandoned.values() for run in runs}
        return [run for run in own if run.run_id not in ids], abandoned

    def _local(self, own: Iterable[RunHead]) -> set[str]:
        """The commits that no one had pushed when they ran, and that the reader does not have."""
        known: dict[str, bool] = {}
        for run in own:
            if run.commit:
                known[run.commit] = known.get(run.commit, True) and run.is_local
        local = {commit for commit, is_local in known.items() if is_local}
        return local.difference(self._read_own()) if local else local

    def _places(
        self, own: Sequence[RunHead], known: Mapping[str, int] = MappingProxyType({})
    ) -> dict[str, int]:
        """The places of the commits of runs, and of their ancestors as far as they are recorded.

        ``known`` has the places of other commits, from which those of shallow clones follow.
        """
        deepest = sorted(own, key=lambda run: run.depth or 0, reverse=True)
        read: list[RunHead] = []
        for run in deepest:
            is_near = run.depth and read and (read[-1].depth or 0) - run.depth < READ_EVERY
            if run.commit and not is_near:
                read.append(run)
        found = zip(read, self._recorded.load(read), strict=True)
        lists = {run.commit: parents.ancestors for run, parents in found if run.commit}
        places = {**known, **{run.commit: run.depth for run in own if run.commit and run.depth}}
        for run in read:
            if run.commit and run.depth:
                _add_ancestors(places, run.commit, lists[run.commit])
        shallow = {run.commit: run for run in own if run.commit and run.commit not in places}
        timeline = _timeline(own, places)
        for commit, run in shallow.items():
            if commit not in places:
                _resolve(run, shallow, lists, places, timeline)
        return places


class _Recorded:
    """The parents that runs recorded, each read once."""

    def __init__(self, read: ReadParents) -> None:
        self._read = read
        self._known: dict[str, CommitParents] = {}

    def has(self, run: RunHead) -> bool:
        return run.run_id in self._known

    def load(self, runs: Collection[RunHead]) -> list[CommitParents]:
        """Return the parents of these runs, which are read together."""
        if missing := [run.run_id for run in runs if run.run_id not in self._known]:
            self._known |= {**dict.fromkeys(missing, CommitParents()), **self._read(missing)}
        return [self._known[run.run_id] for run in runs]


class _Commits:
    """The measured commits of a branch, with the parents that their runs recorded."""

    def __init__(self, runs: Mapping[str, RunHead], recorded: _Recorded) -> None:
        """``runs`` has a run of each commit."""
        self._runs, self._recorded = runs, recorded

    def line(self, commit: str) -> dict[str, int]:
        """A commit and its first parents, as far as they are recorded, with their distances."""
        line, known = [commit], {commit}
        # Only a forged history comes back to a commit.
        while (more := self._beyond(line)) and known.isdisjoint(more):
            line += more
            known.update(more)
        return {it: distance for distance, it in enumerate(line)}

    def _beyond(self, line: Sequence[str]) -> Sequence[str]:
        """The first parents beyond the end of a line, which a run of its last commits recorded."""
        last = range(len(line) - 1, max(len(line) - MOST_ANCESTORS, 0) - 1, -1)
        near = [(place, run) for place in last if (run := self._runs.get(line[place]))]
        read = [it for it in near if self._recorded.has(it[1])]
        # Without those that cannot know more: the line has all commits of their depth.
        unread = [(place, run) for place, run in near if place + (run.depth or 0) > len(line)]
        for place, run in (*read, *unread):
            [parents] = self._recorded.load([run])
            if more := parents.ancestors[len(line) - 1 - place :]:
                return more
        return ()

    def line_with(self, commit: str, highest: Iterable[str]) -> dict[str, int]:
        """The longest line that has a commit; ``highest`` has all commits, the highest first."""
        seen: set[str] = set()
        for end in highest:
            if end not in seen:
                line = self.line(end)
                if commit in line:
                    return line
                seen.update(line)
        return self.line(commit)

    def apart_from(self, line: Mapping[str, int], highest: Iterable[str]) -> list[str]:
        """The commits that are not on a line for certain, and not merged into it; highest first."""
        newest = self._runs[next(iter(line))]
        found: list[str] = []
        unknown: set[str] = set()  # they may be below the end of the line
        for commit in highest:
            if commit in line or commit in unknown:
                continue
            depth = self._runs[commit].depth
            if depth and newest.depth:
                if depth > newest.depth - len(line):
                    found.append(commit)
            elif line.keys().isdisjoint(own := self.line(commit)):
                unknown.update(own)
            else:
                found.append(commit)
        merged = self._merged(line, found) if found else set()
        return [it for it in found if it not in merged]

    def _merged(self, line: Iterable[str], apart: Collection[str]) -> set[str]:
        """Those of the commits that are on the line of a commit which was merged."""
        self._recorded.load(self._runs.values())
        found: set[str] = set()
        waiting = [*line]
        while waiting:
            run = self._runs.get(waiting.pop())
            [parents] = self._recorded.load([run]) if run else [CommitParents()]
            for parent in parents.merged:
                if parent in apart and parent not in found:
                    own = self.line(parent).keys() & set(apart)
                    waiting += own - found
                    found |= own
        return found


Timeline = list[tuple[datetime, int]]
"""Start times of runs with known places, in order of time."""


def _timeline(runs: Iterable[RunHead], places: Mapping[str, int]) -> Timeline:
    known = ((run.started_at, places.get(run.commit or "")) for run in runs)
    return sorted((moment, place) for moment, place in known if place is not None)


def _resolve(
    run: RunHead,
    shallow: Mapping[str, RunHead],
    lists: Mapping[str, Sequence[str]],
    places: dict[str, int],
    timeline: Timeline,
) -> None:
    """Find the place of a commit from that of its nearest known ancestor, which is found first."""
    waiting = [run.commit or ""]
    while waiting:
        commit = waiting[-1]
        near = ((n, it) for n, it in enumerate(lists[commit], 1) if it in places or it in shallow)
        # An ancestor that waits for this commit: only a forged history has that.
        distance, known = next(((n, it) for n, it in near if it not in waiting), (0, ""))
        if known and known not in places:
            waiting.append(known)
            continue
        started = shallow[commit].started_at
        places[commit] = places[known] + distance if known else _place_at(started, timeline)
        _add_ancestors(places, commit, lists[commit])
        insort(timeline, (started, places[commit]))
        waiting.pop()


def _add_ancestors(places: dict[str, int], commit: str, ancestors: Iterable[str]) -> None:
    for distance, ancestor in enumerate(ancestors, 1):
        places.setdefault(ancestor, places[commit] - distance)


def _place_at(moment: datetime, timeline: Timeline) -> int:
    """The place of the last run before a moment; 0 if there is none."""
    index = bisect_right(timeline, moment, key=lambda it: it[0])
    return timeline[index - 1][1] if index else 0


def _placed(runs: Sequence[RunHead], places: Mapping[str, int]) -> list[tuple[RunHead, int]]:
    """Every run with its place. Runs are in order of time; those of no known commit follow it."""
    timeline, found = _timeline(runs, places), []
    for run in runs:
        known = places.get(run.commit or "")
        found.append((run, _place_at(run.started_at, timeline) if known is None else known))
    return found


def _in_order(runs: Sequence[RunHead], places: Mapping[str, int]) -> list[RunHead]:
    """Order runs by their commits; uncommitted changes come after their commit."""

    def key(placed: tuple[RunHead, int]) -> tuple[int, bool, bool, datetime]:
        run, place = placed
        return place, run.commit not in places, run.dirty, run.started_at

    return [run for run, _ in sorted(_placed(runs, places), key=key)]
