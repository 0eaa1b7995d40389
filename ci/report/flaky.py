"""``history PLATFORM --flaky``: the tests with evidence of being flaky, from the store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ci.analysis.flaky import Flaky
from ci.report.table import escape
from ci.util.text import counted, printable

SCHEMA_VERSION = 1
LINES = 20
ADVICE = (
    "a flaky test needs mending; until then a quarantine can hold it, with a reference to the"
    " defect, where the suite has one (as tests/ops has: quarantine.yaml)"
)


def flaky_text(platform: str, found: Sequence[Flaky]) -> str:
    lines = [f"{platform}: {_headline(found)}", *(f"  {line}" for line in _lines(found))]
    return printable("\n".join([*lines, *([ADVICE] if found else [])])) + "\n"


def flaky_markdown(platform: str, found: Sequence[Flaky]) -> str:
    lines = [f"### {escape(platform)}: {_headline(found)}", ""]
    lines += [*(f"* {escape(line)}" for line in _lines(found)), ""]
    return "\n".join([*lines, *([escape(ADVICE)] if found else [])]).rstrip() + "\n"


def flaky_json(platform: str, found: Sequence[Flaky]) -> str:
    """Everything, test by test."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "platform": platform,
        "tests": [*map(_test, found)],
    }
    return json.dumps(document, indent=2) + "\n"


def _headline(found: Sequence[Flaky]) -> str:
    if not found:
        return "no test both passed and failed at one commit in one environment"
    return f"{counted(len(found), 'test')} both passed and failed at one commit in one environment"


def _lines(found: Sequence[Flaky]) -> Iterator[str]:
    for test in found[:LINES]:
        yield f"{test.node_id}: {test}"
    if len(found) > LINES:
        yield f"and {counted(len(found) - LINES, 'test')} more"


def _test(test: Flaky) -> dict[str, object]:
    low, high = test.interval
    evidence = [
        {"commit": it.commit, "environment": it.key, "failed": it.failed, "tried": it.tried}
        for it in test.evidence
    ]
    counts = {"failed": test.failed, "tried": test.tried, "rate": test.failed / test.tried}
    return {"test": test.node_id, **counts, "interval": [low, high], "evidence": evidence}
