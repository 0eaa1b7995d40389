"""Further attempts at failed tests: a real suite with a flaky, a failing and a crashing test."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ci.agent.pytest_stage import MOST_TESTS, failed_tests, rerun_refusal
from ci.cli import main
from ci.facts.events import parse_events
from ci.facts.notes import rerun_notes
from ci.facts.record import RunRecord
from ci.facts.result_files import ResultFiles
from ci.facts.sentences import on_rows
from ci.model.details import Rerun
from ci.model.outcomes import Outcome
from ci.model.verdicts import Harness, Product
from ci.plan.planning import RunOptions
from ci.plan.project import load_project, plan_run
from ci.plan.request import RunRequest, new_request
from ci.protocol.events import CommandEnd
from ci.protocol.stage_kind import StageKind
from tests.ci.agent_job import Job
from tests.ci.report_log import finish, report
from tests.ci.workplace import CONFIG, Workplace, new_workplace

# Counts its own attempts in a file: what the tests leave behind is there in the next one, too.
SUITE = """\
import os, pathlib, signal, sys
import pytest

def attempt(name):
    with pathlib.Path(name).open("a") as file:
        file.write("x")
    return pathlib.Path(name).stat().st_size

@pytest.mark.parametrize("n", range(3))
def test_good(n): attempt("good")

def test_a_crash():
    if attempt("crash") > 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    assert False

def test_flaky(): assert attempt("flaky") % 2 == 0

def test_failing(): assert "/mine" not in sys.path

@pytest.fixture
def broken(): assert attempt("broken") != 1

def test_error(broken): pass
"""


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    return new_workplace(tmp_path)


@pytest.fixture
def suite(job: Job) -> Job:
    (job.workspace / "tests").mkdir()
    (job.workspace / "tests/test_all.py").write_text(SUITE)
    return job


def pytest_stage(job: Job, *arguments: str, reruns: int = 2) -> None:
    options = ("-p", "no:cacheprovider")
    # Only the plug-ins that count: the others of a development environment take a second.
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": "/mine"}
    command = (sys.executable, "-m", "pytest", *options, "tests", *arguments)
    job.stage("pytest", *command, kind=StageKind.PYTEST, reruns=reruns, environment=environment)


def evidence(job: Job) -> tuple[Sequence[Rerun], Sequence[str], RunRecord]:
    files = ResultFiles(folder=job.results)
    assert files.log is not None
    return files.reruns, files.log.node_ids(Outcome.FAILED, Outcome.ERROR), files.record


def outcomes(job: Job) -> dict[str, list[Outcome]]:
    """Of every test that was run again, in order of the attempts."""
    found: dict[str, list[Outcome]] = {}
    for rerun in evidence(job)[0]:
        name = rerun.node_id.partition("::")[2]
        found.setdefault(name, []).append(rerun.outcome)
    return found


def test_what_failed_is_run_again_and_nothing_else(suite: Job) -> None:
    """The crash comes first, and takes the others with it; in the second rerun it comes last."""
    pytest_stage(suite)
    assert suite.run() == 1
    assert outcomes(suite) == {
        "test_a_crash": [Outcome.FAILED, Outcome.FAILED],
        "test_flaky": [Outcome.PASSED],
        "test_failing": [Outcome.FAILED],
        "test_error": [Outcome.PASSED],
    }
    assert [e["signal"] for e in suite.events("rerun_finished")] == [signal.SIGSEGV] * 2
    assert (suite.workspace / "good").read_text() == "xxx"
    assert rerun_notes(*evidence(suite)) == [on_rows.reruns(2, 3, 0), on_rows.reruns(2, 2, 2)]


def test_with_worker_processes_a_crash_takes_nothing_with_it(suite: Job) -> None:
    pytest_stage(suite, "-p", "xdist.plugin", "-n", "2", reruns=1)
    assert suite.run() == 1
    assert outcomes(suite) == {
        "test_a_crash": [Outcome.FAILED],
        "test_flaky": [Outcome.PASSED],
        "test_failing": [Outcome.FAILED],
        "test_error": [Outcome.PASSED],
    }
    assert (suite.workspace / "good").read_text() == "xxx"


# A stage like pytest's: the log of one failed test, then as each test says what it does.
LIKE_PYTEST = """\
import json, os, signal, sys, time
again = "infini_ci_rerun" in sys.argv
[log] = [word.partition("=")[2] for word in sys.argv if word.startswith("--report-log=")]
test = {"$report_type": "TestReport", "nodeid": "t.py::a"}
with open(log, "w") as file:
    for when, outcome in ("setup", "passed"), ("call", "failed"), ("teardown", "passed"):
        print(json.dumps({**test, "when": when, "outcome": outcome}), file=file, flush=True)
        if again and when == "setup": during()
    print('{"$report_type": "SessionFinish", "exitstatus": 1}', file=file)
sys.exit(1)
"""
SLEEP = "def during(): time.sleep(600)\n"
INTERRUPT = "def during():\n  os.kill(int(sys.argv[1]), signal.SIGTERM)\n  time.sleep(600)\n"


def like_pytest(job: Job, during: str, *arguments: str, **changes: Any) -> None:
    job.stage("pytest", sys.executable, "-c", during + LIKE_PYTEST, *arguments, **changes)


def test_the_first_attempt_is_the_run(job: Job) -> None:
    like_pytest(job, "def during(): open('left', 'w')\n", kind=StageKind.PYTEST, reruns=2)
    job.artifacts = {"left": "left"}
    job.run()
    kinds = [e["event"] for e in job.events() if e["event"] != "rerun_started"]
    again = ["artifact_missing", "rerun_finished", "rerun_finished"]
    assert kinds == ["run_started", "stage_started", "stage_finished", *again, "run_finished"]
    assert (job.results / "environment.json").is_file()
    assert not (job.results / "left").exists()
    assert outcomes(job) == {"a": [Outcome.FAILED, Outcome.FAILED]}


def test_all_reruns_together_have_the_time_of_the_stage(job: Job) -> None:
    # The first attempt has to end in that time too, on a busy machine.
    like_pytest(job, SLEEP, kind=StageKind.PYTEST, reruns=3, timeout_s=5.0)
    assert job.run() == 1
    (finished,) = job.events("rerun_finished")
    assert finished["timed_out"] is True
    (ended,) = job.events("reruns_ended")
    assert ended["reason"] == "rerun 1 of 3 reached the time limit of 5 s"
    assert ended["text"] == f"pytest: no more reruns: {ended['reason']}"
    assert job.finished("pytest")["timed_out"] is False
    assert rerun_notes(*evidence(job)) == [
        on_rows.reruns(1, 0, 0),  # that it was ended says nothing about it
        on_rows.reruns_ended("rerun 1 of 3 reached the time limit of 5 s", after_some=True),
    ]


def test_interrupt_ends_the_reruns(job: Job) -> None:
    # The agent is the parent of the supervisor, which is the shell's.
    script = 'exec "$0" -c "$1" $(cut -d" " -f4 /proc/$PPID/stat) "$2" "$3" "$4"'
    program = INTERRUPT + LIKE_PYTEST
    job.stage(
        "pytest", "sh", "-c", script, sys.executable, program, kind=StageKind.PYTEST, reruns=3
    )
    assert job.run() == 130
    (finished,) = job.events("rerun_finished")
    assert finished["interrupted"] is True
    assert job.events("run_finished")[0]["interrupted"] is True


@pytest.mark.parametrize(
    ("failed", "end", "outcome", "reason"),
    [
        (1, True, {}, None),
        (MOST_TESTS, True, {}, None),
        (1, False, {}, "pytest did not finish"),
        (1, True, {"timed_out": True}, "pytest did not finish"),
        (1, True, {"interrupted": True}, "pytest did not finish"),
        (0, True, {}, "pytest failed, but none of its tests did"),
        (201, True, {}, "201 tests failed; more than 200 are not rerun"),
    ],
)
def test_when_nothing_is_run_again(
    tmp_path: Path, failed: int, end: bool, outcome: dict[str, bool], reason: str | None
) -> None:
    lines = [report(f"t.py::a[{n}]", "call", "failed") for n in range(failed)]
    lines += [finish(1)] if end else []
    (tmp_path / "pytest.jsonl").write_text("\n".join(lines))
    command_end = CommandEnd(seconds=1.0, exit_code=1, **outcome)
    assert rerun_refusal(command_end, failed_tests(tmp_path / "pytest.jsonl")) == reason


def test_a_log_without_an_end_names_no_tests(tmp_path: Path) -> None:
    log = tmp_path / "pytest.jsonl"
    failed = report("t.py::a", "call", "failed")
    log.write_text(f"{failed}\n")
    assert failed_tests(log) is None
    log.write_text(f'{failed}\n{finish(1)}\n{{"cut')
    assert failed_tests(log) == ["t.py::a"]
    assert failed_tests(tmp_path / "none") is None


# What becomes of it


def rerun(name: str, attempt: int, outcome: Outcome) -> Rerun:
    return Rerun(node_id=name, attempt=attempt, outcome=outcome, seconds=0.1)


def record(*events: Mapping[str, object]) -> RunRecord:
    clocks = {"time": 0.0, "monotonic": 0.0, "stage": "pytest"}
    return parse_events(json.dumps({**clocks, **event}) for event in events)


ENDED = {"event": "rerun_finished", "attempt": 1, "seconds": 1.0, "exit_code": 1}


@pytest.mark.parametrize(
    ("passed", "notes"),
    [
        # Tests, attempts, passed attempts
        ({"a": "ppf", "b": "pp"}, [(1, 3, 2), (1, 2, 2)]),
        ({"a": "pf", "b": "pf", "c": "pf"}, [(3, 6, 3)]),
        ({"a": "fff", "b": "fff"}, [(2, 6, 0)]),
        ({"a": "f"}, [(1, 1, 0)]),
        ({"a": "pp"}, [(1, 2, 2)]),
        ({"a": ""}, [(1, 0, 0)]),
        ({"a": "s"}, [(1, 0, 0)]),
    ],
)
def test_notes(passed: dict[str, str], notes: list[tuple[int, int, int]]) -> None:
    word = {"p": Outcome.PASSED, "f": Outcome.FAILED, "s": Outcome.SKIPPED}
    reruns = [
        rerun(name, attempt, word[letter])
        for name, letters in passed.items()
        for attempt, letter in enumerate(letters, 1)
    ]
    assert rerun_notes(reruns, passed, record(ENDED)) == [on_rows.reruns(*note) for note in notes]


def test_a_note_gives_the_reason_for_no_reruns() -> None:
    ended = {"event": "reruns_ended", "reason": "pytest did not finish"}
    assert rerun_notes([], ["a"], record(ended))[-1] == on_rows.reruns_ended(
        "pytest did not finish", after_some=False
    )
    assert rerun_notes([], ["a"], record()) == []


def test_a_run_with_reruns_from_beginning_to_end(work: Workplace) -> None:
    flaky = "import pathlib\ndef test_b():\n    p = pathlib.Path('x')\n    seen = p.exists()\n"
    work.write("tests/test_b.py", flaky + "    p.touch()\n    assert seen\n")
    work.write("ci.yaml", CONFIG.replace("kind: pytest", "kind: pytest\n  reruns: 1"))
    result, run = work.run()
    [platform] = result.platforms
    assert (platform.verdict.product, platform.verdict.harness) == (Product.FAILED, Harness.CLEAN)
    assert platform.pytest is not None
    assert platform.pytest.summary is not None
    assert platform.pytest.summary.startswith("1 failed, 1 passed in ")
    assert platform.findings[:2] == (on_rows.failed_counts(1, 0, 0), on_rows.reruns(1, 1, 1))
    assert [stage.name for stage in platform.stages] == ["image", "sync", "build", "pytest"]
    assert {"pytest.rerun-1.jsonl", "pytest.rerun-1.log"} <= set(platform.artifacts)
    details = ResultFiles(folder=run.records.folder / "cpu").details
    assert [(found.attempt, found.outcome) for found in details.reruns] == [(1, Outcome.PASSED)]


@pytest.mark.parametrize(("asked", "configured", "reruns"), [(None, 3, 3), (0, 3, 0), (5, 0, 5)])
def test_the_command_line_wins_and_a_resumed_run_keeps_it(
    work: Workplace, asked: int | None, configured: int, reruns: int
) -> None:
    text = CONFIG.replace("kind: pytest", f"kind: pytest\n  reruns: {configured}")
    work.write("ci.yaml", text)
    source = work.folder / "source"
    project = load_project(source / "ci.yaml", {})
    request = new_request(
        *(project, ["cpu"]),
        source_folder=source,
        results=work.results,
        options=RunOptions(reruns=asked),
    )
    request = RunRequest.model_validate_json(request.model_dump_json())
    [plan] = plan_run(
        *(project, ["cpu"]),
        run_id=request.run_id,
        source=source,
        results=work.results,
        options=request,
    )
    assert {stage.name: stage.reruns for stage in plan.stages} == {"build": 0, "pytest": reruns}


@pytest.mark.parametrize("number", ["-1", "x", "101"])
def test_an_invalid_number(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["run", "cpu", f"--reruns={number}"])
    assert (
        f"got '{number}', expected a number of at least 0 and at most 100"
        in capsys.readouterr().err
    )
