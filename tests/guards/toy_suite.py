"""Runs small suites whose tests really crash and hang, with the guards of the operator suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ci.facts.pytest_log import parse_log
from ci.model.outcomes import PytestLog, TestOutcome

OPERATOR_SUITE = Path(__file__).resolve().parents[1] / "ops"

CONFTEST = f"""
import os, sys
from pathlib import Path

import pytest

sys.path.insert(0, {str(OPERATOR_SUITE)!r})
import guards

HERE = Path(__file__).parent
DEATHS = {{"dies_as_torch_does": "SIGABRT"}}


def death_of_torch(tests):
    # Of some operators at once, and of damages_memory later.
    *before, last = [test.properties["overload"] for test in tests]
    return DEATHS.get(last) or ("SIGSEGV" if "damages_memory" in before else None)


def pytest_addoption(parser):
    guards.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    guards.use_a_worker(config)


def pytest_configure(config):
    guards.register(
        config,
        entries=guards.platform_quarantine(HERE / "quarantine.yaml", "toy", ["toy"]),
        folder=HERE,
        properties={{"platform": "toy"}},
        device_answers=lambda: "DEVICE_IS_BROKEN" not in os.environ,
        death_without_library=death_of_torch,
    )
"""

# Any other exit status means that pytest itself failed or was stopped.
EXPECTED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.USAGE_ERROR)


@dataclass(frozen=True, kw_only=True)
class Run:
    """The results of a run of pytest."""

    exit_status: int
    output: str
    log: PytestLog
    junit: str
    reports: tuple[dict[str, Any], ...]

    def outcome(self, name: str) -> TestOutcome:
        (outcome,) = [test for test in self.log.tests if f"[{name}-" in test.node_id]
        return outcome

    def properties(self, name: str) -> dict[str, Any]:
        """Return the properties in the last report of a test."""
        *_, report = [report for report in self.reports if f"[{name}-" in report["nodeid"]]
        return dict(report["user_properties"])


def run_suite(tests: str, *arguments: str, quarantine: str = "toy: []", hooks: str = "") -> Run:
    """Runs a module of tests in a process of its own; ``hooks`` are added to its conftest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Hypothesis, which no toy needs, would take a third of the start of each process.
        options = "filterwarnings = error\naddopts = -p no:hypothesispytest\n"
        (folder / "pytest.ini").write_text(f"[pytest]\n{options}")
        (folder / "conftest.py").write_text(CONFTEST + hooks)
        (folder / "quarantine.yaml").write_text(quarantine)
        (folder / "test_toy.py").write_text(tests)
        return _run_pytest(folder, *arguments)


def _run_pytest(folder: Path, *arguments: str) -> Run:
    command = [sys.executable, "-m", "pytest", "--report-log=log.jsonl", "--junitxml=junit.xml"]
    # Without the variables that an outer pytest sets for its workers.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    process = subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    output = process.stdout + process.stderr
    if process.returncode not in EXPECTED:
        pytest.fail(f"pytest ended with status {process.returncode}:\n{output}", pytrace=False)
    lines = _text(folder / "log.jsonl").splitlines()
    records = [json.loads(line) for line in lines]
    return Run(
        exit_status=process.returncode,
        output=output,
        log=parse_log(lines),
        junit=_text(folder / "junit.xml"),
        reports=tuple(record for record in records if record["$report_type"] == "TestReport"),
    )


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
