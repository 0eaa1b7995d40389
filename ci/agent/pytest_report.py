"""Read what pytest writes: the records of its per-test log, and its output."""

from __future__ import annotations

import re
from typing import Any, Iterable

from ci.util.lines import LONGEST_SECONDS, SHORT, parse_object

LARGEST_SESSION_STATUS = (1 << 31) - 1  # limit of the store's integer columns

NO_TESTS = 5  # pytest's exit status
# The usual exit statuses of a pytest process, the best first: of several processes that share a
# suite, one for which no test was left says nothing. All other statuses are worse.
USUAL = (NO_TESTS, 0, 1)

# The kind of a record that begins the part of a shard in a merged log; no pytest writes it.
SHARD = "Shard"
LARGEST_SHARD = 1000

ANSI = re.compile(r"\x1b\[[0-9;]*m")
_COLLECTED = re.compile(
    r"^(?:collecting \.\.\. )?collected (\d{1,9}) items?(?: / (?:.* )?(\d{1,9}) selected)?"
    r"|^\d+ workers? \[(\d{1,9}) items?\]"
)


def parse_report(line: str) -> dict[str, Any]:
    """Read a record of a per-test log, and check the fields that this program reads.

    The log is written by the process under test. Records of other kinds than those below are not
    checked. Raises ``ValueError`` for a line that pytest does not write.
    """
    # Checking each integer takes a tenth of the reader's time. In a short line no integer can be
    # long enough to be slow.
    record = parse_object(line, any_integer=len(line) < SHORT)
    kind = record.get("$report_type")
    # One expression for each kind: a call for each field takes a quarter of the reader's time.
    # `type` instead of isinstance, to which a bool is an int.
    if kind == "TestReport" or kind == "SubtestReport":
        duration = record.get("duration") or 0.0
        sound = (
            type(record.get("nodeid")) is str
            and type(record.get("when")) is str
            and type(record.get("outcome")) is str
            and type(duration) in (int, float)
            and 0 <= duration <= LONGEST_SECONDS
        )
    elif kind == "CollectReport":
        sound = type(record.get("nodeid")) is str and type(record.get("outcome")) is str
    elif kind == "SessionFinish":
        status = record.get("exitstatus")
        sound = type(status) is int and abs(status) <= LARGEST_SESSION_STATUS
    elif kind == SHARD:
        shard = record.get("shard")
        sound = type(shard) is int and 1 <= shard <= LARGEST_SHARD
    else:
        sound = type(kind) is str
    if not sound:
        raise ValueError(f"not a pytest record: {line:.100}")
    return record


def collected_tests(line: str) -> int | None:
    """Return the number of tests to run, if this line of pytest's output has it."""
    found = _COLLECTED.match(ANSI.sub("", line))
    # The second group exists if tests were deselected. The third is printed by pytest-xdist.
    counts = found.group(2, 1, 3) if found else ()
    return next((int(count) for count in counts if count), None)


def severity(status: int) -> tuple[bool, int]:
    """Return the place of an exit status among those of processes that share a suite."""
    return (False, USUAL.index(status)) if status in USUAL else (True, status)


def worst_status(statuses: Iterable[int]) -> int:
    """Return the exit status that counts for pytest processes that share a suite."""
    return max(statuses, key=severity)
