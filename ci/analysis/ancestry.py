"""The lines of commits that runs belong to, from what the runs recorded: no clone is needed. Pure.

A line is a commit with its first parents. The line of the main branch has what was merged, one by
one. The line of another branch is that of its target up to their newest common commit, then its
own commits. The order of a line comes from the commits. Start times only order runs of one commit,
and runs whose place is not known: those of old versions, and of shallow clones with a gap.
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
from ci.model.results import MAIN_BRANCHES, MOST_ANCESTORS
from ci.store.rows import RunHead
from ci.util.text import near_match

READ_EVERY = MOST_ANCESTORS // 2
"""Commits between two runs whose ancestors are read: these lists overlap by half."""

ReadAncestors = Callable[[Collection[str]], Mapping[str, Sequence[str]]]
"""Read the recorded first parents of runs, nearest first, by the ids of the runs."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """The runs along one line of commits, oldest commit first."""

    branch: str | None
    """``None`` if no run recorded a branch: all runs, in order of time."""
    runs: tuple[RunHead, ...]
    places: Mapping[str, int] = field(default_factory=dict)
    """The place of every known commit of the line, measured or not."""

    @cached_property
    def commits(self) -> tuple[str, ...]:
        """The commits with runs, newest first."""
        clean = (run.commit for run in reversed(self.runs) if not run.dirty)
        return tuple(dict.fromkeys(commit for commit in clean if commit))


class Ancestry:
    """The branches of a project, as its runs recorded them."""

    def __init__(self, heads: Sequence[RunHead], read_ancestors: ReadAncestors) -> None:
        """``heads`` has all runs of the project, in any order."""
        self._heads = sorted(heads, key=lambda run: (run.started_at, run.run_id))
        self._read = read_ancestors
        self.branches = Counter(run.branch for run in self._heads if run.branch)

    @cached_property
    def main(self) -> str | None:
        """The main branch, if it has runs; else the branch with most runs."""
        named = Counter(run.main_branch for run in self._heads if run.main_branch in self.branches)
        candidates = (*(name for name, _ in named.most_common()), *MAIN_BRANCHES)
        most = (name for name, _ in self.branches.most_common())
        return next((name for name in (*candidates, *most) if name in self.branches), None)

    def line(self, branch: str | None = None) -> Line:
        """The line of a branch, by default of the main one.

        Raises ``UsageError`` if no run recorded the branch.
        """
        if branch is not None and branch not in self.branches:
            hint = near_match(branch, self.branches)
            message = f"the store holds no run of branch '{branch}'{hint}"
            known = ", ".join(sorted(self.branches)) or "none"
            raise UsageError(message, remedy=f"Branches with runs: {known}.")
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

    def _trunk(self, branch: str, own: Sequence[RunHead]) -> Line:
        """The runs of a branch, and all others whose commits are on its line."""
        places = self._places(own)
        runs = [
            run
            for run in self._heads
            if run.branch == branch
            or run.commit in places
            # Without a branch: a run that does not say that it is elsewhere.
            or (run.branch is None and run.merge_base in (None, run.commit))
        ]
        return Line(branch=branch, runs=tuple(_in_order(runs, places)), places=places)

    def _fork(self, branch: str, own: Sequence[RunHead], trunk: Line) -> Line:
        """The runs of the target up to the newest common commit, then those of the branch."""
        bases = {run.merge_base for run in own if run.merge_base}
        common = [trunk.places[commit] for commit in bases if commit in trunk.places]
        if not common:
            lists = self._read([run.run_id for run in own]).values()
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
        return Line(branch=branch, runs=runs, places=shared)

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
        found = self._read([run.run_id for run in read])
        lists = {run.commit: found.get(run.run_id, ()) for run in read if run.commit}
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
