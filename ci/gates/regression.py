"""What a regression is: of cost, of tests and of results. This is the only definition. Pure.

Analyses find what changed. This module decides which changes are regressions, and ``rules`` what a
gate makes of them.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from ci.model.outcomes import TORCH_DECIDES, State
from ci.model.results import PlatformResult
from ci.model.verdicts import Harness, Product, Verdict

# Cost

EXACT_ALARM = 0.05
"""The smallest relative rise of a measure without noise that is a regression: most commits add
lines."""
WALL_ALONE = 20
"""Runs for which a rise of wall time alone has to last. Load on a machine goes away, slower code
does not. Code that waits for a device or a lock gets slower without more CPU seconds."""
IN_WORDS = (
    "An open regression is a level that rose for good: enough later runs confirm it, no one has"
    " accepted it, and no later run is back at the old level. A rise of wall time alone, without"
    f" one of CPU seconds, is open only after {WALL_ALONE} runs: before that, a busy machine"
    " explains it as well. Counts and sizes of files have no noise: a rise of at least"
    f" {100 * EXACT_ALARM:.0f} % is open at once, and so is a fall of the share of executed tests."
)


class Judgement(StrEnum):
    """The judgment on a change of one measure, the worst first."""

    REGRESSION = "regression"
    SUSPECTED = "suspected"
    ENVIRONMENT = "environment"  # a regression, had the environment not changed with it
    ACCEPTED = "accepted"
    UNDONE = "undone"  # a later run is as low as before
    IMPROVEMENT = "improvement"
    SUSPECTED_IMPROVEMENT = "suspected improvement"
    SMALL_RISE = "small rise"  # certain, but too small for a regression
    CHANGED = "changed"  # too small to be reported
    TOO_LITTLE_DATA = "too little data"
    WITHIN_NOISE = "within noise"
    UNCHANGED = "unchanged"

    @property
    def is_open(self) -> bool:
        """Whether the rise is for good, and no one has accepted it."""
        return self in (Judgement.REGRESSION, Judgement.ENVIRONMENT)

    @property
    def is_news(self) -> bool:
        return self not in (self.CHANGED, self.TOO_LITTLE_DATA, self.WITHIN_NOISE, self.UNCHANGED)


def judge_change(
    *,
    is_worse: bool,
    is_accepted: bool,
    is_undone: bool = False,
    is_small: bool = False,
    is_confirmed: bool = True,
    runs_of_wall_alone: int | None = None,
    with_environment: bool = False,
) -> Judgement:
    """Judge a change of the level of a measure.

    Args:
        is_worse: The level got worse: it rose, or fell where higher values are better.
        is_small: Most commits raise the measure a little, and the change is below ``EXACT_ALARM``.
        is_confirmed: Enough later runs support it.
        runs_of_wall_alone: Runs since the change, if only wall time rose.
        with_environment: The environment changed with it, so the sources may not be the cause.
    """
    if not is_worse:
        return Judgement.IMPROVEMENT
    if is_accepted:
        return Judgement.ACCEPTED
    if is_undone:
        return Judgement.UNDONE
    if is_small:
        return Judgement.SMALL_RISE
    if not is_confirmed or (runs_of_wall_alone is not None and runs_of_wall_alone < WALL_ALONE):
        return Judgement.SUSPECTED
    return Judgement.ENVIRONMENT if with_environment else Judgement.REGRESSION


# Tests


class ChangeKind(StrEnum):
    """The kind of a change of a test, in the order of reports."""

    VANISHED = "vanished"
    NEWLY_FAILING = "newly failing"
    PASS_TO_SKIP = "pass -> skip"  # noqa: S105
    NEWLY_SKIPPED = "newly skipped"  # new, or failing before
    CHANGED_REASON = "skipped for another reason"
    SKIP_TO_PASS = "skip -> pass"  # noqa: S105
    # torch alone refused the call before, or died of it
    REFUSED_TO_PASS = "refused -> pass"  # noqa: S105
    ADDED = "added"
    FIXED = "fixed"
    SLOWER = "slower"  # by more than the usual, large noise of single durations

    @property
    def is_loss(self) -> bool:
        """Whether a test no longer checks anything."""
        return self in (ChangeKind.VANISHED, ChangeKind.PASS_TO_SKIP, ChangeKind.NEWLY_SKIPPED)

    @property
    def regression(self) -> bool:
        return self is ChangeKind.NEWLY_FAILING or self.is_loss


def change_kind(before: State | None, after: State | None) -> ChangeKind | None:
    """The kind of the change of a test; ``None`` as a state: there is no such test."""
    if before == after:
        return None
    if after is None:
        return ChangeKind.VANISHED
    if after.outcome.bad:
        return None if before and before.outcome.bad else ChangeKind.NEWLY_FAILING
    if before is None:
        return ChangeKind.NEWLY_SKIPPED if after.idle else ChangeKind.ADDED
    if before.outcome.bad:
        return ChangeKind.NEWLY_SKIPPED if after.idle else ChangeKind.FIXED
    if before.idle and after.idle:
        return ChangeKind.CHANGED_REASON
    if before.reason in TORCH_DECIDES:
        return ChangeKind.REFUSED_TO_PASS
    if before.idle:
        return ChangeKind.SKIP_TO_PASS
    return ChangeKind.PASS_TO_SKIP if after.idle else None


# Results


class Standing(IntEnum):
    """How a platform ended; one that is higher than before is a regression."""

    PASSED = 0
    FAILED = 1
    INCOMPLETE = 2
    NOT_BUILT = 3

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


def standing(result: PlatformResult) -> Standing | None:
    """How a platform ended; ``None``: the machinery failed, which proves nothing of the product."""
    product = result.verdict.product
    if is_fault(result.verdict):
        return None
    if result.built is False:
        return Standing.NOT_BUILT
    known = {Product.PASSED: Standing.PASSED, Product.FAILED: Standing.FAILED}
    return known.get(product, Standing.INCOMPLETE)


def is_fault(verdict: Verdict) -> bool:
    """Whether an infrastructure failure is the reason that the product was not judged.

    The product itself may cause a crash or a timeout. A product that reached a configured memory
    limit is failed, not incomplete.
    """
    return not verdict.product.is_final and verdict.harness in (
        Harness.LOST,
        Harness.INFRASTRUCTURE,
        Harness.OOM_KILLED,
    )
