"""The rules of a release, each with its evidence. Pure.

To add a rule, name it in ``ci.model.decision.ReleaseRule``, and add a function to ``OF_PLATFORM``
or ``OF_RELEASE``. What is missing breaks a rule: only evidence makes a release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from ci.gates.artifacts import artifact_faults, describe_distributions
from ci.gates.release_facts import BaselineFacts, CostRise, PlatformFacts, ReleaseFacts
from ci.model.release import BaselineNeed, ReleasePolicy, ReleaseRule
from ci.model.results import PlatformResult
from ci.model.verdicts import Product
from ci.util.text import SHORT, counted, join_names

AHEAD = timedelta(hours=1)  # by which the clock of another machine may be fast


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
class PlatformCase:
    """A platform to judge."""

    facts: PlatformFacts
    release: ReleaseFacts
    policy: ReleasePolicy
    now: datetime

    @property
    def result(self) -> PlatformResult:
        return self.facts.result


def checked(is_met: bool, evidence: str) -> RuleFinding:
    return RuleFinding(evidence=evidence, is_broken=not is_met)


# Rules of each platform; ``None``: it is not checked


def _result(case: PlatformCase) -> RuleFinding:
    verdict, run_id = case.result.verdict, case.facts.run.run_id
    if case.facts.failed_selections:
        return checked(
            False, f"later runs did not pass: {join_names(case.facts.failed_selections)}"
        )
    reason = f": {verdict.reason}" if verdict.reason else ""
    return checked(
        verdict.product is Product.PASSED,
        f"{verdict.product.shown} in run {run_id}{reason}, harness {verdict.harness.shown}",
    )


def _real_device(case: PlatformCase) -> RuleFinding:
    simulated = case.result.simulated
    return checked(not simulated, "simulated, expected the real device" if simulated else "real")


def _whole(case: PlatformCase) -> RuleFinding:
    selected = case.result.selected
    text = f"only {selected}, expected all operators" if selected else "all operators"
    return checked(selected is None, text)


def _commit(case: PlatformCase) -> RuleFinding:
    own, expected = case.facts.commit, case.release.commit
    if own is None:
        return checked(False, "unknown: the sources of the run were no git checkout")
    of = f" of tag {case.release.tag}" if case.release.tag_commit else ""
    if own != expected:
        return checked(False, f"{own[:SHORT]}, expected {(expected or '')[:SHORT]}{of}")
    if case.release.tag and not of:
        of = f"; tag {case.release.tag} does not exist yet"
    return checked(True, f"{own[:SHORT]}{of}")


def _clean(case: PlatformCase) -> RuleFinding:
    run = case.facts.run
    if case.facts.commit is None:
        return checked(False, "unknown: the sources of the run were no git checkout")
    text = "uncommitted changes, expected none" if run.dirty else "no uncommitted changes"
    return checked(not run.dirty, text)


def _age(case: PlatformCase) -> RuleFinding | None:
    most, age = case.policy.oldest_days, case.now - case.facts.run.finished_at
    if age < -AHEAD:
        return checked(False, f"finished {-age / timedelta(hours=1):.1f} hours in the future")
    if most is None:
        return None
    days = max(age / timedelta(days=1), 0.0)
    return checked(days <= most, f"{days:.1f} days, at most {most:g}")


def _executed(case: PlatformCase) -> RuleFinding:
    share = case.result.pytest.executed_share if case.result.pytest else None
    if share is None:
        return checked(False, "no test is recorded")
    least = case.policy.least_executed
    expected = f", at least {100 * least:g} %" if least else ""
    return checked(share >= least, f"{100 * share:.1f} % of the tests ran{expected}")


def _skips(case: PlatformCase) -> RuleFinding | None:
    allowed, skips = case.policy.skips, case.facts.skips
    if allowed is None:
        return None
    if skips is None:
        return checked(False, "unknown: the per-test log is missing")
    others = {
        reason: count
        for reason, count in skips.items()
        if not any(fnmatchcase(reason, pattern) for pattern in allowed)
    }
    if not others:
        return checked(
            True, f"{counted(sum(skips.values()), 'test')} skipped, all for listed reasons"
        )
    named = [f"'{reason}' ({count:,})" for reason, count in sorted(others.items())]
    number = counted(sum(others.values()), "test")
    return checked(False, f"{number} skipped for other reasons: {join_names(named)}")


def _quarantines(case: PlatformCase) -> RuleFinding:
    counts = [it.parameters.get("tests") for it in case.result.findings if it.code == "quarantined"]
    number = sum(it for it in counts if isinstance(it, int))
    most = case.policy.quarantined
    return checked(number <= most, f"{counted(number, 'test')} quarantined, at most {most:,}")


def _installed(case: PlatformCase) -> RuleFinding | None:
    if not case.policy.installed_wheel:
        return None
    wheels = [it for it in case.result.distributions if it.installed and it.name.endswith(".whl")]
    if wheels:
        return checked(True, describe_distributions(wheels))
    return checked(False, "no installed wheel is recorded")


def _baseline(case: PlatformCase) -> RuleFinding:
    found = case.facts.baseline
    if isinstance(found, BaselineFacts):
        return checked(True, f"run {found.run_id}")
    is_needed = case.policy.baseline is BaselineNeed.REQUIRED
    return RuleFinding(evidence=found, is_broken=is_needed, is_moot=not is_needed)


def _against_baseline(
    judge: Callable[[PlatformCase, BaselineFacts], RuleFinding],
    limit: Callable[[ReleasePolicy], float | None] = lambda _: 0.0,
) -> Callable[[PlatformCase], RuleFinding | None]:
    """A rule about changes, for which the rule ``baseline`` decides if there is none.

    It is checked if there is a limit.
    """

    def rule(case: PlatformCase) -> RuleFinding | None:
        if limit(case.policy) is None:
            return None
        found = case.facts.baseline
        if isinstance(found, BaselineFacts):
            return judge(case, found)
        return RuleFinding(evidence="not judged: no baseline", is_moot=True)

    return rule


def _regression(_: PlatformCase, found: BaselineFacts) -> RuleFinding:
    if found.gaps:
        return checked(False, f"not comparable: {join_names(found.gaps)}")
    if found.regressions:
        evidence = f"since run {found.run_id}: {join_names(found.regressions)}"
        return RuleFinding(evidence=evidence, is_broken=True, is_regression=True)
    return checked(True, f"none since run {found.run_id}")


def _build_cost(case: PlatformCase, found: BaselineFacts) -> RuleFinding:
    if found.untimed:
        return checked(False, f"not comparable: {join_names(found.untimed)}")
    if found.build is None:
        return checked(False, "no stage of the build was measured in both runs")
    return _judge_rises([found.build], case.policy.build_cost_percent or 0.0)


def _benchmarks(case: PlatformCase, found: BaselineFacts) -> RuleFinding:
    if found.untimed:
        return checked(False, f"not comparable: {join_names(found.untimed)}")
    if found.lost_benchmarks:
        return checked(False, f"no longer measured: {join_names(found.lost_benchmarks)}")
    if not found.benchmarks:
        return checked(False, "no benchmark was measured in both runs")
    return _judge_rises(found.benchmarks, case.policy.benchmark_percent or 0.0)


def _symbols(case: PlatformCase, found: BaselineFacts) -> RuleFinding:
    if found.unread_wheels:
        return checked(False, f"not comparable: {join_names(found.unread_wheels)}")
    removed, most = found.removed_symbols, case.policy.removed_symbols or 0
    is_broken = len(removed) > most
    evidence = f"{counted(len(removed), 'exported symbol')} removed since run {found.run_id}"
    named = f": {join_names(removed)}" if removed else ""
    return RuleFinding(
        evidence=f"{evidence}, at most {most:,}{named}",
        is_broken=is_broken,
        is_regression=is_broken,
    )


def _judge_rises(rises: Sequence[CostRise], most: float) -> RuleFinding:
    ordered = sorted(rises, key=lambda it: it.relative, reverse=True)
    worse = [it for it in ordered if it.exceeds(most)]
    shown = [f"{it.text}, {it.judgement}" for it in worse or ordered[:1]]
    evidence = f"{join_names(shown)}; at most +{most:g} %"
    return RuleFinding(evidence=evidence, is_broken=bool(worse), is_regression=bool(worse))


OF_PLATFORM: Mapping[ReleaseRule, Callable[[PlatformCase], RuleFinding | None]] = {
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
    ReleaseRule.BUILD_COST: _against_baseline(_build_cost, lambda it: it.build_cost_percent),
    ReleaseRule.BENCHMARKS: _against_baseline(_benchmarks, lambda it: it.benchmark_percent),
    ReleaseRule.SYMBOLS: _against_baseline(_symbols, lambda it: it.removed_symbols),
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
        return checked(False, join_names(faults))
    return checked(True, describe_distributions(files))


def _capabilities(release: ReleaseFacts, policy: ReleasePolicy) -> RuleFinding | None:
    most, pairs = policy.unexecuted_pairs, release.pairs
    if most is None:
        return None
    if pairs is None:
        return checked(False, "no operator test is recorded")
    number = len(pairs.unexecuted)
    pairs_of = f"{number:,} of {pairs.known:,} pairs of overload and dtype"
    evidence = f"{pairs_of} were executed by no platform"
    named = f": {join_names(pairs.unexecuted)}" if number else ""
    return checked(number <= most, f"{evidence}, at most {most:,}{named}")


OF_RELEASE: Mapping[ReleaseRule, Callable[[ReleaseFacts, ReleasePolicy], RuleFinding | None]] = {
    ReleaseRule.ARTIFACTS: _artifacts,
    ReleaseRule.CAPABILITIES: _capabilities,
}
