"""Read what pytest writes: the records of its per-test log, and a line of its output.

The agent reads them while pytest runs, and the judge once it has ended.
"""

from __future__ import annotations

import json
import re
from typing import Any, Mapping

from ci.util.lines import LONGEST_SECONDS, SHORT, parse_object

FARTHEST_CLOCK_S = 1e12  # between the year 1 and 9999, which a test can set, there are 3e11
LARGEST_SESSION_STATUS = (1 << 31) - 1  # limit of the store's integer columns

TEST = "TestReport"  # the kind of the record of a phase of a test
SUBTEST = "SubtestReport"
_CONTEXT = "_subtest.context"  # its message and parameters
# The kind of a record that begins the part of a shard in a merged log; no pytest writes it.
SHARD = "Shard"
LARGEST_SHARD = 1000

_OTHER_KINDS = ("CollectReport", "SessionStart", "SessionFinish", "WarningMessage", SHARD)

ANSI = re.compile(r"\x1b\[[0-9;]*m")
# A field of a record. In the strings of the record, such as the output of a test, quotes have a
# backslash before them. Strings are bounded: a regular expression takes 50 bytes per repetition.
_CHARACTERS = r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u]){0,%d}'
_FIELD = r'(?<!\\)"%s": "(' + _CHARACTERS + ")"
_NODE_ID = re.compile(_FIELD % ("nodeid", 4096) + '"')
_FIELDS = {name: re.compile(_FIELD % (name, 2048)) for name in ("outcome", "when", "message")}
_KIND = re.compile(r'(?<!\\)"\$report_type": "(\w{1,50})"')
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
    if kind != TEST and kind not in _OTHER_KINDS:
        record["$report_type"] = kind = _phase_kind(record)
    # One expression for each kind: a call for each field takes a quarter of the reader's time.
    # `type` instead of isinstance, to which a bool is an int.
    if kind in (TEST, SUBTEST):
        duration = record.get("duration") or 0.0
        sound = (
            type(record.get("nodeid")) is str
            and type(record.get("when")) is str
            and type(record.get("outcome")) is str
            and type(duration) in (int, float)
            and (0 <= duration <= LONGEST_SECONDS or _is_of_other_clock(record))
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


def _phase_kind(record: dict[str, Any]) -> Any:
    """Return the kind of a record that a plugin's own class of reports has.

    pytest counts each report of a test, whatever its class. Subtests are ``SubTestReport`` to
    pytest and to pytest-subtests, under another key in pytest-reportlog before 1.0.
    """
    kind = record.get("$report_type", record.get("_report_type"))
    if all(type(record.get(name)) is str for name in ("nodeid", "when", "outcome")):
        is_subtest = _CONTEXT in record or (type(kind) is str and kind.lower() == SUBTEST.lower())
        return SUBTEST if is_subtest else TEST
    return kind


def subtest_name(record: Mapping[str, Any]) -> str:
    """Return the name of a subtest as pytest prints it: ``[message] (i=1)``."""
    context = record.get(_CONTEXT)
    if not isinstance(context, Mapping):  # a parameter that is no JSON: the text of all of them
        return f"({context})" if context else "(<subtest>)"
    message, parameters = context.get("msg"), context.get("kwargs")
    parts = [f"[{message}]"] if isinstance(message, str) else []
    if isinstance(parameters, Mapping) and parameters:
        # pytest writes the representations; pytest-subtests the values.
        values = (f"{k}={v if isinstance(v, str) else repr(v)}" for k, v in parameters.items())
        parts.append(f"({', '.join(values)})")
    return " ".join(parts) or "(<subtest>)"


def damaged_report(line: str) -> dict[str, Any] | None:
    """Return what is known from a line that is no valid record of a test; ``None``: nothing.

    It is truncated, or has a value that this program does not read.
    """
    whole = line + getattr(line, "end", "")
    ids, kinds = _NODE_ID.findall(whole), _KIND.findall(whole)
    fields = {name: found[1] for name, field in _FIELDS.items() if (found := field.search(whole))}
    # The id is the first field or one of the last; between them are properties of the test.
    ids = ids[:1] if line.startswith('{"nodeid": ') else ids[-1:]
    kind = kinds[-1] if kinds else TEST
    if not ids or "outcome" not in fields or kind in _OTHER_KINDS[1:]:
        return None
    try:
        values = {name: json.loads(f'"{it}"') for name, it in {"nodeid": ids[0], **fields}.items()}
    except ValueError:  # a control character
        return None
    values["longrepr"] = values.pop("message", None)
    if kind != _OTHER_KINDS[0]:
        kind = SUBTEST if f'"{_CONTEXT}": ' in whole else TEST
    return {"when": "call", **values, "$report_type": kind}


def collected_tests(line: str) -> int | None:
    """Return the number of tests to run, if this line of pytest's output has it."""
    found = _COLLECTED.match(ANSI.sub("", line))
    # The second group exists if tests were deselected. The third is printed by pytest-xdist.
    counts = found.group(2, 1, 3) if found else ()
    return next((int(count) for count in counts if count), None)


def _is_of_other_clock(record: dict[str, Any]) -> bool:
    """Whether a fixture set the clock between the readings, as freezegun does; sets 0 seconds."""
    duration = record["duration"]
    if type(duration) is not float or abs(duration) > FARTHEST_CLOCK_S:
        return False
    record["duration"] = 0.0
    return True
