"""Who has to act on a platform that did not pass: the project, torch, or the machines. Pure.

The verdict says what failed, not who caused it. Other runs say that: a test that also passed at
this commit is flaky, and a commit that passed with another torch was broken by torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ci.analysis.flaky import FlakyTest
from ci.facts.environment_key import NO_TORCH, ComponentChange, environment_key
from ci.facts.sentences import on_stages, on_tests
from ci.model.results import PlatformResult, RunResult
from ci.model.verdicts import Evidence, Grade, Harness, Product, Verdict
from ci.util.text import counted

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store

MOST_RUNS = 50  # earlier runs of the platform that are looked at
TORCH = "torch"
IMAGE = "image"  # its tag is a digest of all that is installed in it, torch included
CACHE = "cache"  # of the compiler: with another torch it is cold, and nothing else follows from it


class TriageCategory(StrEnum):
    """The cause of a failure. Of several platforms, the first one that applies is reported.

    The order exonerates no one too early: a failure of the project's own code comes first.
    """

    BACKEND = "backend"
    UNKNOWN = "unknown"
    UPSTREAM = "upstream"
    INFRASTRUCTURE = "infra"
    FLAKE = "flake"


class TriageConfidence(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


GRADES = {
    Grade.FACT: TriageConfidence.HIGH,
    Grade.LIKELY: TriageConfidence.MEDIUM,
    Grade.UNKNOWN: TriageConfidence.LOW,
}
_WEAKEST_LAST = tuple(GRADES)


@dataclass(frozen=True, kw_only=True)
class PassedRun:
    """An earlier run of the same platform that passed, and how this run differs from it."""

    run_id: str
    same_commit: bool
    changes: Sequence[ComponentChange]
    """Of the environment."""

    @property
    def _changes(self) -> dict[str, ComponentChange]:
        """Those that may change an outcome, by component."""
        return {it.component: it for it in self.changes if it.component != CACHE}

    @property
    def torch_change(self) -> ComponentChange | None:
        """The change of torch, if neither the sources nor anything but the image changed."""
        change = self._changes.get(TORCH)
        is_known = change and NO_TORCH not in (change.before, change.after)
        is_alone = self.same_commit and self._changes.keys() <= {TORCH, IMAGE}
        return change if is_known and is_alone else None

    @property
    def has_same_image(self) -> bool:
        return IMAGE not in self._changes

    @property
    def is_other_commit_alone(self) -> bool:
        return not self.same_commit and not self._changes


@dataclass(frozen=True, kw_only=True)
class TriageFacts:
    """The result of a platform, and what other runs say of it."""

    result: PlatformResult
    failures: Mapping[str, str | None]
    """Messages of the tests that failed, by node id."""
    commit: str | None = None
    """The commit of the run; ``None``: unknown, or with uncommitted changes."""
    flaky: Sequence[FlakyTest] = ()
    passed: PassedRun | None = None


@dataclass(frozen=True, kw_only=True)
class Triage:
    """Who has to act, how sure that is, and why."""

    category: TriageCategory
    confidence: TriageConfidence
    reason: str
    torch: ComponentChange | None = None
    """The change of torch that broke the platform."""


def find_passed_run(store: Store, run: RunResult, result: PlatformResult) -> PassedRun | None:
    """Find the newest earlier run that differs only in its torch, else only in its commit."""
    key, other_commit = environment_key(result), None
    heads = (
        head
        for head in store.heads(project=run.project)
        if head.started_at < run.started_at
        and result.platform in head.whole
        and head.asked_by is None
        and not head.dirty
    )
    for head, _ in zip(heads, range(MOST_RUNS), strict=False):
        before = store.load_or_skip(head.run_id)
        if before is None:
            continue
        earlier = before.platform(result.platform)
        if earlier.verdict.product is not Product.PASSED:
            continue
        found = PassedRun(
            run_id=head.run_id,
            same_commit=not run.dirty and run.commit is not None and head.commit == run.commit,
            changes=key.changes(environment_key(earlier)),
        )
        if found.torch_change:
            return found
        if found.is_other_commit_alone:
            other_commit = other_commit or found
    return other_commit


def triage(facts: TriageFacts) -> Triage | None:
    """Judge a platform; ``None``: it passed."""
    verdict = facts.result.verdict
    if verdict.product is Product.PASSED:
        return None
    if verdict.product is Product.FAILED:
        return _triage_failure(facts)
    return _triage_incomplete(verdict)


# Evidence beside which only tests failed.
_OF_TESTS = {it.code for it in (on_tests.failed_tests, on_tests.skipped_tests)}


def _triage_failure(facts: TriageFacts) -> Triage:
    verdict = facts.result.verdict
    codes = {it.code for it in verdict.evidence}
    flaky = {test.node_id for test in facts.flaky}
    if facts.failures and facts.failures.keys() <= flaky and codes <= _OF_TESTS:
        count = counted(len(facts.failures), "failed test")
        reason = f"{count}: each also passed at one commit in one environment"
        # What was flaky at another commit may be broken at this one.
        is_here = all(facts.commit in {it.commit for it in test.evidence} for test in facts.flaky)
        confidence = TriageConfidence.HIGH if is_here else TriageConfidence.MEDIUM
        return Triage(category=TriageCategory.FLAKE, confidence=confidence, reason=reason)
    passed = facts.passed
    if passed and (change := passed.torch_change):
        alone = passed.has_same_image
        reason = f"the same commit passed in run {passed.run_id}; since then, {change}"
        return Triage(
            category=TriageCategory.UPSTREAM,
            confidence=TriageConfidence.HIGH if alone else TriageConfidence.MEDIUM,
            reason=reason if alone else f"{reason}, and with it the image",
            torch=change,
        )
    if decided := _torch_decided(facts):
        return Triage(
            category=TriageCategory.UPSTREAM,
            confidence=GRADES[decided.grade],
            reason=decided.text,
        )
    reason = verdict.reason or "the product failed"
    if passed and passed.is_other_commit_alone:
        reason = f"{reason}; another commit passed in the same environment: run {passed.run_id}"
        confidence = _confidence(verdict.evidence)
    else:  # that it failed is certain, but not whose change it was
        is_sure = _confidence(verdict.evidence) is not TriageConfidence.LOW
        confidence = TriageConfidence.MEDIUM if is_sure else TriageConfidence.LOW
    return Triage(category=TriageCategory.BACKEND, confidence=confidence, reason=reason)


def _torch_decided(facts: TriageFacts) -> Evidence | None:
    """The evidence that torch alone is why a contract is broken, and nothing else failed."""
    evidence = {it.code: it for it in facts.result.verdict.evidence}
    found = evidence.get(on_tests.torch_decided.code)
    if found is None or facts.failures:
        return None
    return found if found.parameters.get("tests") == found.parameters.get("of") else None


_INFRASTRUCTURE = {Harness.INFRASTRUCTURE, Harness.LOST, Harness.OOM_KILLED}


def _triage_incomplete(verdict: Verdict) -> Triage:
    codes = {it.code for it in verdict.evidence}
    is_outside = verdict.harness in _INFRASTRUCTURE or on_stages.killed_from_outside.code in codes
    is_outside &= not on_stages.is_pending(verdict)
    category = TriageCategory.INFRASTRUCTURE if is_outside else TriageCategory.UNKNOWN
    # A time limit or a crash alone does not show whether the product or the machine was the cause.
    confidence = _confidence(verdict.evidence) if is_outside else TriageConfidence.LOW
    reason = "; ".join(it.text for it in verdict.evidence if it.code not in _OF_TESTS)
    return Triage(
        category=category,
        confidence=confidence,
        reason=reason or f"product {verdict.product.shown}, harness {verdict.harness.shown}",
    )


def _confidence(evidence: Sequence[Evidence]) -> TriageConfidence:
    """A verdict is as sure as its weakest evidence."""
    grades = [it.grade for it in evidence] or [Grade.UNKNOWN]
    return GRADES[max(grades, key=_WEAKEST_LAST.index)]
