"""The report of a decision about a release: every rule with its evidence, then the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ci.model.decision import (
    LONGEST_EVIDENCE,
    MOST_OUTCOMES,
    Decision,
    GateVerdict,
    OutcomeKind,
    RuleOutcome,
)
from ci.model.platforms import PLATFORMS
from ci.model.release import ReleasePolicy
from ci.report.document import Block, Code, Document, Heading, Items, Line, Report, Span, Table
from ci.store.rows import LATEST
from ci.util.invocation import command
from ci.util.text import commit_name, counted, shorten

COLUMNS = ("Rule", "Outcome", "Evidence")
COLORS = {
    OutcomeKind.PASSED: "green",
    OutcomeKind.FAILED: "red",
    OutcomeKind.WAIVED: "yellow",
    OutcomeKind.INFORMATIONAL: "",
}
VERDICT_COLORS = {GateVerdict.GO: "green", GateVerdict.NO_GO: "red"}
WHOLE = "The whole release"


@dataclass(frozen=True, kw_only=True)
class DecisionReport(Report):
    """A table of rules for the whole release and for each platform.

    A page begins with the verdict. A terminal ends with it.
    """

    wrap: ClassVar[bool] = True

    decision: Decision

    def document(self, *, page: bool) -> Document:
        found = self.decision
        verdict = [*verdict_blocks(found)]
        name = f" {found.tag}" if found.tag else ""
        decided = f"{commit_name(found.commit)}, decided {found.decided_at:%Y-%m-%d %H:%M} UTC"
        if page:
            yield [Heading(1, f"{found.project}{name}: {found.verdict.shown}"), f"{decided}."]
            yield verdict
        else:
            yield [f"{found.project}{name}: {decided}"]
        optional = [
            it.platform for it in found.without_result if it.outcome is OutcomeKind.INFORMATIONAL
        ]
        for platform in dict.fromkeys(it.platform for it in found.rules):
            if platform not in optional:
                rules = [it for it in found.rules if it.platform == platform]
                demanded = _demanded(found.policy, platform)
                yield [
                    Heading(2, f"{_title(platform)}{demanded}", style="bold"),
                    rules_table(rules),
                ]
        runs = [f"{it.run_id}: {', '.join(it.platforms)}" for it in found.runs]
        if optional:
            runs.append(f"no result, which is informational: {', '.join(map(_title, optional))}")
        yield [Heading(2, "Runs", style="bold"), Items(runs)]
        if not page:
            yield verdict
        yield from _missing(found)

    def data(self) -> dict[str, Any]:
        return self.decision.model_dump(mode="json")

    def json(self) -> str:
        return self.decision.to_json()


def _missing(found: Decision) -> Iterator[list[Block]]:
    """How to get the results that the release lacks; this machine may lack the devices for it."""
    names = [it.platform for it in found.without_result if it.outcome is OutcomeKind.FAILED]
    if names:
        tag = ("--tag", found.tag) if found.tag else ()
        shown = ", ".join(map(_title, names))
        yield [
            f"The release requires a result of {shown}. Run where the devices are:",
            Code(command("run", "--trust", "release", *filter(None, names))),
            "Then name the folder with these results, too:",
            Code(command("gate", LATEST, "DIR", *tag)),
        ]


def _title(platform: str | None) -> str:
    if platform is None:
        return WHOLE
    return PLATFORMS[platform].label if platform in PLATFORMS else platform


def _demanded(policy: ReleasePolicy | None, platform: str | None) -> str:
    """``, required``; nothing for the whole release, and in a decision that does not record it."""
    if policy is None or platform is None:
        return ""
    return ", required" if platform in policy.required else ", informational"


def rules_table(rules: Sequence[RuleOutcome]) -> Table:
    """A row for each rule, with what was found."""
    rows = [(it.rule.value, it.outcome.value, _evidence(it)) for it in rules]
    return Table(COLUMNS, rows, styles=[COLORS[it.outcome] for it in rules])


def _evidence(found: RuleOutcome) -> str:
    if found.waiver is None:
        return found.evidence
    waiver = found.waiver
    return f"{found.evidence}. Waived: {waiver.reason} ({waiver.owner}, until {waiver.until})"


def verdict_blocks(
    found: Decision, *, most: int = MOST_OUTCOMES, characters: int = LONGEST_EVIDENCE
) -> Iterator[Block]:
    """``no-go: 2 rules failed``, with these rules, and what was waived.

    At most so many rules are listed, each with evidence of so many characters.
    """
    shown = Span(found.verdict.shown, VERDICT_COLORS[found.verdict], strong=True)
    waived = found.waived
    parts = [f"{counted(len(found.failed), 'rule')} failed"] if found.failed else []
    parts += [f"{counted(len(waived), 'rule')} waived"] if waived else []
    name = f"release {found.tag}" if found.tag else "release"
    yield (f"{name}: ", shown, f", {', '.join(parts) or 'no rule failed'}")
    listed = [*found.failed, *waived]
    lines: list[Line] = [
        f"{it.outcome}: {it.platform or 'release'}: {it.rule}: {shorten(_evidence(it), characters)}"
        for it in listed[:most]
    ]
    if len(listed) > most:
        lines.append(f"and {len(listed) - most:,} more")
    if lines:
        yield Items(lines, indent="  ")
