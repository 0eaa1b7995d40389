"""The report of the reruns of an alarm: their plan, and what they show."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ci.analysis.reruns import (
    CONFIDENCE,
    MOST_RUNS,
    POWER,
    RerunFinding,
    RerunOutcome,
    RerunPlan,
)
from ci.facts.measures import amount, measure_name, percent, stage_and_quantity
from ci.report.document import Document, Heading, Items, Report, select_attributes
from ci.util.text import commit_name, counted

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class RerunRow:
    """The reruns of one platform in one environment."""

    plan: RerunPlan
    values: Mapping[str, Mapping[str, float]]
    """By commit and run, those before the rise first."""
    finding: RerunFinding | None
    """``None`` if a side has no run."""
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> RerunOutcome:
        return self.finding.outcome if self.finding else RerunOutcome.UNDECIDED


@dataclass(frozen=True, kw_only=True)
class RerunReport(Report):
    """An alarm, and its rows; ``is_plan``: nothing has run yet."""

    alarm: str
    headline: str
    before: str
    since: str
    """The commits of both sides."""
    rows: Sequence[RerunRow]
    is_plan: bool = False

    @property
    def outcome(self) -> RerunOutcome:
        """Confirmed on any platform, else undecided on any."""
        found = {row.outcome for row in self.rows}
        order = (RerunOutcome.CONFIRMED, RerunOutcome.UNDECIDED, RerunOutcome.NOT_CONFIRMED)
        return next(it for it in order if it in found)

    def document(self, *, page: bool) -> Document:
        outcome = "" if self.is_plan else f"{self.outcome}: "
        yield [Heading(3 if page else 1, f"alarm {self.alarm}: {outcome}{self.headline}")]
        lines = [line for row in self.rows for line in self.row_lines(row)]
        sides = f"before: {commit_name(self.before)}; since: {commit_name(self.since)}"
        yield [Items([sides, *lines])]

    def row_lines(self, row: RerunRow) -> Iterator[str]:
        """The finding of a row, or its plan."""
        plan, finding = row.plan, row.finding
        yield plan_text(plan) if self.is_plan else _finding_text(row)
        if not self.is_plan and finding and row.outcome is RerunOutcome.UNDECIDED:
            yield "repeat the command for more runs"
        yield from row.notes

    def data(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "alarm": self.alarm,
            "headline": self.headline,
            "before": self.before,
            "since": self.since,
            "outcome": None if self.is_plan else self.outcome,
            "rows": [self._row_data(row) for row in self.rows],
        }

    def _row_data(self, row: RerunRow) -> dict[str, Any]:
        finding = row.finding
        return {
            **select_attributes(row.plan, "platform", "measure"),
            "environment": str(row.plan.environment),
            "rise": _finite(row.plan.rise),
            "noise": row.plan.noise,
            "runs_needed": row.plan.runs,
            "runs": {
                commit: dict(row.values.get(commit, {})) for commit in (self.before, self.since)
            },
            "outcome": None if self.is_plan else row.outcome,
            "median_before": finding and finding.before,
            "median_since": finding and finding.after,
            "low": finding and _finite(finding.low),
            "high": finding and _finite(finding.high),
            "notes": [*row.notes],
        }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def plan_text(plan: RerunPlan) -> str:
    """How many runs it takes, and why."""
    name = f"{plan.platform}: {measure_name(plan.measure)}"
    runs = f"{counted(plan.runs, 'run')} of each side"
    if not plan.noise:
        return f"{name}: {runs}, as it has no noise"
    rise = percent(plan.rise, "+") if math.isfinite(plan.rise) else "any rise"
    noise = f"{rise} in noise of {percent(plan.noise)}"
    if plan.runs == MOST_RUNS:
        return f"{name}: {runs}, the most, which may be too few for {noise}"
    return f"{name}: {runs} show {noise} with a power of {percent(POWER)}"


def _finding_text(row: RerunRow) -> str:
    plan, finding = row.plan, row.finding
    name = f"{plan.platform}: {row.outcome}: {measure_name(plan.measure)}"
    if finding is None:
        return f"{name}: no run of one side"
    quantity, step = stage_and_quantity(plan.measure)[1], abs(finding.after - finding.before)
    then, now = (amount(it, quantity, step=step) for it in (finding.before, finding.after))
    text = f"{name} {then} -> {now}"
    if finding.before:
        text += f", {percent(finding.after / finding.before - 1, '+')}"
    if finding.low < finding.high < math.inf:
        interval = f"{percent(finding.low, '+')} to {percent(finding.high, '+')}"
        text += f", {percent(CONFIDENCE)} interval {interval}"
    counts = [str(len(runs)) for runs in row.values.values()]
    expected = f"; the alarm: {percent(plan.rise, '+')}" if math.isfinite(plan.rise) else ""
    return f"{text}, in {' and '.join(counts)} runs{expected}"
