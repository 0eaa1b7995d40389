"""What is known of a release, as its rules need it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ci.gates.regression import Judgement
from ci.model.decision import DecidedRun
from ci.model.results import PlatformResult, RunResult

COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?", re.ASCII)
# Of a cost in which a rise beyond the limit does not count: it is accepted, or noise explains it.
NO_RISE = (
    Judgement.ACCEPTED,
    Judgement.WITHIN_NOISE,
    Judgement.UNCHANGED,
    Judgement.IMPROVEMENT,
    Judgement.SUSPECTED_IMPROVEMENT,
)


@dataclass(frozen=True, kw_only=True)
class CostRise:
    """How much worse a cost is than in the last release."""

    text: str
    """``CPU seconds of install +38 s (+21 %)``."""
    relative: float
    """Relative rise; negative if it got better."""
    judgement: Judgement

    def exceeds(self, percent: float) -> bool:
        return self.judgement not in NO_RISE and 100 * self.relative > percent


@dataclass(frozen=True, kw_only=True)
class BaselineFacts:
    """A platform in the last release, and what changed since."""

    run_id: str
    gaps: Sequence[str] = ()
    """Why tests and results cannot be compared."""
    regressions: Sequence[str] = ()
    """Regressions of tests, results and costs without a limit."""
    untimed: Sequence[str] = ()
    """Why no times can be compared."""
    build: CostRise | None = None
    """``None``: no stage of the build was measured in both."""
    benchmarks: Sequence[CostRise] = ()
    lost_benchmarks: Sequence[str] = ()
    """Names of benchmarks that only the last release has."""
    removed_symbols: Sequence[str] = ()
    """Exported symbols that only the last release has."""
    unread_wheels: Sequence[str] = ()
    """Why exported symbols cannot be compared."""


@dataclass(frozen=True, kw_only=True)
class PlatformFacts:
    """What is known of a platform in the named runs."""

    run: RunResult
    result: PlatformResult
    baseline: BaselineFacts | str
    """The last release, or the reason why there is none."""
    skips: Mapping[str, int] | None
    """Numbers of skipped tests by reason; ``None``: the tests are not recorded."""
    failed_selections: Sequence[str] = ()
    """Later runs of selected operators that did not pass."""

    @property
    def commit(self) -> str | None:
        """The commit of the run; ``None``: unknown, or what a stranger's file has is none."""
        commit = self.run.commit or ""
        return commit if COMMIT.fullmatch(commit) else None


@dataclass(frozen=True, kw_only=True)
class PairCoverage:
    """The pairs of an operator overload and a dtype in the tests of all platforms."""

    known: int
    """Number of all pairs."""
    unexecuted: Sequence[str]
    """``add.out float16``: those that no platform of the release executed on a real device."""


@dataclass(frozen=True, kw_only=True)
class ReleaseFacts:
    """What is known of a release."""

    project: str
    tag: str | None
    tag_commit: str | None
    """Commit of the tag; ``None``: there is no such tag yet."""
    platforms: Mapping[str, PlatformFacts]
    """By name, those that the release requires first."""
    runs: tuple[DecidedRun, ...]
    pairs: PairCoverage | None = None
    """``None``: no platform has operator tests."""

    @property
    def commit(self) -> str | None:
        """The commit of the release: of its tag, else of the first platform that has one."""
        known = (facts.commit for facts in self.platforms.values())
        return self.tag_commit or next(filter(None, known), None)
