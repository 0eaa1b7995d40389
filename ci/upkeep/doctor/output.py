"""The findings of doctor as text and as JSON, and its exit code."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from ci.engines.checks import Finding, Severity, install_line
from ci.errors import ExitCode
from ci.util.text import counted, make_inert

COLORS = {
    Severity.OK: "green",
    Severity.UNKNOWN: "magenta",
    Severity.WARNING: "yellow",
    Severity.PROBLEM: "red",
}
WIDTH = max(map(len, Severity)) + 2


def exit_code(findings: Iterable[Finding]) -> ExitCode:
    """2 for a wrong configuration, else 3 for any other problem, else 0."""
    problems = [found for found in findings if found.level is Severity.PROBLEM]
    if any(found.configuration for found in problems):
        return ExitCode.USAGE
    return ExitCode.INFRASTRUCTURE if problems else ExitCode.PASSED


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print a line for each finding, with its remedy below, and the counts."""
    for found in findings:
        level = (f"{found.level:{WIDTH}}", COLORS[found.level])
        text = Text.assemble(level, _printable(f"{found.subject}: {found.found}"))
        for what, more in (("expected", found.expected), ("remedy", found.remedy)):
            text.append(f"\n{'':{WIDTH}}{what}: {_printable(more)}" if more else "")
        console.print(text, soft_wrap=True)
    counts = Counter(found.level for found in findings)
    summary = ", ".join(
        counted(number, level)
        if level in (Severity.WARNING, Severity.PROBLEM)
        else f"{number} {level}"
        for level in Severity
        if (number := counts[level])
    )
    console.print(summary, highlight=False, markup=False)
    if install := install_line(findings):
        console.print(f"install what is missing: {install}", soft_wrap=True, highlight=False)


def findings_json(findings: Sequence[Finding]) -> str:
    """Return the findings as a JSON document, with their exit code."""
    listed = [
        {
            name: _printable(value) if isinstance(value, str) else value
            for name, value in entry.items()
        }
        for entry in map(asdict, findings)
    ]
    amount = {"exit_code": exit_code(findings), "install": install_line(findings)}
    return json.dumps({**amount, "findings": listed}, indent=2) + "\n"


def _printable(text: str) -> str:
    return make_inert(text).replace("\n", " ")
