"""Carry out checks in parallel, and print their findings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from threading import Thread
from time import monotonic

from rich.console import Console
from rich.text import Text

from ci.engines.docker.link import SDK_ERRORS, explain, typed_bad_answers
from ci.errors import CiError, ExitCode, InfrastructureError
from ci.util.prerequisites import Finding, Severity, install_line, ok, unknown, warning
from ci.util.text import counted, make_inert

REQUEST_S = 5.0  # one request over the network
CHECK_S = 8.0  # one check: a request, its preparation, and the reading of its answer
LARGEST_CLOCK_DIFFERENCE_S = 60.0  # results tolerate minutes; NTP keeps clocks within a second
COLORS = {
    Severity.OK: "green",
    Severity.UNKNOWN: "magenta",
    Severity.WARNING: "yellow",
    Severity.PROBLEM: "red",
}
WIDTH = max(map(len, Severity)) + 2


@dataclass(frozen=True)
class Check:
    """A check of ``subject``; ``look`` yields its findings."""

    subject: str
    look: Callable[[], Iterable[Finding]]
    limit_s: float = field(default=CHECK_S, kw_only=True)


class _CheckThread(Thread):
    """The thread of one check, a daemon: the program can end even if the check hangs."""

    def __init__(self, check: Check) -> None:
        super().__init__(daemon=True)
        self.check = check
        self.findings: list[Finding] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        subject = self.check.subject
        try:
            with typed_bad_answers("the Docker Engine"):
                for found in self.check.look():
                    self.findings.append(found)
        except CiError as error:
            self.findings += error_findings(subject, error)
        except SDK_ERRORS as error:
            self.findings += error_findings(subject, InfrastructureError(explain(error)))
        except BaseException as error:
            self.error = error


def carry_out(checks: Sequence[Check]) -> list[Finding]:
    """Carry out ``checks`` at the same time; the findings come in their order."""
    threads = [_CheckThread(check) for check in checks]
    start = monotonic()
    for thread in threads:
        thread.start()
    findings: list[Finding] = []
    for thread in threads:
        check = thread.check
        thread.join(max(0.0, start + check.limit_s - monotonic()))
        is_late = thread.is_alive()
        if thread.error is not None:
            raise thread.error
        findings += thread.findings
        if is_late:
            findings.append(unknown(check.subject, f"no answer within {check.limit_s:g} s"))
    return findings


def error_findings(subject: str, error: CiError) -> Iterator[Finding]:
    """Yield a problem for each line of a typed error; the last one has the remedy."""
    *first, last = str(error).splitlines()
    configuration = error.exit_code is ExitCode.USAGE
    for line, remedy in (*((line, None) for line in first), (last, error.remedy)):
        yield Finding(Severity.PROBLEM, subject, line, remedy=remedy, configuration=configuration)


def judge_clock(subject: str, theirs: datetime, mine: datetime) -> Finding:
    """Judge the clock of another machine: ``theirs`` when this machine's was ``mine``."""
    difference = (theirs - mine).total_seconds()
    if abs(difference) <= LARGEST_CLOCK_DIFFERENCE_S:
        return ok(subject, "within a minute of this machine's")
    how = "ahead of" if difference > 0 else "behind"
    return warning(
        subject,
        f"{abs(difference):,.0f} s {how} this machine's",
        expected=f"at most {LARGEST_CLOCK_DIFFERENCE_S:g} s: certificates and the order of results"
        " depend on it",
        remedy="Correct the wrong one of the two, best by NTP (timedatectl set-ntp true).",
    )


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
