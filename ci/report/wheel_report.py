"""The report of two wheels: the symbols that they export, and their ABI."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ci.analysis.abi import AbiVerdict, WheelComparison
from ci.report.document import Document, Heading, Items, Report

SCHEMA_VERSION = 1
SUMMARY = " changes summary: "
MOST_LINES = 100  # of a report of abidiff


@dataclass(frozen=True, kw_only=True)
class WheelReport(Report):
    """The changes in short, then the reports of abidiff."""

    base: str
    head: str
    """The wheels as the user named them."""
    found: WheelComparison

    def document(self, *, page: bool) -> Document:
        arrow = "→" if page else "->"
        yield [Heading(3, f"{self.base} {arrow} {self.head}")]
        found = self.found
        lines = [*wheel_lines(found)]
        if found.symbols is None:
            lines.append(f"{found.name}: exported symbols are unknown: a wheel cannot be read")
        elif not (found.symbols.removed or found.symbols.added):
            lines.insert(0, f"{found.name}: exported symbols unchanged")
        yield [Items(lines)]
        yield from abi_reports(found)

    def data(self) -> dict[str, Any]:
        names = {"schema_version": SCHEMA_VERSION, "base": self.base, "head": self.head}
        return names | asdict(self.found)


def wheel_lines(found: WheelComparison) -> Iterator[str]:
    """Yield what changed, in short."""
    if found.symbols and (found.symbols.removed or found.symbols.added):
        yield str(found.symbols)
    if found.abi:
        yield from found.abi.lines()


def abi_reports(found: WheelComparison) -> Document:
    """What abidiff reports of each file that changed, without the summary."""
    for file in found.abi.files if found.abi else ():
        lines = [it for it in file.report.splitlines() if it.strip() and SUMMARY not in it]
        if file.verdict is not AbiVerdict.UNCHANGED and len(lines) > 1:
            more = len(lines) - MOST_LINES
            cut = [f"and {more:,} more lines: --format json has all"] if more > 0 else []
            title = f"abidiff of {file.file}"
            yield Heading(4, title), Items([*lines[:MOST_LINES], *cut], indent="  ")
