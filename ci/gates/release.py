"""Decide about a release: judge its rules, and apply the waivers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ci.errors import ExitCode
from ci.gates.release_facts import ReleaseFacts
from ci.gates.release_rules import OF_PLATFORM, OF_RELEASE, PlatformCase, RuleFinding, checked
from ci.model.decision import LONGEST_EVIDENCE, Decision, GateVerdict, OutcomeKind, RuleOutcome
from ci.model.release import ReleasePolicy, ReleaseRule, Waiver, policy_digest
from ci.model.verdicts import Product
from ci.util.text import counted, shorten


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
            missing = checked(False, "no run of it is among the named runs")
            yield self.outcome(ReleaseRule.RESULT, name, missing)
            return
        case = PlatformCase(facts=facts, release=release, policy=self.policy, now=self.now)
        # A result that does not exist breaks one rule, as a missing run does, not all of them.
        is_run = facts.result.verdict.product is not Product.NOT_RUN
        for rule, judge in OF_PLATFORM.items():
            if (is_run or rule is ReleaseRule.RESULT) and (found := judge(case)):
                yield self.outcome(rule, name, found)

    def of_waivers(self) -> Iterator[RuleOutcome]:
        """Judge the waivers themselves, after all other rules."""
        for waiver in self.waivers:
            if self._is_expired(waiver):
                text = f"{waiver}: expired on {waiver.until} (owner: {waiver.owner})"
                yield self.outcome(ReleaseRule.WAIVERS, None, checked(False, text))
            elif waiver not in self.used:
                text = f"{waiver}: not needed, remove it (owner: {waiver.owner})"
                found = RuleFinding(evidence=text, is_moot=True)
                yield self.outcome(ReleaseRule.WAIVERS, None, found)
        if self.used:
            text = f"{counted(len(self.used), 'waiver')} used"
            yield self.outcome(ReleaseRule.WAIVERS, None, checked(True, text))


def decide(
    release: ReleaseFacts, policy: ReleasePolicy, waivers: Sequence[Waiver], now: datetime
) -> Decision:
    """Judge every rule on every platform; ``now`` is in UTC."""
    judge = _Judge(policy=policy, waivers=waivers, now=now)
    names = dict.fromkeys((*policy.platforms, *release.platforms))
    platforms = [outcome for name in names for outcome in judge.of_platform(name, release)]
    whole = [
        judge.outcome(rule, None, found)
        for rule, of in OF_RELEASE.items()
        if (found := of(release, policy))
    ]
    rules = (*whole, *judge.of_waivers(), *platforms)
    code = ExitCode.PASSED
    if any(it.outcome is OutcomeKind.FAILED for it in rules):
        code = ExitCode.REGRESSION if judge.is_regression_only else ExitCode.PRODUCT_FAILURE
    commits = {
        release.platforms[name].commit for name in policy.required if name in release.platforms
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
        policy=policy,
        waivers=tuple(waivers),
    )
