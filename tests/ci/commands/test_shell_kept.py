"""``run --keep``: which environments stay, and how a shell finds that one is held open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ci import cli
from ci.engines.host.workfolder import WorkFolder
from ci.engines.shells import Doorway, Opened
from ci.errors import ExitCode, InfrastructureError
from ci.facts.sentences import on_rows
from ci.plan.project import load_project, plan_run
from ci.protocol.events import (
    LeaseWaiting,
    RunFinished,
    RunStarted,
    StageFinished,
    StageSkipped,
    StageStarted,
)
from ci.protocol.job import PROTOCOL
from ci.report.table import ResultsReport
from tests.ci.shown_events import Shown
from tests.ci.workplace import Workplace, new_workplace

FAILING = "def test_a(): assert 0\n"


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    return new_workplace(tmp_path)


def test_a_failed_platform_is_kept(work: Workplace) -> None:
    work.write("tests/test_a.py", FAILING)
    run, _ = work.run(keep=True)
    assert work.engine.calls == ["prepare cpu", "execute cpu", "keep cpu"]
    [row] = run.platforms
    name = f"infini-ci-{run.run_id}-cpu-kept"
    assert row.kept == name
    assert row.findings[-1] == on_rows.kept(name)
    shown = ResultsReport(run).markdown()
    assert "A shell in what the run left, as long as it is kept:" in shown
    assert shown.count(f"shell {run.run_id} cpu") == 1


def test_a_failed_build_is_kept(work: Workplace) -> None:
    work.write("build.py", "raise SystemExit(3)")
    run, _ = work.run(keep=True)
    assert run.platforms[0].kept
    assert "A shell in what the run left" in ResultsReport(run).markdown()


def test_a_passed_platform_is_removed(work: Workplace) -> None:
    run, _ = work.run(keep=True)
    assert work.engine.calls == ["prepare cpu", "execute cpu", "remove cpu"]
    assert run.platforms[0].kept is None


def test_nothing_is_kept_without_the_option(work: Workplace) -> None:
    work.write("tests/test_a.py", FAILING)
    run, _ = work.run()
    assert work.engine.calls == ["prepare cpu", "execute cpu"]
    assert run.platforms[0].kept is None
    assert "A shell in the same environment:" in ResultsReport(run).markdown()


def test_an_interrupted_platform_is_not_kept(work: Workplace) -> None:
    work.engine.interrupted = True
    run, _ = work.run(keep=True)
    assert work.engine.calls == ["prepare cpu", "execute cpu"]  # which has removed it
    assert run.platforms[0].kept is None


def test_a_verdict_stays_if_its_environment_cannot(work: Workplace) -> None:
    work.write("tests/test_a.py", FAILING)
    work.engine.settle_error = InfrastructureError("the engine is gone", remedy="wait")
    run, _ = work.run(keep=True)
    assert run.platforms[0].verdict.product == "failed"
    assert run.platforms[0].kept is None
    assert "its environment may remain: the engine is gone (wait)" in work.output()


def test_a_new_attempt_removes_what_the_last_one_left(work: Workplace) -> None:
    work.engine.prepare_error = InfrastructureError("the registry is gone")
    run, coordinator = work.run(keep=True)
    assert work.engine.calls == ["prepare cpu"]
    work.new_engine()
    work.run(coordinator.request)
    calls = ["resume cpu", "remove cpu", "prepare cpu", "execute cpu", "remove cpu"]
    assert work.engine.calls == calls
    assert (work.results / run.run_id / "cpu.attempt-1").is_dir()


def test_a_dry_run_keeps_nothing(work: Workplace, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(work.folder / "source" / "ci.yaml")
    words = ["run", "cpu", "--config", config, "--keep", "--dry-run"]
    assert cli.main(words) == ExitCode.USAGE
    assert "--keep: cannot be combined with --dry-run: a dry run creates" in capsys.readouterr().err


def test_a_kept_work_folder_is_no_run_to_adopt(work: Workplace) -> None:
    project = load_project(work.folder / "source" / "ci.yaml", {})
    [plan] = plan_run(project, ["cpu"], run_id="a", source=project.source, results=work.results)
    folder = WorkFolder.create(plan)
    try:
        assert WorkFolder.find(plan) == folder
        assert WorkFolder.find(plan, kept=True) is None
        folder.keep()
        assert WorkFolder.find(plan) is None
        assert WorkFolder.find(plan, kept=True) == folder
        other = replace(plan, results=work.results / "b" / "cpu")
        assert WorkFolder.find(other, kept=True) is None
    finally:
        folder.path.rmdir()


BEGUN = RunStarted(PROTOCOL, run_id="a", platform="cpu", pid=1)
OPEN = StageStarted("shell")
ENDED = StageFinished("shell", seconds=1.0, exit_code=0)


def test_past_events_are_read_but_not_shown() -> None:
    seen = Shown()
    doorway = Doorway(seen, "shell")
    for event in (BEGUN, OPEN, ENDED, RunFinished(exit_code=0)):
        doorway.event(event)
    assert (doorway.is_open, doorway.reason, seen.events) == (False, None, [])
    for event in (BEGUN, OPEN):
        doorway.event(event)
    assert doorway.is_open  # another shell's
    doorway.enter()
    assert seen.events == [OPEN]


def test_the_start_of_the_stage_opens_it() -> None:
    seen = Shown()
    doorway = Doorway(seen, "shell")
    doorway.event(StageSkipped("shell", reason="of an earlier one"))
    doorway.is_live = True
    shown = (BEGUN, LeaseWaiting("shell", text="waits"), StageStarted("pytest"))
    doorway.event(shown[0])
    assert doorway.reason is None
    doorway.event(shown[1])
    doorway.event(shown[2])
    with pytest.raises(Opened, match=r"^$"):
        doorway.event(OPEN)
    assert doorway.is_open
    assert seen.events == [*shown]


def test_why_it_is_not_open() -> None:
    doorway = Doorway(Shown(), "shell")
    doorway.is_live = True
    doorway.event(BEGUN)
    doorway.event(StageSkipped("shell", reason="no device is free"))
    doorway.event(RunFinished(exit_code=0))
    assert (doorway.is_open, doorway.reason) == (False, "no device is free")
