"""Measures, sizes and runs in words: for every form of output, and for messages."""

from __future__ import annotations

from ci.analysis.measures import Quantity, stage_and_quantity
from ci.analysis.regressions import EXACT_ALARM, Change, Shift
from ci.analysis.series import Measured

_SURE = 0.999
_DIGITS_FROM = 10  # below it a figure has a decimal
_UNITS = {Quantity.WALL: "s", Quantity.CPU: "s", Quantity.LINES: "lines", Quantity.UNITS: "units"}
_BYTES = (Quantity.PEAK_MEMORY, Quantity.WHEEL)
_MEGABYTE, _GIGABYTE = 1e6, 1e9
_ROUNDED_UP = 0.9995  # to 1,000 MB
_NAMES = {
    Quantity.WALL: "",
    Quantity.CPU: " CPU seconds",
    Quantity.PEAK_MEMORY: " peak memory",
    Quantity.WHEEL: " wheel size",
    Quantity.LINES: " lines",
    Quantity.UNITS: " translation units",
}


def named(measure: str) -> str:
    """``compile``, ``install CPU seconds``."""
    stage, quantity = stage_and_quantity(measure)
    return f"{stage}{_NAMES[quantity]}"


def amount(measure: str, value: float, *, sign: bool = False) -> str:
    """``181 s``, ``1.5 GB``; with ``sign`` ``+38 s``."""
    quantity = stage_and_quantity(measure)[1]
    if quantity in _BYTES:
        large = abs(value) >= _ROUNDED_UP * _GIGABYTE
        figure = f"{value / _GIGABYTE:{'+' if sign else ''}.2f} GB"
        return figure if large else f"{_figure(value / _MEGABYTE, sign=sign)} MB"
    if not quantity.is_noisy:
        return f"{value:{'+' if sign else ''},.0f} {_UNITS[quantity]}"
    return f"{_figure(value, sign=sign)} {_UNITS[quantity]}"


def percent(share: float, *, sign: bool = True) -> str:
    """``+21 %``."""
    if share == float("inf"):
        return "from nothing"
    return f"{_figure(share * 100, sign=sign)} %"


def size(change: Change) -> str:
    """``compile +38 s (+21 %)``."""
    point = change.point
    by = amount(change.measure, point.after - point.before, sign=True)
    return f"{named(change.measure)} {by} ({percent(point.relative)})"


def levels(change: Change) -> str:
    """``181 s -> 219 s, between +17 % and +25 %, probability over 0.999``."""
    point = change.point
    then, now = (amount(change.measure, value) for value in (point.before, point.after))
    interval = f"between {percent(point.low)} and {percent(point.high)}"
    sure = f"over {_SURE}" if point.probability > _SURE else f"{point.probability:.3f}"
    return f"{then} -> {now}, {interval}, probability {sure}"


def run_name(run: Measured) -> str:
    """``20260101T120000Z-0123abcd-00ff (commit 0123abcd, uncommitted changes)``."""
    dirty = ", uncommitted changes" if run.dirty else ""
    return f"{run.run_id} ({f'commit {run.commit[:12]}' if run.commit else 'no commit'}{dirty})"


def where(change: Change) -> str:
    return f"after {run_name(change.before_run)}, with {run_name(change.run)}"


def standing(change: Change) -> str | None:
    """What became of a change, or has to: ``accepted on 2026-01-01: REASON``."""
    if change.accepted is not None:
        return f"accepted on {change.accepted.accepted_at:%Y-%m-%d}: {change.accepted.reason}"
    if change.undone is not None:
        return f"undone with {run_name(change.undone)}"
    if change.is_worse and change.is_small:
        return f"too little to alarm: below {percent(EXACT_ALARM, sign=False)}"
    if not change.point.confirmed:
        return "young: more runs have to confirm it"
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


def _figure(value: float, *, sign: bool) -> str:
    digits = 0 if abs(value) >= _DIGITS_FROM else 1
    return f"{value:{'+' if sign else ''},.{digits}f}"
