"""What a check has found, how bad that is, and how it is shown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum

from rich.console import Console
from rich.text import Text

from ci.errors import CiError, ExitCode
from ci.network import mask_credentials
from ci.text import counted, printable


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    UNKNOWN = "unknown"  # nobody could say, which is not ok
    WARNING = "warning"
    PROBLEM = "problem"  # a run would fail


COLORS = {
    Level.OK: "green",
    Level.UNKNOWN: "magenta",
    Level.WARNING: "yellow",
    Level.PROBLEM: "red",
}
WIDTH = max(map(len, Level)) + 2
LARGEST_CLOCK_DIFFERENCE_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One answer of a check: what was found and, unless it is ok, what to do.

    ``configuration``: a problem is one of the configuration, not of the infrastructure.
    """

    level: Level
    subject: str
    found: str
    expected: str | None = None
    remedy: str | None = None
    configuration: bool = False


def ok(subject: str, found: str) -> Finding:
    return Finding(level=Level.OK, subject=subject, found=found)


def unknown(subject: str, found: str, *, remedy: str | None = None) -> Finding:
    return Finding(level=Level.UNKNOWN, subject=subject, found=found, remedy=remedy)


def warning(subject: str, found: str, *, expected: str, remedy: str) -> Finding:
    return Finding(
        level=Level.WARNING, subject=subject, found=found, expected=expected, remedy=remedy
    )


def problem(
    subject: str, found: str, *, expected: str | None = None, remedy: str | None
) -> Finding:
    return Finding(
        level=Level.PROBLEM, subject=subject, found=found, expected=expected, remedy=remedy
    )


def of_error(subject: str, error: CiError) -> Iterator[Finding]:
    """A problem for each line of a typed error, the remedy with the last one."""
    *first, last = str(error).splitlines()
    configuration = error.exit_code is ExitCode.USAGE
    for line, remedy in (*((line, None) for line in first), (last, error.remedy)):
        yield Finding(
            level=Level.PROBLEM,
            subject=subject,
            found=line,
            remedy=remedy,
            configuration=configuration,
        )


def clock(subject: str, theirs: datetime, mine: datetime) -> Finding:
    """Judge the clock of another machine, as it answered at ``mine``."""
    difference = (theirs - mine).total_seconds()
    if abs(difference) <= LARGEST_CLOCK_DIFFERENCE_S:
        return ok(subject, "the same as this machine's, to a minute")
    how = "ahead of" if difference > 0 else "behind"
    return warning(
        subject,
        f"{abs(difference):,.0f} s {how} this machine's",
        expected=f"at most {LARGEST_CLOCK_DIFFERENCE_S:g} s: certificates and the order of results"
        " depend on it",
        remedy="Set the wrong one of the two, best by NTP (timedatectl set-ntp true).",
    )


def exit_code(findings: Iterable[Finding]) -> ExitCode:
    """2 for a wrong configuration, else 3 for any other problem, else 0."""
    problems = [found for found in findings if found.level is Level.PROBLEM]
    if any(found.configuration for found in problems):
        return ExitCode.USAGE
    return ExitCode.INFRASTRUCTURE if problems else ExitCode.PASSED


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print a line for each finding, with what to do about it below, and the counts."""
    for found in findings:
        console.print(_line(found), soft_wrap=True)
        if found.expected:
            console.print(_below("expected", found.expected), soft_wrap=True)
        if found.remedy:
            console.print(_below("remedy", found.remedy), soft_wrap=True)
    counts = Counter(found.level for found in findings)
    summary = ", ".join(_counted(counts[level], level) for level in Level if counts[level])
    console.print(summary, highlight=False, markup=False)


def findings_json(findings: Sequence[Finding]) -> str:
    """The findings as a JSON document, with the exit code that they amount to."""
    listed = [
        {name: _shown(value) if isinstance(value, str) else value for name, value in entry.items()}
        for entry in map(asdict, findings)
    ]
    return json.dumps({"exit_code": exit_code(findings), "findings": listed}, indent=2) + "\n"


def _counted(count: int, level: Level) -> str:
    return counted(count, level) if level in (Level.WARNING, Level.PROBLEM) else f"{count} {level}"


def _line(found: Finding) -> Text:
    level = (f"{found.level:{WIDTH}}", COLORS[found.level])
    return Text.assemble(level, _shown(f"{found.subject}: {found.found}"))


def _below(what: str, text: str) -> Text:
    return Text.assemble(" " * WIDTH, f"{what}: ", _shown(text))


def _shown(text: str) -> str:
    return printable(mask_credentials(text)).replace("\n", " ")
