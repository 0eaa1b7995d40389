"""Counts what the operator tests executed, from the properties that they record.

A plug-in of pytest; ``conftest`` adds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from reasons import SkipReason

Properties = dict[str, Any]  # what one test recorded, and whether it "passed" or "failed"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """Prints how many active overloads were executed, right before pytest's last line."""
    yield
    if terminalreporter.config.option.collectonly:
        return
    reports = [report for group in terminalreporter.stats.values() for report in group]
    for line in closing_lines(report_properties(reports)):
        terminalreporter.write_line(line)


@dataclass
class Tally:
    """The distinct overloads of one slot on one device."""

    active: set[str] = field(default_factory=set)
    executed: set[str] = field(default_factory=set)  # by at least one test, with any outcome
    passed: set[str] = field(default_factory=set)  # executed by a test that passed
    failed: set[str] = field(default_factory=set)
    kernels: dict[str, str] = field(default_factory=dict)  # by overload, of a simulated device
    compiled_only: bool = False

    def add(self, entry: Properties) -> None:
        overload = entry["overload"]
        self.compiled_only = _has_no_device(entry)
        if entry.get("active", True):  # missing if the test failed too early to record it
            self.active.add(overload)
        if entry.get("executed"):
            self.executed.add(overload)
            if entry["passed"]:
                self.passed.add(overload)
        if entry["failed"]:
            self.failed.add(overload)
        if "kernel" in entry:
            self.kernels[overload] = entry["kernel"]

    def __str__(self) -> str:
        executed = self.active & self.executed
        count = f"{len(executed):,} of {len(self.active):,} active overloads executed"
        if self.compiled_only:
            return f"{count}, compiled only"
        passed = (executed & self.passed) - self.failed
        share = len(executed) / len(self.active) if self.active else 0.0
        return f"{count} ({100 * share:.1f} %), {len(passed):,} passed{self._by_kernel(passed)}"

    def _by_kernel(self, passed: set[str]) -> str:
        if not self.kernels:
            return ""
        count = Counter(self.kernels[overload] for overload in passed)
        return (
            f", of which {count['own']:,} by its own kernels, {count['composite']:,} composite, "
            f"{count['fallback']:,} by the CPU fallback"
        )


def report_properties(reports: Iterable[Any]) -> list[Properties]:
    """Returns what the operator tests recorded, one entry per test.

    Reports of other phases count if they did not pass: a crash, a fixture that fails or skips.
    """
    return [
        {**dict(report.user_properties), "passed": report.passed, "failed": report.failed}
        for report in reports
        if "overload" in dict(getattr(report, "user_properties", ()))
        and (report.when == "call" or not report.passed)
    ]


def closing_lines(entries: list[Properties]) -> Iterator[str]:
    """Yields what was executed on each slot and device, and the comparison with the CPU."""
    tallies: dict[tuple[int, str], Tally] = {}
    for entry in entries:
        tallies.setdefault((entry["slot"], _device(entry)), Tally()).add(entry)
    if not tallies:
        yield "no operator test ran: 0 overloads executed"
    for (slot, device), tally in sorted(tallies.items()):
        yield f"slot {slot} on {device}: {tally}"
    yield from _spreads(entries)
    yield from _against_cpu(entries)


def _spreads(entries: list[Properties]) -> Iterator[str]:
    """Names the overloads of which torch gives other values each time, with what was compared."""
    overloads = sorted({entry["overload"] for entry in entries if "spread" in entry})
    if overloads:
        names = ", ".join(overloads)
        yield f"within torch's own spread, or uninitialized: {len(overloads):,} overloads: {names}"


def _device(entry: Properties) -> str:
    if _has_no_device(entry):
        return f"{entry['device']} (no device)"
    return f"{entry['device']} (simulated)" if entry.get("simulated") else str(entry["device"])


def _has_no_device(entry: Properties) -> bool:
    return entry.get("reason") == SkipReason.NO_DEVICE.value


def _against_cpu(entries: list[Properties]) -> Iterator[str]:
    """An overload differs if one of its tests does, and agrees if all compared tests do."""
    compared = [entry for entry in entries if "against_cpu" in entry]
    if not compared:
        return
    differ = Counter(e["overload"] for e in compared if e["against_cpu"].startswith("differs"))
    agree = {e["overload"] for e in compared if e["against_cpu"] == "agrees"} - differ.keys()
    names = f": {', '.join(sorted(differ))}" if differ else ""
    against = "against the CPU"
    if any(entry.get("simulated") for entry in compared):
        against += " (simulated)"
    yield f"{against}: {len(agree):,} overloads agree, {len(differ):,} differ{names}"
