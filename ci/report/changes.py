"""A change, its runs and its alarm, as all reports present them: in words, and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ci.analysis.alarm_tracking import TrackedAlarm
from ci.analysis.changes import POLICY, ChangePoint
from ci.analysis.level_changes import LevelChange
from ci.analysis.platform_history import PlatformHistory
from ci.facts.acceptance import Acceptance
from ci.facts.measures import Quantity, amount, measure_name, percent, stage_and_quantity
from ci.gates.regression import EXACT_ALARM, Judgement
from ci.model.results import Direction
from ci.report.document import select_attributes
from ci.store.rows import AlarmState, RunMeasures
from ci.util.invocation import command
from ci.util.text import SHORT, commit_name, counted, join_names

SCHEMA_VERSION = 1  # of histories and alarms for programs
ENVIRONMENT_RISE = (
    "no open regression, since the sources may not be the cause: `--check --fail-on environment`"
    " fails on it"
)
KINDS = {
    Judgement.REGRESSION: "open regression",
    Judgement.SUSPECTED: "suspected regression",
    Judgement.SMALL_RISE: "small rise",
    Judgement.IMPROVEMENT: "improvement",
    Judgement.ACCEPTED: "past regression",
    Judgement.UNDONE: "past regression",
}
"""The headings of changes, in their order."""
INVALID = "invalid alarm"
"""Of a change whose alarm someone marked as invalid."""


def accept_command(platform: str, run: RunMeasures, change: LevelChange) -> str:
    """The command that accepts what rose with a run, as ``change`` did."""
    # A rise of cost may begin with the same run.
    only = ("--measure", Quantity.EXECUTED.label) if change.is_of_executed_share else ()
    return command("accept", platform, run.run_id, *only, "--reason", "TEXT")


def accepted_text(accepted: Acceptance) -> str:
    """``compile up to 130 s, since commit 0123456789ab``."""
    to = "down" if accepted.quantity.direction is Direction.HIGHER else "up"
    level = amount(accepted.level, accepted.quantity)
    since = commit_name(accepted.commit) if accepted.commit else f"run {accepted.run}"
    until = f", until {accepted.until}" if accepted.until else ""
    return f"{measure_name(accepted.measure)} {to} to {level}, since {since}{until}"


def level_lines(change: LevelChange) -> Iterator[str]:
    """Both levels, how certain the change is, and the runs around it."""
    quantity = stage_and_quantity(change.measure)[1]
    then, now = (amount(it, quantity) for it in (change.point.before, change.point.after))
    yield f"  {', '.join(filter(None, (f'{then} -> {now}', size_interval(change.point))))}"
    place = f"between {run_name(change.before_run)} and {run_name(change.run)}"
    yield f"  {place}; seen in {counted(change.runs_since, 'run')}"


def change_status(change: LevelChange) -> str | None:
    """Why a change is no open regression, or has no commit: ``accepted on 2026-01-01: REASON``."""
    if change.accepted is not None:
        return f"accepted on {change.accepted.date}: {change.accepted.reason}"
    if change.undone is not None:
        return f"undone by {run_name(change.undone)}"
    if change.is_worse and change.is_small:
        return f"too small for a regression: below {percent(EXACT_ALARM)}"
    if not change.point.confirmed:
        missing = max(1, POLICY.confirm - change.runs_since)
        return f"not confirmed yet: {counted(missing, 'more run')} may confirm it"
    if change.wall_alone:
        return "CPU seconds did not rise: the machine was busy, or the stage waited"
    return "it came gradually: no single commit is the cause" if change.is_gradual else None


def size_interval(point: ChangePoint) -> str:
    """``95 % interval +17 % to +25 %``; empty for a change without noise."""
    return interval_text(point.low, point.high) if point.low < point.high else ""


def tracking_text(tracked: TrackedAlarm) -> str:
    """``alarm 1a2b3c4d: acknowledged by NAME on 2026-01-01: NOTE; owners: @a; issue: LINK``."""
    record = tracked.record
    said = ""
    if record.stated_at is not None and record.state is not AlarmState.OPEN:
        fix = f" by {commit_name(record.commit)}" if record.commit else ""
        said = f"{record.state}{fix}, says {record.who} on {record.stated_at:%Y-%m-%d}"
        said += f": {record.note}" if record.note else ""
    state = "" if said and tracked.state is record.state else str(tracked.state)
    parts = (
        ": ".join(filter(None, (state, tracked.why))),
        said,
        f"owners: {join_names(tracked.owners)}" if tracked.owners else "",
        f"issue: {record.link}" if record.link else "",
    )
    return f"alarm {record.alarm_id}: {'; '.join(filter(None, parts))}"


def interval_text(low: float, high: float) -> str:
    return f"95 % interval {percent(low, '+')} to {percent(high, '+')}"


def run_name(run: RunMeasures) -> str:
    """``20260101T120000Z-0123abcd-00ff (commit 0123456789ab)``."""
    return f"{run.run_id} ({commit_name(run.commit, dirty=run.dirty)})"


def change_data(change: LevelChange) -> dict[str, Any]:
    """All data of a change; a rise from 0 has no relative size."""
    point = change.point
    return {
        "measure": change.measure,
        **select_attributes(point, "before", "after"),
        "low": point.low if point.before else None,
        "high": point.high if point.before else None,
        **select_attributes(point, "probability", "confirmed"),
        "open": change.judgement.is_open,
        "wall_alone": change.wall_alone,
        "gradual_until": change.reached and run_data(change.reached),
        "last_run_before": run_data(change.before_run),
        "first_run_after": run_data(change.run),
        "runs_since": change.runs_since,
        "accepted": change.accepted and change.accepted.reason,
        "undone": change.undone and run_data(change.undone),
    }


def run_data(run: RunMeasures) -> dict[str, Any]:
    """The identity of a run, for programs."""
    return {
        **select_attributes(run, "run_id", "commit", "dirty"),
        "started_at": run.started_at.isoformat(),
    }


def texts_of_runs_apart(record: PlatformHistory) -> Iterator[str]:
    """``3 runs of other branches not shown: a (2), b (1); ...``: those that are not on the line."""
    commits = {commit[:SHORT]: count for commit, count in record.abandoned.items()}
    lost = f"commits that {record.branch} does not have,"
    for runs, which in ((commits, lost), (record.elsewhere, "other branches")):
        if runs:
            found = [f"{name} ({count:,})" for name, count in runs.items()]
            what = f"{counted(sum(runs.values()), 'run')} of {which} not shown"
            yield f"{what}: {join_names(found)}; see one with --branch"
    if searches := record.searches:
        found = [f"{name} ({count:,})" for name, count in searches.items()]
        yield f"{counted(sum(searches.values()), 'run')} not shown, of {join_names(found)}"
