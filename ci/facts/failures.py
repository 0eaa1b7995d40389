"""The first failures of a platform, each with the line that says why.

A failed test has its first assertion line. A build that failed has the line of its log that names
the error: a reader needs neither the traceback nor the log to know what broke.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ci.facts.case import Case
from ci.facts.files import read_log_lines
from ci.facts.result_files import ResultFiles
from ci.facts.verdict import format_exit
from ci.model.job import StagePlan
from ci.model.results import (
    LONGEST_MESSAGE,
    LONGEST_TEST,
    MOST_FAILURES,
    Failure,
    Harness,
    Verdict,
)
from ci.model.tests import Outcome
from ci.util.text import first_line, mask_credentials, strip_controls

# Errors in a build's log, the most telling kind first; the first line of that kind counts. pip
# prints its own error before the output of the build that caused it.
_ERRORS = tuple(
    re.compile(pattern)
    for pattern in (
        r":\d+: (?:fatal )?error:|\(\d+\): (?:catastrophic )?error\b",  # compilers, nvcc
        r"CMake Error\b",
        r"\berror: (?!subprocess-exited-with-error|metadata-generation-failed)",
        r"undefined reference to|cannot find -l|ERROR: |^\s*(?:\w+\.)*\w*(?:Error|Exception): ",
    )
)
_CMAKE = 1  # in `_ERRORS`: its message begins in the next line with text
# A process died or was killed: the test that it ran has no record of its own.
DIED = frozenset({Harness.CRASHED, Harness.OOM_KILLED, Harness.TIMED_OUT})


def failures_of(case: Case, verdict: Verdict, files: ResultFiles) -> tuple[Failure, ...]:
    """Return the first failures: of the stages before the tests, then in the order of the log."""
    found = islice(_failures(case, verdict, files), MOST_FAILURES)
    return tuple(
        Failure(
            stage=stage,
            test=test and mask_credentials(test)[:LONGEST_TEST],
            outcome=Outcome.ERROR if outcome is Outcome.ERROR else Outcome.FAILED,
            # Masked first: a password that is cut off in its middle would not be recognized.
            message=first_line(mask_credentials(message or ""))[:LONGEST_MESSAGE] or None,
        )
        for stage, test, outcome, message in found
    )


def _failures(
    case: Case, verdict: Verdict, files: ResultFiles
) -> Iterator[tuple[str, str | None, Outcome, str | None]]:
    for stage in failed_commands(case):
        log = read_log_lines(files.folder / f"{stage.name}.log")
        yield stage.name, None, Outcome.FAILED, error_line(log)
    if case.tests is None:
        return
    name, end = case.pytest_stage.name, case.pytest_end
    bad = [test for test in case.tests.tests if test.outcome.bad]
    for test in bad:
        yield name, test.node_id, test.outcome, test.reason
    if verdict.harness in DIED:
        reported = {test.node_id for test in bad}
        how = f" with {format_exit(end)}" if end else ""
        for node_id in case.tests.running:
            if node_id not in reported:
                yield name, node_id, Outcome.FAILED, f"the process ended in this test{how}"


def failed_commands(case: Case) -> Sequence[StagePlan]:
    """Return the stages other than pytest's that ended with an error."""
    ends = ((stage, case.end_of(stage)) for stage in case.commands)
    return [stage for stage, end in ends if end is not None and end.failed]


def error_line(log: Iterable[str]) -> str | None:
    """Return the line of a build's log that names the error; without one, its last line."""
    found: dict[int, str] = {}
    last = None
    follows = False  # the message of CMake
    for line in map(strip_controls, log):
        text = line.strip()
        if not text:
            continue
        last = text
        if follows:
            found[_CMAKE] += f" {text}"
            follows = False
        kind = next((kind for kind, error in enumerate(_ERRORS) if error.search(line)), None)
        if kind is not None and kind not in found:
            found[kind] = text
            follows = kind == _CMAKE and text.endswith(":")
    return found[min(found)] if found else last
