"""The verdicts that docs/read-a-verdict.md shows, as the program prints them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from typing import Any

from rich.console import Console

from ci.agent.network import still_connected
from ci.engines.docker.engine import lost_note
from ci.facts.case import Case
from ci.facts.notes import notes_of
from ci.facts.pytest_output import ListedFailure
from ci.facts.record import RunRecord
from ci.facts.sentences import on_stages
from ci.facts.verdict import judge, not_run
from ci.model.outcomes import Outcome, PytestLog
from ci.model.results import RunResult
from ci.model.verdicts import Evidence, Verdict
from ci.protocol.events import LeaseFailed, NetworkRemained, StageSkipped
from ci.report.table import ResultsReport, table_rows
from tests.ci.judged_runs import (
    ADD,
    INSTALLED,
    MUL,
    begin,
    case,
    contract,
    end,
    ended,
    last,
    limited,
    log,
    operators,
    ran,
)
from tests.ci.made_results import made_test
from tests.ci.published import PUBLISHED, platform_result

GIB = 2**30
TESTS = [f"tests/test_model.py::test_{name}" for name in ("load", "forward", "backward")]


def suite(*outcomes: Outcome, **more: Any) -> PytestLog:
    named = zip(TESTS, outcomes, strict=False)
    tests = tuple(made_test(name, outcome, seconds=0.1) for name, outcome in named)
    return replace(log(), tests=tests, **more)


PASSED = suite(*3 * [Outcome.PASSED])
FAILED = suite(Outcome.PASSED, Outcome.FAILED, Outcome.PASSED, exit_status=1)
SKIPPED = suite(*3 * [Outcome.SKIPPED])
CUT = suite(Outcome.PASSED, exit_status=None, running=(TESTS[1],))
HELD = "GPU-3c1d is held by run 20261120T101500Z-0123abcd-0001 (nvidia) of user ci@a100"
NO_LEASE = LeaseFailed(
    stage="pytest",
    reason=f"device lease timed out after 3600 s: {HELD} since 2026-11-20 10:15:04 UTC",
)
RUN_ID = "20261120T101500Z-0123abcd-0001"
WITH_NETWORK = NetworkRemained("pytest", reason=still_connected("pytest", RUN_ID, ["eth0"], 3600.0))
CONTAINER = "infini-ci-20261120T101500Z-0123abcd-0001-nvidia"


RED = replace(PASSED, exit_status=1)
NOT_RUN = StageSkipped(stage="pytest", reason="not run")
EXAMPLES: dict[str, Case] = {
    "passed": ran(PASSED),
    "tests failed": ran(FAILED, 1),
    "build failed": case(None, end("install", 1), last(1), exit_code=1),
    "a hook": ran(RED, 1),
    "a failure that its log lacks": ended(RED, listed=(ListedFailure(TESTS[1], "assert 0"),)),
    "usage": ran(None, 4),
    "all skipped": ran(SKIPPED),
    "a wrapper": ran(PASSED, 137, pytest_status=0),
    "no summary": ended(PASSED, summary=None),
    "a crash": ran(CUT, 139, signal=11),
    "killed": ran(CUT, 137, signal=9),
    "killed by an unknown sender": ran(CUT, 137, signal=9, oom_kills=None),
    "the machine's memory": case(None, end("install", 1, oom_kills=2), last(1), exit_code=1),
    "the limit": limited(ran(CUT, 137, signal=9, oom_kills=1, memory_limit_hits=1), 8 * GIB),
    "too long": ran(CUT, 143, signal=15, timed_out=True, seconds=20.0),
    "lost": case(
        *(None, INSTALLED, begin("pytest")),
        lost=True,
        notes=(lost_note(CONTAINER, "Connection refused"),),
    ),
    "a killed container": case(CUT, INSTALLED, begin("pytest"), exit_code=137),
    "no lease": case(None, INSTALLED, NO_LEASE, NOT_RUN, last(1), exit_code=1),
    "a network": case(None, INSTALLED, WITH_NETWORK, NOT_RUN, last(1), exit_code=1),
    "interrupted": case(
        CUT, INSTALLED, end("pytest", 143, interrupted=True), last(130), interrupted=True
    ),
    "stopped": case(
        *(CUT, INSTALLED, end("pytest", 143, interrupted=True), last(130)),
        exit_code=130,
        ended_by="docker stop",
    ),
    "a worker": ran(replace(FAILED, crashed=(TESTS[1],)), 1),
    "twice": ran(PASSED, pytest_runs=2, pytest_status=0),
    "an exit": ended(replace(CUT, exit_status=0), ending="Exit: service is down"),
    "only collected": ended(suite(), summary=None, only_listed=True, config_file="pytest.ini"),
    "a crash loop": ended(
        replace(FAILED, begun=2, crashed=(f"{TESTS[1]} (9 times)",), crashed_again=True),
        collected=3,
        ending="maximum crashed workers reached: 8",
    ),
    "a contract": ended(operators(ADD), contract=contract(ADD, MUL)),
    "a changed file": ended(
        PASSED,
        agent_file=RunRecord(events=(end("install", seconds=0.001), end("pytest"), last())),
    ),
    "elsewhere": ended(operators(ADD, MUL), platform="nvidia", torch_device="cuda"),
}
NO_IMAGE = "the virtual environment of platform cpu cannot be made"


def shown(notes: tuple[Evidence, ...], verdict: Verdict) -> str:
    """What a terminal shows: the notes of the row, and the verdict below the table."""
    result = platform_result("CPU", PUBLISHED[0][1:], verdict=verdict, findings=notes)
    run = RunResult(
        run_id="20260101T120000Z-0123abcd-00ff",
        project="example",
        commit=None,
        dirty=False,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        finished_at=datetime(2026, 1, 1, tzinfo=UTC),
        engine="docker",
        platforms=(result,),
    )
    console = Console(file=StringIO(), width=1000)
    ResultsReport(run).print(console)
    assert isinstance(console.file, StringIO)
    printed = console.file.getvalue()
    verdict_alone = printed[printed.index(f"product {verdict.product}, ") :].partition("\n\n")[0]
    return f"Notes: {table_rows([result])[0].notes}\n{verdict_alone.rstrip()}\n"


def examples() -> dict[str, str]:
    """Return the text of each example, by its name on the page."""
    found = {}
    for name, given in EXAMPLES.items():
        verdict = judge(given)
        found[name] = shown(notes_of(given, verdict), verdict)
    found["no image"] = shown((on_stages.not_run(NO_IMAGE),), not_run(NO_IMAGE))
    return found
