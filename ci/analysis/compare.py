"""From two references to what differs between what they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ci.analysis.cause import Explanation, explain
from ci.analysis.comparison import (
    Comparison,
    PlatformComparison,
    Side,
    contract_side,
    line,
    newest_of,
    one_platform,
    pairs_of,
    places,
    run_side,
    window,
)
from ci.analysis.durations import MOST, slower
from ci.analysis.flaky import Flaky, stored_flaky
from ci.analysis.history import stored_side
from ci.analysis.references import Repository, Runs, contract_file, find_both, find_runs
from ci.analysis.times import NoTimes, Times, compare_times
from ci.facts.difference import Difference, Kind, difference, of_both, run_difference
from ci.facts.operators import read_processor
from ci.facts.suite import on_processor, suite_name, suite_of
from ci.model.results import PlatformResult
from ci.model.tests import Processor, Suite
from ci.store.rows import Measured
from ci.util.text import commit_name, counted

if TYPE_CHECKING:
    from ci.facts.contract import Contract
    from ci.store.rows import RunHead
    from ci.store.store import Store


NO_TIMES = NoTimes(reasons=("a contract has no times",))


def compare(open_store: Callable[[], Store], source: Path, base: str, head: str) -> Comparison:
    """Compare what two references name; the store is opened only where one names a run.

    ``source`` is the project's folder, in whose repository branches and tags are looked up.
    """
    names = (base, head)
    contracts = [_contract(path) if path else None for path in map(contract_file, names)]
    known = [contract for contract in contracts if contract]
    if len(known) == len(names):
        return _with_contract([*map(_of_contract, names, known)])
    with open_store() as store:
        heads, repository = store.heads(), Repository(source)
        if not known:
            found = find_both(base, head, heads, repository)
            return compare_runs(store, repository, heads, *found)
        sides = [
            _of_contract(name, contract)
            if contract
            else _of_run(store, find_runs(name, heads, repository), known[0].platform)
            for name, contract in zip(names, contracts, strict=True)
        ]
    return _with_contract(sides)


def _contract(path: Path) -> Contract:
    from ci.facts.contract import load_contract  # 0.1 s, which two runs do without

    return load_contract(path)


# With its tests, and the processor that they ran on.
_Tested = tuple[Side, Suite, Processor | None]


def _of_contract(name: str, contract: Contract) -> _Tested:
    return contract_side(name, contract), contract.suite, None


def _of_run(store: Store, runs: Runs, other: str) -> _Tested:
    platform = one_platform(runs, other)
    run_id = runs.runs[platform].run_id
    suite = suite_of(store.tests(run_id, platform))
    result = store.load(run_id).platform(platform)
    return run_side(store, runs, result), suite, read_processor(result.environment.get("processor"))


def _with_contract(sides: Sequence[_Tested]) -> Comparison:
    (base, before, first), (head, after, second) = sides
    before, after = on_processor(before, after, second), on_processor(after, before, first)
    are_there = base.missing is None and head.missing is None
    tests = difference(before, after) if are_there else None
    found = PlatformComparison(
        base=base,
        head=head,
        tests=of_both(tests) if tests and base.selected != head.selected else tests,
        times=NO_TIMES,
    )
    return Comparison(base=base.name, head=head.name, platforms=(found,))


TWO_PROJECTS = NoTimes(reasons=("they are compared within one project only",))
TWO_PLATFORMS = NoTimes(reasons=("they are compared on one platform only",))


def compare_runs(
    store: Store, repository: Repository, heads: Sequence[RunHead], base: Runs, head: Runs
) -> Comparison:
    """Compare what two references to runs name, on every platform that both have.

    ``heads`` are all runs of the store, the newest first.
    """
    return _Runs(store, repository, heads, base, head).compare()


class _Runs:
    """Two references to runs, and what the store has of them."""

    def __init__(
        self,
        store: Store,
        repository: Repository,
        heads: Sequence[RunHead],
        base: Runs,
        head: Runs,
    ) -> None:
        self._store = store
        self._heads = [run for run in reversed(heads) if run.project == head.project]
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
        before = (self._base.runs[base].run_id, base)
        after = (self._head.runs[head].run_id, head)
        results = [self._load(run_id).platform(name) for run_id, name in (before, after)]
        times = self._times(results[0], results[1])
        sides = [
            run_side(self._store, runs, result)
            for runs, result in zip((self._base, self._head), results, strict=True)
        ]
        are_there = all(side.missing is None for side in sides)
        tests = None
        if are_there:
            project = self._head.project
            tests = compare_outcomes(self._store, before, after, times, project=project)
        return PlatformComparison(
            base=sides[0],
            head=sides[1],
            tests=of_both(tests) if tests and sides[0].selected != sides[1].selected else tests,
            times=times,
            explanations=self._explanations(head, times) if isinstance(times, Times) else (),
        )

    def _times(self, base: PlatformResult, head: PlatformResult) -> Times | NoTimes:
        platform = head.platform
        if base.platform != platform:
            return TWO_PLATFORMS
        if self._base.project != self._head.project:
            return TWO_PROJECTS
        base_run, head_run = (side.runs[platform] for side in (self._base, self._head))
        runs = [run for run in self._heads if platform in run.platforms]
        commits = places(*self._led_to) if any(self._led_to) else None
        chosen = window(line(runs, commits, base_run, head_run), base_run, head_run)
        rows = self._measured(platform, chosen)
        for run in (base_run, head_run):
            if run.run_id not in rows:
                return NoTimes(reasons=(f"nothing of run {run.run_id} was measured",))
        sides = [rows[run.run_id] for run in (base_run, head_run)]
        keys = self._store.environment_keys({side.key for side in sides})
        alike = [row for row in rows.values() if row.key == sides[1].key]
        if sides[0].key != sides[1].key and self._base.revision:
            # Another run of the branch may have had the environment of HEAD.
            sides[0] = newest_of(alike, set(self._led_to[0])) or sides[0]
        accepted = [change for change in self._accepted if change.platform == platform]
        return compare_times(alike, keys, sides[0], sides[1], accepted)

    def _measured(self, platform: str, runs: Sequence[RunHead]) -> dict[str, Measured]:
        """By run, in the order of the runs."""
        run_ids = [run.run_id for run in runs]
        found = self._store.measured(platform, project=self._head.project, runs=run_ids)
        known = {row.run_id: row for row in found}
        return {run_id: known[run_id] for run_id in run_ids if run_id in known}

    def _explanations(self, platform: str, times: Times) -> tuple[Explanation, ...]:
        if not times.headlines:
            return ()
        sides = [
            stored_side(
                self._store,
                self._load(run_id).platform(platform),
                [run_id],
                times.headlines,
                levels,
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
        yield f"they part at {commit_name(parting)}"


Place = tuple[str, str]  # run id, platform


def compare_outcomes(
    store: Store, base: Place, head: Place, times: Times | NoTimes, *, project: str
) -> Difference:
    """What changed; slower tests only where the times of the two can be compared."""
    after = store.outcomes(*head)
    found = run_difference(store.outcomes(*base), after)
    if failing := {change.test for change in found.of(Kind.NEWLY_FAILING)}:
        tests = {name for name in after.bad if suite_name(name, after.device) in failing}
        flaky = stored_flaky(store, head[1], project, tests=tests)
        found = _with_evidence(found, flaky, after.device)
    if isinstance(times, NoTimes):
        return found
    platform = head[1]
    newest = times.before[-(MOST - 1) :]
    grown = slower(
        store.outcomes(times.base.run_id, platform),
        after,
        lambda: [store.outcomes(run_id, platform) for run_id in newest],
    )
    return replace(found, changes=(*found.changes, *grown))


def _with_evidence(found: Difference, flaky: Sequence[Flaky], device: str | None) -> Difference:
    """Say of what fails newly that it is known to do so now and then; it counts all the same."""
    known = {suite_name(test.node_id, device): str(test) for test in flaky}
    return replace(
        found,
        changes=tuple(
            replace(change, flaky=known.get(change.test))
            if change.kind is Kind.NEWLY_FAILING
            else change
            for change in found.changes
        ),
    )
