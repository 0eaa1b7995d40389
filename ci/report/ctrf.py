"""Results in the Common Test Report Format (https://ctrf.io), which has reruns and flaky tests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from ci.model.details import Rerun
from ci.model.results import PlatformResult, RunResult
from ci.model.tests import Outcome
from ci.report.junit import PlatformTests, unfinished

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


def ctrf(run: RunResult, tests: Mapping[str, PlatformTests]) -> str:
    """The CTRF report of all platforms; ``tests`` by platform."""
    listed = [test for it in run.platforms for test in _platform_tests(run, it, tests[it.platform])]
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
    columns = (tests.outcomes.names, tests.outcomes.endings, tests.outcomes.seconds)
    for name, (state, message), seconds in zip(*columns, strict=True):
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
    if lacking := unfinished(result, tests):
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
