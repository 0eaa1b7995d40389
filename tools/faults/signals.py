"""Signals to the processes of a run, in every stage."""

from __future__ import annotations

from collections.abc import Callable
from signal import SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGSEGV, SIGSTOP, SIGTERM, Signals
from typing import Any

from ci.facts.sentences import on_harness, on_stages, on_tests
from ci.model.verdicts import Evidence, Harness, Product
from tools.faults.findings import (
    AGENT_TERMINATED,
    ANY,
    BOTH_PASSED,
    CUT,
    CUT_IN_COLLECTION,
    DIED_IN_WORKER,
    SECOND_FAILED,
    SECOND_RUNNING,
    Expected,
    after_summary,
    agent_died,
    failed,
    killed,
)
from tools.faults.model import Fault, Left
from tools.faults.running import FaultRun, docker, send, send_to_caller

Action = Callable[[FaultRun, str], None]

SLOW = {
    "test_it.py": "import time\ndef test_a(): pass\ndef test_b(): print('begun'); time.sleep(4)\n"
}
HANGS = {
    "test_it.py": "import time\ndef test_a(): pass\ndef test_b(): print('begun'); time.sleep(600)\n"
}
HANGS_IN_COLLECTION = {
    "test_it.py": "import sys, time\nsys.__stdout__.write('begun')\nsys.__stdout__.flush()\n"
    "time.sleep(600)\n"
}
PASSES = {"test_it.py": "def test_a(): pass\ndef test_b(): pass\n"}
HANGS_AFTER_SUMMARY = {
    **PASSES,
    "conftest.py": "import time\n"
    "def pytest_unconfigure(config): print('begun', flush=True); time.sleep(600)\n",
}
PARALLEL = "python -m pytest -s -n 2 {folder}"
# Their output is not that of pytest.
SLOW_IN_WORKER = {
    "test_it.py": "import os, time\ndef test_a(): pass\n"
    "def test_b(): os.write(2, b'begun'); time.sleep(8)\n"
}
HANGS_IN_WORKER = {
    "test_it.py": "import os, time\ndef test_a(): pass\n"
    "def test_b(): os.write(2, b'begun'); time.sleep(600)\n"
}
SLOW_INSTALL = "sh -c 'echo begun; sleep 4'"
HANGING_INSTALL = "sh -c 'echo begun; sleep 600'"
# The compiler waits for a writer of its source.
COMPILING = "sh -c 'mkfifo /tmp/source; echo begun; gcc -x c -c -o /dev/null /tmp/source'"
SLOW_IMAGE = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN echo begun {run}; sleep 4\n"

INTERRUPTED = on_harness.interrupted_by_caller()
INSTALL_ENDED = failed("install", 143, SIGTERM)

AGENT, SUPERVISOR = "agent", "supervisor"
PYTEST, XDIST, COMPILER = "^python -m pytest", "-c import sys;exec", "cc1 "


def passing(name: str, kind: str, act: Action, **given: Any) -> Fault:
    """Return a fault that changes no result."""
    green = {"product": Product.PASSED, "harness": Harness.CLEAN, "evidence": (BOTH_PASSED,)}
    usual = {"files": SLOW, "exits": (0,), "results": "2 passed"}
    return Fault(name=name, kind=kind, act=act, **{**usual, **green, **given})


def unfinished(name: str, kind: str, act: Action, *evidence: Expected, **given: Any) -> Fault:
    """Return a fault that ends a suite in its second test."""
    verdict = {"product": Product.INCOMPLETE, "harness": Harness.INFRASTRUCTURE}
    usual = {"files": HANGS, "exits": (3,), "results": "1 passed", "evidence": evidence}
    return Fault(name=name, kind=kind, act=act, **{**usual, **verdict, **given})


def in_install(name: str, kind: str, act: Action, *evidence: Evidence, **given: Any) -> Fault:
    """Return a fault that ends a run in its stage ``install``."""
    usual = {"files": PASSES, "install": HANGING_INSTALL, "results": "", "kept": ("install.log",)}
    return unfinished(name, kind, act, *evidence, **{**usual, **given})


# The orchestrator: `ci run` and the process that it forks for each platform.

CALLER = "Signals to the orchestrator"
IMAGE: dict[str, Any] = {
    "files": {**PASSES, "Recipe": SLOW_IMAGE},
    "settings": {"recipe": "cpu/Recipe"},
}


def of_caller() -> list[Fault]:
    """Return the faults of the two kinds of processes."""
    found = []
    for number in (SIGKILL, SIGHUP):  # a closed terminal sends SIGHUP
        for worker in (False, True):
            who, first = (
                ("the process of a platform", 3) if worker else ("the orchestrator", -number)
            )
            found += [
                passing(
                    f"{number.name} to {who} while {doing}",
                    CALLER,
                    send_to_caller(number, worker=worker, file=file),
                    exits=(first, 0),
                    left=Left.CONTAINER,
                    **given,
                )
                for doing, file, given in (
                    ("it installs", "install.log", {"files": PASSES, "install": SLOW_INSTALL}),
                    ("the tests run", "pytest.log", {}),
                )
            ]
    found += [
        unfinished(
            f"{number.name} to the orchestrator while the tests run",
            CALLER,
            send_to_caller(number),
            CUT,
            INTERRUPTED,
            SECOND_RUNNING,
            alone=True,
            exits=(130,),
        )
        for number in (SIGTERM, SIGINT)
    ]
    return found


OF_CALLER = (
    *of_caller(),
    unfinished(
        "SIGTERM to the process of a platform while the tests run",
        CALLER,
        send_to_caller(SIGTERM, worker=True),
        CUT,
        INTERRUPTED,
        SECOND_RUNNING,
        alone=True,
        exits=(130,),
    ),
    in_install(
        "SIGTERM to the orchestrator while it installs",
        CALLER,
        send_to_caller(SIGTERM, file="install.log"),
        INSTALL_ENDED,
        INTERRUPTED,
        alone=True,
        exits=(130,),
    ),
    passing(
        "SIGTERM to the orchestrator while it installs, then `--resume`",
        CALLER,
        send_to_caller(SIGTERM, file="install.log"),
        files=PASSES,
        install=SLOW_INSTALL,
        exits=(130, 0),
    ),
    passing(
        "SIGKILL to the orchestrator while it builds the image",
        CALLER,
        send_to_caller(SIGKILL, file="image.log"),
        exits=(-SIGKILL, 0),
        **IMAGE,
    ),
    passing(
        "SIGTERM to the orchestrator while it builds the image",
        CALLER,
        send_to_caller(SIGTERM, file="image.log"),
        exits=(130, 0),
        **IMAGE,
    ),
    passing(
        "SIGKILL to the process of a platform while it builds the image",
        CALLER,
        send_to_caller(SIGKILL, worker=True, file="image.log"),
        exits=(3, 0),
        **IMAGE,
    ),
    passing(
        "SIGKILL to the orchestrator while pytest collects",
        CALLER,
        send_to_caller(SIGKILL),
        files={
            "test_it.py": "import sys, time\nsys.__stdout__.write('begun')\n"
            "sys.__stdout__.flush()\ntime.sleep(3)\n" + PASSES["test_it.py"]
        },
        exits=(-SIGKILL, 0),
        left=Left.CONTAINER,
    ),
    passing(
        "SIGSTOP to the orchestrator, SIGCONT after 3 s",
        CALLER,
        send_to_caller(SIGSTOP, SIGCONT),
        alone=True,
    ),
    passing(
        "SIGSTOP to the process of a platform, SIGCONT after 3 s",
        CALLER,
        send_to_caller(SIGSTOP, SIGCONT, worker=True),
        alone=True,
    ),
)

# The processes in the container, and the container itself.

KIND = "Signals in the container"


def of_harness(who: str, process: str, died: Callable[[str], Evidence]) -> list[Fault]:
    """Return the faults of a process of the harness that SIGKILL ends, in every stage."""
    return [
        unfinished(
            f"SIGKILL to {who} while the tests run",
            KIND,
            send(process, SIGKILL),
            CUT,
            died("pytest"),
            SECOND_RUNNING,
        ),
        unfinished(
            f"SIGKILL to {who} while pytest collects",
            KIND,
            send(process, SIGKILL),
            CUT_IN_COLLECTION,
            died("pytest"),
            files=HANGS_IN_COLLECTION,
            results="",
        ),
        unfinished(
            f"SIGKILL to {who} after the summary",
            KIND,
            send(process, SIGKILL),
            on_tests.ended_after_log("pytest", None, has_summary=True),
            died("pytest"),
            files=HANGS_AFTER_SUMMARY,
            results="2 passed",
        ),
        in_install(
            f"SIGKILL to {who} while it installs",
            KIND,
            send(process, SIGKILL, file="install.log"),
            on_stages.stage_without_result("install"),
            died("install"),
        ),
    ]


def stopped(who: str, process: str, **given: Any) -> Fault:
    """Return the fault of a process that SIGSTOP stops for 3 s."""
    name = f"SIGSTOP to {who} while the tests run, SIGCONT after 3 s"
    return passing(name, KIND, send(process, SIGSTOP, SIGCONT), **given)


def lost(stage: str, number: Signals) -> Evidence:
    return on_stages.stage_lost(f"the supervisor of stage {stage} was killed by {number.name}")


def at_limit(stage: str) -> Evidence:
    """Return the finding of a stage that took longer to end than its limit."""
    return on_stages.time_limit(stage, 6.0, ANY)


CRASHED: dict[str, Any] = {"harness": Harness.CRASHED, "exits": (1,)}
TIMED_OUT: dict[str, Any] = {"harness": Harness.TIMED_OUT, "exits": (1,)}


def of_pytest(number: Signals, *more: Evidence) -> list[Fault]:
    """Return the faults of pytest that a signal ends."""
    how = killed("pytest", number)
    return [
        unfinished(
            f"{number.name} to pytest while the tests run",
            KIND,
            send(PYTEST, number),
            CUT,
            how,
            *more,
            SECOND_RUNNING,
            **CRASHED,
        ),
        unfinished(
            f"{number.name} to pytest while it collects",
            KIND,
            send(PYTEST, number),
            CUT_IN_COLLECTION,
            how,
            *more,
            files=HANGS_IN_COLLECTION,
            results="",
            **CRASHED,
        ),
        passing(
            f"{number.name} to pytest after the summary",
            KIND,
            send(PYTEST, number),
            files=HANGS_AFTER_SUMMARY,
            harness=Harness.EXIT_AFTER_SUMMARY,
            evidence=(BOTH_PASSED, after_summary(128 + number)),
        ),
    ]


def of_xdist(number: Signals) -> Fault:
    """Return the fault of a worker of pytest-xdist that a signal ends."""
    return Fault(
        name=f"{number.name} to a worker of pytest-xdist",
        kind=KIND,
        files=HANGS_IN_WORKER,
        tests=PARALLEL,
        act=send(XDIST, number),
        product=Product.FAILED,
        harness=Harness.CRASHED,
        evidence=(SECOND_FAILED, DIED_IN_WORKER),
        exits=(1,),
        results="1 passed, 1 failed",
    )


def of_compiler(number: Signals, code: int = 1) -> Fault:
    """Return the fault of a compiler that a signal ends: its driver reports an error."""
    return in_install(
        f"{number.name} to the compiler",
        KIND,
        send(COMPILER, number, file="install.log"),
        failed("install", code),
        install=COMPILING,
        product=Product.FAILED,
        harness=Harness.CLEAN,
        exits=(1,),
    )


IN_CONTAINER = (
    *of_harness("the agent", AGENT, lambda _: agent_died(137)),
    unfinished(
        "SIGTERM to the agent while the tests run",
        KIND,
        send(AGENT, SIGTERM),
        CUT,
        AGENT_TERMINATED,
        SECOND_RUNNING,
    ),
    in_install(
        "SIGTERM to the agent while it installs",
        KIND,
        send(AGENT, SIGTERM, file="install.log"),
        INSTALL_ENDED,
        AGENT_TERMINATED,
    ),
    unfinished(
        "SIGHUP to the agent while the tests run",
        KIND,
        send(AGENT, SIGHUP),
        CUT,
        agent_died(129),
        SECOND_RUNNING,
    ),
    stopped("the agent", AGENT),
    *of_harness("the supervisor of a stage", SUPERVISOR, lambda it: lost(it, SIGKILL)),
    unfinished(
        "SIGTERM to the supervisor of a stage while the tests run",
        KIND,
        send(SUPERVISOR, SIGTERM),
        CUT,
        on_harness.supervisor_signalled("pytest", "the agent"),
        SECOND_RUNNING,
    ),
    in_install(
        "SIGTERM to the supervisor of a stage while it installs",
        KIND,
        send(SUPERVISOR, SIGTERM, file="install.log"),
        INSTALL_ENDED,
        on_harness.supervisor_signalled("install", "the agent"),
    ),
    unfinished(
        "SIGHUP to the supervisor of a stage while the tests run",
        KIND,
        send(SUPERVISOR, SIGHUP),
        CUT,
        lost("pytest", SIGHUP),
        SECOND_RUNNING,
    ),
    stopped("the supervisor of a stage", SUPERVISOR),
    unfinished(
        "SIGSTOP to the supervisor of a stage until its time limit",
        KIND,
        send(SUPERVISOR, SIGSTOP),
        CUT,
        at_limit("pytest"),
        SECOND_RUNNING,
        limits_s={"pytest": 6},
        **TIMED_OUT,
    ),
    *of_pytest(SIGKILL, on_stages.killed_from_outside()),
    *of_pytest(SIGTERM),
    *of_pytest(SIGHUP),
    stopped("pytest", PYTEST),
    unfinished(
        "SIGSTOP to pytest until its time limit",
        KIND,
        send(PYTEST, SIGSTOP),
        CUT,
        at_limit("pytest"),
        SECOND_RUNNING,
        limits_s={"pytest": 6},
        **TIMED_OUT,
    ),
    *map(of_xdist, (SIGKILL, SIGTERM, SIGHUP, SIGSEGV)),
    stopped("a worker of pytest-xdist", XDIST, files=SLOW_IN_WORKER, tests=PARALLEL),
    unfinished(
        "SIGSTOP to the workers of pytest-xdist until the time limit",
        KIND,
        send(XDIST, SIGSTOP),
        CUT,
        at_limit("pytest"),
        SECOND_RUNNING,
        files=HANGS_IN_WORKER,
        tests=PARALLEL,
        limits_s={"pytest": 6},
        **TIMED_OUT,
    ),
    *map(of_compiler, (SIGKILL, SIGTERM, SIGSEGV)),
    of_compiler(SIGHUP, code=4),
    in_install(
        "SIGSTOP to the compiler until its time limit",
        KIND,
        send(COMPILER, SIGSTOP, file="install.log"),
        INSTALL_ENDED,
        at_limit("install"),
        install=COMPILING,
        limits_s={"install": 6},
        **TIMED_OUT,
    ),
    unfinished(
        "`docker stop` while the tests run",
        KIND,
        docker("stop"),
        CUT,
        on_harness.container_ended("docker stop"),
        SECOND_RUNNING,
    ),
    in_install(
        "`docker stop` while it installs",
        KIND,
        docker("stop", file="install.log"),
        INSTALL_ENDED,
        on_harness.container_ended("docker stop"),
    ),
    unfinished(
        "`docker kill` while the tests run",
        KIND,
        docker("kill"),
        CUT,
        on_harness.container_ended("docker kill"),
        agent_died(137),
        SECOND_RUNNING,
    ),
    unfinished(
        "`docker restart` while the tests run",
        KIND,
        docker("restart"),
        CUT,
        (on_harness.container_restarted(), on_harness.container_ended("docker …")),
        SECOND_RUNNING,
    ),
    unfinished(
        "`docker rm --force` while the tests run",
        KIND,
        docker("rm --force"),
        on_tests.no_log("pytest", None, is_lost=True),
        on_harness.container_ended("docker rm --force"),
        results="",
    ),
    passing(
        "`docker pause` while the tests run, `docker unpause` after 3 s",
        KIND,
        docker("pause", "unpause"),
    ),
)
FAULTS = (*OF_CALLER, *IN_CONTAINER)
