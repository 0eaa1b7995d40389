"""Results for other programs: JUnit XML, and the Common Test Report Format.

Jenkins, GitLab and most other CI systems read JUnit: the elements and attributes are those of the
schema of Jenkins' xunit plugin (junit-10.xsd). CTRF has reruns and flaky tests: https://ctrf.io.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ci.analysis.parts import group_by
from ci.facts.suite import Outcomes
from ci.model.details import Rerun
from ci.model.outcomes import Ending, Outcome
from ci.model.results import PlatformResult, RunResult, selected_title
from ci.model.verdicts import Product
from ci.util.text import first_line, strip_controls


@dataclass(frozen=True, kw_only=True)
class PlatformTests:
    """The tests of a platform, as the store has them."""

    outcomes: Outcomes
    reruns: Sequence[Rerun]

    def reruns_by_test(self) -> dict[str, list[Rerun]]:
        return group_by(sorted(self.reruns, key=lambda it: it.attempt), lambda it: it.node_id)


def failure_without_test(result: PlatformResult, tests: PlatformTests) -> tuple[str, str] | None:
    """Name and reason of a failure that no test shows, of a platform that did not pass.

    Without it, a platform whose build failed would be an empty report, which passes.
    """
    product = result.verdict.product
    has_failure = any(ending.state.outcome.bad for ending in tests.outcomes.endings)
    if product is Product.PASSED or has_failure:
        return None
    lines = [it.message for it in result.failures if it.message]
    lines += [it.text for it in result.verdict.evidence]
    return f"product {product.shown}", "\n".join(dict.fromkeys(lines))


# JUnit

FAILED = {Outcome.FAILED: "failure", Outcome.ERROR: "error"}
RERUN = {Outcome.FAILED: "rerunFailure", Outcome.ERROR: "rerunError"}
IDLE = (Outcome.SKIPPED, Outcome.XFAILED)
_TOTALS = ("tests", "failures", "errors")


def junit(run: RunResult, tests: Sequence[PlatformTests]) -> str:
    """The JUnit report: a suite for each row of the table; ``tests`` in their order."""
    root = Element("testsuites")
    counts: Counter[str] = Counter()
    for result, of_result in zip(run.platforms, tests, strict=True):
        counts += _add_suite(root, run, result, of_result)
    root.attrib |= _texts(name=run.project, **{it: counts[it] for it in _TOTALS})
    indent(root, " ")
    return tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_suite(
    root: Element, run: RunResult, result: PlatformResult, tests: PlatformTests
) -> Counter[str]:
    suite = SubElement(root, "testsuite")
    properties = SubElement(suite, "properties")
    known = {"run": run.run_id, "commit": run.commit, "platform": result.label}
    for name, value in known.items():
        SubElement(properties, "property", _texts(name=name, value=value or ""))
    counts: Counter[str] = Counter(dict.fromkeys((*_TOTALS, "skipped"), 0))
    reruns, total = tests.reruns_by_test(), 0.0
    for node_id, ending, seconds in tests.outcomes.rows:
        _add_case(suite, result, node_id, ending, seconds, reruns.get(node_id, ()))
        outcome, total = ending.state.outcome, total + seconds
        counts["tests"] += 1
        counts["failures"] += outcome is Outcome.FAILED
        counts["errors"] += outcome is Outcome.ERROR
        counts["skipped"] += outcome in IDLE
    if lacking := failure_without_test(result, tests):
        name, reason = lacking
        case = SubElement(suite, "testcase", _texts(classname=_row_name(result), name=name))
        _add_message(case, "error", result.verdict.harness, reason)
        counts.update(tests=1, errors=1)
    suite.attrib |= _texts(
        name=f"{run.project}.{_row_name(result)}",
        time=f"{total:.3f}",
        timestamp=f"{run.started_at:%Y-%m-%dT%H:%M:%S}",
        **counts,
    )
    return counts


def _add_case(
    suite: Element,
    result: PlatformResult,
    node_id: str,
    ending: Ending,
    seconds: float,
    reruns: Sequence[Rerun],
) -> None:
    # The platform comes first, since CI systems distinguish tests by the names of class and test.
    path, _, name = node_id.partition("::")
    parts, bracket, parameters = name.partition("[")
    *classes, function = parts.split("::")
    place = [_row_name(result), *path.removesuffix(".py").split("/"), *classes]
    named = {"classname": ".".join(place), "name": function + bracket + parameters or path}
    case = SubElement(suite, "testcase", _texts(**named, time=f"{seconds:.3f}"))
    outcome, message = ending.state.outcome, ending.message or ""
    if outcome in IDLE:
        kind = "pytest.xfail" if outcome is Outcome.XFAILED else "pytest.skip"
        SubElement(case, "skipped", _texts(type=kind, message=message))
    elif outcome.bad:
        _add_message(case, FAILED[outcome], outcome, message)
    for rerun in reruns:
        if rerun.outcome.bad:
            _add_message(case, RERUN[rerun.outcome], rerun.outcome, rerun.reason or "")
    if reruns:
        attempts = "\n".join(f"rerun {it.attempt}: {it.outcome}" for it in reruns)
        SubElement(case, "system-out").text = attempts


def _row_name(result: PlatformResult) -> str:
    """The platform; ``cpu (selected add)`` has other tests than ``cpu``."""
    return selected_title(result.platform, result.selected)


def _add_message(case: Element, kind: str, how: str, message: str) -> None:
    attributes = _texts(type=how, message=first_line(message))
    SubElement(case, kind, attributes).text = strip_controls(message)


def _texts(**values: object) -> dict[str, str]:
    """Attributes; XML has no control characters."""
    return {name: strip_controls(str(value)) for name, value in values.items()}


# CTRF

SPECIFICATION = "0.0.0"
STATUSES: Mapping[Outcome, str] = {
    Outcome.FAILED: "failed",
    Outcome.ERROR: "failed",
    Outcome.XPASSED: "passed",
    Outcome.PASSED: "passed",
    Outcome.XFAILED: "other",  # neither a pass nor a failure
    Outcome.SKIPPED: "skipped",
}
COUNTED = ("passed", "failed", "skipped", "pending", "other")


def ctrf(run: RunResult, tests: Sequence[PlatformTests]) -> str:
    """The CTRF report of all platforms; ``tests`` in the order of the rows."""
    rows = zip(run.platforms, tests, strict=True)
    listed = [test for it, of_row in rows for test in _platform_tests(run, it, of_row)]
    counts = Counter(test["status"] for test in listed)
    environment = {
        "appName": run.project,
        "buildName": run.run_id,
        "commit": run.commit,
        "branchName": run.lineage.branch,
        "testEnvironment": ", ".join(it.label for it in run.platforms),
    }
    document = {
        "reportFormat": "CTRF",
        "specVersion": SPECIFICATION,
        "timestamp": run.finished_at.isoformat(),
        "generatedBy": "python -m ci",
        "results": {
            "tool": {"name": "pytest"},
            "summary": {
                "tests": len(listed),
                **{status: counts[status] for status in COUNTED},
                "flaky": sum(test.get("flaky", False) for test in listed),
                "suites": len(run.platforms),
                "start": _milliseconds(run.started_at),
                "stop": _milliseconds(run.finished_at),
            },
            "tests": listed,
            "environment": {name: value for name, value in environment.items() if value},
        },
    }
    return json.dumps(document, indent=1) + "\n"


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _platform_tests(
    run: RunResult, result: PlatformResult, tests: PlatformTests
) -> Iterator[dict[str, Any]]:
    suite = [f"{run.project} on {result.label}"]
    reruns = tests.reruns_by_test()
    for name, (state, message), seconds in tests.outcomes.rows:
        path = name.partition("::")[0]
        test = {
            "name": name,
            "status": STATUSES[state.outcome],
            "duration": round(seconds * 1000),
            "rawStatus": state.outcome.value,
            "suite": [*suite, path],
            "filePath": path,
        }
        if message:
            test["message"] = message
        yield test | (_reruns(reruns[name]) if name in reruns else {})
    if lacking := failure_without_test(result, tests):
        name, reason = lacking
        raw = result.verdict.product.value
        failed = {"name": name, "status": "failed", "duration": 0, "rawStatus": raw}
        yield failed | {"suite": suite, "message": reason}


def _reruns(reruns: Sequence[Rerun]) -> dict[str, Any]:
    """The reruns of a failed test; it is flaky if it passed in one."""
    attempts = [
        {
            "attempt": it.attempt,
            "status": STATUSES[it.outcome],
            "duration": round(it.seconds * 1000),
            **({"message": it.reason} if it.reason else {}),
        }
        for it in reruns
    ]
    flaky = any(it.outcome.good for it in reruns)
    return {"retries": len(reruns), "retryAttempts": attempts, "flaky": flaky}
