"""What the evidence reports when something outside of the run ends its container or its agent."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace

import pytest

from ci.facts.sentences import on_harness, on_stages, on_tests
from ci.model.plan import RunPlan
from ci.model.verdicts import Evidence, Harness, Product
from ci.protocol.job import Column
from ci.protocol.stage_kind import StageKind
from ci.run.platform import judge_platform
from tests.cases import narrowed
from tests.e2e.benches import Bench
from tests.e2e.plans import stage

pytestmark = pytest.mark.docker

HANGS = (
    "import time\ndef test_a(): pass\ndef test_b(): print('begun', flush=True); time.sleep(600)\n"
)
COLLECTING = (
    "import sys, time\nsys.__stdout__.write('begun\\n')\nsys.__stdout__.flush()\ntime.sleep(600)\n"
)
PASSES = "def test_a(): pass\n"
AFTER_SUMMARY = """\
import time

def pytest_unconfigure(config):
    print("begun", flush=True)
    time.sleep(600)
"""
# The agent is the child of the container's init, process 1; the supervisor is the agent's.
KILL_AGENT = """\
import os, pathlib
children = lambda pid: pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
[agent] = children(1)
os.kill(int(%s), 9)
"""


def docker(*arguments: str) -> Callable[[str], None]:
    return lambda container: subprocess.run(
        ["docker", *arguments, container], check=True, capture_output=True
    ).check_returncode()


def kill(process: str) -> Callable[[str], None]:
    program = KILL_AGENT % process

    def act(container: str) -> None:
        # The one that ends the container may be killed with it.
        command = ["docker", "exec", container, "python3", "-c", program]
        subprocess.run(command, check=False, capture_output=True)

    return act


def evidence(
    bench: Bench, act: Callable[[str], None], tests: str = HANGS, conftest: str = ""
) -> list[Evidence]:
    """Run a suite, act on its container once it prints "begun", and return the evidence."""
    suite = stage("pytest", "python", "-m", "pytest", "-s", "tests", kind=StageKind.PYTEST)
    plan = bench.plan(stage("install", "true"), replace(suite, column=Column.PYTEST))
    (plan.source / "tests/test_tiny.py").write_text(tests)
    (plan.source / "tests/conftest.py").write_text(conftest)
    for text in ("begun", "tests/test_tiny.py .begun"):
        bench.observer.reactions[text] = lambda: act(plan.container.name)
    return judged(bench, plan)


def judged(bench: Bench, plan: RunPlan) -> list[Evidence]:
    verdict = judge_platform(plan, bench.run(plan)).result.verdict
    assert (verdict.product, verdict.harness) == (Product.INCOMPLETE, Harness.INFRASTRUCTURE)
    return [*verdict.evidence]


CUT = on_tests.session_unfinished(1)
RUNNING = on_tests.running_tests(["tests/test_tiny.py::test_b"])
AGENT_DIED = on_harness.agent_ended(137, started=True)


def test_stopped_container(docker_bench: Bench) -> None:
    assert evidence(docker_bench, docker("stop")) == [
        CUT,
        on_harness.container_ended("docker stop"),
        RUNNING,
    ]


def test_killed_container(docker_bench: Bench) -> None:
    ended = on_harness.container_ended("docker kill")
    assert evidence(docker_bench, docker("kill")) == [CUT, ended, AGENT_DIED, RUNNING]


def test_restarted_container(docker_bench: Bench) -> None:
    found = evidence(docker_bench, docker("restart"))
    # Its results may be taken before the engine starts it again.
    ended = [on_harness.container_ended(f"docker {it}") for it in ("restart", "stop")]
    assert (found[0], found[2]) == (CUT, RUNNING)
    assert found[1] in [on_harness.container_restarted(), *ended]


@pytest.mark.parametrize(
    ("tests", "conftest", "left"),
    [
        (HANGS, "", CUT),
        (COLLECTING, "", on_tests.session_unfinished(0)),
        (PASSES, AFTER_SUMMARY, on_tests.ended_after_log("pytest", None, has_summary=True)),
    ],
    ids=["in a test", "while it collects", "after the summary"],
)
@pytest.mark.parametrize(
    ("process", "died"),
    narrowed(
        [
            ("agent", AGENT_DIED),
            (
                "children(agent)[0]",
                on_stages.stage_lost("the supervisor of stage pytest was killed by SIGKILL"),
            ),
        ],
        kept=1,
    ),
    ids=["agent", "supervisor"],
)
def test_killed_processes_of_the_harness(
    docker_bench: Bench, process: str, died: Evidence, tests: str, conftest: str, left: Evidence
) -> None:
    assert evidence(docker_bench, kill(process), tests, conftest)[:2] == [left, died]


def test_time_limit_and_the_time_to_end(docker_bench: Bench) -> None:
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    suite = stage("pytest", "python", "-c", stubborn, kind=StageKind.PYTEST, timeout_s=2.0)
    plan = docker_bench.plan(replace(suite, column=Column.PYTEST))
    verdict = judge_platform(plan, docker_bench.run(plan)).result.verdict
    assert verdict.harness is Harness.TIMED_OUT
    [limit] = [it for it in verdict.evidence if it.code == on_stages.time_limit.code]
    # The seconds differ in their fraction.
    assert on_stages.time_limit.reworded(limit, seconds=12.0) == limit.text
