"""Compare two runs, or a run and a contract: from two references to their differences.

A reference is the text of a user for BASE or HEAD. ``references`` finds its runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ci.analysis import references
from ci.analysis.abi import WheelComparison, compare_wheels
from ci.analysis.durations import MOST, find_slower_tests
from ci.analysis.explanation import Explanation
from ci.analysis.flaky import find_flaky_tests
from ci.analysis.platform_history import explain_changes, follow_merges, project_acceptances
from ci.analysis.references import MergeBase, ReferenceFinder, ReferenceRuns
from ci.analysis.repository import Repository
from ci.analysis.times import MissingTimes, Times, compare_times
from ci.errors import UnreadableRunError
from ci.facts.acceptance import Acceptance, split_expired
from ci.facts.difference import Difference, common_changes, compare_outcomes, compare_suites
from ci.facts.environment_key import ComponentChange
from ci.facts.exported_symbols import changed_wheels
from ci.facts.operators import read_record
from ci.facts.rebuilt import RebuiltFile, rebuilt_files
from ci.facts.stack import stack_changes
from ci.facts.suite import adapt_to_processor, suite_name, suite_of
from ci.gates.regression import ChangeKind, Judgement, Standing, standing
from ci.gates.rules import Subject
from ci.model.outcomes import Outcome, Processor, Suite
from ci.model.results import PlatformResult, title
from ci.model.verdicts import Product
from ci.util.text import commit_name, counted, join_names

if TYPE_CHECKING:  # 0.3 s for SQLAlchemy, 0.1 s for YAML
    from ci.facts.contract import Contract
    from ci.store.rows import RunHead
    from ci.store.store import Store

NO_EVIDENCE = "its verdict has no evidence"  # of results from elsewhere


@dataclass(frozen=True, kw_only=True)
class PlatformComparison:
    """The comparison of both sides on one platform, or across two."""

    base: Side
    head: Side
    tests: Difference | None
    """``None`` if a side has no tests; its ``missing`` is the reason."""
    times: Times | MissingTimes
    explanations: tuple[Explanation, ...] = ()
    gained: Times | None = None
    """What BASE's branch gained since the merge base: news that is not HEAD's doing."""
    stack: Sequence[ComponentChange] = ()
    """What differs beside the sources; empty across platforms."""
    rebuilt: Sequence[RebuiltFile] = ()
    """The wheels and source distributions, of two runs of one commit."""
    wheels: Sequence[WheelComparison] = ()
    """Kept wheels that are different files; empty across platforms."""

    @property
    def name(self) -> str:
        """``cpu``, or ``nvidia -> moore``."""
        return " -> ".join(dict.fromkeys((self.base.platform, self.head.platform)))

    @property
    def mixes_simulated_and_real(self) -> bool:
        """Whether one side ran on a simulated device and the other on a real one."""
        same = self.base.platform == self.head.platform
        return same and self.base.simulated != self.head.simulated

    @property
    def operator_difference(self) -> str | None:
        """The selected operators of both sides, if they differ."""
        base, head = (side.selected or "all operators" for side in (self.base, self.head))
        return f"base has {base}, head has {head}" if base != head else None

    @property
    def ended_worse(self) -> bool:
        """Whether HEAD ended worse than BASE, whatever its tests."""
        base, head = self.base.standing, self.head.standing
        if base is None or head is None or self.base.missing is not None:
            return False
        return head > base

    @property
    def judgements(self) -> Set[Judgement]:
        """What a gate judges: the judgments on costs, tests and results."""
        times = self.times.changes if isinstance(self.times, Times) else ()
        found = {change.judgement for change in times}
        if self.ended_worse or (self.tests is not None and self.tests.regression):
            found.add(Judgement.REGRESSION)
        return found


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The comparison of both sides on all platforms."""

    base: str
    head: str
    """The references as the user wrote them."""
    platforms: tuple[PlatformComparison, ...]
    only_base: tuple[str, ...] = ()
    only_head: tuple[str, ...] = ()
    """Platforms that the other side does not have."""
    notes: tuple[str, ...] = ()
    merge_base: MergeBase | None = None
    """Where HEAD left the branch that BASE names, if BASE is such a commit."""

    @property
    def judgements(self) -> Set[Judgement]:
        return {judgement for platform in self.platforms for judgement in platform.judgements}

    def gate_subject(self) -> Subject:
        return Subject(judgements=self.judgements, gaps=tuple(self._undecided()))

    def _undecided(self) -> Iterator[str]:
        """Yield the reasons why a platform cannot be judged."""
        for platform in self.platforms:
            for side in (platform.base, platform.head):
                if side.missing is not None:
                    yield f"{side.title} has no tests: {side.missing}"
                elif side.standing in (None, Standing.INCOMPLETE):
                    yield f"{side.title} is incomplete: {side.reason}"
            if platform.mixes_simulated_and_real:
                titles = f"{platform.base.title} and {platform.head.title}"
                yield f"not comparable, only one device is simulated: {titles}"
            if difference := platform.operator_difference:
                yield f"{platform.name}: not comparable, selected operators differ: {difference}"


@dataclass(frozen=True, kw_only=True)
class Side:
    """BASE or HEAD on one platform."""

    name: str
    platform: str
    counts: Counter[Outcome]
    simulated: bool = False
    run_id: str | None = None
    """``None`` for a contract."""
    origin: str = ""
    """How the reference led to this run; empty if it named the run itself."""
    missing: str | None = None
    """The reason why there are no tests."""
    standing: Standing | None = Standing.PASSED
    """How it ended; ``None``: unknown."""
    reason: str | None = None
    """The reason for its standing."""
    selected: str | None = None
    """The selected operators; ``None`` if all were built."""

    @property
    def title(self) -> str:
        return title(self.name, self.platform, simulated=self.simulated)


def contract_side(name: str, contract: Contract) -> Side:
    return Side(
        name=name,
        platform=contract.platform,
        counts=contract.suite.counts(),
        simulated=contract.simulated,
    )


def run_side(store: Store, runs: ReferenceRuns, result: PlatformResult) -> Side:
    run_id, pytest = runs.runs[result.platform].run_id, result.pytest
    reason = result.verdict.reason or NO_EVIDENCE
    fields = {it: "errors" if it is Outcome.ERROR else it.value for it in Outcome if pytest}
    counts = Counter({it: getattr(pytest, name) for it, name in fields.items()})
    # If the per-test log is lost, the counts come from pytest's closing summary.
    lost = (
        counts.total() > 0
        and result.verdict.product is not Product.PASSED
        and not store.outcomes(run_id, result.platform).names
    )
    incomplete = pytest is not None and not pytest.summary
    note = " (its tests did not complete)" if incomplete else ""
    return Side(
        name=f"{run_id}/{result.platform}{note}",
        platform=result.platform,
        counts=counts,
        simulated=result.simulated,
        run_id=run_id,
        origin=runs.origin(result.platform),
        missing=None if pytest and not lost else reason,
        standing=standing(result),
        reason=reason,
        selected=result.selected,
    )


# From references to sides


def compare(
    open_store: Callable[[], AbstractContextManager[Store]],
    source: Path,
    base: str | None,
    head: str,
    *,
    results: Path | None = None,
) -> Comparison:
    """Compare two references; the store is opened only if one of them needs a run.

    Branches and tags are looked up in the git repository of ``source``, the project's folder. The
    folders of runs are in ``results``; ``None``: what their files contain is not compared.
    Without ``base``, HEAD is compared with the branch that it will be merged into, or a commit of
    the main branch with those before it.
    """
    files = {name: references.contract_file(name) for name in (base, head) if name}
    repository = Repository(source)
    if base is None or not any(files.values()):
        with open_store() as store:
            find = partial(_compare_runs, store, source, results, base, head)
            return _without_unreadable(store, repository, [*files], find)
    from ci.facts.contract import load_contract  # 0.1 s, not needed for two runs

    contracts = {name: load_contract(file) for name, file in files.items() if file}
    sides: list[tuple[Side, Suite, Processor | None]] = []
    for name in (base, head):
        if contract := contracts.get(name):
            sides.append((contract_side(name, contract), contract.suite, None))
            continue
        with open_store() as store:
            other = next(iter(contracts.values()))
            find_side = partial(_run_side, store, name, other.platform)
            sides.append(_without_unreadable(store, repository, (name,), find_side))
    (first, before, here), (second, after, there) = sides
    suites = adapt_to_processor(before, after, there), adapt_to_processor(after, before, here)
    found = PlatformComparison(
        base=first,
        head=second,
        tests=_compare_tests(first, second, lambda: compare_suites(*suites)),
        times=MissingTimes(reasons=("a contract has no times",)),
    )
    return Comparison(base=first.name, head=second.name, platforms=(found,))


def _compare_runs(
    store: Store,
    source: Path,
    results: Path | None,
    base: str | None,
    head: str,
    finder: ReferenceFinder,
) -> Comparison:
    pair = finder.find_pair(base, head)
    known = project_acceptances(store, source, pair[1].project)
    accepted, _ = split_expired(known, datetime.now(UTC).date())
    return _RunComparison(store, results, finder, *pair, accepted).compare()


def _run_side(
    store: Store, name: str, platform: str, finder: ReferenceFinder
) -> tuple[Side, Suite, Processor | None]:
    runs = finder.find_runs(name)
    platform = references.choose_platform(runs, platform)
    run_id = runs.runs[platform].run_id
    result = store.load(run_id).platform(platform)
    processor = read_record("processor", result.environment)
    return run_side(store, runs, result), suite_of(store.tests(run_id, platform)), processor


Found = TypeVar("Found")


def _without_unreadable(
    store: Store,
    repository: Repository,
    names: Sequence[str],
    find: Callable[[ReferenceFinder], Found],
) -> Found:
    """Call ``find`` for the runs of the store, again without each one that cannot be read.

    Raises ``UnreadableRunError`` for a run that the user named.
    """
    # Earlier versions stored runs without platforms.
    heads = [it for it in store.heads() if it.platforms or store.load_or_skip(it.run_id)]
    while True:
        try:
            return find(ReferenceFinder(heads, repository, store.parents))
        except UnreadableRunError as error:
            if any(name.partition("/")[0] == error.run_id for name in names):
                raise
            store.skip(error)
            heads = [head for head in heads if head.run_id != error.run_id]


def _compare_tests(base: Side, head: Side, tests: Callable[[], Difference]) -> Difference | None:
    """Compare tests; ``None`` if a side has none. With other operators, only common tests."""
    if base.missing is not None or head.missing is not None:
        return None
    return tests() if base.selected == head.selected else common_changes(tests())


RunKey = tuple[str, str]  # run id, platform
Histories = tuple[Sequence[str], Sequence[str]]  # the commits of BASE and of HEAD, newest first


class _RunComparison:
    """Compares two references to runs, with the data of the store."""

    def __init__(
        self,
        store: Store,
        results: Path | None,
        finder: ReferenceFinder,
        base: ReferenceRuns,
        head: ReferenceRuns,
        accepted: Sequence[Acceptance],
    ) -> None:
        self._store, self._results = store, results
        self._heads = [run for run in reversed(finder.heads) if run.project == head.project]
        self._base, self._head = base, head
        self._load = cache(store.load)  # once for all platforms of a run
        self._histories: Histories = ((), ())
        if base.commits or head.commits:
            self._histories = (finder.history(base), finder.history(head))
        self._accepted, self._repository = accepted, finder.repository

    def compare(self) -> Comparison:
        """Compare every common platform, or the named ones."""
        base, head = self._base, self._head
        only_base = tuple(name for name in base.runs if name not in head.runs)
        only_head = tuple(name for name in head.runs if name not in base.runs)
        is_named = bool(base.platform or head.platform)
        return Comparison(
            base=base.name,
            head=head.name,
            platforms=tuple(
                self._compare_platform(*pair) for pair in references.platform_pairs(base, head)
            ),
            only_base=() if is_named else only_base,
            only_head=() if is_named else only_head,
            notes=tuple(self._notes()),
            merge_base=base.merge_base,
        )

    def _notes(self) -> Iterator[str]:
        """Yield whether both are the same run, and which commits of BASE are not in HEAD."""
        first, second = ([*it.runs.values()] for it in (self._base, self._head))
        if len(run_ids := {run.run_id for run in first + second}) == 1:
            yield f"BASE and HEAD are the same run, {run_ids.pop()}"
        for side in (self._base, self._head):
            for platform, run in side.passed_over.items():
                if side.platform in (None, platform):
                    used = side.runs.get(platform)  # not if BASE has the same run
                    what = "the platform is not compared"
                    if used:
                        what = f"run {used.run_id} is compared, which has all"
                    has = f"has only selected operators on {platform}, in run {run.run_id}"
                    yield f"{side.name} {has}: {what}"
        if left := self._base.merge_base:
            yield from self._merge_base_notes(left)
            return
        base, head = self._histories
        before = set(base)
        missing = before.difference(head)
        if not missing or not head:
            return
        count = counted(len(missing), "commit")
        ancestor = next((commit for commit in head if commit in before), None)
        if ancestor == head[0]:
            yield f"HEAD is {count} older than BASE"
        else:
            yield f"HEAD does not contain {count} of BASE: their changes are listed as well"
            if ancestor is not None:
                yield f"the nearest common ancestor of BASE and HEAD is {commit_name(ancestor)}"

    def _merge_base_notes(self, left: MergeBase) -> Iterator[str]:
        """Yield the commits that were used, and how many the branch gained since."""
        place = f"the merge base of {self._base.name} and {self._head.name}"
        if left.nearest[0] == left.commit:
            yield f"BASE is {commit_name(left.commit)}, {place}"
        else:
            near = join_names([commit_name(it) for it in left.nearest])
            yield f"{place}, {commit_name(left.commit)}, has no run; the nearest with one: {near}"
        gained = left.gained
        count = counted(gained, "commit") if gained else "commits"
        yield f"{self._base.name} gained {count} since the merge base: not compared"

    def _compare_platform(self, base: str, head: str) -> PlatformComparison:
        before, after = (self._base.runs[base].run_id, base), (self._head.runs[head].run_id, head)
        first, second = (self._load(run_id).platform(name) for run_id, name in (before, after))
        sides = run_side(self._store, self._base, first), run_side(self._store, self._head, second)
        times = self._times(first, second)
        gained = self._gained(base)
        wheels = changed_wheels(first, second, self._folders(base)) if base == head else ()
        return PlatformComparison(
            base=sides[0],
            head=sides[1],
            tests=_compare_tests(*sides, lambda: self._tests(before, after, times)),
            times=times,
            explanations=tuple(self._explanations(head, times)),
            gained=gained if isinstance(gained, Times) and gained.headlines else None,
            stack=stack_changes(first, second, self._folders(base)) if base == head else (),
            rebuilt=[*self._rebuilt(first, second)] if base == head else (),
            wheels=[*map(compare_wheels, wheels)],
        )

    def _rebuilt(self, base: PlatformResult, head: PlatformResult) -> Iterator[RebuiltFile]:
        """Compare the files of two runs of the same sources."""
        first, second = (side.runs[base.platform] for side in (self._base, self._head))
        is_clean = first.commit is not None and not (first.dirty or second.dirty)
        if first.run_id != second.run_id and is_clean and first.commit == second.commit:
            yield from rebuilt_files(base, head, self._folders(base.platform))

    def _folders(self, platform: str) -> Sequence[Path | None]:
        """The folders of both runs; ``None``: those of the results are unknown."""
        runs = [side.runs[platform] for side in (self._base, self._head)]
        return [self._results and self._results / it.run_id for it in runs]

    def _tests(self, base: RunKey, head: RunKey, times: Times | MissingTimes) -> Difference:
        """Compare the tests of two runs; slower tests are listed only if times are comparable."""
        platform, after = head[1], self._store.outcomes(*head)
        found = compare_outcomes(self._store.outcomes(*base), after)
        if failing := {change.test for change in found.of(ChangeKind.NEWLY_FAILING)}:
            tests = {name for name in after.failures if suite_name(name, after.device) in failing}
            flaky = find_flaky_tests(self._store, platform, self._head.project, tests=tests)
            # A newly failing test counts as failing, even if it is known to be flaky.
            known = {suite_name(test.node_id, after.device): str(test) for test in flaky}
            changes = (replace(it, flaky=known.get(it.test)) for it in found.changes)
            found = replace(found, changes=tuple(changes))
        if isinstance(times, MissingTimes):
            return found
        newest = times.before[-(MOST - 1) :]
        grown = find_slower_tests(
            self._store.outcomes(times.base.run_id, platform),
            after,
            lambda: [self._store.outcomes(run_id, platform) for run_id in newest],
        )
        return replace(found, changes=(*found.changes, *grown))

    def _times(self, base: PlatformResult, head: PlatformResult) -> Times | MissingTimes:
        platform = head.platform
        if base.platform != platform:
            return MissingTimes(reasons=("the platforms differ",))
        if self._base.project != self._head.project:
            return MissingTimes(reasons=("the projects differ",))
        base_run, head_run = (side.runs[platform] for side in (self._base, self._head))
        return self._judge(platform, base_run, head_run, self._histories)

    def _gained(self, platform: str) -> Times | MissingTimes | None:
        """Compare the merge base with the newest run of its branch."""
        left = self._base.merge_base
        newest = left.newest.runs.get(platform) if left else None
        if left is None or newest is None or newest is self._base.runs[platform]:
            return None
        histories = (self._base.commits, left.newest.commits)
        return self._judge(platform, self._base.runs[platform], newest, histories)

    def _judge(
        self, platform: str, base_run: RunHead, head_run: RunHead, histories: Histories
    ) -> Times | MissingTimes:
        """Judge the times of two runs by those along their commits."""
        # Those that searched a commit are no sample of the history: a few commits, but often.
        runs = [
            run
            for run in self._heads
            if platform in run.platforms and (not run.asked_by or run in (base_run, head_run))
        ]
        commits = references.commit_places(*histories) if any(histories) else None
        line = references.order_runs(runs, commits, base_run, head_run)
        near_both = references.runs_to_read(line, base_run, head_run)
        rows = self._store.measured(platform, near_both)
        known = {row.run_id: row for row in rows}
        for run in (base_run, head_run):
            if run.run_id not in known:
                return MissingTimes(reasons=(f"run {run.run_id} has no measures",))
        first, second = known[base_run.run_id], known[head_run.run_id]
        keys = self._store.environment_keys({first.key, second.key})
        alike = [row for row in rows if row.key == second.key]
        if first.key != second.key and self._base.commits:
            # Another run of BASE's branch may have the same environment as HEAD.
            first = references.newest_run_of(alike, set(histories[0])) or first
        own = [change for change in self._accepted if change.platform == platform]
        accepted = follow_merges(own, alike, self._repository)
        near = self._base.merge_base.nearest if self._base.merge_base else ()
        return compare_times(alike, keys, first, second, accepted, near)

    def _explanations(self, platform: str, times: Times | MissingTimes) -> Sequence[Explanation]:
        if isinstance(times, MissingTimes) or not times.headlines:
            return ()
        before = {it.measure: it.before for it in times.changes}
        after = {it.measure: it.after for it in times.changes}
        sides = ((times.base.run_id, before), (times.head.run_id, after))
        ends = [(self._load(it).platform(platform), [it], levels) for it, levels in sides]
        return explain_changes(self._store, times.headlines, ends)
