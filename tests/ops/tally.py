"""Counts what the operator tests executed, from the properties that they record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any


def report_properties(reports: Iterable[Any]) -> list[dict[str, Any]]:
    """Returns the properties that the operator tests recorded, one entry per test."""
    return [
        {**dict(report.user_properties), "passed": report.passed}
        for report in reports
        if getattr(report, "when", None) == "call" and dict(report.user_properties).get("overload")
    ]


def coverage_lines(properties: list[dict[str, Any]]) -> list[str]:
    """Counts an overload as executed on a slot if one of its tests ran a sample and passed."""
    active: dict[int, set[str]] = defaultdict(set)
    executed: dict[int, set[str]] = defaultdict(set)
    for entry in properties:
        if entry.get("active", True):  # unknown where the test failed before it could ask
            active[entry["slot"]].add(entry["overload"])
        if entry["passed"] and entry.get("executed"):
            executed[entry["slot"]].add(entry["overload"])
    return [
        f"slot {slot}: {len(executed[slot])} of {len(active[slot])} active overloads executed "
        f"({len(executed[slot]) / len(active[slot]):.1%})"
        for slot in sorted(active)
    ]
