"""What every engine must do, on real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ci.facts.platform_result import judged_result
from ci.facts.result_files import ResultFiles
from ci.facts.sentences import on_tests
from ci.model.plan import RunPlan
from ci.model.verdicts import Product
from ci.protocol.events import RunFinished
from ci.protocol.stage_kind import StageKind
from tests.e2e.benches import Bench
from tests.e2e.plans import REQUIREMENTS, python_stage, stage

INSTALL = stage("install", "python", "-m", "pip", "install", ".", "--no-build-isolation")
PYTEST = stage("pytest", "python", "-m", "pytest", "tests", kind=StageKind.PYTEST)

REPOSITORY = Path(__file__).parents[2]


def events(plan: RunPlan, kind: str) -> list[dict[str, Any]]:
    lines = (plan.results / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def test_install_and_tests(bench: Bench) -> None:
    plan = bench.plan(
        INSTALL, PYTEST, requirements=REQUIREMENTS, artifacts={"sources": "src", "gone": "gone"}
    )
    facts = bench.run(plan)
    assert facts.engine == bench.engine.name
    assert (facts.exit_code, facts.lost, facts.interrupted) == (1, False, False)
    install, pytest_stage = events(plan, "stage_finished")
    assert (install["exit_code"], pytest_stage["exit_code"]) == (0, 1)
    assert "1 failed, 2 passed" in (plan.results / "pytest.log").read_text()
    reports = (plan.results / "pytest.jsonl").read_text()
    assert reports.count('"when": "call"') == 3
    assert (plan.results / "junit.xml").is_file()
    assert json.loads((plan.results / "environment.json").read_text())["packages"]["tiny"] == "1"
    with tarfile.open(plan.results / "sources.tar.gz") as archive:
        assert "src/tiny/__init__.py" in archive.getnames()
    assert [event["name"] for event in events(plan, "artifact_missing")] == ["gone"]
    assert "Successfully installed tiny-1" in str(bench.observer.printed)
    assert bench.observer.every(RunFinished)


def test_two_runs_of_pytest_are_one_verdict_on_every_engine(bench: Bench) -> None:
    run = 'python -m pytest tests -k {} "$@"'
    script = f"export PYTHONPATH=src:$PYTHONPATH; {run.format('fails')}; {run.format('answer')}"
    twice = stage("pytest", "sh", "-c", script, "sh", kind=StageKind.PYTEST)
    plan = bench.plan(twice, requirements=REQUIREMENTS)
    facts = bench.run(plan)
    files = ResultFiles(folder=plan.results, stages=plan.stages)
    result = judged_result(plan, facts, files)
    assert result.verdict.product is Product.FAILED, result.verdict
    assert result.verdict.evidence == (
        on_tests.failed_tests(1, 0, 0, ["tests/test_tiny.py::test_that_fails"]),
        on_tests.several_runs(2, "pytest", "1"),
    )
    assert result.pytest is not None
    assert (result.pytest.failed, result.pytest.passed, result.pytest.summary) == (1, 1, None)


def test_odd_names_and_absolute_links_arrive(bench: Bench) -> None:
    program = r"print(open(b'caf\xe9').read(), open('link').read())"
    plan = bench.plan(python_stage("look", program))
    (plan.source / os.fsdecode(b"caf\xe9")).write_text("odd")
    (plan.source / "link").symlink_to(plan.source / "src/tiny/__init__.py")
    facts = bench.run(plan)
    assert (plan.results / "look.log").read_text() == "odd ANSWER = 42\n\n"
    assert not [note for note in facts.notes if "left out" in note]


def test_crashing_stage(bench: Bench) -> None:
    crash = python_stage("crash", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    plan = bench.plan(crash, stage("later", "true"))
    facts = bench.run(plan)
    assert (facts.exit_code, facts.lost, facts.oom_killed) == (1, False, False)
    (finished,) = events(plan, "stage_finished")
    assert (finished["exit_code"], finished["signal"]) == (139, signal.SIGSEGV)
    assert [event["stage"] for event in events(plan, "stage_skipped")] == ["later"]


def test_interrupt_keeps_what_there_is(bench: Bench) -> None:
    plan = bench.plan(stage("first", "true"), stage("hang", "sh", "-c", "echo ready; sleep 600"))
    bench.observer.reactions["ready"] = lambda: signal.raise_signal(signal.SIGINT)
    facts = bench.run(plan)
    assert facts.interrupted
    assert not facts.lost
    assert facts.exit_code == 130
    first, hang = events(plan, "stage_finished")
    assert (first["exit_code"], hang["interrupted"]) == (0, True)
    assert bench.engine.resume(plan, bench.observer) is None  # no leftovers


@pytest.mark.parametrize(
    "second",
    [
        pytest.param("asked", id="later"),
        pytest.param("interrupted: ending the running stage", id="at once"),
    ],
)
def test_second_interrupt_keeps_what_there_is(bench: Bench, second: str) -> None:
    stubborn = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.1; done"
    plan = bench.plan(stage("first", "true"), stage("hang", "sh", "-c", stubborn))
    for text in ("ready", second):
        bench.observer.reactions[text] = lambda: signal.raise_signal(signal.SIGINT)
    assert bench.run(plan).interrupted
    assert [event["stage"] for event in events(plan, "stage_finished")] == ["first"]
    assert (plan.results / "hang.log").read_text().startswith("ready\n")
    assert bench.engine.resume(plan, bench.observer) is None


CALLER = """
import os, signal, sys
from pathlib import Path

sys.path.insert(0, sys.argv[4])
from tests.e2e.benches import Bench
from tests.e2e.test_engines import survivor
from ci.engines.select import select_engine
from ci.model.plan import EngineKind, EnginePlan

engine = EnginePlan(name=sys.argv[1], kind=EngineKind(sys.argv[1]))
bench = Bench(select_engine(engine), Path(sys.argv[2]))
bench.run_id = sys.argv[3]
bench.observer.reactions["begun"] = lambda: os.kill(os.getpid(), signal.SIGKILL)
bench.run(survivor(bench))
"""


def survivor(bench: Bench) -> RunPlan:
    """Plan a run that continues for a while after its caller was killed."""
    return bench.plan(
        stage("build", "sh", "-c", "echo begun; sleep 2; echo ended"), stage("later", "true")
    )


def test_killed_caller_is_replaced(bench: Bench) -> None:
    arguments = [bench.engine.name, str(bench.folder), bench.run_id, str(REPOSITORY)]
    environment = {**os.environ, "TMPDIR": str(bench.folder)}
    dead = subprocess.run([sys.executable, "-c", CALLER, *arguments], env=environment, check=False)
    assert dead.returncode == -signal.SIGKILL
    plan = survivor(bench)
    facts = bench.engine.resume(plan, bench.observer)
    assert facts is not None
    assert (facts.exit_code, facts.lost) == (0, False)
    # The log from its beginning, each line once.
    assert bench.observer.printed == ["begun", "ended"]
    assert (plan.results / "build.log").read_text() == "begun\nended\n"
    assert bench.engine.resume(plan, bench.observer) is None
