"""Results for PyTorch's Cross-Repository CI Relay, which shows them beside torch's own CI.

The document has the inputs of the relay's GitHub action, by their names. Facts and limits are from
https://github.com/pytorch/test-infra/blob/main/.github/actions/cross-repo-ci-relay-callback/action.yml,
``aws/lambda/cross_repo_ci_relay/utils/triage_verdict.py`` there, which drops a verdict with any
fault, and RFC-0054 of https://github.com/pytorch/rfcs. An overview:
https://docs.pytorch.org/docs/main/accelerator/ci.html.

Each text is cut so that all of them together are within the limits. What is cut is counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ci.analysis.triage import Triage, TriageCategory, TriageFacts, triage
from ci.facts.suite import Outcomes
from ci.model.details import Rerun
from ci.model.results import RunResult
from ci.model.verdicts import Product
from ci.util.text import counted, make_inert

SCHEMA_VERSION = 1
# Bytes of the verdict as JSON with escapes alone, as the relay measures it.
LARGEST_VERDICT = 16 * 1024
MOST_EVIDENCE = 10
MOST_TESTS = 1000
# Bytes of the list of tests. The action passes it to a process as one environment variable, and
# Linux takes at most 128 KiB for one.
LARGEST_LIST = 100 * 1024
# Bytes, escapes included; the relay's own limits are as many characters. A verdict with the most
# evidence has less than LARGEST_VERDICT.
LONGEST_SUMMARY = 1000
LONGEST_REASON = 300
LONGEST_NAME = 200
LONGEST_EXCERPT = 950
LONGEST_TEST = 500
MESSAGES = (1024, 256, 64)  # bytes of the messages of tests, the most for which all tests fit
LONGEST_READ = 20_000  # characters; more than a cut text needs, so that no secret is cut in half
ANALYZER = "infini-ci"
_GIT = re.compile(r"\+git([0-9a-f]{7,40})\b")  # in the version of a torch that was built from git


@dataclass(frozen=True, kw_only=True)
class RelayRow:
    """A platform as the relay gets it."""

    facts: TriageFacts
    outcomes: Outcomes
    reruns: Sequence[Rerun] = ()

    @property
    def job(self) -> str:
        return self.facts.result.label


def crcr(run: RunResult, rows: Sequence[RelayRow]) -> str:
    """Return the document of the rows, on one line."""
    judged = [(row, found) for row in rows if (found := triage(row.facts))]
    judged.sort(key=lambda it: [*TriageCategory].index(it[1].category))
    passed = all(row.facts.result.verdict.product is Product.PASSED for row in rows)
    tests, left_out = failed_tests(judged)
    document: dict[str, Any] = {
        "conclusion": "success" if passed else "failure",
        "test-results": _counts(rows),
        "failed-tests-detail": tests,
    }
    if judged:
        document["triage-verdict"] = _verdict(run, judged, left_out)
    return json.dumps(document) + "\n"


def _counts(rows: Iterable[RelayRow]) -> dict[str, int]:
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for pytest in filter(None, (row.facts.result.pytest for row in rows)):
        counts["passed"] += pytest.passed + pytest.xpassed
        counts["failed"] += pytest.failed + pytest.errors
        counts["skipped"] += pytest.skipped + pytest.xfailed
    return counts | {"total": sum(counts.values())}


# The verdict

_Judged = tuple[RelayRow, Triage]


def _verdict(run: RunResult, judged: Sequence[_Judged], left_out: int) -> dict[str, Any]:
    (_, worst), *_ = judged
    evidence = [*_evidence(judged)]
    notes = []
    if (more := len(evidence) - MOST_EVIDENCE) > 0:
        notes.append(f"{counted(more, 'piece')} of evidence left out")
    if left_out:
        notes.append(f"{counted(left_out, 'failed test')} not listed")
    note = f" [{'; '.join(notes)}]" if notes else ""
    reasons = (f"{row.job}: {found.category}: {found.reason}" for row, found in judged)
    summary = " ".join("; ".join(reasons).split())
    verdict: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "category": worst.category.value,
        "confidence": worst.confidence.value,
        "summary": cut(summary, LONGEST_SUMMARY - len(note)) + note,
    }
    if suspected := _suspected(worst):
        verdict["suspected_upstream"] = suspected
    verdict["evidence"] = evidence[:MOST_EVIDENCE]
    if (reproduced := _is_reproduced(judged)) is not None:
        verdict["reproduced_on_retry"] = reproduced
    verdict["analyzer"] = {"name": ANALYZER}
    verdict["analyzed_at"] = run.finished_at.isoformat()
    return verdict


def _suspected(found: Triage) -> dict[str, str] | None:
    """The commit of torch; the relay takes no suspicion without one."""
    commit = _GIT.search(found.torch.after) if found.torch else None
    if commit is None or found.category is not TriageCategory.UPSTREAM:
        return None
    return {"commit": commit[1], "reason": cut(str(found.torch), LONGEST_REASON)}


def _evidence(judged: Sequence[_Judged]) -> Iterator[dict[str, str]]:
    """Yield the evidence: reasons of all platforms first, then their tests."""
    for row, _ in judged:
        for it in row.facts.result.verdict.evidence:
            yield _entry(row.job, f"{it.grade}: {it.text}")
    for row, _ in judged:
        flaky = {test.node_id: str(test) for test in row.facts.flaky}
        for name, message in _by_importance(row):
            known = filter(None, (flaky.get(name), message))
            yield _entry(row.job, "; ".join(known), name)


def _entry(job: str, excerpt: str, test: str = "") -> dict[str, str]:
    """One piece of evidence; the relay drops a verdict with an empty text."""
    texts = {
        "job": cut(job, LONGEST_NAME),
        "test": cut(test, LONGEST_NAME),
        "excerpt": cut(excerpt, LONGEST_EXCERPT),
    }
    return {name: text for name, text in texts.items() if text}


def _is_reproduced(judged: Iterable[_Judged]) -> bool | None:
    """Whether a failed test failed in each of its reruns, too; ``None``: there are no reruns."""
    ended: dict[tuple[str, str], bool] = {}
    for row, _ in judged:
        for rerun in row.reruns:
            place = row.job, rerun.node_id
            ended[place] = ended.get(place, False) or rerun.outcome.good
    return not all(ended.values()) if ended else None


# Tests


def failed_tests(judged: Sequence[_Judged]) -> tuple[list[dict[str, Any]], int]:
    """Return the failed tests, the most important first, and the number of those left out."""
    rows = [row for row, _ in judged]
    found = [(row, *it) for row in rows for it in _by_importance(row)]
    seconds = {
        row.job: dict(zip(row.outcomes.names, row.outcomes.seconds, strict=True)) for row in rows
    }
    listed: list[dict[str, Any]] = []
    for most in MESSAGES:
        listed = [
            _test(row.job, name, cut(message or "", most), seconds[row.job].get(name))
            for row, name, message in found[:MOST_TESTS]
        ]
        if len(json.dumps(listed)) <= LARGEST_LIST:
            break
    size, kept = len("[]"), 0
    for test in listed:
        size += len(json.dumps(test)) + len(", ")
        if size > LARGEST_LIST:
            break
        kept += 1
    return listed[:kept], len(found) - kept


def _test(job: str, name: str, message: str, seconds: float | None) -> dict[str, Any]:
    test: dict[str, Any] = {"name": cut(name, LONGEST_TEST) or "?", "classname": cut(job, 100)}
    if message:
        test["message"] = message
    if seconds is not None:
        test["duration"] = round(seconds, 3)
    return test


def _by_importance(row: RelayRow) -> list[tuple[str, str | None]]:
    """The failed tests with their messages: those without evidence of flakiness first."""
    flaky = {test.node_id for test in row.facts.flaky}
    failures: Mapping[str, str | None] = row.facts.failures
    return sorted(failures.items(), key=lambda it: it[0] in flaky)


def cut(text: str, most: int) -> str:
    """Return the begin of a text that takes at most so many bytes in JSON, without controls."""
    text = make_inert(text[:LONGEST_READ]).strip()
    if len(json.dumps(text)) - 2 <= most:
        return text
    size, kept = len("..."), 0
    for character in text:
        size += len(json.dumps(character)) - 2
        if size > most:
            break
        kept += 1
    return f"{text[:kept].rstrip()}..."
