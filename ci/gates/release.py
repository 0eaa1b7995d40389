"""Decide about a release: its rules, each with evidence, and the waivers. Pure.

To add a rule, name it in ``ci.model.decision.ReleaseRule``, and add a function to ``_OF_PLATFORM``
or ``_OF_RELEASE``. What is missing breaks a rule: only evidence makes a release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from ci.errors import ExitCode
from ci.gates.artifacts import artifact_faults, describe_distributions
from ci.gates.regression import Judgement
from ci.model.decision import (
    LONGEST_EVIDENCE,
    DecidedRun,
    Decision,
    GateVerdict,
    OutcomeKind,
    ReleaseRule,
    RuleOutcome,
)
from ci.model.release import BaselineNeed, ReleasePolicy, Waiver, policy_digest
from ci.model.results import PlatformResult, Product, RunResult
from ci.util.text import SHORT, counted, join_names, shorten

AHEAD = timedelta(hours=1)  # by which the clock of another machine may be fast
# Of a cost in which a rise beyond the limit does not count: it is accepted, or noise explains it.
_NO_RISE = (
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
        return self.judgement not in _NO_RISE and 100 * self.relative > percent


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


@dataclass(frozen=True, kw_only=True)
class ReleaseFacts:
    """What is known of a release."""

    project: str
    tag: str | None
    tag_commit: str | None
    """Commit of the tag; ``None``: there is no such tag yet."""
    platforms: Mapping[str, PlatformFacts]
    runs: tuple[DecidedRun, ...]

    @property
    def commit(self) -> str | None:
        """The commit of the release: of its tag, else of the first platform that has one."""
        known = (facts.run.commit for facts in self.platforms.values())
        return self.tag_commit or next(filter(None, known), None)


@dataclass(frozen=True, kw_only=True)
class RuleFinding:
    """What a rule found."""

    evidence: str
    is_broken: bool = False
    is_regression: bool = False
    """Whether a regression alone breaks it."""
    is_moot: bool = False
    """Whether it cannot be judged, and another rule decides about that."""


@dataclass(frozen=True, kw_only=True)
class _Case:
    """A platform to judge."""

    facts: PlatformFacts
    release: ReleaseFacts
    policy: ReleasePolicy
    now: datetime

    @property
    def result(self) -> PlatformResult:
        return self.facts.result


def _met(is_met: bool, evidence: str) -> RuleFinding:
    return RuleFinding(evidence=evidence, is_broken=not is_met)


# Rules of each platform; ``None``: it is not checked


def _result(case: _Case) -> RuleFinding:
    verdict, run_id = case.result.verdict, case.facts.run.run_id
    if case.facts.failed_selections:
        return _met(False, f"later runs did not pass: {join_names(case.facts.failed_selections)}")
    reason = f": {verdict.reason}" if verdict.reason else ""
    return _met(
        verdict.product is Product.PASSED,
        f"{verdict.product.shown} in run {run_id}{reason}, harness {verdict.harness.shown}",
    )


def _real_device(case: _Case) -> RuleFinding:
    simulated = case.result.simulated
    return _met(not simulated, "simulated, expected the real device" if simulated else "real")


def _whole(case: _Case) -> RuleFinding:
    selected = case.result.selected
    text = f"only {selected}, expected all operators" if selected else "all operators"
    return _met(selected is None, text)


def _commit(case: _Case) -> RuleFinding:
    own, expected = case.facts.run.commit, case.release.commit
    if own is None:
        return _met(False, "unknown: the sources of the run were no git checkout")
    of = f" of tag {case.release.tag}" if case.release.tag_commit else ""
    if own != expected:
        return _met(False, f"{own[:SHORT]}, expected {(expected or '')[:SHORT]}{of}")
    if case.release.tag and not of:
        of = f"; tag {case.release.tag} does not exist yet"
    return _met(True, f"{own[:SHORT]}{of}")


def _clean(case: _Case) -> RuleFinding:
    run = case.facts.run
    if run.commit is None:
        return _met(False, "unknown: the sources of the run were no git checkout")
    text = "uncommitted changes, expected none" if run.dirty else "no uncommitted changes"
    return _met(not run.dirty, text)


def _age(case: _Case) -> RuleFinding | None:
    most, age = case.policy.oldest_days, case.now - case.facts.run.finished_at
    if age < -AHEAD:
        return _met(False, f"finished {-age / timedelta(hours=1):.1f} hours in the future")
    if most is None:
        return None
    days = max(age / timedelta(days=1), 0.0)
    return _met(days <= most, f"{days:.1f} days, at most {most:g}")


def _executed(case: _Case) -> RuleFinding:
    share = case.result.pytest.executed_share if case.result.pytest else None
    if share is None:
        return _met(False, "no test is recorded")
    least = case.policy.least_executed
    expected = f", at least {100 * least:g} %" if least else ""
    return _met(share >= least, f"{100 * share:.1f} % of the tests ran{expected}")


def _skips(case: _Case) -> RuleFinding | None:
    allowed, skips = case.policy.skips, case.facts.skips
    if allowed is None:
        return None
    if skips is None:
        return _met(False, "unknown: the per-test log is missing")
    others = {
        reason: count
        for reason, count in skips.items()
        if not any(fnmatchcase(reason, pattern) for pattern in allowed)
    }
    if not others:
        return _met(True, f"{counted(sum(skips.values()), 'test')} skipped, all for listed reasons")
    named = [f"{reason or 'no reason'} ({count:,})" for reason, count in sorted(others.items())]
    return _met(False, f"{counted(sum(others.values()), 'test')} skipped for {join_names(named)}")


def _quarantines(case: _Case) -> RuleFinding:
    counts = [it.parameters.get("tests") for it in case.result.findings if it.code == "quarantined"]
    number = sum(it for it in counts if isinstance(it, int))
    most = case.policy.quarantined
    return _met(number <= most, f"{counted(number, 'test')} quarantined, at most {most:,}")


def _installed(case: _Case) -> RuleFinding | None:
    if not case.policy.installed_wheel:
        return None
    wheels = [it for it in case.result.distributions if it.installed and it.name.endswith(".whl")]
    if wheels:
        return _met(True, describe_distributions(wheels))
    return _met(False, "no installed wheel is recorded")


def _baseline(case: _Case) -> RuleFinding:
    found = case.facts.baseline
    if isinstance(found, BaselineFacts):
        return _met(True, f"run {found.run_id}")
    is_needed = case.policy.baseline is BaselineNeed.REQUIRED
    return RuleFinding(evidence=found, is_broken=is_needed, is_moot=not is_needed)


def _against_baseline(
    judge: Callable[[_Case, BaselineFacts], RuleFinding | None],
) -> Callable[[_Case], RuleFinding | None]:
    """A rule that the rule ``baseline`` stands for if there is none."""

    def rule(case: _Case) -> RuleFinding | None:
        found = case.facts.baseline
        if isinstance(found, BaselineFacts):
            return judge(case, found)
        return RuleFinding(evidence="not judged: no baseline", is_moot=True)

    return rule


def _regression(_: _Case, found: BaselineFacts) -> RuleFinding:
    if found.gaps:
        return _met(False, f"not comparable: {join_names(found.gaps)}")
    if found.regressions:
        evidence = f"since run {found.run_id}: {join_names(found.regressions)}"
        return RuleFinding(evidence=evidence, is_broken=True, is_regression=True)
    return _met(True, f"none since run {found.run_id}")


def _build_cost(case: _Case, found: BaselineFacts) -> RuleFinding | None:
    most = case.policy.build_cost_percent
    if most is None:
        return None
    if found.untimed:
        return _met(False, f"not comparable: {join_names(found.untimed)}")
    if found.build is None:
        return _met(False, "no stage of the build was measured in both runs")
    return _judge_rises([found.build], most)


def _benchmarks(case: _Case, found: BaselineFacts) -> RuleFinding | None:
    most = case.policy.benchmark_percent
    if most is None:
        return None
    if found.untimed:
        return _met(False, f"not comparable: {join_names(found.untimed)}")
    if found.lost_benchmarks:
        return _met(False, f"no longer measured: {join_names(found.lost_benchmarks)}")
    if not found.benchmarks:
        return _met(False, "no benchmark was measured in both runs")
    return _judge_rises(found.benchmarks, most)


def _judge_rises(rises: Sequence[CostRise], most: float) -> RuleFinding:
    ordered = sorted(rises, key=lambda it: it.relative, reverse=True)
    worse = [it for it in ordered if it.exceeds(most)]
    shown = [f"{it.text}, {it.judgement}" for it in worse or ordered[:1]]
    evidence = f"{join_names(shown)}; at most +{most:g} %"
    return RuleFinding(evidence=evidence, is_broken=bool(worse), is_regression=bool(worse))


_OF_PLATFORM: Mapping[ReleaseRule, Callable[[_Case], RuleFinding | None]] = {
    ReleaseRule.RESULT: _result,
    ReleaseRule.REAL_DEVICE: _real_device,
    ReleaseRule.WHOLE: _whole,
    ReleaseRule.COMMIT: _commit,
    ReleaseRule.CLEAN: _clean,
    ReleaseRule.AGE: _age,
    ReleaseRule.EXECUTED: _executed,
    ReleaseRule.SKIPS: _skips,
    ReleaseRule.QUARANTINES: _quarantines,
    ReleaseRule.INSTALLED: _installed,
    ReleaseRule.BASELINE: _baseline,
    ReleaseRule.REGRESSION: _against_baseline(_regression),
    ReleaseRule.BUILD_COST: _against_baseline(_build_cost),
    ReleaseRule.BENCHMARKS: _against_baseline(_benchmarks),
}


# Rules of the whole release


def _artifacts(release: ReleaseFacts, policy: ReleasePolicy) -> RuleFinding | None:
    known = {
        name: release.platforms[name].result.distributions
        for name in policy.required
        if name in release.platforms
    }
    files = [it for found in known.values() for it in found]
    if not files:
        # The rule `installed` decides whether there must be any.
        return RuleFinding(evidence="no distribution is recorded", is_moot=True)
    if faults := artifact_faults(known):
        return _met(False, join_names(faults))
    return _met(True, describe_distributions(files))


_OF_RELEASE: Mapping[ReleaseRule, Callable[[ReleaseFacts, ReleasePolicy], RuleFinding | None]] = {
    ReleaseRule.ARTIFACTS: _artifacts
}


# The decision


@dataclass
class _Judge:
    """Judges all rules, and remembers which waivers were needed."""

    policy: ReleasePolicy
    waivers: Sequence[Waiver]
    now: datetime
    used: set[Waiver] = field(default_factory=set)
    is_regression_only: bool = True

    def outcome(self, rule: ReleaseRule, platform: str | None, found: RuleFinding) -> RuleOutcome:
        kind, waiver = OutcomeKind.PASSED, None
        if found.is_moot or (found.is_broken and self._is_optional(platform)):
            kind = OutcomeKind.INFORMATIONAL
        elif found.is_broken:
            waiver = self._waiver(rule, platform)
            kind = OutcomeKind.WAIVED if waiver else OutcomeKind.FAILED
            self.is_regression_only &= bool(waiver) or found.is_regression
        if waiver:
            self.used.add(waiver)
        return RuleOutcome(
            rule=rule,
            platform=platform,
            outcome=kind,
            evidence=shorten(found.evidence, LONGEST_EVIDENCE),
            waiver=waiver.applied if waiver else None,
        )

    def _is_optional(self, platform: str | None) -> bool:
        return platform is not None and platform not in self.policy.required

    def _waiver(self, rule: ReleaseRule, platform: str | None) -> Waiver | None:
        valid = (it for it in self.waivers if not self._is_expired(it))
        return next((it for it in valid if it.place == (rule, platform)), None)

    def _is_expired(self, waiver: Waiver) -> bool:
        return waiver.until < self.now.date()

    def of_platform(self, name: str, release: ReleaseFacts) -> Iterator[RuleOutcome]:
        facts = release.platforms.get(name)
        if facts is None:
            missing = _met(False, "no run of it is among the named runs")
            yield self.outcome(ReleaseRule.RESULT, name, missing)
            return
        case = _Case(facts=facts, release=release, policy=self.policy, now=self.now)
        for rule, judge in _OF_PLATFORM.items():
            if found := judge(case):
                yield self.outcome(rule, name, found)

    def of_waivers(self) -> Iterator[RuleOutcome]:
        """Judge the waivers themselves, after all other rules."""
        for waiver in self.waivers:
            if self._is_expired(waiver):
                text = f"{waiver}: expired on {waiver.until} (owner: {waiver.owner})"
                yield self.outcome(ReleaseRule.WAIVERS, None, _met(False, text))
            elif waiver not in self.used:
                text = f"{waiver}: not needed, remove it (owner: {waiver.owner})"
                found = RuleFinding(evidence=text, is_moot=True)
                yield self.outcome(ReleaseRule.WAIVERS, None, found)
        if self.used:
            text = f"{counted(len(self.used), 'waiver')} used"
            yield self.outcome(ReleaseRule.WAIVERS, None, _met(True, text))


def decide(
    release: ReleaseFacts, policy: ReleasePolicy, waivers: Sequence[Waiver], now: datetime
) -> Decision:
    """Judge every rule on every platform; ``now`` is in UTC."""
    judge = _Judge(policy=policy, waivers=waivers, now=now)
    names = dict.fromkeys((*policy.platforms, *release.platforms))
    platforms = [outcome for name in names for outcome in judge.of_platform(name, release)]
    whole = [
        judge.outcome(rule, None, found)
        for rule, of in _OF_RELEASE.items()
        if (found := of(release, policy))
    ]
    rules = (*whole, *judge.of_waivers(), *platforms)
    code = ExitCode.PASSED
    if any(it.outcome is OutcomeKind.FAILED for it in rules):
        code = ExitCode.REGRESSION if judge.is_regression_only else ExitCode.PRODUCT_FAILURE
    commits = {
        release.platforms[name].run.commit for name in policy.required if name in release.platforms
    }
    return Decision(
        project=release.project,
        tag=release.tag,
        commit=release.commit if commits == {release.commit} else None,
        decided_at=now,
        verdict=GateVerdict.NO_GO if code else GateVerdict.GO,
        exit_code=code,
        rules=rules,
        runs=release.runs,
        policy_sha256=policy_digest(policy, waivers),
    )
