"""Measures and their changes in words, as every report writes them."""

from __future__ import annotations

from ci.analysis.measures import Quantity, stage_and_quantity

LABELS = {
    Quantity.WALL: "wall",
    Quantity.CPU: "CPU",
    Quantity.PEAK_MEMORY: "peak memory",
    Quantity.WHEEL: "wheel",
    Quantity.LINES: "generated lines",
    Quantity.UNITS: "translation units",
}
_SECONDS = {Quantity.WALL: "s", Quantity.CPU: "CPU-s"}
_BYTES = (Quantity.PEAK_MEMORY, Quantity.WHEEL)
# From here on no digit is shown after the point: what is rounded to 10 has none either.
_WHOLE_SECONDS = 9.95
_WHOLE_PERCENT = 0.0995
_SIZES = ((2**20, "MiB"), (2**10, "KiB"))


def percent(share: float, sign: str = "") -> str:
    """``21 %``, ``4.2 %``, ``0 %``; with the sign ``+`` always with one."""
    digits = 0 if abs(share) >= _WHOLE_PERCENT or not share else 1
    return f"{100 * share:{sign},.{digits}f} %"


def amount(value: float, quantity: Quantity, sign: str = "") -> str:
    """``38 s``, ``4 units``; with the sign ``+`` always with one."""
    if quantity in _BYTES:
        return _size(value, sign)
    if quantity in _SECONDS:
        digits = 0 if abs(value) >= _WHOLE_SECONDS else 1
        return f"{value:{sign},.{digits}f} {_SECONDS[quantity]}"
    return f"{value:{sign},.0f} {quantity.value}"


def _size(value: float, sign: str) -> str:
    for size, unit in _SIZES:
        if abs(value) >= size or not value:
            return f"{value / size:{sign},.1f} {unit}"
    return f"{value:{sign},.0f} bytes"


def growth(before: float, after: float, quantity: Quantity) -> str:
    """``+38 s (+21 %)``."""
    relative = f" ({percent(after / before - 1, '+')})" if before else ""
    return f"{amount(after - before, quantity, '+')}{relative}"


def measure_name(measure: str) -> str:
    """``install``, ``install CPU``."""
    stage, quantity = stage_and_quantity(measure)
    return stage if quantity is Quantity.WALL else f"{stage} {LABELS[quantity]}"


def headline(measure: str, before: float, after: float) -> str:
    """``compile +38 s (+21 %)``."""
    stage, quantity = stage_and_quantity(measure)
    what = {Quantity.WHEEL: "wheel", Quantity.PEAK_MEMORY: f"{stage}'s peak memory"}
    return f"{what.get(quantity, stage)} {growth(before, after, quantity)}"
