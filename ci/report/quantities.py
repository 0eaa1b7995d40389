"""What is measured, and shares of it, as every report of times writes them."""

from __future__ import annotations

from ci.analysis.measures import Quantity

LABELS = {
    Quantity.WALL: "wall",
    Quantity.CPU: "CPU",
    Quantity.PEAK_MEMORY: "peak memory",
    Quantity.WHEEL: "wheel",
    Quantity.LINES: "generated lines",
    Quantity.UNITS: "translation units",
}
_DIGITS_BELOW = 0.0995


def percent(share: float, sign: str = "") -> str:
    """``21 %``, ``4.2 %``; with the sign ``+`` always with one."""
    digits = 0 if abs(share) >= _DIGITS_BELOW else 1
    return f"{100 * share:{sign},.{digits}f} %"
