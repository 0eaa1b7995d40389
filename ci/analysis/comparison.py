"""What a comparison found, on every platform."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ci.analysis.cause import Explanation
from ci.analysis.references import Runs
from ci.analysis.times import Judgement, NoTimes, Times
from ci.errors import UsageError
from ci.facts.difference import Difference
from ci.model.results import PlatformResult, Product, PytestResult, title
from ci.model.tests import Outcome
from ci.store.rows import Measured
from ci.util.text import near_match

if TYPE_CHECKING:
    from ci.facts.contract import Contract
    from ci.store.rows import RunHead
    from ci.store.store import Store


@dataclass(frozen=True, kw_only=True)
class PlatformComparison:
    """Both sides on one platform, or on two."""

    base: Side
    head: Side
    tests: Difference | None
    """``None``: one of them has none, and says why."""
    times: Times | NoTimes
    explanations: tuple[Explanation, ...] = ()

    @property
    def name(self) -> str:
        """``cpu``, or ``nvidia -> moore``."""
        return " -> ".join(dict.fromkeys((self.base.platform, self.head.platform)))

    @property
    def stands_for_another(self) -> bool:
        """Whether one of the two is of a simulated device, and the other is not."""
        same = self.base.platform == self.head.platform
        return same and self.base.simulated != self.head.simulated

    @property
    def of_different_operators(self) -> str | None:
        """How the two differ in the operators they were built with, where they do."""
        base, head = (side.selected or "all operators" for side in (self.base, self.head))
        return f"base has {base}, head has {head}" if base != head else None

    def has(self, judgement: Judgement) -> bool:
        return isinstance(self.times, Times) and bool(self.times.of(judgement))

    @property
    def is_newly_broken(self) -> bool:
        """Whether it was built, and is no more."""
        return self.head.is_broken and self.base.missing is None

    @property
    def regression(self) -> bool:
        tests = self.tests is not None and self.tests.regression
        return tests or self.is_newly_broken or self.has(Judgement.REGRESSION)

    @property
    def suspected(self) -> bool:
        return self.has(Judgement.SUSPECTED)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All of it."""

    base: str
    head: str
    """What was named."""
    platforms: tuple[PlatformComparison, ...]
    only_base: tuple[str, ...] = ()
    only_head: tuple[str, ...] = ()
    """Platforms that the other side does not have."""
    notes: tuple[str, ...] = ()

    @property
    def regression(self) -> bool:
        return any(platform.regression for platform in self.platforms)

    @property
    def suspected(self) -> bool:
        return any(platform.suspected for platform in self.platforms)

    def unjudged(self) -> Iterator[str]:
        """Why ``--fail-on`` cannot judge some platforms."""
        for platform in self.platforms:
            for side in (platform.base, platform.head):
                if side.missing is not None:
                    yield f"{side.title} has no tests: {side.missing}"
            if platform.stands_for_another:
                titles = f"{platform.base.title} and {platform.head.title}"
                yield f"neither stands for the other: {titles}"
            if difference := platform.of_different_operators:
                yield f"{platform.name}: neither stands for the other: {difference}"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two that are compared, on one platform."""

    name: str
    platform: str
    counts: Counter[Outcome]
    simulated: bool = False
    run_id: str | None = None
    """``None``: a contract."""
    origin: str = ""
    """How the run follows from what was named."""
    missing: str | None = None
    """Why there are no tests."""
    is_broken: bool = False
    """Its build failed."""
    selected: str | None = None
    """The only operators that it has; ``None``: it has all."""

    @property
    def title(self) -> str:
        return title(self.name, simulated=self.simulated)


def contract_side(name: str, contract: Contract) -> Side:
    return Side(
        name=name,
        platform=contract.platform,
        counts=contract.suite.counts(),
        simulated=contract.simulated,
    )


def run_side(store: Store, runs: Runs, result: PlatformResult) -> Side:
    run_id, pytest = runs.runs[result.platform].run_id, result.pytest
    counts = _counts(pytest) if pytest else Counter()
    # Where the per-test log is lost, the counts are those of pytest's closing summary.
    lost = (
        counts.total() > 0
        and result.verdict.product is not Product.PASSED
        and not store.outcomes(run_id, result.platform).names
    )
    incomplete = pytest is not None and not pytest.summary
    note = " (its tests did not get to their end)" if incomplete else ""
    return Side(
        name=f"{run_id}/{result.platform}{note}",
        platform=result.platform,
        counts=counts,
        simulated=result.simulated,
        run_id=run_id,
        origin=runs.origin(result.platform),
        missing=None if pytest and not lost else result.verdict.evidence[0].text,
        is_broken=result.built is False,
        selected=result.facts("selection").get("operators"),
    )


def _counts(pytest: PytestResult) -> Counter[Outcome]:
    return Counter(
        {
            Outcome.PASSED: pytest.passed,
            Outcome.FAILED: pytest.failed,
            Outcome.ERROR: pytest.errors,
            Outcome.SKIPPED: pytest.skipped,
            Outcome.XFAILED: pytest.xfailed,
            Outcome.XPASSED: pytest.xpassed,
        }
    )


BEFORE = 100  # runs before BASE that are looked at: levels are judged by half as many
BETWEEN = 400  # of more, every second, third, ... one
AFTER = 20  # runs after HEAD, which confirm what it is
BEFORE_ALL = -1.0
A_BIT = 0.5  # later than its commit is what was changed on top of it


def places(base: Sequence[str], head: Sequence[str]) -> dict[str, float]:
    """The place of every commit in a line, from the ancestors of both, the newest first.

    What only HEAD has comes last: its runs are judged by those of BASE.
    """
    order = [*reversed(base), *reversed(head)]
    found: dict[str, float] = {}
    for commit in order:
        found.setdefault(commit, len(found))
    return found


def line(
    rows: Sequence[RunHead], commits: Mapping[str, float] | None, base: RunHead, head: RunHead
) -> list[RunHead]:
    """The runs of a line in its order, of those that are given in the order of time.

    Without commits to go by, all runs in the order of time.
    """
    if commits is None:
        return list(rows)
    fallback = {base.run_id: BEFORE_ALL, head.run_id: float(len(commits))}

    def place(row: RunHead) -> float:
        known = commits.get(row.commit or "", fallback.get(row.run_id, 0.0))
        return known + A_BIT if row.dirty else known

    chosen = [
        row for row in rows if row.run_id in fallback or (row.commit in commits and not row.dirty)
    ]
    return sorted(chosen, key=lambda row: (place(row), row.started_at))


def window(rows: Sequence[RunHead], base: RunHead, head: RunHead) -> list[RunHead]:
    """What is looked at of a long line: enough to know the levels of both."""
    run_ids = [row.run_id for row in rows]
    first, last = sorted((run_ids.index(base.run_id), run_ids.index(head.run_id)))
    between = rows[first + 1 : last]
    thinned = between[:: len(between) // BETWEEN + 1]
    ends = (rows[max(0, first - BEFORE) : first + 1], rows[max(first + 1, last) : last + AFTER + 1])
    return [*ends[0], *thinned, *ends[1]]


def newest_of(rows: Sequence[Measured], commits: Collection[str]) -> Measured | None:
    """The last run of a line that is of these commits."""
    clean = (row for row in reversed(rows) if not row.dirty and row.commit in commits)
    return next(clean, None)


def pairs_of(base: Runs, head: Runs) -> list[tuple[str, str]]:
    """The platforms that both have; or those that are named, on either side or on both."""
    if base.platform or head.platform:
        return [(one_platform(base, head.platform), one_platform(head, base.platform))]
    shared = [(platform, platform) for platform in base.runs if platform in head.runs]
    if shared:
        return shared
    if len(base.runs) == len(head.runs) == 1:
        return [(next(iter(base.runs)), next(iter(head.runs)))]
    message = f"no platform is the same: {_has(base)}, {_has(head)}"
    remedy = (
        f"Name one of each: {base.name}/{next(iter(base.runs))} {head.name}/{next(iter(head.runs))}"
    )
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
    kind = f"run {side.name}" if side.revision is None else side.name
    return f"{kind} has {', '.join(side.runs)}"
