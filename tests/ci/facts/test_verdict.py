"""Judging is pure: the product and the harness apart, each with evidence.

``golden/verdicts.txt`` has the verdict and the notes of each scenario. After a wanted change:
``INFINI_OPS_UPDATE_GOLDEN=1 pytest tests/ci/facts -k golden``. The page of the examples has theirs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ci.facts.case import Case
from ci.facts.events import parse_events
from ci.facts.notes import notes_of
from ci.facts.pytest_log import parse_log
from ci.facts.pytest_output import ListedFailure
from ci.facts.record import RunRecord
from ci.facts.sentences.on_rows import full_suite
from ci.facts.sentences.on_tests import contract_broken, skipped_tests
from ci.facts.verdict import judge, not_run
from ci.model.details import Rerun
from ci.model.outcomes import ClosingSummary, Outcome, PytestLog, Suite, TestOutcome
from ci.model.plan import SelectionPlan
from ci.model.verdicts import Grade, Harness, Product
from ci.protocol.events import (
    AgentRestarted,
    ArtifactCut,
    ArtifactMissing,
    DiskFull,
    Event,
    LeaseFailed,
    RerunFinished,
    RerunsEnded,
    RunFinished,
    StageLost,
    StageSkipped,
)
from tests.ci import operator_log
from tests.ci.judged_runs import (
    ADD,
    FAILING,
    INSTALLED,
    MUL,
    PASSING,
    STAGES,
    begin,
    case,
    changed,
    contract,
    end,
    ended,
    in_wrapper,
    last,
    limited,
    log,
    operators,
    ran,
    stage,
)
from tests.ci.made_results import made_test
from tests.ci.report_log import report
from tests.ci.review import check_golden
from tests.ci.verdict_examples import EXAMPLES

DATA = Path(__file__).parents[1] / "data"
GOLDEN = Path(__file__).parent / "golden" / "verdicts.txt"
GIB = 2**30


def shown(given: Case) -> str:
    """The verdict, its evidence and the notes, as the golden file has them."""
    verdict = judge(given)
    evidence = [f"{it.grade}: {it.text}" for it in verdict.evidence]
    notes = [f"note: {it.text}" for it in notes_of(given, verdict)]
    return "\n".join([f"{verdict.product}, {verdict.harness}", *evidence, *notes])


def lease(event: str, waited_s: float, *, health: str = "healthy") -> Event:
    """An event as the agent writes it; it says more of a device than is judged."""
    device = {"uuid": "GPU-1", "index": 0, "health": health}
    fields = {"stage": "pytest", "waited_s": waited_s, "devices": [device]}
    clocks = {"time": 0.0, "monotonic": 0.0}
    [event_read] = parse_events(
        [json.dumps({"event": f"lease_{event}", **fields, **clocks})]
    ).events
    return event_read


def again(attempt: int, **more: Any) -> RerunFinished:
    fields = {"seconds": 1.0, "exit_code": 1, **more}
    return RerunFinished(stage="pytest", attempt=attempt, **fields)


SIGNAL: dict[str, Any] = {"signal": 15, "interrupted": True}
STOPPED = RunFinished(exit_code=130, interrupted=True, signal_received=15)
KILLED: dict[str, Any] = {"exit_code": 137, "lost": True}
SUPERVISOR_LOST = (
    *(INSTALLED, begin("pytest")),
    StageLost(stage="pytest", reason="the supervisor of stage pytest was killed by SIGKILL"),
    last(1),
)
DISK_FULL = DiskFull("pytest", "pytest met a full disk; room that /w had at its end: 0 bytes")
ONE = log(Outcome.PASSED, status=None)  # and no end of the session
ALL_BEGAN = replace(ONE, begun=1)
RUNNING = replace(ONE, running=("t.py::test_1",))
RED_HOOK = log(Outcome.PASSED, status=1)
WORKER_DIED = log(Outcome.PASSED, Outcome.FAILED, status=1, crashed=("t.py::test_1",))
TIMED_OUT: dict[str, Any] = {"signal": 15, "timed_out": True}
TO_PACKAGE = (*STAGES, stage("package"))
UP_TO_INSTALL = (STAGES[0], replace(STAGES[1], left_out=True))

SCENARIOS: dict[str, Case] = {
    "all is well": ran(PASSING),
    "tests fail": ran(FAILING, 1),
    "many tests fail": ran(log(*[Outcome.FAILED] * 8, status=1), 1),
    "on the host engine": case(PASSING, INSTALLED, end("pytest"), last(), engine="host"),
    # Reruns
    "the agent dies in a rerun": case(FAILING, INSTALLED, end("pytest", 1), again(1), **KILLED),
    "the end of the reruns is not seen": case(
        FAILING, INSTALLED, end("pytest", 1), again(1), lost=True
    ),
    "a rerun crashes, times out and takes all memory": case(
        *(FAILING, INSTALLED, end("pytest", 1)),
        *(again(1, signal=11, oom_kills=1), again(2, **TIMED_OUT), last(1)),
        exit_code=1,
        oom_killed=True,
    ),
    **{
        f"the reruns {name}": replace(
            case(FAILING, INSTALLED, end("pytest", 1), again(1), again(2), last(1), exit_code=1),
            reruns=tuple(
                Rerun(node_id="t.py::test_1", attempt=attempt, outcome=outcome, seconds=0.1)
                for attempt, outcome in enumerate(outcomes, 1)
            ),
        )
        for name, outcomes in {
            "pass in part": (Outcome.PASSED, Outcome.FAILED),
            "pass": (Outcome.PASSED, Outcome.PASSED),
            "fail": (Outcome.FAILED, Outcome.FAILED),
        }.items()
    },
    "no rerun is carried out": case(
        *(FAILING, INSTALLED, end("pytest", 1), RerunsEnded("pytest", reason="more than 200")),
        last(1),
        exit_code=1,
    ),
    # Full disks
    **{
        f"the disk is full when {what}": case(
            tests, INSTALLED, begin("pytest"), DISK_FULL, end("pytest", code), last(code)
        )
        for what, tests, code in (
            ("tests fail", FAILING, 1),
            ("pytest dies without an end of its log", RUNNING, 1),
            ("pytest passes without an end of its log", ALL_BEGAN, 0),
        )
    },
    "the agent cannot write to the disk": case(ONE, INSTALLED, begin("pytest"), exit_code=74),
    # What a stage did not get
    "there are not as many devices": case(
        None, LeaseFailed(reason="devices.count is 9"), last(1), exit_code=1
    ),
    "the device was waited for": case(
        PASSING, INSTALLED, lease("taken", 312), end("pytest"), last(), exit_code=0
    ),
    "the device does not survive the tests": case(
        *(FAILING, INSTALLED, lease("taken", 0), end("pytest", 1)),
        *(lease("released", 0, health="unhealthy"), last(1)),
        exit_code=1,
    ),
    # The build
    "the build crashes": case(None, end("install", 139, signal=11), last(1), exit_code=1),
    "the build takes too long": case(
        None, end("install", 137, signal=9, timed_out=True), last(1), exit_code=1
    ),
    "the build takes too long and says that all is well": case(
        PASSING, end("install", timed_out=True), end("pytest"), last(), exit_code=0
    ),
    "the build is interrupted and says that all is well": case(
        None, end("install", interrupted=True), last(130), exit_code=130
    ),
    # The run was to end before the tests.
    "the tests are left out": changed(
        case(None, INSTALLED, StageSkipped(stage="pytest", reason="not run"), last(), exit_code=0),
        stages=UP_TO_INSTALL,
    ),
    "the build fails, and the tests are left out": changed(
        case(
            *(None, end("install", 2)),
            *(StageSkipped(stage="pytest", reason="not run"), last(1)),
            exit_code=1,
        ),
        stages=UP_TO_INSTALL,
    ),
    # A stage after the tests
    "a later stage fails": changed(
        case(PASSING, INSTALLED, end("pytest"), end("package", 2), last(1), exit_code=1),
        stages=TO_PACKAGE,
    ),
    "a later stage does not run after failing tests": changed(
        case(
            *(FAILING, INSTALLED, end("pytest", 1)),
            *(StageSkipped(stage="package", reason="not run"), last(1)),
            exit_code=1,
        ),
        stages=TO_PACKAGE,
    ),
    "a later stage has no result": changed(ran(PASSING), stages=TO_PACKAGE),
    "a later stage has no result, and pytest was killed": changed(
        ran(PASSING, 137), stages=TO_PACKAGE
    ),
    "killed in a later stage": changed(
        case(PASSING, INSTALLED, end("pytest"), begin("package"), **KILLED), stages=TO_PACKAGE
    ),
    "killed in a later stage, without a summary": changed(
        case(PASSING, INSTALLED, end("pytest"), begin("package"), **KILLED),
        stages=TO_PACKAGE,
        summary=None,
    ),
    # How pytest's process ended
    "a test worker crashes": ran(replace(FAILING, crashed=("t.py::test_1",)), 1),
    "killed after the summary": ran(PASSING, 137, signal=9),
    "failing tests, killed after the summary": ran(FAILING, 137, signal=9),
    "the suite takes too long": ran(RUNNING, 143, **TIMED_OUT),
    "the suite fails and then takes too long": ran(
        replace(FAILING, exit_status=None), 143, **TIMED_OUT
    ),
    "a test leaves pytest behind": ran(RUNNING),
    "pytest leaves after all collected tests": changed(ran(ALL_BEGAN), collected=1),
    "pytest leaves before all collected tests": changed(ran(ALL_BEGAN), collected=2),
    "a test ends the session": ran(log(Outcome.PASSED, running=("t.py::test_1",))),
    "nothing is collected": ran(log(status=5), 5),
    "no test ran": ran(log()),
    "tests were only set up": ran(replace(log(), begun=2)),
    "pytest breaks": ran(log(Outcome.PASSED, status=3), 3),
    "the log is damaged": ran(replace(PASSING, unreadable_lines=1)),
    "all records are damaged": replace(
        case(
            *(replace(PASSING, unreadable_lines=1, longest_line=1 << 20), INSTALLED),
            *(end("pytest"), last()),
            exit_code=0,
            unreadable_lines=3,
        ),
        agent_file=RunRecord((INSTALLED, end("pytest"), last()), unreadable_lines=2),
    ),
    "the log lacks outcomes": ran(replace(PASSING, lost=("t.py::a", "t.py::b"))),
    "all collected tests began": changed(ran(replace(PASSING, begun=3)), collected=3),
    "fewer tests than collected began": changed(ran(replace(PASSING, begun=3)), collected=4),
    "a hook ends the session early": ended(replace(PASSING, exit_status=2, begun=3), collected=4),
    "failed subtests": ended(replace(log(Outcome.FAILED, status=1), failed_subtests=2)),
    # How the container ended
    "the container is killed after the last stage": case(
        PASSING, INSTALLED, end("pytest"), last(), exit_code=137
    ),
    "the container is killed before the stage's end": case(
        PASSING, INSTALLED, begin("pytest"), oom_killed=True, **KILLED
    ),
    "the container runs out of memory": case(
        ONE, INSTALLED, begin("pytest"), oom_killed=True, **KILLED
    ),
    "the agent breaks after the last stage": case(PASSING, INSTALLED, end("pytest"), exit_code=1),
    "the agent breaks after the run": case(PASSING, INSTALLED, end("pytest"), last(), exit_code=1),
    "the container is lost": case(None, INSTALLED, begin("pytest"), lost=True),
    "the container is lost before anything was read": case(None, lost=True),
    "the agent is killed": case(None, begin("install"), **KILLED),
    "the agent does not start": case(None, exit_code=127),
    "interrupted": case(None, end("install", 130, interrupted=True), last(130), interrupted=True),
    "interrupted, and the record was not taken": case(None, interrupted=True),
    "stopped from outside": case(
        *(ONE, INSTALLED, end("pytest", 143, **SIGNAL), STOPPED),
        exit_code=130,
        ended_by="docker stop",
    ),
    "killed by a request to the engine": case(
        None, begin("install"), ended_by="docker kill", **KILLED
    ),
    "restarted from outside": case(
        None, end("install", 143, **SIGNAL), last(130), AgentRestarted(), exit_code=1
    ),
    "the agent gets a signal from elsewhere": case(
        None, end("install", 143, **SIGNAL), STOPPED, exit_code=130
    ),
    "the supervisor gets a signal from elsewhere": case(
        None, end("install", 143, **SIGNAL), last(1), exit_code=1
    ),
    "the supervisor is killed after the summary": case(PASSING, *SUPERVISOR_LOST, exit_code=1),
    "the supervisor is killed before a test is collected": case(
        log(status=None), *SUPERVISOR_LOST, exit_code=1
    ),
}


# The exit status of pytest decides: how its stage ended, and with what pytest in it ended.
LOGS: dict[str, tuple[PytestLog | None, list[tuple[int, int | None]]]] = {
    "a passing log": (
        PASSING,
        [
            *((code, None) for code in (1, 2, 3, 4, 5, 6, 127, 128, 255)),
            *((0, 1), (7, 1), (137, 1), (1, 0), (2, 0), (7, 0)),
        ],
    ),
    "a hook's status": (RED_HOOK, [(1, None), (0, 0), (0, None)]),
    "a failing log": (FAILING, [(0, None), (7, 0)]),
    "no end of the session": (ALL_BEGAN, [(1, None), (4, None), (7, None), (0, None)]),
    "no log": (None, [(0, None), (1, None), (4, None), (127, None)]),
}
SCENARIOS |= {
    f"{name}, exit code {code}, pytest {known}": ran(tests, code, pytest_status=known)
    for name, (tests, codes) in LOGS.items()
    for code, known in codes
}
SCENARIOS |= {
    f"a wrapper without a log, exit code {code}, pytest {known}": in_wrapper(
        ran(None, code, pytest_status=known), "sh", "test.sh"
    )
    for code, known in ((1, None), (2, None), (0, None), (134, None), (0, 0))
}
SCENARIOS |= {
    f"a wrapper without an end of the session, exit code {code}": in_wrapper(
        ran(ALL_BEGAN, code), "sh", "test.sh"
    )
    for code in (1, 7)
}

# Several runs of pytest are no result.
SEVERAL: dict[str, tuple[PytestLog | None, dict[str, Any]]] = {
    "two runs": (PASSING, {"pytest_runs": 2, "pytest_status": 0}),
    "two runs, one red": (PASSING, {"pytest_runs": 2, "pytest_status": 1}),
    "three runs": (PASSING, {"pytest_runs": 3}),
    "two runs in the log": (replace(PASSING, sessions=2), {}),
    "two runs in the log, one red": (replace(PASSING, sessions=2, exit_status=1), {}),
    "two runs in the log, failing": (replace(FAILING, sessions=2), {"pytest_status": 1}),
    "two runs without a log": (None, {"pytest_runs": 2, "pytest_status": 0}),
    "two runs, and a usage error": (replace(PASSING, sessions=2), {"exit_code": 4}),
}
SEVERAL_RUNS = {
    name: in_wrapper(
        case(tests, INSTALLED, end("pytest", **more), last(), exit_code=0), "sh", "-c", "…"
    )
    for name, (tests, more) in SEVERAL.items()
}
SCENARIOS |= SEVERAL_RUNS
SCENARIOS |= {
    "a test prints two runs": changed(ran(PASSING), sessions=2),
    "a wrapper prints two runs": in_wrapper(changed(ran(PASSING), sessions=2), "tox"),
}

# pytest.exit
EXIT = "Exit: service is down"
AT_IMPORT = TestOutcome(
    node_id="t.py",
    outcome=Outcome.ERROR,
    seconds=0.0,
    reason="_pytest.outcomes.Exit: service is down",
)
LEFT_BY_WORKER = "INTERNALERROR> AssertionError: ('t.py::test_1', <WorkerController gw0>)"
SCENARIOS |= {
    f"an exit with status {status}": changed(
        ran(log(Outcome.PASSED, status=status, running=("t.py::test_9",)), status), ending=EXIT
    )
    for status in (0, 1, 2, 5)
}
SCENARIOS |= {
    "an exit before the tests": changed(ran(None), ending=EXIT),
    "an exit in the tests, without a summary": changed(ran(ALL_BEGAN), ending=EXIT),
    "an exit after the tests": changed(ran(PASSING), ending=EXIT, summary=None),
    "an exit after a failed test": ended(FAILING, ending=EXIT),
    "an exit at import": ended(replace(log(status=2), tests=(AT_IMPORT,))),
    "the output of another program": in_wrapper(
        changed(ran(None, 1), ending="Exit: 1"), "sh", "test.sh"
    ),
    "an exit in a worker": ended(log(Outcome.PASSED, status=3), last_lines=(LEFT_BY_WORKER,)),
    "an exit in a worker, taken for Ctrl-C": ended(
        replace(WORKER_DIED, exit_status=2),
        ending="<WorkerController gw1> received keyboard-interrupt",
    ),
}

# Collected, and not run
ONLY_COLLECTED: dict[str, tuple[tuple[str, ...], dict[str, str], str | None]] = {
    "the command": (("pytest", "--co"), {}, "pytest.ini"),
    "a wrapper's command": (("sh", "-c", "pytest --collect-only"), {}, None),
    "the environment": (("pytest",), {"PYTEST_ADDOPTS": "--collect-only"}, None),
    "a file": (("pytest", "--cov"), {}, "tox.ini"),
    "an unknown place": (("pytest",), {}, None),
}
SCENARIOS |= {
    f"only collected by {name}": changed(
        ended(log(), summary=None, collected=3, only_listed=True, config_file=file),
        stages=(STAGES[0], replace(STAGES[1], command=command, environment=environment)),
    )
    for name, (command, environment, file) in ONLY_COLLECTED.items()
}

# What pytest's output adds
DIED_AGAIN = replace(WORKER_DIED, crashed=("t.py::test_1 (9 times)",), crashed_again=True, begun=2)
STOPPED_WORKERS = ended(DIED_AGAIN, collected=4, ending="maximum crashed workers reached: 8")
NO_PLUGIN = "pytest: error: unrecognized arguments: --report-log=/r/pytest.jsonl"
RED = ended(replace(PASSING, exit_status=1))
LISTED = (ListedFailure("t.py::test_9", "assert 0"), ListedFailure("t.py::test_8", ""))
SCENARIOS |= {
    "workers die again and again": STOPPED_WORKERS,
    "workers die again and again, until the time limit": changed(
        STOPPED_WORKERS,
        record=RunRecord((INSTALLED, end("pytest", 143, timed_out=True, seconds=10.0), last(1))),
    ),
    "pytest without the plugin of the log": changed(ran(None, 4), last_lines=(NO_PLUGIN,)),
    "a plugin says what it decided": changed(RED, last_lines=("1 snapshot unused.", "2 passed")),
    "a passing suite has last lines too": ended(PASSING, last_lines=("2 passed",)),
    "pytest lists failures that its log lacks": changed(RED, listed=LISTED),
    "pytest counts failures that its log lacks": changed(
        RED, summary=ClosingSummary(text="2 passed, 3 failed in 0.1s", seconds=0.1)
    ),
    "a failure may be in an unreadable line": ended(
        replace(PASSING, exit_status=1, unreadable_lines=1, damaged=("t.py::a",))
    ),
    "a failure may be a lost outcome": ended(replace(PASSING, exit_status=1, lost=("t.py::a",))),
    "a failure may be in a test that did not begin": ended(
        replace(PASSING, exit_status=1, begun=3), collected=4
    ),
}

# Between the log and the summary
ENDS_WITHOUT_SUMMARY: list[tuple[int, dict[str, Any]]] = [
    (0, {}),
    (139, {"signal": 11}),
    (137, {"signal": 9}),
    (137, {"signal": 9, "oom_kills": 1}),
    (143, TIMED_OUT),
    (0, {"timed_out": True}),
    (137, {}),
    (7, {"pytest_status": 0}),
]
SCENARIOS |= {
    f"no summary, exit code {code}{''.join(f', {name} {it}' for name, it in more.items())}": (
        changed(ran(PASSING, code, **more), summary=None)
    )
    for code, more in ENDS_WITHOUT_SUMMARY
}
IN_THE_TESTS = {
    "without a log": None,
    "in a test": RUNNING,
    "after a failure": replace(FAILING, exit_status=None),
    "after a passing log": PASSING,
    "after a log that a hook made red": RED_HOOK,
}
KILLED_IN_TESTS = {
    f"killed {name}": case(tests, INSTALLED, begin("pytest"), **KILLED)
    for name, tests in IN_THE_TESTS.items()
}
SCENARIOS |= KILLED_IN_TESTS
SCENARIOS |= {
    f"{name}, without a summary": changed(given, summary=None)
    for name, given in KILLED_IN_TESTS.items()
}

# Memory: a configured limit is the product's, the machine's memory is not.
OUT_OF_MEMORY = {
    "the build": case(None, end("install", 1, oom_kills=2), last(1), exit_code=1),
    "the tests": ran(RUNNING, 137, signal=9, oom_kills=1),
    "the tests, in a wrapper that makes 1 of everything": ran(ONE, 1, oom_kills=1),
    "the tests after their log": changed(ran(PASSING, 137, signal=9, oom_kills=1), summary=None),
    "a worker process": ran(WORKER_DIED, 1, oom_kills=1),
    "a worker process, and tests fail": ran(
        replace(WORKER_DIED, tests=(*WORKER_DIED.tests, *FAILING.tests)), 1, oom_kills=1
    ),
    "everything": case(None, begin("install"), oom_killed=True, **KILLED),
}
SCENARIOS |= {
    f"out of memory: {name}{which}": limited(given, limit)
    for name, given in OUT_OF_MEMORY.items()
    for limit, which in ((None, ""), (GIB, ", with a limit"))
}
SCENARIOS |= {
    f"out of memory: {name}, the limit was hit {hits} times": limited(
        ran(tests, tests.exit_status or 137, oom_kills=1, memory_limit_hits=hits), GIB
    )
    for name, tests in (("a test", ONE), ("a worker process", WORKER_DIED))
    for hits in (0, 2)
}

# Operator tests
NVIDIA: dict[str, Any] = {"device": "cuda", "platform": "nvidia"}
ON_NVIDIA: dict[str, Any] = {"platform": "nvidia", "torch_device": "cuda"}
ON_ASCEND: dict[str, Any] = {"platform": "ascend", "torch_device": "npu"}
ON_METAX: dict[str, Any] = {"platform": "metax", "torch_device": "cuda"}
MUL_SKIPPED = operator_log.lines("mul.out", "skipped", executed=0, reason="no sample")
MUL_OTHER_REASON = [line.replace("no sample", "dtype unsupported") for line in MUL_SKIPPED]
MUL_FAILED = operator_log.lines("mul.out", "failed")
NATIVE = operator_log.lines("add", slot=0, ran_slot=0)
ADD_RAN = operator_log.lines("add.out", ran_platform="nvidia", **NVIDIA)
MUL_FELL_BACK = operator_log.lines(
    "mul.out",
    "skipped",
    executed=0,
    ran_device="cpu",
    reason="no kernel on this device",
    **NVIDIA,
)
SIMULATED = operators(
    operator_log.lines("add.out", kernel="own", **operator_log.SIMULATED),
    operator_log.lines("mul.out", kernel="fallback", **operator_log.SIMULATED),
)
BUILD_FAILED = EXAMPLES["build failed"]
OF_NO_OPERATOR = [line.replace('"overload"', '"other"') for line in ADD]
COMPILED = operator_log.compiled_only("add.out")
SCENARIOS |= {
    "tests ran elsewhere": ended(operators(ADD, MUL), **ON_NVIDIA),
    "tests ran elsewhere and failed": ended(operators(ADD, MUL_FAILED), **ON_NVIDIA),
    "tests ran elsewhere before a crash": changed(
        ran(replace(operators(ADD), exit_status=None, running=("t.py::test_a",)), 139, signal=11),
        **ON_NVIDIA,
    ),
    "one of two overloads is executed": ended(operators(ADD, MUL_SKIPPED)),
    "overloads of two slots": ended(operators(ADD, MUL_SKIPPED, NATIVE)),
    "overloads of a suite that was cut short": ended(replace(operators(ADD), exit_status=None)),
    "what fell back is not executed": ended(
        operators(
            ADD_RAN,
            operator_log.lines("add.out", device="cuda", dtype="bool", ran_device="cpu"),
            operator_log.lines("mul.out", device="cuda", ran_device="cpu"),
        )
    ),
    "what took another slot is not executed on its own": ended(
        operators(NATIVE, operator_log.lines("mul.out", ran_slot=0))
    ),
    "a fallback": ended(operators(ADD_RAN, MUL_FELL_BACK), **ON_NVIDIA),
    "a fallback that a contract expects": ended(
        operators(ADD_RAN, MUL_FELL_BACK), contract=contract(ADD_RAN, MUL_FELL_BACK), **ON_NVIDIA
    ),
    "a simulated run": ended(SIMULATED, simulated=True, **ON_ASCEND),
    "a simulated run that was not requested": ended(SIMULATED, **ON_ASCEND),
    "a simulated run without a test": changed(BUILD_FAILED, simulated=True, **ON_ASCEND),
    "a compiled platform without a test": changed(BUILD_FAILED, simulated=True, **ON_METAX),
    "a compiled platform": ended(
        operators(OF_NO_OPERATOR, COMPILED, operator_log.compiled_only("add_")),
        simulated=True,
        **ON_METAX,
    ),
    "a compiled platform whose tests all skip": ended(
        operators(COMPILED), simulated=True, **ON_METAX
    ),
    "a requested device that is missing": ended(operators(OF_NO_OPERATOR, COMPILED), **ON_METAX),
}


def quarantined(name: str, entry: str, outcome: str = "skipped") -> list[str]:
    return operator_log.lines(name, outcome, quarantine=entry, reason="vendor defect")


IN_QUARANTINE: dict[str, Any] = {"user_properties": [["quarantine", "X-1"]]}
DEFECT = ["t.py", 1, "Skipped: vendor defect X-1: a"]
UNWRITTEN = replace(contract(), suite=None)
REFUSED = {
    reason: ended(
        operators(ADD, MUL),
        contract=replace(
            contract(ADD, [line.replace("no sample", reason) for line in MUL_SKIPPED]),
            torch="2.13.0",
        ),
        torch="2.13.0",
    )
    for reason in ("torch refuses", "torch crashes")
}
SCENARIOS |= {
    "quarantined operator tests": ended(
        operators(
            *(ADD, quarantined("a.out", "X-1"), quarantined("b.out", "X-1")),
            *(quarantined("c.out", "X-1", "passed"), quarantined("d.out", "X-2", "passed")),
        )
    ),
    "another quarantined test": ended(
        operators(
            ADD,
            [
                report("t.py::test_a", "setup", **IN_QUARANTINE),
                report("t.py::test_a", "call", "skipped", longrepr=DEFECT, **IN_QUARANTINE),
                report("t.py::test_a", "teardown", **IN_QUARANTINE),
            ],
        )
    ),
    "results differ from the CPU": ended(
        operators(
            operator_log.lines("add.out", against_cpu="differs: 0.1 > 0.0001"),
            operator_log.lines("add.out", dtype="float64", against_cpu="differs: 0.1 > 0.0001"),
            operator_log.lines("mul.out", against_cpu="agrees"),
        )
    ),
    "a fulfilled contract": ended(operators(ADD, MUL_SKIPPED), contract=contract(ADD, MUL_SKIPPED)),
    "no contract yet": ended(operators(ADD), contract=UNWRITTEN),
    "contract: pass -> skip": ended(operators(ADD, MUL_SKIPPED), contract=contract(ADD, MUL)),
    "contract: newly skipped": ended(operators(ADD, MUL_SKIPPED), contract=contract(ADD)),
    "contract: beside a failure": ended(
        replace(operators(MUL_FAILED), exit_status=1), contract=contract(ADD, MUL)
    ),
    "contract: a failure alone, another torch": replace(
        ended(
            replace(operators(ADD, MUL_FAILED), exit_status=1),
            contract=replace(contract(ADD, MUL_FAILED), torch="2.13.0+cpu"),
        ),
        torch="2.13.0+cu130",
    ),
    "contract: added": ended(operators(ADD, MUL), contract=contract(ADD)),
    "contract: skip -> pass": ended(operators(ADD, MUL), contract=contract(ADD, MUL_SKIPPED)),
    "contract: another reason": ended(
        operators(ADD, MUL_OTHER_REASON), contract=contract(ADD, MUL_SKIPPED)
    ),
    **{f"contract: {reason}, the same torch": given for reason, given in REFUSED.items()},
    **{
        f"contract: {reason}, another torch": replace(given, torch="2.14.1")
        for reason, given in REFUSED.items()
    },
    "details do not change the verdict": case(
        *(PASSING, end("install", oom_kills=1), end("pytest")),
        ArtifactMissing(name="log", path="a/b"),
        ArtifactCut(name="x", path="*.json", left_out=2),
        last(),
        exit_code=0,
    ),
}


def recorded_lines(name: str) -> list[str]:
    return (DATA / name).read_text(encoding="utf-8").splitlines()


SCENARIOS["a recorded crash"] = changed(
    case(parse_log(recorded_lines("crash.jsonl")), exit_code=1),
    stages=(*STAGES, stage("after")),
    record=parse_events(recorded_lines("events-crash.jsonl")),
)


def test_golden_verdicts() -> None:
    check_golden(GOLDEN, {name: shown(given) for name, given in SCENARIOS.items()})


@pytest.mark.parametrize(
    "given", [*SCENARIOS.values(), *EXAMPLES.values()], ids=[*SCENARIOS, *EXAMPLES]
)
def test_whatever_is_not_well_has_a_reason(given: Case) -> None:
    verdict = judge(given)
    assert verdict.evidence
    if (verdict.product, verdict.harness) != (Product.PASSED, Harness.CLEAN):
        assert notes_of(given, verdict) != (full_suite(),)


@pytest.mark.parametrize("name", SEVERAL_RUNS)
def test_several_runs_are_not_compared(name: str) -> None:
    given = changed(SEVERAL_RUNS[name], contract=contract(ADD))
    assert given.changes is None


@pytest.mark.parametrize(
    "name", [name for name in SCENARIOS if name.startswith(("a simulated run", "a compiled"))]
)
def test_a_simulated_run_is_labelled(name: str) -> None:
    assert SCENARIOS[name].simulated


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"tests": operators(ADD, MUL_FAILED)}, id="failed"),
        pytest.param(
            {"selection": SelectionPlan(variable="OPERATORS", operators="add")}, id="selected"
        ),
        pytest.param(ON_NVIDIA, id="another device"),
        pytest.param({"tests": replace(operators(ADD), running=("t.py::test_1",))}, id="crashed"),
    ],
)
@pytest.mark.parametrize("suite", [None, contract(ADD, MUL_SKIPPED).suite])
def test_no_command_is_proposed_that_would_refuse_the_run(
    changes: dict[str, Any], suite: Suite | None
) -> None:
    given = ended(operators(ADD), contract=replace(contract(), suite=suite))
    assert "python -m ci contract cpu" in shown(given)
    assert "python -m ci contract" not in shown(changed(given, **changes))


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
    assert shown(given) == shown(changed(given, contract=None))


def test_thousands_of_vanished_tests_are_a_few_lines() -> None:
    many = [
        operator_log.lines(f"op{n}.out", dtype=dtype)
        for n in range(300)
        for dtype in ("float32", "bool", f"type{n % 20}")
    ]
    verdict = judge(ended(operators(ADD), contract=contract(ADD, *many)))
    breaches = [it.parameters for it in verdict.evidence if it.code == contract_broken.code]
    assert len(breaches) == 11
    assert breaches[0]["change"] == "900 tests vanished"
    assert breaches[-1]["change"] == "vanished"
    assert str(breaches[-1]["line"]).startswith("and ")


def skip(count: int, reason: str | None) -> list[TestOutcome]:
    """Tests of any project that were skipped with this reason."""
    return [
        made_test(f"t.py::test_{reason}[{n}]", Outcome.SKIPPED, reason=reason) for n in range(count)
    ]


SKIPS = [
    *skip(300, "no GPU\ndetails"),
    *skip(120, None),
    *skip(12, "needs bash"),
    *[it for number in range(4) for it in skip(2, f"rare {number}")],
]


@pytest.mark.parametrize(
    ("tests", "shown"),
    [
        (
            SKIPS,
            "440 skipped: 300 no GPU; 120 without a reason; 12 needs bash; 8 for 4 more reasons",
        ),
        (skip(1200, "no GPU"), "1,200 skipped: no GPU"),
        (skip(1, "x" * 200), f"1 skipped: {'x' * 100}..."),
        (skip(2, None), None),
        ([made_test("t.py::test_a")], None),
    ],
)
def test_skipped_tests_have_their_most_frequent_reasons(
    tests: Sequence[TestOutcome], shown: str | None
) -> None:
    evidence = judge(ended(replace(PASSING, tests=tuple(tests)))).evidence
    found = [it.text for it in evidence if it.code == skipped_tests.code]
    assert found == ([shown] if shown else [])


def test_not_run() -> None:
    verdict = not_run("cannot pull the image")
    assert (verdict.product, verdict.harness) == (Product.NOT_RUN, Harness.INFRASTRUCTURE)
    assert [evidence.grade for evidence in verdict.evidence] == [Grade.FACT]
