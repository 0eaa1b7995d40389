"""From two references to what differs between what they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ci.analysis.cause import BuildSide, Explanation, explain
from ci.analysis.contract import Contract, load_contract
from ci.analysis.difference import Difference, difference
from ci.analysis.measures import stage_and_quantity
from ci.analysis.suite import Suite, suite_of
from ci.comparison.line import line, newest_of, places
from ci.comparison.outcomes import compare_outcomes
from ci.comparison.pairs import one_platform, pairs_of
from ci.comparison.references import SHORT, Runs, contract_file, find_both, find_runs
from ci.comparison.result import Comparison, PlatformComparison
from ci.comparison.revisions import Repository
from ci.comparison.sides import Side, contract_side, run_side
from ci.comparison.times import NoTimes, Times, compare_times
from ci.results import PlatformResult
from ci.text import counted

if TYPE_CHECKING:
    from ci.store.store import Store

PYTEST = "pytest"
CONTRACT = NoTimes(reasons=("a contract has no times",))
TWO_PROJECTS = NoTimes(reasons=("they are compared within one project only",))
TWO_PLATFORMS = NoTimes(reasons=("they are compared on one platform only",))


def compare(open_store: Callable[[], Store], source: Path, base: str, head: str) -> Comparison:
    """Compare what two references name; the store is opened only where one names a run.

    ``source`` is the project's folder, in whose repository branches and tags are looked up.
    """
    names = (base, head)
    files = map(contract_file, names)
    contracts = [load_contract(path) if path else None for path in files]
    known = [contract for contract in contracts if contract]
    if len(known) == len(names):
        return _with_contract([*map(_of_contract, names, known)])
    with open_store() as store:
        heads, repository = store.heads(), Repository(source)
        if not known:
            return _Runs(store, repository, *find_both(base, head, heads, repository)).compare()
        sides = [
            _of_contract(name, contract)
            if contract
            else _of_runs(store, find_runs(name, heads, repository), known[0].platform)
            for name, contract in zip(names, contracts, strict=True)
        ]
        return _with_contract(sides)


@dataclass(frozen=True, kw_only=True)
class _Tested:
    """A side, and how to get at its tests."""

    side: Side
    suite: Callable[[], Suite]


def _of_contract(name: str, contract: Contract) -> _Tested:
    return _Tested(side=contract_side(name, contract), suite=lambda: contract.suite)


def _of_runs(store: Store, runs: Runs, other: str) -> _Tested:
    platform = one_platform(runs, other)
    result = store.load(runs.runs[platform].run_id).platform(platform)
    return _of_run(store, runs, result)


def _of_run_side(runs: Runs, result: PlatformResult) -> Side:
    run_id = runs.runs[result.platform].run_id
    return run_side(run_id, result, runs.origin(result.platform))


def _of_run(store: Store, runs: Runs, result: PlatformResult) -> _Tested:
    run_id = runs.runs[result.platform].run_id
    return _Tested(
        side=_of_run_side(runs, result),
        suite=lambda: suite_of(store.tests(run_id, result.platform)),
    )


def _with_contract(sides: Sequence[_Tested]) -> Comparison:
    base, head = sides
    are_there = base.side.missing is None and head.side.missing is None
    platform = PlatformComparison(
        base=base.side,
        head=head.side,
        tests=difference(base.suite(), head.suite()) if are_there else None,
        times=CONTRACT,
    )
    return Comparison(base=base.side.name, head=head.side.name, platforms=(platform,))


class _Runs:
    """Two references to runs, and what the store has of them."""

    def __init__(self, store: Store, repository: Repository, base: Runs, head: Runs) -> None:
        self._store = store
        self._base, self._head = base, head
        self._load = cache(store.load)  # once for all platforms of a run
        self._led_to: tuple[tuple[str, ...], ...] = ((), ())
        if base.revision or head.revision:
            self._led_to = (_ancestors(base, repository), _ancestors(head, repository))
        self._accepted = store.accepted(head.project)

    def compare(self) -> Comparison:
        pairs = pairs_of(self._base, self._head)
        is_named = bool(self._base.platform or self._head.platform)
        shared = set(self._base.runs) & set(self._head.runs)
        return Comparison(
            base=self._base.name,
            head=self._head.name,
            platforms=tuple(self._pair(*pair) for pair in pairs),
            only_base=() if is_named else tuple(p for p in self._base.runs if p not in shared),
            only_head=() if is_named else tuple(p for p in self._head.runs if p not in shared),
            notes=(*self._same(), *_notes(*self._led_to)),
        )

    def _same(self) -> Iterator[str]:
        base, head = ({run.run_id for run in it.runs.values()} for it in (self._base, self._head))
        if base == head and len(base) == 1:
            yield f"BASE and HEAD are one run, {base.pop()}"

    def _pair(self, base: str, head: str) -> PlatformComparison:
        results = (
            self._load(self._base.runs[base].run_id).platform(base),
            self._load(self._head.runs[head].run_id).platform(head),
        )
        times = self._times(*results)
        sides = [_of_run_side(*it) for it in zip((self._base, self._head), results, strict=True)]
        are_there = all(side.missing is None for side in sides)
        return PlatformComparison(
            base=sides[0],
            head=sides[1],
            tests=self._tests(base, head, times) if are_there else None,
            times=times,
            explanations=self._explanations(head, times) if isinstance(times, Times) else (),
        )

    def _tests(self, base: str, head: str, times: Times | NoTimes) -> Difference:
        before = (self._base.runs[base].run_id, base)
        after = (self._head.runs[head].run_id, head)
        return compare_outcomes(self._store, before, after, times, project=self._head.project)

    def _times(self, base: PlatformResult, head: PlatformResult) -> Times | NoTimes:
        platform = head.platform
        if base.platform != platform:
            return TWO_PLATFORMS
        if self._base.project != self._head.project:
            return TWO_PROJECTS
        rows = self._store.measured(platform, project=self._head.project)
        known = {row.run_id: row for row in rows}
        sides = [known[side.runs[platform].run_id] for side in (self._base, self._head)]
        keys = self._store.environment_keys({side.key for side in sides})
        commits = places(*self._led_to) if any(self._led_to) else None
        alike = line([row for row in rows if row.key == sides[1].key], commits, *sides)
        if sides[0].key != sides[1].key and self._base.revision:
            # Another run of the branch may have had the environment of HEAD.
            sides[0] = newest_of(alike, set(self._led_to[0])) or sides[0]
        accepted = [change for change in self._accepted if change.platform == platform]
        return compare_times(alike, keys, sides[0], sides[1], accepted)

    def _explanations(self, platform: str, times: Times) -> tuple[Explanation, ...]:
        if not times.headlines:
            return ()
        with_tests = any(stage_and_quantity(name)[0] == PYTEST for name in times.headlines)
        sides = [
            BuildSide(
                result=self._load(run_id).platform(platform),
                builds=tuple(filter(None, [self._store.build_details(run_id, platform)])),
                tests=self._store.tests(run_id, platform) if with_tests else (),
                values=levels,
            )
            for run_id, levels in (
                (times.base.run_id, {it.measure: it.before for it in times.changes}),
                (times.head.run_id, {it.measure: it.after for it in times.changes}),
            )
        ]
        return tuple(explain(name, *sides) for name in times.headlines)


def _ancestors(side: Runs, repository: Repository) -> tuple[str, ...]:
    """The commits that led to a side, the newest first, as far as git knows them."""
    if side.revision is not None:
        return side.revision.ancestors
    commit = next(iter(side.runs.values())).commit
    revision = repository.revision(commit) if commit else None
    return revision.ancestors if revision else (commit,) if commit else ()


def _notes(base: Sequence[str], head: Sequence[str]) -> Iterator[str]:
    """What HEAD does not have of BASE."""
    before = set(base)
    missing = before.difference(head)
    if not missing or not head:
        return
    count = counted(len(missing), "commit")
    parting = next((commit for commit in head if commit in before), None)
    if parting == head[0]:
        yield f"HEAD is older than BASE, by {count}"
    else:
        yield f"HEAD does not have {count} of BASE: what they changed is told as well"
    if parting not in (None, head[0]):
        yield f"they part at commit {parting[:SHORT]}"
