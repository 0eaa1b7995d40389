"""The records of pytest's per-test log (pytest-reportlog): the fields that anybody here reads.

The log is written by the process under test, so that each record is checked before it is believed.
"""

from __future__ import annotations

from typing import Any

from ci.util.lines import LONGEST_SECONDS, SHORT, parse_object

PHASES = ("TestReport", "SubtestReport")
LARGEST_STATUS = (1 << 31) - 1


def parse_report(line: str) -> dict[str, Any]:
    """Read a record; raises ``ValueError`` for a line that pytest does not write.

    Records of other kinds than those below are as pytest or a plugin wrote them.
    """
    # A call for each integer would take a tenth of the reader's time; in a short line none is long
    # enough to take any.
    record = parse_object(line, any_integer=len(line) < SHORT)
    kind = record.get("$report_type")
    # In one expression for each kind: a call for each field takes a quarter of the reader's time.
    # A bool is an int to isinstance, and no status.
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
        sound = type(status) is int and abs(status) <= LARGEST_STATUS
    else:
        sound = type(kind) is str
    if not sound:
        raise ValueError(f"not a record of pytest's: {line:.100}")
    return record
