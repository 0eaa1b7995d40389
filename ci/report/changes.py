"""Changes of levels, and the runs around them, in words."""

from __future__ import annotations

from ci.analysis.changes import POLICY, ChangePoint
from ci.analysis.regressions import Change, Shift
from ci.facts import measures as quantities
from ci.facts.measures import amount, percent, stage_and_quantity
from ci.store.rows import Measured
from ci.util.text import commit_name, counted

_SURE = 0.999


def headline(change: Change) -> str:
    """``compile +38 s (+21 %)``."""
    return quantities.headline(change.measure, change.point.before, change.point.after)


def levels(change: Change) -> str:
    """``181 s -> 219 s, 95 % interval +17 % to +25 %, probability over 0.999``."""
    quantity = stage_and_quantity(change.measure)[1]
    then, now = (amount(it, quantity) for it in (change.point.before, change.point.after))
    return f"{then} -> {now}, {certainty(change.point)}"


def certainty(point: ChangePoint) -> str:
    """``95 % interval +17 % to +25 %, probability over 0.999``."""
    size = f"{interval(point.low, point.high)}, " if point.low < point.high else ""
    sure = f"over {_SURE}" if point.probability > _SURE else f"{point.probability:.3f}"
    return f"{size}probability {sure}"


def interval(low: float, high: float) -> str:
    """``95 % interval +17 % to +25 %``."""
    return f"95 % interval {percent(low, '+')} to {percent(high, '+')}"


def run_name(run: Measured) -> str:
    """``20260101T120000Z-0123abcd-00ff (commit 0123456789ab)``."""
    return f"{run.run_id} ({commit_name(run.commit, dirty=run.dirty)})"


def where(change: Change) -> str:
    return f"after {run_name(change.before_run)}, with {run_name(change.run)}"


def standing(change: Change) -> str | None:
    """What became of a change, or has to: ``accepted on 2026-01-01: REASON``."""
    if change.accepted is not None:
        return f"accepted on {change.accepted.accepted_at:%Y-%m-%d}: {change.accepted.reason}"
    if change.undone is not None:
        return f"undone with {run_name(change.undone)}"
    if change.is_worse and change.is_small:
        return f"too little to alarm: below {percent(POLICY.exact_alarm)}"
    if not change.point.confirmed:
        missing = max(1, POLICY.confirm - change.runs_since)
        return f"young: {counted(missing, 'more run')} may confirm it"
    if change.wall_alone:
        return "CPU seconds did not change: the machine was busy, or it waited"
    return None


def verdict(shift: Shift) -> str:
    """What a shift is called."""
    change = shift.headline
    if not change.is_worse:
        return "improvement"
    if shift.is_open:
        return "open regression"
    if not change.is_rise:
        return "past regression"
    return "small rise" if change.is_small else "suspected regression"


def change_json(change: Change) -> dict[str, object]:
    """Everything; of what rose from nothing there is no relative size."""
    point = change.point
    return {
        "measure": change.measure,
        "before": point.before,
        "after": point.after,
        "low": point.low if point.before else None,
        "high": point.high if point.before else None,
        "probability": point.probability,
        "confirmed": point.confirmed,
        "open": change.is_open,
        "wall_alone": change.wall_alone,
        "last_run_before": run_json(change.before_run),
        "first_run_after": run_json(change.run),
        "runs_since": change.runs_since,
        "accepted": change.accepted.reason if change.accepted else None,
        "undone": run_json(change.undone) if change.undone else None,
    }


def run_json(run: Measured) -> dict[str, object]:
    return {
        "run_id": run.run_id,
        "commit": run.commit,
        "dirty": run.dirty,
        "started_at": run.started_at.isoformat(),
    }
