"""Judging is pure: the product and the harness apart, each with evidence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import operator_log
import pytest
from judged_runs import (
    ADD,
    FAILING,
    MUL,
    PASSING,
    STAGES,
    SUMMARY,
    begin,
    case,
    contract,
    end,
    ended,
    last,
    log,
    operators,
    stage,
)

from ci.facts.case import Case
from ci.facts.events import parse_events
from ci.facts.notes import notes_of
from ci.facts.pytest_log import ListedFailure, parse_log
from ci.facts.record import RunRecord
from ci.facts.verdict import judge, not_run
from ci.model.outcomes import ClosingSummary, Outcome, PytestLog, Suite, TestOutcome
from ci.model.results import Grade, Harness, Product, Verdict
from ci.protocol.events import (
    AgentRestarted,
    ArtifactCut,
    ArtifactMissing,
    Event,
    LeaseFailed,
    NetworkRemained,
    RerunFinished,
    RunFinished,
    StageLost,
    StageSkipped,
)

DATA = Path(__file__).parents[1] / "data"


def texts(verdict: Verdict) -> str:
    return "\n".join(f"{evidence.grade}: {evidence.text}" for evidence in verdict.evidence)


def lease(event: str, waited_s: float, *, health: str = "healthy") -> Event:
    """An event as the agent writes it; it says more of a device than is judged."""
    device = {"uuid": "GPU-1", "index": 0, "health": health}
    fields = {
        "stage": "pytest",
        "waited_s": waited_s,
        "devices": [device],
        "time": 0.0,
        "monotonic": 0.0,
    }
    [event_read] = parse_events([json.dumps({"event": f"lease_{event}", **fields})]).events
    return event_read


HELD = "GPU-1 is held by run x (nvidia) of user y"
NO_LEASE = (
    LeaseFailed(
        stage="pytest",
        reason=f"device lease timed out after 3600 s: {HELD}",
    ),
    StageSkipped(stage="pytest", reason="not run: no lease"),
)
WITH_NETWORK = (
    NetworkRemained("pytest", reason="stage pytest needs a container without a network"),
    StageSkipped(stage="pytest", reason="not run: eth0"),
)
SUPERVISOR = "the supervisor of stage pytest was killed by SIGKILL"
FEW = "devices.count is 9; found: GPU-1"


def again(attempt: int, **more: Any) -> RerunFinished:
    return RerunFinished(
        stage="pytest", attempt=attempt, **{"seconds": 1.0, "exit_code": 1, **more}
    )


CASES = {
    "all is well": (
        case(PASSING, end("install"), end("pytest"), last(), exit_code=0),
        (Product.PASSED, Harness.CLEAN),
        "fact: pytest ended with status 0: 2 passed, 1 skipped",
        "full suite passed",
    ),
    "tests fail": (
        case(FAILING, end("install"), end("pytest", 1), last(1), exit_code=1),
        (Product.FAILED, Harness.CLEAN),
        "fact: 1 failed, 1 error: t.py::test_1, t.py::test_2",
        "1 test failed, 1 error",
    ),
    "the agent dies in a rerun": (
        case(FAILING, end("install"), end("pytest", 1), again(1), exit_code=137, lost=True),
        (Product.FAILED, Harness.EXIT_AFTER_SUMMARY),
        "fact: exit code 137 after the pytest summary, the agent's own: it ended without a result",
        "the agent returned 137 after the pytest summary",
    ),
    "the end of the reruns is not seen": (
        case(FAILING, end("install"), end("pytest", 1), again(1), lost=True),
        (Product.FAILED, Harness.LOST),
        "fact: the agent's result was not received",
        "1 test failed, 1 error",
    ),
    "a rerun crashes, times out and takes all memory": (
        case(
            FAILING,
            *(end("install"), end("pytest", 1)),
            *(again(1, signal=11, oom_kills=1), again(2, signal=15, timed_out=True), last(1)),
            exit_code=1,
            oom_killed=True,
        ),
        (Product.FAILED, Harness.CLEAN),
        "fact: 1 failed, 1 error",
        "2 failed tests without a result in any rerun",
    ),
    "the build fails": (
        case(None, end("install", 1), last(1), exit_code=1),
        (Product.FAILED, Harness.CLEAN),
        "fact: stage install ended with exit code 1; its output is install.log",
        "stage install failed",
    ),
    "there was no device in time": (
        case(None, end("install"), *NO_LEASE, last(1), exit_code=1),
        (Product.INCOMPLETE, Harness.INFRASTRUCTURE),
        "fact: device lease timed out after 3600 s: GPU-1 is held by run x (nvidia) of user y",
        "device lease timed out after 3600 s: GPU-1 is held by run x (nvidia) of user y",
    ),
    "the network was not removed in time": (
        case(None, end("install"), *WITH_NETWORK, last(1), exit_code=1),
        (Product.INCOMPLETE, Harness.INFRASTRUCTURE),
        "fact: stage pytest needs a container without a network",
        "stage pytest needs a container without a network",
    ),
    "there are not as many devices": (
        case(None, LeaseFailed(reason=FEW), last(1), exit_code=1),
        (Product.NOT_RUN, Harness.INFRASTRUCTURE),
        f"fact: {FEW}",
        FEW,
    ),
    "the device was waited for": (
        case(PASSING, end("install"), lease("taken", 312), end("pytest"), last(), exit_code=0),
        (Product.PASSED, Harness.CLEAN),
        "fact: pytest ended with status 0: 2 passed, 1 skipped",
        "device lease waited 312 s",
    ),
    "the device does not survive the tests": (
        case(
            FAILING,
            end("install"),
            lease("taken", 0),
            end("pytest", 1),
            lease("released", 0, health="unhealthy"),
            last(1),
            exit_code=1,
        ),
        (Product.FAILED, Harness.CLEAN),
        "fact: device GPU-1 was healthy before the tests, unhealthy after",
        "1 test failed, 1 error",
    ),
    "the build crashes": (
        case(None, end("install", 139, signal=11), last(1), exit_code=1),
        (Product.FAILED, Harness.CRASHED),
        "fact: stage install was killed by signal SIGSEGV (exit code 139) after 12 s",
        "process crashed",
    ),
    "the build takes too long": (
        case(None, end("install", 137, signal=9, timed_out=True), last(1), exit_code=1),
        (Product.INCOMPLETE, Harness.TIMED_OUT),
        "fact: stage install reached its time limit of 10 s; it took 2 s to end it",
        "timed out",
    ),
    "the build takes too long and says that all is well": (
        case(PASSING, end("install", 0, timed_out=True), end("pytest"), last(), exit_code=0),
        (Product.INCOMPLETE, Harness.TIMED_OUT),
        "fact: stage install ended with exit code 0, after the agent ended it",
        "stage install failed; timed out",
    ),
    "the build is interrupted and says that all is well": (
        case(None, end("install", 0, interrupted=True), last(130), exit_code=130),
        (Product.INCOMPLETE, Harness.INFRASTRUCTURE),
        "fact: stage install ended with exit code 0, after the agent ended it",
        "stage install failed; infrastructure failure",
    ),
    "the build runs out of memory": (
        case(None, end("install", 1, oom_kills=2), last(1), exit_code=1),
        (Product.INCOMPLETE, Harness.OOM_KILLED),
        "fact: the kernel killed 2 processes of stage install for memory",
        "killed for lack of memory",
    ),
    "the test process crashes": (
        case(
            log(Outcome.PASSED, status=None, running=("t.py::test_1",)),
            end("install"),
            end("pytest", 139, signal=11),
            last(1),
            exit_code=1,
        ),
        (Product.FAILED, Harness.CRASHED),
        "fact: pytest was running t.py::test_1",
        "the suite did not finish; process crashed in t.py::test_1",
    ),
    "a test worker crashes": (
        case(
            replace(FAILING, crashed=("t.py::test_1",)),
            end("install"),
            end("pytest", 1),
            last(1),
            exit_code=1,
        ),
        (Product.FAILED, Harness.CRASHED),
        "fact: a pytest worker process died in t.py::test_1",
        "1 test failed, 1 error; process crashed in t.py::test_1",
    ),
    "killed after the summary": (
        case(PASSING, end("install"), end("pytest", 137, signal=9), last(1), exit_code=1),
        (Product.PASSED, Harness.EXIT_AFTER_SUMMARY),
        "fact: exit code 137 after the pytest summary",
        "outer wrapper returned 137 after the pytest summary",
    ),
    "the container is killed after the last stage": (
        case(PASSING, end("install"), end("pytest"), last(), exit_code=137),
        (Product.PASSED, Harness.EXIT_AFTER_SUMMARY),
        "fact: exit code 137 after the pytest summary",
        "full suite passed",
    ),
    "the container is killed before the stage's end": (
        case(PASSING, end("install"), begin("pytest"), exit_code=137, oom_killed=True, lost=True),
        (Product.INCOMPLETE, Harness.OOM_KILLED),
        "fact: the engine reports an out-of-memory kill",
        "stage pytest has no result after the end of the log; killed for lack of memory",
    ),
    "the agent breaks after the last stage": (
        case(PASSING, end("install"), end("pytest"), exit_code=1),
        (Product.PASSED, Harness.INFRASTRUCTURE),
        "fact: the agent ended without a result, exit code 1",
        "full suite passed; infrastructure failure",
    ),
    "the agent breaks after the run": (
        case(PASSING, end("install"), end("pytest"), last(), exit_code=1),
        (Product.PASSED, Harness.INFRASTRUCTURE),
        "fact: the agent ended with exit code 1, but had recorded 0",
        "full suite passed; infrastructure failure",
    ),
    "failing tests, killed after the summary": (
        case(FAILING, end("install"), end("pytest", 137, signal=9), last(1), exit_code=1),
        (Product.FAILED, Harness.EXIT_AFTER_SUMMARY),
        "fact: 1 failed, 1 error",
        "1 test failed, 1 error",
    ),
    "killed from outside": (
        case(
            log(Outcome.PASSED, status=None),
            end("install"),
            end("pytest", 137, signal=9),
            last(1),
            exit_code=1,
        ),
        (Product.INCOMPLETE, Harness.CRASHED),
        "likely: SIGKILL came from outside: the kernel counts no out-of-memory kill",
        "pytest did not finish; its log has 1 result",
    ),
    "killed by an unknown sender": (
        case(
            log(Outcome.PASSED, status=None),
            end("install"),
            end("pytest", 137, signal=9, oom_kills=None),
            last(1),
            exit_code=1,
        ),
        (Product.INCOMPLETE, Harness.CRASHED),
        "unknown: the sender of SIGKILL is unknown",
        "process crashed",
    ),
    "the suite takes too long": (
        case(
            log(Outcome.PASSED, status=None, running=("t.py::test_1",)),
            end("install"),
            end("pytest", 143, signal=15, timed_out=True),
            last(1),
            exit_code=1,
        ),
        (Product.INCOMPLETE, Harness.TIMED_OUT),
        "fact: pytest was running t.py::test_1",
        "timed out",
    ),
    "the suite fails and then takes too long": (
        case(
            replace(FAILING, exit_status=None),
            end("install"),
            end("pytest", 143, signal=15, timed_out=True),
            last(1),
            exit_code=1,
        ),
        (Product.FAILED, Harness.TIMED_OUT),
        "fact: 1 failed, 1 error",
        "timed out",
    ),
    "the container runs out of memory": (
        case(
            log(Outcome.PASSED, status=None),
            end("install"),
            begin("pytest"),
            exit_code=137,
            oom_killed=True,
            lost=True,
        ),
        (Product.INCOMPLETE, Harness.OOM_KILLED),
        "fact: the engine reports an out-of-memory kill",
        "killed for lack of memory",
    ),
    "the container is lost": (
        case(None, end("install"), begin("pytest"), lost=True),
        (Product.INCOMPLETE, Harness.LOST),
        "fact: the agent's result was not received",
        "container lost",
    ),
    "the container is lost before anything was read": (
        case(None, lost=True),
        (Product.INCOMPLETE, Harness.LOST),
        "unknown: the agent's record could not be fetched, so a stage may have started",
        "container lost",
    ),
    "the agent is killed": (
        case(None, begin("install"), exit_code=137, lost=True),
        (Product.INCOMPLETE, Harness.INFRASTRUCTURE),
        "fact: the agent ended without a result, exit code 137",
        "stage install has no result",
    ),
    "the agent does not start": (
        case(None, exit_code=127),
        (Product.NOT_RUN, Harness.INFRASTRUCTURE),
        "fact: the agent did not start, exit code 127",
        "no stage started",
    ),
    "interrupted": (
        case(None, end("install", 130, interrupted=True), last(130), interrupted=True),
        (Product.INCOMPLETE, Harness.INFRASTRUCTURE),
        "fact: the run was interrupted by its caller",
        "interrupted",
    ),
    "stopped from outside": (
        case(
            log(Outcome.PASSED, status=None),
            *(end("install"), end("pytest", 143, signal=15, interrupted=True)),
            RunFinished(exit_code=130, interrupted=True, signal_received=15),
            exit_code=130,
            ended_by="docker stop",
        ),
        (Product.INCOMPLETE, Harness.INFRASTRUCTURE),
        "fact: the container was ended from outside, by a request like `docker stop`",
        "infrastructure failure",
    ),
    "killed by a request to the engine": (
        case(None, begin("install"), exit_code=137, lost=True, ended_by="docker kill"),
        (Product.INCOMPLETE, Harness.INFRASTRUCTURE),
        "fact: the container was ended from outside, by a request like `docker kill`\n"
        "fact: the agent ended without a result, exit code 137",
        "stage install has no result",
    ),
    "restarted from outside": (
        case(
            None,
            end("install", 143, signal=15, interrupted=True),
            *(last(130), AgentRestarted()),
            exit_code=1,
        ),
        (Product.INCOMPLETE, Harness.INFRASTRUCTURE),
        "fact: the container was restarted from outside; nothing ran in it a second time",
        "infrastructure failure",
    ),
    "the agent gets a signal from elsewhere": (
        case(
            None,
            end("install", 143, signal=15, interrupted=True),
            RunFinished(exit_code=130, interrupted=True, signal_received=15),
            exit_code=130,
        ),
        (Product.INCOMPLETE, Harness.INFRASTRUCTURE),
        "fact: the agent received SIGTERM, which this caller did not send",
        "infrastructure failure",
    ),
    "the supervisor gets a signal from elsewhere": (
        case(None, end("install", 143, signal=15, interrupted=True), last(1), exit_code=1),
        (Product.INCOMPLETE, Harness.INFRASTRUCTURE),
        "fact: the supervisor of stage install received a signal that the agent did not send",
        "infrastructure failure",
    ),
    "the supervisor is killed after the summary": (
        case(
            PASSING,
            *(end("install"), begin("pytest")),
            *(StageLost(stage="pytest", reason=SUPERVISOR), last(1)),
            exit_code=1,
        ),
        (Product.INCOMPLETE, Harness.INFRASTRUCTURE),
        f"fact: stage pytest has no result after the end of the log\nfact: {SUPERVISOR}",
        "infrastructure failure",
    ),
    "the supervisor is killed before a test is collected": (
        case(
            log(status=None),
            *(end("install"), begin("pytest")),
            *(StageLost(stage="pytest", reason=SUPERVISOR), last(1)),
            exit_code=1,
        ),
        (Product.INCOMPLETE, Harness.INFRASTRUCTURE),
        f"fact: pytest did not finish; its log has 0 results\nfact: {SUPERVISOR}",
        "infrastructure failure",
    ),
    "interrupted, and the record was not taken": (
        case(None, interrupted=True),
        (Product.INCOMPLETE, Harness.INFRASTRUCTURE),
        "unknown: the agent's record could not be fetched, so a stage may have started",
        "interrupted",
    ),
    "a test leaves pytest behind": (
        case(
            log(Outcome.PASSED, status=None, running=("t.py::test_1",)),
            end("install"),
            end("pytest"),
            last(),
            exit_code=0,
        ),
        (Product.INCOMPLETE, Harness.CRASHED),
        "fact: pytest exited early with exit code 0 and did not end its session",
        "process crashed in t.py::test_1",
    ),
    "exit 0 without a log": (
        case(None, end("install"), end("pytest"), last(), exit_code=0),
        (Product.INCOMPLETE, Harness.CRASHED),
        "fact: there is no per-test log; stage pytest ended with exit code 0",
        "there is no per-test log; stage pytest ended with exit code 0",
    ),
    "everything is skipped": (
        case(log(Outcome.SKIPPED), end("install"), end("pytest"), last(), exit_code=0),
        (Product.INCOMPLETE, Harness.CLEAN),
        "fact: no test passed: 1 skipped",
        "no test passed: 1 skipped",
    ),
    "nothing is collected": (
        case(log(status=5), end("install"), end("pytest", 5), last(1), exit_code=1),
        (Product.INCOMPLETE, Harness.CLEAN),
        "fact: pytest exited with 5: no tests collected",
        "pytest exited with 5: no tests collected",
    ),
    "a plug-in fails the session": (
        case(log(Outcome.PASSED, status=1), end("install"), end("pytest", 1), last(1), exit_code=1),
        (Product.FAILED, Harness.CLEAN),
        "fact: pytest exited with 1 although no test failed: a plugin or hook set this status",
        "pytest exited with 1 although no test failed: a plugin or hook set this status",
    ),
    "a test ends the session": (
        case(
            log(Outcome.PASSED, running=("t.py::test_1",)),
            end("install"),
            end("pytest"),
            last(),
            exit_code=0,
        ),
        (Product.INCOMPLETE, Harness.CLEAN),
        "fact: pytest ended with status 0 in the middle of t.py::test_1",
        "pytest ended with status 0 in the middle of t.py::test_1",
    ),
    "pytest breaks": (
        case(log(Outcome.PASSED, status=3), end("install"), end("pytest", 3), last(1), exit_code=1),
        (Product.INCOMPLETE, Harness.CLEAN),
        "fact: pytest exited with 3: internal error",
        "pytest exited with 3: internal error",
    ),
    "the log is damaged": (
        case(
            replace(PASSING, unreadable_lines=1), end("install"), end("pytest"), last(), exit_code=0
        ),
        (Product.INCOMPLETE, Harness.CLEAN),
        "fact: the per-test log has 1 unreadable line",
        "the per-test log has 1 unreadable line",
    ),
}


NO_SESSION_END = log(Outcome.PASSED, status=None, begun=1)
RED_HOOK = "pytest exited with 1 although no test failed: a plugin or hook set this status"
# How pytest's stage ended, what pytest in it is known to have ended with, and the verdict.
ENDINGS: list[tuple[PytestLog | None, int, int | None, Product, Harness, str]] = [
    (PASSING, 1, None, Product.FAILED, Harness.CLEAN, RED_HOOK),
    (PASSING, 2, None, Product.INCOMPLETE, Harness.CLEAN, "pytest exited with 2: interrupted"),
    (PASSING, 3, None, Product.INCOMPLETE, Harness.CLEAN, "pytest exited with 3: internal error"),
    (PASSING, 4, None, Product.INCOMPLETE, Harness.CLEAN, "pytest exited with 4: usage error"),
    (PASSING, 5, None, Product.INCOMPLETE, Harness.CLEAN, "with 5: no tests collected"),
    (PASSING, 6, None, Product.FAILED, Harness.CLEAN, "the test command exited with 6"),
    (PASSING, 127, None, Product.FAILED, Harness.CLEAN, "the test command exited with 127"),
    (PASSING, 128, None, Product.PASSED, Harness.EXIT_AFTER_SUMMARY, "exit code 128 after"),
    (PASSING, 255, None, Product.PASSED, Harness.EXIT_AFTER_SUMMARY, "exit code 255 after"),
    # Inside of a wrapper.
    (PASSING, 0, 1, Product.FAILED, Harness.CLEAN, RED_HOOK),
    (PASSING, 7, 1, Product.FAILED, Harness.CLEAN, RED_HOOK),
    (PASSING, 137, 1, Product.FAILED, Harness.EXIT_AFTER_SUMMARY, RED_HOOK),
    (
        *(PASSING, 1, 0, Product.FAILED, Harness.CLEAN),
        "pytest exited with 0, and the test command with 1",
    ),
    (
        *(PASSING, 2, 0, Product.INCOMPLETE, Harness.CLEAN),
        "pytest exited with 0, and the test command with 2",
    ),
    (
        *(PASSING, 7, 0, Product.PASSED, Harness.EXIT_AFTER_SUMMARY),
        "exit code 7 after the pytest summary, though pytest exited with 0",
    ),
    (log(Outcome.PASSED, status=1), 0, 0, Product.PASSED, Harness.CLEAN, "pytest ended"),
    (
        *(log(Outcome.PASSED, status=1), 0, None, Product.FAILED, Harness.CLEAN),
        "pytest ended its session with 1 although no test failed",
    ),
    (FAILING, 0, None, Product.FAILED, Harness.CLEAN, "1 failed, 1 error"),
    (FAILING, 7, 0, Product.FAILED, Harness.EXIT_AFTER_SUMMARY, "1 failed, 1 error"),
    # Before the end of the session.
    (NO_SESSION_END, 1, None, Product.FAILED, Harness.CRASHED, "before the end of its session"),
    (NO_SESSION_END, 4, None, Product.INCOMPLETE, Harness.CRASHED, "with 4: usage error"),
    (NO_SESSION_END, 7, None, Product.FAILED, Harness.CRASHED, "the test command exited with 7"),
    (NO_SESSION_END, 0, None, Product.INCOMPLETE, Harness.CRASHED, "pytest did not finish"),
    # Without a per-test log.
    (None, 1, None, Product.FAILED, Harness.CRASHED, "pytest exited with 1; there is no per-test"),
    (None, 4, None, Product.INCOMPLETE, Harness.CLEAN, "pytest exited with 4: usage error; there"),
    (None, 127, None, Product.FAILED, Harness.CRASHED, "the test command exited with 127; there"),
]


@pytest.mark.parametrize(("tests", "code", "known", "product", "harness", "evidence"), ENDINGS)
def test_the_exit_status_of_pytest_decides(
    tests: PytestLog | None,
    code: int,
    known: int | None,
    product: Product,
    harness: Harness,
    evidence: str,
) -> None:
    stage_end = end("pytest", code, pytest_status=known)
    ended = 1 if code else 0
    given = case(tests, end("install"), stage_end, last(ended), exit_code=ended)
    verdict = judge(given)
    assert (verdict.product, verdict.harness) == (product, harness)
    assert evidence in texts(verdict)
    green = (product, harness) == (Product.PASSED, Harness.CLEAN)
    assert green or note_texts(given, verdict) != ("full suite passed",)


def test_a_wrapper_that_returns_1_is_not_blamed_on_a_plugin() -> None:
    given = case(PASSING, end("install"), end("pytest", 1, pytest_status=0), last(1), exit_code=1)
    assert notes(given) == "pytest exited with 0, and the test command with 1"


@pytest.mark.parametrize(
    ("tests", "code", "known", "expected"),
    [
        (None, 1, None, "the test command exited with 1; there is no per-test log"),
        (None, 2, None, "the test command exited with 2, in pytest's terms: interrupted; there is"),
        (None, 0, None, "nothing shows that pytest ran: exit code 0, no log and no summary"),
        (None, 134, None, "nothing shows that pytest ran: exit code 134"),
        (None, 0, 0, "pytest printed no closing summary, exit code 0"),
        (NO_SESSION_END, 1, None, "command exited with 1 before the end of pytest's session"),
        (
            NO_SESSION_END,
            7,
            None,
            "pytest did not end its session, and the test command ended with",
        ),
    ],
)
def test_the_exit_code_of_a_wrapper_is_not_called_pytests(
    tests: PytestLog | None, code: int, known: int | None, expected: str
) -> None:
    last_end = last(1 if code else 0)
    given = case(tests, end("install"), end("pytest", code, pytest_status=known), last_end)
    wrapper = replace(given.pytest_stage, command=("sh", "test.sh"))
    shown = texts(judge(replace(given, stages=(STAGES[0], wrapper))))
    assert expected in shown
    assert f"pytest exited with {code}" not in shown


TWICE = "pytest ran twice in stage pytest, and the results have only a part of these runs: call"
RED_TWICE = TWICE.replace("pytest,", "pytest (one run exited with 1),", 1)


@pytest.mark.parametrize(
    ("tests", "more", "product", "expected"),
    [
        (PASSING, {"pytest_runs": 2, "pytest_status": 0}, Product.INCOMPLETE, TWICE),
        (PASSING, {"pytest_runs": 2, "pytest_status": 1}, Product.FAILED, RED_TWICE),
        (PASSING, {"pytest_runs": 3}, Product.INCOMPLETE, "pytest ran 3 times"),
        (replace(PASSING, sessions=2), {}, Product.INCOMPLETE, TWICE),
        (replace(PASSING, sessions=2, exit_status=1), {}, Product.FAILED, RED_TWICE),
        (replace(FAILING, sessions=2), {"pytest_status": 1}, Product.FAILED, RED_TWICE),
        (None, {"pytest_runs": 2, "pytest_status": 0}, Product.INCOMPLETE, TWICE),
        (replace(PASSING, sessions=2), {"exit_code": 4}, Product.INCOMPLETE, "with 4: usage error"),
    ],
)
def test_several_runs_of_pytest_are_no_result(
    tests: PytestLog | None, more: dict[str, Any], product: Product, expected: str
) -> None:
    given = case(tests, end("install"), end("pytest", **more), last(), exit_code=0)
    wrapper = replace(given.pytest_stage, command=("sh", "-c", "…"))
    given = replace(given, stages=(STAGES[0], wrapper))
    verdict = judge(given)
    assert verdict.product is product
    assert expected in texts(verdict)
    assert expected in notes(given)
    assert given.changes is None


def test_the_output_shows_runs_that_nothing_else_does() -> None:
    given = replace(ended(PASSING), printed_sessions=2)
    assert judge(given).product is Product.PASSED  # the command is pytest, and a test printed them
    wrapper = replace(given.pytest_stage, command=("tox",))
    given = replace(given, stages=(STAGES[0], wrapper))
    assert TWICE in texts(judge(given))


@pytest.mark.parametrize("status", [0, 1, 2, 5])
def test_the_reason_of_an_exit_is_the_reason_of_the_verdict(status: int) -> None:
    ended_log = log(Outcome.PASSED, status=status, running=("t.py::test_9",))
    given = case(ended_log, end("install"), end("pytest", status), last(), exit_code=0)
    given = replace(given, ending="Exit: service is down")
    expected = f"pytest.exit ended the suite with status {status}: service is down"
    verdict = judge(given)
    assert (verdict.product, verdict.harness) == (Product.INCOMPLETE, Harness.CLEAN)
    assert notes(given) == expected
    assert "in the middle of t.py::test_9" in texts(verdict)


def test_an_exit_before_and_after_the_tests() -> None:
    for tests in (None, NO_SESSION_END, PASSING):
        given = case(tests, end("install"), end("pytest"), last(), exit_code=0)
        given = replace(given, ending="Exit: service is down", summary=None)
        verdict = judge(given)
        assert (verdict.product, verdict.harness) == (Product.INCOMPLETE, Harness.CLEAN)
        assert "ended the suite" in notes(given)


def test_an_exit_does_not_hide_a_failed_test() -> None:
    given = replace(ended(FAILING), ending="Exit: service is down")
    assert judge(given).product is Product.FAILED
    assert notes(given).startswith(
        "1 test failed, 1 error; pytest.exit ended the suite with status"
    )


def test_an_exit_at_import_is_no_error_of_the_product() -> None:
    reason = "_pytest.outcomes.Exit: service is down"
    error = TestOutcome(node_id="t.py", outcome=Outcome.ERROR, seconds=0.0, reason=reason)
    given = ended(replace(log(status=2), tests=(error,)))
    assert judge(given).product is Product.INCOMPLETE
    assert notes(given) == "pytest.exit was called in t.py: service is down"


def test_the_output_of_another_program_is_no_exit() -> None:
    given = case(None, end("install"), end("pytest", 1), last(1), exit_code=1)
    wrapper = replace(given.pytest_stage, command=("sh", "test.sh"))
    given = replace(given, stages=(STAGES[0], wrapper), ending="Exit: 1")
    assert "pytest.exit" not in texts(judge(given))


def test_an_exit_in_a_worker_is_not_blamed_on_pytest_or_the_test() -> None:
    left = "the session of a pytest worker ended in t.py::test_1, as with pytest.exit: pytest-xdist"
    error = "INTERNALERROR> AssertionError: ('t.py::test_1', <WorkerController gw0>)"
    given = replace(ended(log(Outcome.PASSED, status=3)), last_lines=(error,))
    assert notes(given).startswith(left)
    interrupted = log(Outcome.PASSED, Outcome.FAILED, status=2, crashed=("t.py::test_1",))
    ending = "<WorkerController gw1> received keyboard-interrupt"
    given = replace(ended(interrupted), ending=ending)
    assert (judge(given).product, judge(given).harness) == (Product.INCOMPLETE, Harness.CLEAN)
    assert notes(given).startswith(left)


@pytest.mark.parametrize(
    ("command", "environment", "file", "where"),
    [
        (("pytest", "--co"), {}, "pytest.ini", "the command of stage pytest"),
        (("sh", "-c", "pytest --collect-only"), {}, None, "the command of stage pytest"),
        (("pytest",), {"PYTEST_ADDOPTS": "--collect-only"}, None, "PYTEST_ADDOPTS of stage pytest"),
        (("pytest", "--cov"), {}, "tox.ini", "`addopts` of tox.ini or PYTEST_ADDOPTS"),
        (("pytest",), {}, None, "`addopts` or PYTEST_ADDOPTS"),
    ],
)
def test_a_suite_that_is_only_collected(
    command: tuple[str, ...], environment: dict[str, str], file: str | None, where: str
) -> None:
    given = replace(ended(log()), summary=None, collected=3, only_listed=True, config_file=file)
    at = replace(given.pytest_stage, command=command, environment=environment)
    given = replace(given, stages=(STAGES[0], at))
    assert (judge(given).product, judge(given).harness) == (Product.INCOMPLETE, Harness.CLEAN)
    expected = "pytest only collected the tests and ran none: remove --collect-only from "
    assert notes(given) == expected + where


def test_options_that_run_no_test() -> None:
    assert notes(ended(log())).startswith("no test ran: none was collected, or an option such as")
    assert (
        notes(ended(replace(log(), begun=2))) == "2 tests began, but none ran: remove --setup-only"
    )


def test_workers_that_die_again_and_again() -> None:
    died = log(
        *(Outcome.PASSED, Outcome.FAILED),
        status=1,
        crashed=("t.py::test_1 (9 times)",),
        crashed_again=True,
        begun=2,
    )
    stopped = "maximum crashed workers reached: 8"
    given = replace(ended(died), collected=4, ending=stopped)
    assert notes(given) == (
        f"1 test failed; 2 of 4 collected tests did not run: pytest-xdist stopped: {stopped};"
        " --dist loadscope and loadfile repeat a test that kills its worker; run the tests that"
        " died alone; process crashed in t.py::test_1 (9 times)"
    )
    timed_out = end("pytest", 143, timed_out=True, seconds=10.0)
    given = replace(given, record=RunRecord(events=(end("install"), timed_out, last(1))))
    assert "a pytest worker process died in t.py::test_1 (9 times)" in texts(judge(given))


def test_a_pytest_without_the_plugin_of_the_log() -> None:
    unknown = "pytest: error: unrecognized arguments: --report-log=/r/pytest.jsonl"
    given = case(None, end("install"), end("pytest", 4), last(1), exit_code=1)
    assert notes(replace(given, last_lines=(unknown,))).startswith(
        "pytest exited with 4: usage error: pytest does not know --report-log: install"
        " pytest-reportlog, or add `-p pytest_reportlog` to the command"
    )


def test_the_last_lines_say_what_a_plugin_has_decided() -> None:
    given = ended(replace(PASSING, exit_status=1))
    verdict = judge(replace(given, last_lines=("1 snapshot unused.", "2 passed in 0.1s")))
    assert "fact: last lines of pytest.log: 1 snapshot unused. | 2 passed in 0.1s" in texts(verdict)
    assert "last lines" not in texts(judge(replace(ended(PASSING), last_lines=("2 passed",))))


LISTED = (ListedFailure("t.py::test_9", "assert 0"), ListedFailure("t.py::test_8", ""))
SAID = "fact: pytest exited with 1"


@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        (
            {"listed": LISTED},
            f"{SAID}; it lists as failed what its log lacks: t.py::test_9, t.py::test_8\n",
        ),
        (
            {"summary": ClosingSummary(text="2 passed, 3 failed in 0.1s", seconds=0.1)},
            f"{SAID}; its closing summary counts 3 failures that its log lacks\n",
        ),
        (
            {"tests": replace(PASSING, exit_status=1, unreadable_lines=1, damaged=("t.py::a",))},
            f"{SAID}, and no result in its log is a failure\n"
            "fact: unreadable in the per-test log: results of t.py::a\n",
        ),
        (
            {"tests": replace(PASSING, exit_status=1, lost=("t.py::a",))},
            f"{SAID}, and no result in its log is a failure\n"
            "fact: pytest ended with status 1, and its log lacks the outcome of t.py::a",
        ),
        (
            {"tests": replace(PASSING, exit_status=1, begun=3), "collected": 4},
            f"{SAID}, and no result in its log is a failure\n"
            "likely: pytest ended with status 1 before its end: 3 of 4 collected tests began",
        ),
    ],
)
def test_a_failure_that_the_log_lacks_is_not_blamed_on_a_plugin(
    changes: dict[str, Any], evidence: str
) -> None:
    given = replace(ended(replace(PASSING, exit_status=1)), **changes)
    verdict = judge(given)
    assert verdict.product is Product.FAILED
    assert f"{texts(verdict)}\n".startswith(evidence)
    assert notes(given) == evidence.partition("\n")[0].removeprefix("fact: ")


def test_a_passing_suite_whose_log_lacks_an_outcome_is_incomplete() -> None:
    verdict = judge(ended(replace(PASSING, lost=("t.py::a", "t.py::b"))))
    assert verdict.product is Product.INCOMPLETE
    assert "its log lacks the outcome of t.py::a, t.py::b" in texts(verdict)


def test_failed_subtests_are_counted_beside_their_tests() -> None:
    given = ended(replace(log(Outcome.FAILED, status=1), failed_subtests=2))
    assert "1 failed, 0 errors, 2 failed subtests: t.py::test_0" in texts(judge(given))
    assert notes(given) == "1 test failed with 2 failed subtests"


def test_a_hook_that_ends_the_session_early_does_not_hide_how_many_tests_ran() -> None:
    verdict = judge(replace(ended(replace(PASSING, exit_status=2, begun=3)), collected=4))
    assert "fact: pytest exited with 2: interrupted" in texts(verdict)
    assert "likely: pytest ended with status 2 before its end: 3 of 4" in texts(verdict)


def test_without_a_closing_summary_nothing_is_clean() -> None:
    given = replace(ended(PASSING), summary=None)
    verdict = judge(given)
    assert (verdict.product, verdict.harness) == (Product.PASSED, Harness.CRASHED)
    assert "pytest printed no closing summary, exit code 0: it crashed" in texts(verdict)
    assert "run pytest without these" in texts(verdict)
    assert notes(given) == "pytest printed no closing summary (exit code 0)"


@pytest.mark.parametrize(
    ("code", "more", "product", "harness"),
    [
        (139, {"signal": 11}, Product.FAILED, Harness.CRASHED),
        (137, {"signal": 9}, Product.INCOMPLETE, Harness.CRASHED),
        (137, {"signal": 9, "oom_kills": 1}, Product.INCOMPLETE, Harness.OOM_KILLED),
        (143, {"signal": 15, "timed_out": True}, Product.INCOMPLETE, Harness.TIMED_OUT),
        (0, {"timed_out": True}, Product.INCOMPLETE, Harness.TIMED_OUT),
        (137, {}, Product.INCOMPLETE, Harness.CRASHED),
        (7, {"pytest_status": 0}, Product.INCOMPLETE, Harness.CRASHED),
    ],
)
def test_a_process_that_dies_between_the_log_and_the_summary_does_not_pass(
    code: int, more: dict[str, Any], product: Product, harness: Harness
) -> None:
    given = case(PASSING, end("install"), end("pytest", code, **more), last(1), exit_code=1)
    given = replace(given, summary=None)
    assert (judge(given).product, judge(given).harness) == (product, harness)
    assert "after the end of the log, and pytest printed no closing summary" in texts(judge(given))
    if more.get("oom_kills"):
        assert judge(replace(given, memory_limit_bytes=2**30)).product is Product.FAILED


@pytest.mark.parametrize(
    ("collected", "product"),
    [(1, Product.PASSED), (2, Product.INCOMPLETE), (None, Product.INCOMPLETE)],
)
def test_pytest_that_leaves_before_its_end_passes_where_all_tests_had_ended(
    collected: int | None, product: Product
) -> None:
    given = case(NO_SESSION_END, end("install"), end("pytest"), last(), exit_code=0)
    given = replace(given, collected=collected)
    verdict = judge(given)
    assert (verdict.product, verdict.harness) == (product, Harness.CRASHED)
    assert "full suite passed" not in notes(given)
    assert "pytest printed no closing summary (exit code 0)" in notes(given)


def killed(tests: PytestLog | None, **changes: Any) -> Case:
    """The container was killed in the middle of the tests."""
    given = case(tests, end("install"), begin("pytest"), exit_code=137, lost=True)
    return replace(given, **changes)


def test_what_is_killed_from_outside_is_the_infrastructure() -> None:
    for tests in (None, log(Outcome.PASSED, status=None, running=("t.py::test_1",))):
        verdict = judge(killed(tests))
        assert (verdict.product, verdict.harness) == (Product.INCOMPLETE, Harness.INFRASTRUCTURE)
        assert "fact: the agent ended without a result, exit code 137" in texts(verdict)
    verdict = judge(killed(replace(FAILING, exit_status=None)))
    assert (verdict.product, verdict.harness) == (Product.FAILED, Harness.INFRASTRUCTURE)
    # A hook may still have decided otherwise, and with what pytest exited is not known.
    for tests in (PASSING, log(Outcome.PASSED, status=1)):
        for summary in (SUMMARY, None):
            verdict = judge(given := killed(tests, summary=summary))
            expected = (Product.INCOMPLETE, Harness.INFRASTRUCTURE)
            assert (verdict.product, verdict.harness) == expected
            assert "stage pytest has no result after the end of the log" in texts(verdict)
            assert "outer wrapper" not in notes(given)


@pytest.mark.parametrize("summary", [SUMMARY, None])
def test_what_is_killed_in_a_stage_after_pytest(summary: ClosingSummary | None) -> None:
    events = (end("install"), end("pytest"), begin("package"))
    given = case(PASSING, *events, exit_code=137, lost=True)
    given = replace(given, stages=(*STAGES, stage("package")), summary=summary)
    verdict = judge(given)
    assert (verdict.product, verdict.harness) == (Product.INCOMPLETE, Harness.INFRASTRUCTURE)
    assert notes(given) == "stage package has no result; infrastructure failure"


WORKER_DIED = log(Outcome.PASSED, Outcome.FAILED, status=1, crashed=("t.py::test_1",), running=())
OUT_OF_MEMORY = {
    "the build": case(None, end("install", 1, oom_kills=2), last(1), exit_code=1),
    "the tests": case(
        log(Outcome.PASSED, status=None, running=("t.py::test_1",)),
        *(end("install"), end("pytest", 137, signal=9, oom_kills=1), last(1)),
        exit_code=1,
    ),
    "the tests, in a wrapper that makes 1 of everything": case(
        log(Outcome.PASSED, status=None),
        *(end("install"), end("pytest", 1, oom_kills=1), last(1)),
        exit_code=1,
    ),
    "a worker process": case(
        WORKER_DIED, end("install"), end("pytest", 1, oom_kills=1), last(1), exit_code=1
    ),
    "everything": case(None, begin("install"), exit_code=137, oom_killed=True, lost=True),
}


@pytest.mark.parametrize("name", OUT_OF_MEMORY)
def test_a_configured_limit_is_the_products_and_the_machines_memory_is_not(name: str) -> None:
    given = OUT_OF_MEMORY[name]
    verdict = judge(given)
    assert (verdict.product, verdict.harness) == (Product.INCOMPLETE, Harness.OOM_KILLED)
    assert "no limit is configured, so the machine ran out" in texts(verdict)
    verdict = judge(replace(given, memory_limit_bytes=2**30))
    assert (verdict.product, verdict.harness) == (Product.FAILED, Harness.OOM_KILLED)
    assert "the configured limit is 1,073,741,824 bytes" in texts(verdict)


@pytest.mark.parametrize(
    ("hits", "product", "why"),
    [
        (None, Product.FAILED, "the configured limit is 1,073,741,824 bytes"),
        (2, Product.FAILED, "the configured limit is 1,073,741,824 bytes"),
        (0, Product.INCOMPLETE, "limit of 1,073,741,824 bytes was not reached, so the machine ran"),
    ],
)
@pytest.mark.parametrize("tests", [log(Outcome.PASSED, status=None), WORKER_DIED])
def test_a_limit_that_was_not_reached_is_not_blamed(
    tests: PytestLog, hits: int | None, product: Product, why: str
) -> None:
    code = tests.exit_status or 137
    killed = end("pytest", code, oom_kills=1, memory_limit_hits=hits)
    given = case(tests, end("install"), killed, last(1), exit_code=1)
    verdict = judge(replace(given, memory_limit_bytes=2**30))
    assert (verdict.product, verdict.harness) == (product, Harness.OOM_KILLED)
    assert why in texts(verdict)


def test_a_test_that_failed_by_itself_is_no_victim_of_the_machine() -> None:
    tests = replace(WORKER_DIED, tests=(*WORKER_DIED.tests, *FAILING.tests))
    ends = (end("install"), end("pytest", 1, oom_kills=1), last(1))
    assert judge(case(tests, *ends, exit_code=1)).product is Product.FAILED


def test_fewer_tests_than_collected_are_likely_an_early_end() -> None:
    short = case(replace(PASSING, begun=3), end("install"), end("pytest"), last(), exit_code=0)
    assert judge(replace(short, collected=3)).product is Product.PASSED
    verdict = judge(replace(short, collected=4))
    assert verdict.product is Product.INCOMPLETE
    assert "likely: pytest ended with status 0 before its end: 3 of 4" in texts(verdict)


@pytest.mark.parametrize("name", CASES)
def test_verdict(name: str) -> None:
    given, expected, evidence, note = CASES[name]
    verdict = judge(given)
    assert (verdict.product, verdict.harness) == expected
    assert evidence in texts(verdict)
    assert note in "; ".join(note_texts(given, verdict))


@pytest.mark.parametrize("name", CASES)
def test_whatever_is_not_well_has_a_reason(name: str) -> None:
    given, (product, harness), *_ = CASES[name]
    assert judge(given).evidence
    if (product, harness) != (Product.PASSED, Harness.CLEAN):
        assert note_texts(given, judge(given)) != ("full suite passed",)


def test_a_stage_after_the_tests_counts_too() -> None:
    stages = (*STAGES, stage("package"))
    events = (end("install"), end("pytest"), end("package", 2), last(1))
    given = replace(case(PASSING, *events, exit_code=1), stages=stages)
    assert judge(given).product is Product.FAILED
    assert note_texts(given, judge(given)) == ("stage package failed",)


def test_a_stage_that_failing_tests_kept_from_running_is_no_failure_of_its_own() -> None:
    skipped = StageSkipped(stage="package", reason="not run")
    events = (end("install"), end("pytest", 1), skipped, last(1))
    given = replace(case(FAILING, *events, exit_code=1), stages=(*STAGES, stage("package")))
    assert "package" not in texts(judge(given))
    assert note_texts(given, judge(given)) == ("1 test failed, 1 error",)


@pytest.mark.parametrize("pytest_exit", [0, 137])
def test_a_stage_that_never_ran_leaves_the_product_incomplete(pytest_exit: int) -> None:
    given = case(PASSING, end("install"), end("pytest", pytest_exit), last(), exit_code=0)
    verdict = judge(replace(given, stages=(*STAGES, stage("package"))))
    assert verdict.product is Product.INCOMPLETE
    assert "fact: stage package has no result" in texts(verdict)


def test_details_do_not_change_the_verdict() -> None:
    missing = ArtifactMissing(name="log", path="a/b")
    cut = ArtifactCut(name="x", path="*.json", left_out=2)
    events = (end("install", oom_kills=1), end("pytest"), missing, cut, last())
    verdict = judge(case(PASSING, *events, exit_code=0))
    assert (verdict.product, verdict.harness) == (Product.PASSED, Harness.CLEAN)
    assert "killed 1 process of stage install for memory, but the stage succeeded" in texts(verdict)
    assert "artifact log is missing: a/b does not exist" in texts(verdict)
    assert "artifact x lacks 2 files of *.json" in texts(verdict)


def test_long_lists_of_tests_are_cut() -> None:
    tests = log(*[Outcome.FAILED] * 8, status=1)
    verdict = judge(case(tests, end("install"), end("pytest", 1), last(1), exit_code=1))
    assert "t.py::test_4 and 3 more" in texts(verdict)


def test_the_host_engine_shows_in_the_notes() -> None:
    given = case(PASSING, end("install"), end("pytest"), last(), exit_code=0, engine="host")
    note = "host engine: a fresh virtual environment on this machine, without isolation"
    assert note in note_texts(given, judge(given))


def test_a_recorded_crash_end_to_end() -> None:
    def lines(name: str) -> list[str]:
        return (DATA / name).read_text(encoding="utf-8").splitlines()

    record = parse_events(lines("events-crash.jsonl"))
    tests = parse_log(lines("crash.jsonl"))
    stages = (*STAGES, stage("after"))
    given = replace(case(tests, exit_code=1), stages=stages, record=record)
    verdict = judge(given)
    assert (verdict.product, verdict.harness) == (Product.FAILED, Harness.CRASHED)
    assert "pytest was running crash/test_crash.py::test_two" in texts(verdict)
    assert "stage pytest was killed by signal SIGSEGV (exit code 139)" in texts(verdict)


def note_texts(given: Case, verdict: Verdict) -> tuple[str, ...]:
    return tuple(it.text for it in notes_of(given, verdict))


def notes(given: Case) -> str:
    return "; ".join(note_texts(given, judge(given)))


MUL_SKIPPED = operator_log.lines("mul.out", "skipped", executed=0, reason="no sample")
MUL_FAILED = operator_log.lines("mul.out", "failed")


def test_tests_that_ran_elsewhere_prove_nothing() -> None:
    given = ended(operators(ADD, MUL), platform="nvidia", torch_device="cuda")
    verdict = judge(given)
    elsewhere = "requested cuda; 2 of 2 tests were made for cpu: add.out-float32-cpu-slot8, mul"
    assert (verdict.product, verdict.harness) == (Product.FAILED, Harness.CLEAN)
    assert verdict.evidence[0].grade is Grade.FACT
    assert verdict.evidence[0].text.startswith(elsewhere)
    assert notes(given).startswith(elsewhere)
    assert (notes(given) + texts(verdict)).count("requested ") == 2  # once in each
    assert "full suite passed" not in notes(given)


def test_a_wrong_device_comes_before_the_outcomes_of_the_tests() -> None:
    given = ended(operators(ADD, MUL_FAILED), platform="nvidia", torch_device="cuda")
    assert judge(given).evidence[0].text.startswith("requested cuda; ")
    assert "fact: 1 failed, 0 errors: " in texts(judge(given))


def test_tests_that_ran_elsewhere_before_a_crash() -> None:
    tests = replace(operators(ADD), exit_status=None, running=("t.py::test_a",))
    given = case(tests, end("install"), end("pytest", 139, signal=11), last(1), exit_code=1)
    verdict = judge(replace(given, platform="nvidia", torch_device="cuda"))
    assert (verdict.product, verdict.harness) == (Product.FAILED, Harness.CRASHED)
    assert verdict.evidence[0].text.startswith("requested cuda; 1 of 1 tests were made for cpu")


def test_the_executed_share_is_a_note() -> None:
    given = ended(operators(ADD, MUL_SKIPPED))
    assert notes(given) == "full suite passed; overloads executed: 1 of 2"
    native = operator_log.lines("add", slot=0, ran_slot=0)
    both = "overloads executed: 1 of 2 on slot 8, 1 of 1 on slot 0"
    assert both in notes(ended(operators(ADD, MUL_SKIPPED, native)))


def test_what_fell_back_is_no_part_of_the_executed_share() -> None:
    log = operators(
        operator_log.lines("add.out", device="cuda", platform="nvidia", ran_platform="nvidia"),
        operator_log.lines("add.out", device="cuda", dtype="bool", ran_device="cpu"),
        operator_log.lines("mul.out", device="cuda", ran_device="cpu"),
    )
    assert "overloads executed: 1 of 2" in notes(ended(log)).split("; ")


def test_a_fallback_fails_until_a_contract_expects_it() -> None:
    nvidia = {"device": "cuda", "platform": "nvidia"}
    ran = operator_log.lines("add.out", ran_platform="nvidia", **nvidia)
    reason = "no kernel on this device"
    fell_back = operator_log.lines(
        "mul.out", "skipped", executed=0, ran_device="cpu", reason=reason, **nvidia
    )
    given = ended(operators(ran, fell_back), platform="nvidia", torch_device="cuda")
    line = "requested cuda; 1 of 2 tests fell back to cpu: mul.out-float32-cuda-slot8"
    assert judge(given).product is Product.FAILED
    assert notes(given).startswith(line)
    accepted = replace(given, contract=contract(ran, fell_back))
    assert judge(accepted).product is Product.PASSED
    assert line not in notes(accepted)


ON_ASCEND = {"platform": "ascend", "torch_device": "npu"}
ADD_SIMULATED, MUL_SIMULATED = (
    operator_log.lines(name, kernel=kernel, **operator_log.SIMULATED)
    for name, kernel in (("add.out", "own"), ("mul.out", "fallback"))
)


def test_a_simulated_run_says_so_and_what_its_kernels_are() -> None:
    given = ended(operators(ADD_SIMULATED, MUL_SIMULATED), simulation_requested=True, **ON_ASCEND)
    assert judge(given).product is Product.PASSED
    assert given.simulated
    assert notes(given) == (
        "full suite passed; simulated device: no vendor hardware was used; overloads executed: 2 of"
        " 2; overloads passed: 1 by own kernels, 0 composite, 1 by the CPU fallback"
    )


def test_a_simulated_run_that_was_not_requested_fails_and_is_labelled() -> None:
    given = ended(operators(ADD_SIMULATED, MUL_SIMULATED), **ON_ASCEND)
    assert judge(given).product is Product.FAILED
    assert given.simulated
    line = "requested a real npu; 2 of 2 tests were on a simulated one: add.out-float32-npu-slot8,"
    assert judge(given).evidence[0].text.startswith(line)
    assert notes(given).startswith(line)
    assert "simulated device: no vendor hardware was used" in notes(given)


def test_a_run_that_was_to_be_simulated_is_labelled_without_any_test() -> None:
    broken = case(None, end("install", 1), last(1), exit_code=1)
    given = replace(broken, simulation_requested=True, **ON_ASCEND)
    assert given.simulated
    assert "simulated device: no vendor hardware was used" in notes(given)
    given = replace(broken, simulation_requested=True, **ON_METAX)
    assert given.simulated
    assert "no device: compiled only; no vendor hardware was used" in notes(given)


ON_METAX = {"platform": "metax", "torch_device": "cuda"}
OF_NO_OPERATOR = [line.replace('"overload"', '"other"') for line in ADD]


def test_what_is_compiled_only_passes_with_what_runs_and_says_so() -> None:
    given = ended(
        operators(OF_NO_OPERATOR, *map(operator_log.compiled_only, ("add.out", "add_"))),
        simulation_requested=True,
        **ON_METAX,
    )
    assert judge(given).product is Product.PASSED
    assert given.simulated
    assert notes(given) == (
        "all tests that run without a device passed; no device: compiled only, 2 tests skipped; no"
        " vendor hardware was used; overloads executed: 0 of 2"
    )


def test_what_is_compiled_only_and_runs_nothing_else_proves_nothing() -> None:
    given = ended(
        operators(operator_log.compiled_only("add.out")), simulation_requested=True, **ON_METAX
    )
    assert judge(given).product is Product.INCOMPLETE


def test_a_requested_device_that_is_missing_is_a_failure() -> None:
    given = ended(operators(OF_NO_OPERATOR, operator_log.compiled_only("add.out")), **ON_METAX)
    assert judge(given).product is Product.FAILED
    assert notes(given).startswith("requested a real cuda; 1 of 1 tests were on a simulated one")


def test_what_took_another_slot_is_no_part_of_the_share_of_that() -> None:
    native = operator_log.lines("add", slot=0, ran_slot=0)
    given = ended(operators(native, operator_log.lines("mul.out", ran_slot=0)))
    assert "1 of 1 on slot 0" in notes(given)
    assert "0 of 1 on slot 8" in notes(given)


def test_quarantine_is_a_note() -> None:
    def quarantined(name: str, entry: str, outcome: str = "skipped") -> list[str]:
        return operator_log.lines(name, outcome, quarantine=entry, reason="vendor defect")

    given = ended(
        operators(
            ADD,
            quarantined("a.out", "X-1"),
            quarantined("b.out", "X-1"),
            quarantined("c.out", "X-1", "passed"),
            quarantined("d.out", "X-2", "passed"),
        )
    )
    assert "2 tests quarantined: X-1; quarantine stale: X-1 in part, X-2" in notes(given)


def test_any_test_can_be_quarantined() -> None:
    phases = [
        ("setup", "passed", None),
        ("call", "skipped", ["t.py", 1, "Skipped: vendor defect X-1: a"]),
    ]
    reports = [
        {
            "$report_type": "TestReport",
            "nodeid": "t.py::test_a",
            "when": when,
            "outcome": outcome,
            "longrepr": longrepr,
            "user_properties": [["quarantine", "X-1"]],
        }
        for when, outcome, longrepr in (*phases, ("teardown", "passed", None))
    ]
    assert "1 test quarantined: X-1" in notes(ended(operators(ADD, [*map(json.dumps, reports)])))


def test_what_differs_from_the_cpu_is_a_note() -> None:
    differing = [
        operator_log.lines("add.out", dtype=dtype, against_cpu="differs: 0.1 > 0.0001")
        for dtype in ("float32", "float64")
    ]
    agreeing = operator_log.lines("mul.out", against_cpu="agrees")
    given = ended(operators(*differing, agreeing))
    assert "results differ from the CPU: 1 overload: add.out" in notes(given)
    assert judge(given).product is Product.PASSED


def test_a_fulfilled_contract_adds_no_note() -> None:
    given = ended(operators(ADD, MUL_SKIPPED), contract=contract(ADD, MUL_SKIPPED))
    assert judge(given).product is Product.PASSED
    assert "contract" not in notes(given) + texts(judge(given))


def test_a_contract_that_is_not_written_yet() -> None:
    given = ended(operators(ADD), contract=replace(contract(), suite=None))
    assert judge(given).product is Product.PASSED
    command = "python -m ci contract cpu"
    assert f"no contract for cpu yet; write it with {command}" in notes(given)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"tests": operators(ADD, MUL_FAILED)}, id="failed"),
        pytest.param({"selected": "add"}, id="selected"),
        pytest.param({"platform": "nvidia", "torch_device": "cuda"}, id="another device"),
        pytest.param({"tests": replace(operators(ADD), running=("t.py::test_1",))}, id="crashed"),
    ],
)
@pytest.mark.parametrize("suite", [None, contract(ADD, MUL_SKIPPED).suite])
def test_no_command_is_proposed_that_would_refuse_the_run(
    changes: dict[str, Any], suite: Suite | None
) -> None:
    given = ended(operators(ADD), contract=replace(contract(), suite=suite))
    assert "python -m ci contract cpu" in notes(given)
    assert "python -m ci contract" not in notes(replace(given, **changes))


@pytest.mark.parametrize(
    ("expected", "tests", "breach"),
    [
        ([ADD, MUL], [ADD], "1 test vanished: float32 of mul.out (slot 8; was passed)"),
        (
            [ADD, MUL],
            [ADD, MUL_SKIPPED],
            "1 test pass -> skip: float32 of mul.out (slot 8; passed -> no sample)",
        ),
        ([ADD], [ADD, MUL_SKIPPED], "1 test newly skipped: float32 of mul.out (slot 8; no sample)"),
    ],
)
def test_a_broken_contract_fails_the_product(
    expected: list[list[str]], tests: list[list[str]], breach: str
) -> None:
    given = ended(operators(*tests), contract=contract(*expected))
    verdict = judge(given)
    assert (verdict.product, verdict.harness) == (Product.FAILED, Harness.CLEAN)
    assert f"fact: contract: {breach}" in texts(verdict)
    command = "update with: python -m ci contract cpu"
    assert notes(given).startswith(f"contract: {breach}; {command}")


def test_a_broken_contract_is_reported_beside_failures() -> None:
    given = ended(replace(operators(MUL_FAILED), exit_status=1), contract=contract(ADD, MUL))
    vanished = "contract: 1 test vanished: float32 of add.out (slot 8; was passed)"
    assert f"1 test failed; {vanished}; overloads" in notes(given)
    assert "fact: 1 failed, 0 errors" in texts(judge(given))
    assert "newly failing" not in notes(given) + texts(judge(given))


@pytest.mark.parametrize(
    ("expected", "tests", "note"),
    [
        ([ADD], [ADD, MUL], "contract: 1 test added; update with"),
        ([ADD, MUL_SKIPPED], [ADD, MUL], "contract: 1 test skip -> pass; update with"),
        (
            [ADD, MUL_SKIPPED],
            [ADD, [line.replace("no sample", "dtype unsupported") for line in MUL_SKIPPED]],
            "contract: 1 test skipped for another reason; update with",
        ),
    ],
)
def test_what_is_better_than_expected_is_a_note(
    expected: list[list[str]], tests: list[list[str]], note: str
) -> None:
    given = ended(operators(*tests), contract=contract(*expected))
    assert judge(given).product is Product.PASSED
    assert f"full suite passed; {note}" in notes(given)


@pytest.mark.parametrize("reason", ["torch refuses", "torch crashes"])
def test_a_call_that_torch_no_longer_refuses_breaks_the_contract_of_the_same_torch(
    reason: str,
) -> None:
    refused = [line.replace("no sample", reason) for line in MUL_SKIPPED]
    bound = replace(contract(ADD, refused), torch="2.13.0")
    given = ended(operators(ADD, MUL), contract=bound, torch="2.13.0")
    breach = f"contract: 1 test refused -> pass: float32 of mul.out (slot 8; {reason} -> passed)"
    assert judge(given).product is Product.FAILED
    assert f"fact: {breach}" in texts(judge(given))

    other = replace(given, torch="2.14.1")
    assert judge(other).product is Product.PASSED
    assert (
        f"full suite passed; {breach}; it was made with torch 2.13.0, this run has 2.14.1; "
        "update with: "
    ) in notes(other)


@pytest.mark.parametrize(
    "changes",
    [
        *({"exit_status": None}, {"running": ("t.py::test_1",)}, {"unreadable_lines": 1}),
        *({"exit_status": 2}, {"begun": 0}),
    ],
)
def test_a_suite_that_did_not_get_to_its_end_has_no_vanished_tests(changes: dict[str, Any]) -> None:
    tests = replace(operators(ADD), **changes)
    given = ended(tests, contract=contract(ADD, MUL), collected=1)
    assert judge(given) == judge(replace(given, contract=None))
    assert "contract" not in notes(given)


def test_thousands_of_vanished_tests_are_a_few_lines() -> None:
    many = [
        operator_log.lines(f"op{n}.out", dtype=dtype)
        for n in range(300)
        for dtype in ("float32", "bool", f"type{n % 20}")
    ]
    verdict = judge(ended(operators(ADD), contract=contract(ADD, *many)))
    breaches = [e.text for e in verdict.evidence if e.text.startswith("contract: ")]
    assert len(breaches) == 11
    assert breaches[0].startswith("contract: 900 tests vanished: ")
    assert breaches[-1].startswith("contract: vanished: and ")


def test_not_run() -> None:
    verdict = not_run("cannot pull the image")
    assert (verdict.product, verdict.harness) == (Product.NOT_RUN, Harness.INFRASTRUCTURE)
    assert [evidence.grade for evidence in verdict.evidence] == [Grade.FACT]


def test_a_suite_that_was_cut_short_has_no_share_of_executed_overloads() -> None:
    assert "overloads executed: 1 of 1" in notes(ended(operators(ADD)))
    cut = replace(operators(ADD), exit_status=None)
    assert "overloads executed" not in notes(ended(cut))
