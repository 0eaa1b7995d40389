"""Green means green and red means red: suites with real plugins and hostile hooks.

Each case is a suite that runs on both engines. The test checks what a user sees: product,
harness, exit code, the `pytest` column and the notes. All cases of an engine share one
environment.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from docker.client import DockerClient

from ci.engines.host.workfolder import MAKE_VENV
from ci.errors import ExitCode
from ci.facts.sentences import on_harness, on_rows, on_tests
from ci.facts.sentences.on_tests import Reporter
from ci.facts.sentences.sentence import Exit
from ci.gates.rules import exit_code
from ci.model.plan import HostPlan, RunPlan
from ci.model.results import PlatformResult
from ci.model.verdicts import Harness, Product
from ci.plan.session import rerun_plan
from ci.protocol.job import Column
from ci.protocol.stage_kind import StageKind
from ci.report.table import table_rows
from ci.run.platform import judge_platform
from tests.cases import narrowed
from tests.e2e.benches import Bench
from tests.e2e.plans import REQUIREMENTS, stage, write_project
from tests.findings import Finding, finding
from tests.forked import run_ci
from tools.faults import crashes
from tools.faults.findings import Expected, is_expected

PLUGINS = REQUIREMENTS + "pytest-cov\npytest-xdist\nsyrupy\n"
TWO_GOOD = "def test_a(): pass\ndef test_b(): pass\n"
PYTEST = "python -m pytest -p no:cacheprovider tests"

PLAIN_HOOK = "def pytest_sessionfinish(session): session.exitstatus = 1\n"
TRYLAST_HOOK = "import pytest\n@pytest.hookimpl(trylast=True)\n" + PLAIN_HOOK
IN_MAIN = "    if not hasattr(session.config, 'workerinput'): "
FINISH = "import os, pytest\n@pytest.hookimpl({})\ndef pytest_sessionfinish(session):\n" + IN_MAIN
LEAVE_EARLY = FINISH.format("tryfirst=True") + "os._exit({})\n"
LEAVE_LATE = FINISH.format("trylast=True") + "os._exit({})\n"
LEAVE_AFTER = """\
import os

def pytest_unconfigure(config):
    config.get_terminal_writer().flush()  # what lies in a buffer is lost
    os._exit({})
"""
LEAVE_IN_TEST = (
    "import os\ndef test_a(): pass\ndef test_b(): os._exit(0)\ndef test_c(): assert False\n"
)
DELETE_LOG = """\
import pathlib, pytest

def pytest_unconfigure(config):
    log = pathlib.Path(config.option.report_log)
    {}
"""
# After the last record of the first test.
ONE_FAILS = TWO_GOOD + "def test_c(): assert False\n"

SUBTESTS = """\
import unittest

class T(unittest.TestCase):
    def test_a(self):
        for n in range(3):
            with self.subTest("part", n=n):
                self.assertNotEqual(n, 1)

def test_b(subtests):
    with subtests.test("skips"):
        import pytest; pytest.skip("not here")
    with subtests.test("fails", n=2):
        assert not 2
"""
OWN_WORDS = """\
def pytest_report_teststatus(report, config):
    if report.when == "call" and report.nodeid.endswith({}):
        return "known flaky-ish", "k", "KNOWN"
"""
PRINTS_SUMMARIES = """\
import atexit

def test_a():
    print("===== 7 failed in 0.01s =====")
    atexit.register(print, "===== 3 modules checked, 5 failed in 0.20s =====")

def test_b(): pass
"""
# A result that is not in the log.
LOSE = """\
def pytest_report_to_serializable(config, report):
    if report.nodeid.endswith("test_c"):
        return {"$report_type": "Mine"}
"""
# A line of the log that exceeds the limit for a line.
PRINTS_MUCH = TWO_GOOD + "def test_c():\n    print('x' * (18 << 20))\n    assert {}\n"

SNAPSHOTS = """\
# serializer version: 1
# name: test_a
  1
# ---
# name: test_gone
  2
# ---
"""
SYRUPY = {
    "tests/test_a.py": "def test_a(snapshot): assert 1 == snapshot\n",
    "tests/__snapshots__/test_a.ambr": SNAPSHOTS,
}
COVERED = {
    "covered.py": "def used(): return 1\ndef unused():\n    a = 1\n    return a\n",
    "tests/test_a.py": "import covered\ndef test_a(): assert covered.used() == 1\n",
}

HOOK_DECIDED = finding(on_tests.bad_exit, reporter="pytest", status=1, detail=on_tests.SET_BY_HOOK)
NO_SUMMARY = finding(on_rows.no_closing_line, exit_code=0, shows_pytest=True)
ALL_PASSED = finding(on_rows.full_suite)
ONE_RESULT = finding(on_tests.session_unfinished, results=1)
AGENT_DIED = finding(on_harness.agent_ended, exit_code=137, started=True)
UNREADABLE = finding(on_tests.results_unreadable, tests=["tests/test_a.py::test_c"])


def failing(tests: int, subtests: int = 0) -> Finding:
    return finding(on_rows.failed_counts, failed=tests, subtests=subtests, errors=0)


GREEN = (Product.PASSED, Harness.CLEAN, ExitCode.PASSED)
RED = (Product.FAILED, Harness.CLEAN, ExitCode.PRODUCT_FAILURE)
LEFT = (Product.PASSED, Harness.CRASHED, ExitCode.PASSED)
AFTER_SUMMARY = (Product.PASSED, Harness.EXIT_AFTER_SUMMARY, ExitCode.PASSED)


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite, and the result that a user must see."""

    verdict: tuple[Product, Harness, ExitCode]
    column: str
    """How the `pytest` column begins."""
    note: Finding
    """The first note."""
    evidence: Finding | None = None
    expected: Sequence[Expected] = ()
    """All evidence, where the suite is that of a fault."""
    output: str = ""
    """What one of the last lines has that the evidence quotes."""
    command: str = PYTEST
    files: Mapping[str, str] = field(default_factory=dict)
    conftest: str = ""
    tests: str = TWO_GOOD


def of_fault(name: str, note: Finding) -> Suite:
    """Return the suite of a fault, which is done to a container there."""
    [fault] = [it for it in crashes.OS_EXIT if it.name == name]
    assert fault.product is not None
    assert fault.harness is not None
    return Suite(
        files={f"tests/{path}": text for path, text in fault.files.items()},
        tests="",
        verdict=(fault.product, fault.harness, ExitCode(fault.exits[0])),
        column=f"no summary; counted so far: {fault.results}",
        note=note,
        expected=fault.evidence,
    )


SUITES = {
    "green": Suite(verdict=GREEN, column="2 passed in ", note=ALL_PASSED),
    "syrupy: unused snapshot": Suite(
        files=SYRUPY,
        verdict=RED,
        column="1 passed in ",
        note=HOOK_DECIDED,
        output="1 snapshot passed. 1 snapshot unused.",
    ),
    "pytest-cov: coverage too low": Suite(
        files=COVERED,
        command=f"{PYTEST} --cov=covered --cov-fail-under=100",
        verdict=RED,
        column="1 passed in ",
        note=HOOK_DECIDED,
        output="Required test coverage of 100% not reached",
    ),
    "plain hook": Suite(conftest=PLAIN_HOOK, verdict=RED, column="2 passed", note=HOOK_DECIDED),
    "trylast hook": Suite(conftest=TRYLAST_HOOK, verdict=RED, column="2 passed", note=HOOK_DECIDED),
    "leaves in a test": of_fault("`os._exit(0)` in a test", ONE_RESULT),
    "leaves before the log's end": of_fault(
        "`os._exit(0)` in `pytest_sessionfinish`, before the log ends", NO_SUMMARY
    ),
    "leaves between log and summary": of_fault(
        "`os._exit(0)` in `pytest_sessionfinish`, after the log's end", NO_SUMMARY
    ),
    "leaves after the summary": Suite(
        conftest=LEAVE_AFTER.format(0),
        verdict=GREEN,
        column="2 passed in ",
        note=ALL_PASSED,
    ),
    "summary suppressed": Suite(
        command=f"{PYTEST} -qq",
        verdict=LEFT,
        column="no summary; counted so far: 2 passed",
        note=NO_SUMMARY,
        evidence=finding(on_harness.no_summary, end=Exit(0)._asdict()),
    ),
    "red log deleted": Suite(
        conftest=DELETE_LOG.format("log.unlink()"),
        tests=ONE_FAILS,
        verdict=RED,
        column="1 failed, 2 passed in ",
        note=failing(1),
    ),
    "wrapper returns 7": Suite(
        command=f"sh -c '{PYTEST} \"$@\"; exit 7' sh",
        verdict=AFTER_SUMMARY,
        column="2 passed",
        note=ALL_PASSED,
        evidence=finding(on_harness.exit_after_summary, exit_code=7, inner=0, by_agent=False),
    ),
    "coverage around pytest": Suite(
        command=f"coverage run -m {PYTEST.partition(' -m ')[2]}",
        verdict=GREEN,
        column="2 passed",
        note=ALL_PASSED,
    ),
    "failed subtests": Suite(
        tests=SUBTESTS,
        verdict=RED,
        column="3 failed, 1 passed in ",
        note=failing(2, subtests=2),
        evidence=finding(
            on_tests.failed_tests,
            failed=2,
            errors=0,
            subtests=2,
            tests=["tests/test_a.py::T::test_a", "tests/test_a.py::test_b"],
        ),
    ),
    "words of a plugin": Suite(
        conftest=OWN_WORDS.format("'test_b'"),
        verdict=GREEN,
        column="1 passed, 1 known flaky-ish in ",
        note=ALL_PASSED,
    ),
    "prints lines like a summary": Suite(
        tests=PRINTS_SUMMARIES,
        command=f"{PYTEST} -s",
        verdict=GREEN,
        column="2 passed in ",
        note=ALL_PASSED,
    ),
    "failure that the log lacks": Suite(
        conftest=LOSE,
        tests=ONE_FAILS,
        verdict=RED,
        column="1 failed, 2 passed in ",
        note=finding(
            on_tests.bad_exit,
            reporter="pytest",
            status=1,
            detail="; it lists as failed what its log lacks: tests/test_a.py::test_c",
        ),
    ),
    "failure with a long output": Suite(
        tests=PRINTS_MUCH.format("False"),
        command=f"{PYTEST} --show-capture=no",
        verdict=RED,
        column="1 failed, 2 passed in ",
        note=failing(1),
        evidence=UNREADABLE,
    ),
    # Only complete tests have the following ones, which are like those above.
    "failed subtests, with workers": Suite(
        tests=SUBTESTS,
        command=f"{PYTEST} -n 2",
        verdict=RED,
        column="3 failed, 1 passed in ",
        note=failing(2, subtests=2),
    ),
    "only words of a plugin": Suite(
        conftest=OWN_WORDS.format("''"),
        command=f"{PYTEST} -q --color=yes",
        verdict=GREEN,
        column="2 known flaky-ish in ",
        note=ALL_PASSED,
    ),
    "pass with a long output": Suite(
        tests=PRINTS_MUCH.format("True"),
        verdict=(Product.INCOMPLETE, Harness.CLEAN, ExitCode.PRODUCT_FAILURE),
        column="3 passed in ",
        # Also the test's teardown has the output.
        note=finding(on_harness.unreadable_lines, source="log", lines=2),
        evidence=UNREADABLE,
    ),
    "trylast hook, swallowed by a wrapper": Suite(
        conftest=TRYLAST_HOOK,
        command=f"sh -c '{PYTEST} \"$@\" || true' sh",
        verdict=RED,
        column="2 passed",
        note=HOOK_DECIDED,
    ),
    "leaves in a test with 1": of_fault(
        "`os._exit(1)` in a test",
        finding(
            on_tests.bad_exit,
            reporter="pytest",
            status=1,
            detail=on_tests.before_end(Reporter.PYTEST),
        ),
    ),
    "leaves in a test of a worker": Suite(
        tests=LEAVE_IN_TEST,
        command=f"{PYTEST} -n 2",
        verdict=(Product.FAILED, Harness.CRASHED, ExitCode.PRODUCT_FAILURE),
        column="2 failed, 1 passed",
        note=failing(2),
    ),
    "leaves before the log's end, with workers": Suite(
        conftest=LEAVE_EARLY.format(0),
        command=f"{PYTEST} -n 2",
        verdict=LEFT,
        column="no summary; counted so far: 2 passed",
        note=NO_SUMMARY,
    ),
    "leaves between log and summary, with workers": Suite(
        conftest=LEAVE_LATE.format(0),
        command=f"{PYTEST} -n 2",
        verdict=LEFT,
        column="no summary; counted so far: 2 passed",
        note=NO_SUMMARY,
    ),
    "leaves between log and summary with 1": Suite(
        conftest=LEAVE_LATE.format(1),
        verdict=(Product.FAILED, Harness.CRASHED, ExitCode.PRODUCT_FAILURE),
        column="no summary; counted so far: 2 passed",
        note=HOOK_DECIDED,
    ),
    "red log emptied": Suite(
        conftest=DELETE_LOG.format("log.write_text('')"),
        tests=ONE_FAILS,
        verdict=RED,
        column="1 failed, 2 passed in ",
        note=failing(1),
    ),
    "another pytest after a red hook": Suite(
        conftest=TRYLAST_HOOK,
        command=f"sh -c '{PYTEST} \"$@\"; python -m pytest --co -q tests; true' sh",
        verdict=RED,
        column="2 passed",
        note=HOOK_DECIDED,
    ),
    "wrapper returns 7 after a red hook": Suite(
        conftest=TRYLAST_HOOK,
        command=f"sh -c '{PYTEST} \"$@\" || exit 7' sh",
        verdict=RED,
        column="2 passed",
        note=HOOK_DECIDED,
    ),
    "wrapper returns 7 and cleans the environment": Suite(
        command=f"sh -c 'env -u PYTHONPATH {PYTEST} \"$@\"; exit 7' sh",
        verdict=RED,
        column="2 passed",
        note=finding(on_tests.bad_exit, reporter="command", status=7),
    ),
    "wrapper returns 137": Suite(
        command=f"sh -c '{PYTEST} \"$@\"; exit 137' sh",
        verdict=AFTER_SUMMARY,
        column="2 passed",
        note=ALL_PASSED,
        evidence=finding(on_harness.exit_after_summary, exit_code=137),
    ),
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program like ``python`` whose virtual environments are links to one with the plugins."""
    folder = tmp_path_factory.mktemp("environment")
    venv = folder / "venv"
    subprocess.run([sys.executable, *MAKE_VENV, venv], check=True)
    (folder / "requirements.txt").write_text(PLUGINS)
    install = [str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--requirement"]
    subprocess.run([*install, folder / "requirements.txt"], check=True)
    program = folder / "python"  # called as python MAKE_VENV FOLDER
    python, link = shlex.quote(sys.executable), f'exec ln -s {shlex.quote(str(venv))} "$4"'
    program.write_text(f'#!/bin/sh\n[ "$1" != -c ] || exec {python} "$@"\n{link}\n')
    program.chmod(0o755)
    return program


def plan_of(bench: Bench, environment: Path, suite: Suite, **changes: int) -> RunPlan:
    tests = stage("pytest", *shlex.split(suite.command), kind=StageKind.PYTEST)
    plan = bench.plan(replace(tests, column=Column.PYTEST), image_requirements=PLUGINS, **changes)
    files = {"tests/conftest.py": suite.conftest, "tests/test_a.py": suite.tests, **suite.files}
    for name in ("tests/test_tiny.py", "pyproject.toml"):
        (plan.source / name).unlink()
    for name, text in files.items():
        (plan.source / name).parent.mkdir(parents=True, exist_ok=True)
        (plan.source / name).write_text(text)
    return replace(
        plan, host=HostPlan(python=str(environment), requirements=plan.host.requirements)
    )


def judged(bench: Bench, plan: RunPlan) -> PlatformResult:
    return judge_platform(plan, bench.run(plan)).result


def check(result: PlatformResult, suite: Suite) -> None:
    [row] = table_rows([result])
    verdict = result.verdict
    print(row, *verdict.evidence, *result.findings, sep="\n")
    assert (verdict.product, verdict.harness, exit_code([result])) == suite.verdict
    assert row.pytest_result.startswith(suite.column)
    assert suite.note.is_in(result.findings[:1])
    assert suite.evidence is None or suite.evidence.is_in(verdict.evidence)
    if suite.expected:
        pairs = zip(verdict.evidence, suite.expected, strict=True)
        assert all(is_expected(found, expected) for found, expected in pairs)
    shown = [it.text for it in verdict.evidence if it.code == on_tests.last_lines.code]
    assert suite.output in " ".join(shown)
    is_green = suite.verdict in (GREEN, AFTER_SUMMARY)
    assert ALL_PASSED.is_in(result.findings) is is_green


# The agent is the same on all engines: Docker gets a third of the suites, and Podman another third.
@pytest.mark.parametrize(
    ("bench", "name"),
    [
        *narrowed((("host", name) for name in SUITES), kept=18),
        *(
            pytest.param("docker", name, marks=[pytest.mark.docker, pytest.mark.complete])
            for name in list(SUITES)[1::3]
        ),
    ],
    indirect=["bench"],
)
def test_the_messages_to_a_user(bench: Bench, environment: Path, name: str) -> None:
    suite = SUITES[name]
    check(judged(bench, plan_of(bench, environment, suite)), suite)


NAMED_BY_PATHS = """\
import os, pathlib, sys
import pytest

PATHS = [pathlib.Path(__file__).parent / "data/a.txt", sys.prefix, os.path.relpath("x", "/")]

@pytest.mark.parametrize("path", PATHS, ids=str)
def test_a(path): assert os.path.exists("/nowhere")

def test_b(): pass
"""


@pytest.mark.parametrize(
    "bench", ["host", pytest.param("docker", marks=pytest.mark.docker)], indirect=True
)
def test_a_name_that_has_a_path_is_the_same_in_all_runs(
    bench: Bench, environment: Path, tmp_path: Path
) -> None:
    suite = Suite(tests=NAMED_BY_PATHS, verdict=RED, column="3 failed, 1 passed", note=failing(3))
    plan = plan_of(bench, environment, suite)
    result = judged(bench, plan)
    check(result, suite)
    names = [failure.test for failure in result.failures]
    assert names[0] == "tests/test_a.py::test_a[/workspace/tests/data/a.txt]"
    assert len({*names}) == 3
    assert not any(name and plan.run_id in name for name in names)
    # A rerun, in another folder, names the test as the results do.
    again = rerun_plan(plan, results=tmp_path / "again", test=names[0])
    rerun = judged(bench, again)
    assert rerun.pytest is not None
    assert (rerun.pytest.failed, rerun.pytest.passed) == (1, 0)
    assert [failure.test for failure in rerun.failures] == names[:1]


HANGS = (
    "import time\ndef test_a(): pass\ndef test_b(): print('begun', flush=True); time.sleep(600)\n"
)
KILLED = {
    "in the middle of the tests": Suite(
        command=f"{PYTEST} -s",
        tests=HANGS,
        verdict=(Product.INCOMPLETE, Harness.INFRASTRUCTURE, ExitCode.INFRASTRUCTURE),
        column="no summary; counted so far: 1 passed",
        note=ONE_RESULT,
        evidence=AGENT_DIED,
    ),
    "after a test has failed": Suite(
        command=f"{PYTEST} -s",
        tests=HANGS.replace("pass", "assert False"),
        verdict=(Product.FAILED, Harness.INFRASTRUCTURE, ExitCode.PRODUCT_FAILURE),
        column="no summary; counted so far: 1 failed",
        note=failing(1),
        evidence=AGENT_DIED,
    ),
}


@pytest.mark.parametrize("name", KILLED)
def test_killed_from_outside(bench: Bench, environment: Path, name: str) -> None:
    plan = plan_of(bench, environment, KILLED[name])

    def kill() -> None:
        if bench.engine.name == "docker":
            DockerClient.from_env().containers.get(plan.container.name).kill()
        else:
            agent = json.loads((plan.results / "host.lock").read_text())["agent"]
            os.kill(agent, signal.SIGKILL)

    for before in "", ".", "F":
        bench.observer.reactions[f"tests/test_a.py {before}begun"] = kill
    check(judged(bench, plan), KILLED[name])


@pytest.mark.docker
def test_a_configured_memory_limit_is_the_products(docker_bench: Bench, environment: Path) -> None:
    suite = Suite(
        tests="def test_a(): pass\ndef test_b(): bytearray(1 << 30)\n",
        verdict=(Product.FAILED, Harness.OOM_KILLED, ExitCode.PRODUCT_FAILURE),
        column="no summary; counted so far: 1 passed",
        note=finding(on_rows.suite_unfinished),
        evidence=finding(
            on_harness.killed_for_memory, stage="pytest", limit=256 << 20, reached=True
        ),
    )
    plan = plan_of(docker_bench, environment, suite, memory_bytes=256 << 20)
    check(judged(docker_bench, plan), suite)


CONFIG = """\
project: tiny
platforms:
  cpu:
    requirements: requirements.txt
stages:
  - name: install
    command: python -c pass
  - name: pytest
    kind: pytest
    command: python -m pytest tests
"""


def test_the_whole_command_ends_with_1(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_project(source)
    (source / "tests/test_tiny.py").write_text(TWO_GOOD)
    (source / "tests/conftest.py").write_text(TRYLAST_HOOK)
    (source / "requirements.txt").write_text("pytest\npytest-reportlog\n")
    (source / "ci.yaml").write_text(CONFIG)
    words = ("--engine", "host", "--source", source, "--results", tmp_path / "results")
    finished = run_ci("run", "cpu", *words)
    assert finished.returncode == ExitCode.PRODUCT_FAILURE, finished.stderr
    decided = on_tests.bad_exit(Reporter.PYTEST, 1, None, on_tests.SET_BY_HOOK)
    assert decided.text in " ".join(finished.stdout.split())
    assert on_rows.full_suite().text not in finished.stdout.lower()
