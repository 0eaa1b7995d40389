"""The message that ``run --notify`` sends of a run that did not pass."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ci.errors import ExitCode
from ci.gates.rules import exit_code
from ci.model.results import PlatformResult, RunResult
from ci.report.alarm_report import LONGEST_NOTIFICATION, NOTIFICATION_VERSION
from ci.report.failure_list import SHOWN, failure_count, reason_of
from ci.report.table import origin
from ci.util.text import counted, join_names, mask_credentials, shorten
from ci.util.webhook import FORMS, Body

LONGEST_LINE = 300  # characters of a failure


def run_notification(run: RunResult, form: str, *, folder: Path, job: str | None) -> Body:
    """The body of a POST for a run, in the form that its receiver expects.

    ``folder`` has the results of the run, ``job`` is the page of the job that it ran in.
    """
    place = f"{socket.gethostname()}:{folder.absolute()}"
    text = mask_credentials("\n".join(_lines(run, place, job)))
    text = shorten(text, LONGEST_NOTIFICATION)
    data = {
        "schema_version": NOTIFICATION_VERSION,
        "project": run.project,
        "branch": run.lineage.branch,
        "text": text,
        "kind": "run",
        "headline": _headline(run),
        "run_id": run.run_id,
        "commit": run.commit,
        "dirty": run.dirty,
        "started_at": run.started_at.isoformat(),
        "exit_code": exit_code(run.platforms),
        "results": place,
        "job": job,
        "platforms": [*map(_platform_data, run.platforms)],
    }
    return FORMS[form](text, data)


def _failed(run: RunResult) -> list[PlatformResult]:
    return [it for it in run.platforms if exit_code([it]) is not ExitCode.PASSED]


def _headline(run: RunResult) -> str:
    """``did not pass on cpu, nvidia``."""
    names = [it.platform for it in _failed(run)]
    return f"did not pass on {join_names(names, len(names))}"


def _lines(run: RunResult, place: str, job: str | None) -> Iterator[str]:
    """The lines of a message, the most important first, as a long one is cut."""
    branch = run.lineage.branch
    yield f"{run.project}{f' of {branch}' if branch else ''}: {_headline(run)}"
    for result in _failed(run):
        verdict = result.verdict
        product = verdict.product.replace("_", " ")
        yield f"{result.label}: {product}, harness {verdict.harness.shown}: {reason_of(result)}"
        shown = result.failures[:SHOWN]
        for failure in shown:
            message = f": {failure.message}" if failure.message else ""
            yield shorten(f"- {failure.name}{message}", LONGEST_LINE)
        tests = sum(failure.test is not None for failure in shown)
        if (more := failure_count(result) - tests) > 0 and shown:
            yield f"- and {counted(more, 'more failure')}"
    yield f"run {run.run_id}: {origin(run)}"
    yield f"results: {place}"
    if job:
        yield f"job: {job}"


def _platform_data(result: PlatformResult) -> dict[str, Any]:
    return {
        "platform": result.platform,
        "verdict": result.verdict.model_dump(mode="json"),
        "summary": result.pytest and result.pytest.summary,
        "failures": [it.model_dump(mode="json") for it in result.failures[:SHOWN]],
    }
