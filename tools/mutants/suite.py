"""The operator suite on the library of a sandbox, carried out and judged as ``python -m ci`` does.

The agent runs the test command, and what it writes becomes a row of the table. So the failures are
those that a user sees, and the command below each of them runs what it runs for a user. Only the
engine is missing: the library is built and installed already.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ci.engines.job import job_document
from ci.engines.logs import SHOWN_BYTES_PER_S
from ci.errors import ExitCode
from ci.gates.rules import exit_code
from ci.model.execution import ExecutionFacts
from ci.model.plan import RunPlan
from ci.model.results import Failure, PlatformResult
from ci.model.verdicts import Harness
from ci.plan.project import load_project, plan_run
from ci.plan.session import rerun_plan
from ci.report.failure_list import command_for
from ci.run.platform import judge_platform
from ci.util.invocation import naming_commands_for_others
from ci.util.process import run
from tools.mutants.plan import ROOT

PLATFORM = "cpu"
RUN = "RUN"  # stands for the identifier of a run
LOG = "pytest.jsonl"
# Reasons that do not show what differs.
_BARE = re.compile(r"(AssertionError|(assert )?(False|None|0|\[\]|not True)|.* not close!)?:?\s*")


@dataclass(frozen=True, kw_only=True)
class SuiteOutcome:
    """The outcome of a run: its row, the tests that ran, and the reports of those that failed."""

    result: PlatformResult
    tests: frozenset[str]
    failures: Mapping[str, str]

    @property
    def ended_by_limit(self) -> bool:
        """Whether the tests ran until the time limit: something hangs."""
        return self.result.verdict.harness is Harness.TIMED_OUT

    def first_failure(self, tests: Collection[str]) -> Failure | None:
        """Return the first failure that the row shows, of those tests or of the suite itself."""
        shown = self.result.failures
        return next((it for it in shown if it.test is None or it.test in tests), None)


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What a user sees of a failure, and whether its command fails when pasted."""

    reason: str
    command: str
    fails: bool

    @property
    def problem(self) -> str | None:
        """Why it is of no use; ``None``: it is of use."""
        if _BARE.fullmatch(self.reason):
            return f"its reason does not show what differs: {self.reason!r}"
        return None if self.fails else f"its command does not fail again: {self.command}"


@dataclass(frozen=True, kw_only=True)
class OperatorSuite:
    """Runs the suite in a tree, with the library that ``environment`` makes importable."""

    tree: Path
    results: Path
    environment: Mapping[str, str]
    timeout_s: float

    def run(self, *arguments: str, report: str) -> SuiteOutcome:
        """Run pytest with arguments other than those of ``ci.yaml``."""
        plan = self._plan(report)
        stage = replace(plan.pytest_stage, command=("python", "-m", "pytest", *arguments))
        result = self._carry_out(replace(plan, stages=(stage,)))
        tests, failures = read_report(plan.results / LOG)
        return SuiteOutcome(result=result, tests=tests, failures=failures)

    def reproduce(self, failure: Failure, report: str) -> Reproduction:
        """Do what a user does: read a failure, and paste its command."""
        with naming_commands_for_others():
            command = command_for(RUN, PLATFORM, failure)
        return Reproduction(
            reason=failure.message or "",
            command=command,
            fails=self._fails_again(failure, shlex.split(command), report),
        )

    def _fails_again(self, failure: Failure, words: list[str], report: str) -> bool:
        """Run what ``python -m ci rerun RUN PLATFORM [TEST]`` runs after the build."""
        [_, _, _, name, _, _, *rest] = words
        if name != "rerun":
            return False
        plan = self._plan(report)
        again = rerun_plan(plan, results=plan.results, test=rest[0] if rest else None)
        result = self._carry_out(again)
        failed = failure.test in [it.test for it in result.failures]
        return failed and exit_code([result]) is ExitCode.PRODUCT_FAILURE

    def _plan(self, report: str) -> RunPlan:
        """Return the plan of the platform, with the tests as its only stage."""
        project = load_project(ROOT / "ci.yaml", {})
        [plan] = plan_run(project, (PLATFORM,), run_id=RUN, source=self.tree, results=self.results)
        tests = replace(plan.pytest_stage, timeout_s=self.timeout_s)
        folder = self.results / report
        return replace(plan, stages=(tests,), results=folder, artifacts=(), contract=None)

    def _carry_out(self, plan: RunPlan) -> PlatformResult:
        shutil.rmtree(plan.results, ignore_errors=True)
        plan.results.mkdir(parents=True)
        job = plan.results.with_suffix(".json")
        job.write_bytes(
            job_document(
                plan,
                workspace=str(self.tree),
                results=str(plan.results),
                printed_bytes_per_s=SHOWN_BYTES_PER_S,
                isolates_network=False,
            )
        )
        agent = (sys.executable, "-m", "ci.agent", str(job))
        limit_s = plan.longest_s
        done = run(agent, cwd=ROOT, environment=self.environment, timeout_s=limit_s, check=False)
        return judge_platform(plan, ExecutionFacts(engine="host", exit_code=done.exit_code)).result


def read_report(log: Path) -> tuple[frozenset[str], Mapping[str, str]]:
    """Return the tests in a log of pytest-reportlog, and the reports of those that failed."""
    tests, failures = set(), {}
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        report = json.loads(line)
        if report.get("$report_type") != "TestReport":
            continue
        tests.add(report["nodeid"])
        if report["outcome"] == "failed":
            failures[report["nodeid"]] = json.dumps([report["longrepr"], report["sections"]])
    return frozenset(tests), failures
