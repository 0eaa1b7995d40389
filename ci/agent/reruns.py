"""Runs the tests that failed once more: evidence of flakiness, which no verdict hangs on."""

from __future__ import annotations

import json
import os
import pkgutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Iterator

from ci.util.lines import LONGEST_REPORT, lines_of_file

from .reports import PHASES, parse_report
from .rerun_plugin import FILE_VARIABLE

MOST_TESTS = 200  # a suite of which more fail is not flaky, it is broken
PLUGIN = "infini_ci_rerun"
TESTS_FAILED = 1  # pytest's exit status

# Runs a command: its name, its arguments, its environment on top of the stage's, its time limit.
CarryOut = Callable[[str, "list[str]", "dict[str, str]", float], "dict[str, Any]"]
Emit = Callable[..., None]


class Reruns:
    """Further attempts at what failed in a pytest stage, as often as the stage says."""

    def __init__(
        self,
        stage: dict[str, Any],
        *,
        results: Path,
        environment: dict[str, str],
        emit: Emit,
        carry_out: CarryOut,
    ) -> None:
        self._name: str = stage["name"]
        self._stage = stage
        self._results = results
        self._python_path = environment.get("PYTHONPATH")
        self._emit = emit
        self._carry_out = carry_out
        self._tests = failed_tests(results / "pytest.jsonl")
        self._last: set[str] = set()

    def possible(self, outcome: dict[str, Any]) -> bool:
        """Tell whether there is something to run again; where not, an event says why."""
        tests = self._tests
        if outcome["timed_out"] or outcome.get("interrupted") or tests is None:
            self._end("pytest did not get to its end")
        elif not tests:
            self._end("pytest failed, and none of its tests did")
        elif len(tests) > MOST_TESTS:
            self._end(f"{len(tests)} tests failed, more than {MOST_TESTS} are not flaky")
        else:
            return True
        return False

    def run(self) -> None:
        """Make all attempts, in the time that the stage itself had."""
        limit_s, most = self._stage["timeout_s"], self._stage["reruns"]
        deadline = time.monotonic() + limit_s
        with tempfile.TemporaryDirectory(prefix="infini-ci-rerun-") as folder:
            source = pkgutil.get_data(__package__ or "", "rerun_plugin.py")
            Path(folder, f"{PLUGIN}.py").write_bytes(source or b"")
            for attempt in range(1, most + 1):
                outcome = self._attempt(attempt, Path(folder), deadline)
                if outcome["timed_out"]:
                    self._end(f"{attempt} of {most} took their time limit of {limit_s:g} s")
                if outcome["timed_out"] or outcome.get("interrupted"):
                    return

    def _attempt(self, attempt: int, folder: Path, deadline: float) -> dict[str, Any]:
        log = self._results / f"pytest.rerun-{attempt}.jsonl"
        tests = folder / "tests.json"
        chosen = {"tests": self._tests, "last": sorted(self._last)}
        tests.write_text(json.dumps(chosen), encoding="utf-8")
        path = os.pathsep.join(filter(None, [str(folder), self._python_path]))
        text = f"{self._name}: rerun {attempt} of what failed ({len(self._tests or ())})"
        self._emit("rerun_started", stage=self._name, attempt=attempt, text=text)
        outcome = self._carry_out(
            f"{self._name}.rerun-{attempt}",
            [*self._stage["command"], "-p", PLUGIN, f"--report-log={log}"],
            {FILE_VARIABLE: str(tests), "PYTHONPATH": path},
            max(deadline - time.monotonic(), 0.0),
        )
        self._last |= unfinished_tests(log)  # what kills the process comes after all others
        self._emit("rerun_finished", stage=self._name, attempt=attempt, **outcome)
        return outcome

    def _end(self, reason: str) -> None:
        text = f"{self._name}: no more reruns: {reason}"
        self._emit("reruns_ended", stage=self._name, reason=reason, text=text)


def failed_tests(log: Path) -> list[str] | None:
    """The tests of a per-test log that failed or erred; ``None``: the session has no end."""
    failed: dict[str, None] = {}
    ended = False
    for record in _records(log, '"outcome": "failed"', '"SessionFinish"'):
        ended |= record["$report_type"] == "SessionFinish"
        if record["$report_type"] in PHASES and record["outcome"] == "failed":
            failed[record["nodeid"]] = None
    return list(failed) if ended else None


def unfinished_tests(log: Path) -> set[str]:
    """The tests of a per-test log that began and have no end."""
    begun: set[str] = set()
    ended: set[str] = set()
    for record in _records(log, '"TestReport"'):
        if record["$report_type"] == "TestReport":
            (begun if record["when"] == "setup" else ended).add(record["nodeid"])
    return begun - ended


def _records(log: Path, *marks: str) -> Iterator[dict[str, Any]]:
    """The lines with one of the marks: a log of 17,000 tests is 30 MB, and few of them failed."""
    if not log.is_file():
        return
    for line in lines_of_file(log, LONGEST_REPORT):
        if any(mark in line for mark in marks):
            with suppress(ValueError):  # cut off where the process died, or not pytest's
                yield parse_report(line)
