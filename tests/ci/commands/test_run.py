"""The coordinator with the real agent: table, JSON and exit code show the planted outcomes."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from ci.engines import Observer
from ci.errors import ExitCode, InfrastructureError, UsageError
from ci.facts.sentences import on_harness, on_rows, on_stages, on_tests
from ci.gates.rules import exit_code
from ci.model.execution import ImageFacts
from ci.model.plan import RunPlan
from ci.model.results import BuildResult, PlatformResult, RunResult
from ci.model.verdicts import Harness, Product
from ci.plan.request import RunRequest, load_request
from ci.protocol.events import Event
from ci.report.table import stage_rows, table_rows
from ci.run import platform
from ci.run.coordinator import RunCoordinator
from ci.store.folder import read_results
from ci.store.store import Store
from tests.ci.hostile import FORGED_TIMES
from tests.ci.local_engine import LocalEngine, facts, run_agent
from tests.ci.published import table_markdown
from tests.ci.stored_history import git
from tests.ci.workplace import CONFIG, CONTRACT, PASSING, Workplace, new_workplace
from tests.findings import Finding, finding

RED = (Product.FAILED, Harness.CLEAN, ExitCode.PRODUCT_FAILURE)
NOT_JUDGED = (Product.INCOMPLETE, Harness.INFRASTRUCTURE, ExitCode.INFRASTRUCTURE)


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    return new_workplace(tmp_path)


def judged(result: PlatformResult) -> tuple[Product, Harness, ExitCode]:
    return result.verdict.product, result.verdict.harness, exit_code([result])


def unprepared_run(work: Workplace) -> RunCoordinator:
    """A run whose image could not be prepared; the next engine can."""
    work.engine.prepare_error = InfrastructureError("no space left")
    _, run = work.run()
    work.new_engine()
    return run


def resumed(work: Workplace, run: RunCoordinator) -> RunResult:
    """Resume a run, with an engine that knows nothing of it."""
    work.new_engine()
    return work.run(load_request(work.results, run.request.run_id))[0]


def test_a_good_run(work: Workplace) -> None:
    result = work.only()
    assert judged(result) == (Product.PASSED, Harness.CLEAN, ExitCode.PASSED)
    assert result.built is True
    assert result.pytest is not None
    assert result.pytest.passed == 1
    assert result.pytest.summary is not None
    assert result.pytest.summary.startswith("1 passed in ")
    in_total = {stage.name: stage.in_total for stage in result.stages}
    assert in_total == {"image": False, "sync": False, "build": True, "pytest": True}
    assert result.build_install_s is not None
    assert result.pytest_s is not None
    assert result.total_s == result.build_install_s + result.pytest_s
    assert {"events.jsonl", "pytest.jsonl", "junit.xml", "generated.tar.gz"} <= set(
        result.artifacts
    )
    assert on_rows.full_suite() in result.findings
    assert result.build == BuildResult(generated_lines=0)  # of an empty file


def test_what_lies_on_disk(work: Workplace) -> None:
    result, run = work.run()
    latest = work.results / "latest"
    assert latest.readlink() == Path(result.run_id)
    assert json.loads((latest / "results.json").read_text())["run_id"] == result.run_id
    assert table_markdown(result.platforms) in (latest / "results.md").read_text()
    assert all((latest / path).is_file() for path in result.platforms[0].artifacts.values())
    assert load_request(work.results, result.run_id) == run.request


def test_a_failing_test(work: Workplace) -> None:
    work.write("tests/test_b.py", "def test_b(): assert 1 == 2\n")
    result = work.only()
    assert judged(result) == RED
    assert result.verdict.evidence[0] == on_tests.failed_tests(1, 0, 0, ["tests/test_b.py::test_b"])
    assert on_rows.failed_counts(1, 0, 0) in result.findings
    assert "assert 1 == 2" in work.output()  # the end of the failing stage's log


def test_a_failing_build(work: Workplace) -> None:
    work.write("build.py", "raise SystemExit('error: no such header')\n")
    result = work.only()
    assert judged(result) == RED
    assert result.built is False
    assert result.pytest is None
    assert result.total_s is None
    assert (result.stages[-1].name, result.stages[-1].seconds) == ("pytest", None)
    assert "| CPU | No | not run |" in table_markdown([result])
    assert "error: no such header" in work.output()
    assert "pytest: not run: build failed" in work.output()


def test_a_crash_of_the_test_process(work: Workplace) -> None:
    crash = "import os, signal\ndef test_b(): os.kill(os.getpid(), signal.SIGSEGV)\n"
    work.write("tests/test_b.py", crash)
    result = work.only()
    assert judged(result) == (Product.FAILED, Harness.CRASHED, ExitCode.PRODUCT_FAILURE)
    assert on_rows.process_crashed(["tests/test_b.py::test_b"]) in result.findings
    assert result.pytest is not None
    assert (result.pytest.passed, result.pytest.summary) == (1, None)
    assert result.stages[-1].exit_code == 139


KILL_ALL = """\
import os, pathlib, signal

def test_b():
    supervisor = os.getppid()
    status = pathlib.Path(f"/proc/{supervisor}/stat").read_text()
    agent = int(status.rpartition(")")[2].split()[1])
    for process in (agent, supervisor, os.getpid()):
        os.kill(process, signal.SIGKILL)
"""


def test_a_test_that_kills_the_agent_too(work: Workplace) -> None:
    work.write("tests/test_b.py", KILL_ALL)
    result = work.only()
    assert judged(result) == NOT_JUDGED
    assert stage_rows(result)[-1].exit_code == "no result"


def test_a_test_that_leaves_pytest_behind(work: Workplace) -> None:
    work.write("tests/test_b.py", "import os\ndef test_b(): os._exit(0)\n")
    result = work.only()
    assert judged(result) == (Product.INCOMPLETE, Harness.CRASHED, ExitCode.PRODUCT_FAILURE)
    assert on_rows.process_crashed(["tests/test_b.py::test_b"]) in result.findings


@pytest.mark.parametrize("loss", ["log.unlink()", "log.write_text('')", "log.write_text('{')"])
def test_a_red_log_that_the_suite_deletes_is_still_red(work: Workplace, loss: str) -> None:
    delete = "    log = pathlib.Path(config.option.report_log)\n"
    hook = f"import pathlib\ndef pytest_unconfigure(config):\n{delete}    {loss}\n"
    work.write("tests/conftest.py", hook)
    work.write("tests/test_b.py", "def test_b(): assert False\n")
    result = work.only()
    assert result.verdict.product is Product.FAILED
    assert exit_code([result]) is ExitCode.PRODUCT_FAILURE
    assert result.pytest is not None
    assert (result.pytest.passed, result.pytest.failed) == (1, 1)
    [row] = table_rows([result])
    assert row.pytest_result.startswith("1 failed, 1 passed in ")


def test_a_suite_that_cannot_begin_has_no_result(work: Workplace) -> None:
    work.write("ci.yaml", CONFIG.replace("pytest -q", "pytest --bogus"))
    result = work.only()
    assert [row.exit_code for row in stage_rows(result) if row.stage == "pytest"] == ["4"]
    assert "| CPU | Yes | no result |" in table_markdown([result])


def test_a_file_that_cannot_be_imported_is_an_error(work: Workplace) -> None:
    work.write("tests/test_b.py", "import nothing_of_that_name\n")
    assert on_rows.failed_counts(0, 0, 1) in work.only().findings


def test_an_interrupted_build_proves_nothing(work: Workplace) -> None:
    stop = "import os, signal\nos.kill(os.getppid(), signal.SIGTERM)\nsignal.pause()\n"
    work.write("build.py", stop)
    result = work.only()
    assert result.built is None
    assert result.verdict.product is Product.INCOMPLETE
    assert result.failures == ()  # no command repeats what was ended from outside


def test_a_crash_after_the_summary(work: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # some images set it
    die = "import os\ndef pytest_unconfigure(config):\n    os._exit(137)\n"
    work.write("tests/conftest.py", die)
    result = work.only()
    assert judged(result) == (Product.PASSED, Harness.EXIT_AFTER_SUMMARY, ExitCode.PASSED)
    assert on_rows.wrapper_returned(137, by_agent=False) in result.findings


def test_a_log_that_is_cut_after_a_whole_record(work: Workplace) -> None:
    conftest = """\
def pytest_runtest_logfinish(nodeid):
    if nodeid.endswith("test_a"):
        log.close()
        manager.unregister(log)

def pytest_sessionstart(session):
    global log, manager
    log, manager = session.config._report_log_plugin, session.config.pluginmanager
"""
    work.write("tests/conftest.py", conftest)
    work.write("tests/test_a.py", "def test_a(): pass\ndef test_b(): assert False\n")
    result = work.only()
    assert result.verdict.product is Product.FAILED
    assert result.pytest is not None
    assert (result.pytest.passed, result.pytest.failed) == (1, 1)
    assert str(result.pytest.summary).startswith("1 failed, 1 passed in ")


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (
            "import pytest\ndef test_a(): pytest.skip('no device')\n",
            finding(on_tests.nothing_passed, skipped=1),
        ),
        (
            "",
            finding(on_tests.bad_exit, reporter="pytest", status=5, detail=": no tests collected"),
        ),
    ],
)
def test_skipped_and_empty_are_no_success(work: Workplace, text: str, note: Finding) -> None:
    work.write("tests/test_a.py", text)
    result = work.only()
    assert judged(result) == (Product.INCOMPLETE, Harness.CLEAN, ExitCode.PRODUCT_FAILURE)
    assert note.is_in(result.findings)


def test_a_build_that_times_out_and_reports_success(work: Workplace) -> None:
    # Not in Python, which a busy machine may not have started when the time is up.
    work.write("ci.yaml", CONFIG.replace("python build.py", "sh build.sh\n  timeout_s: 1"))
    work.write("build.sh", "trap 'exit 0' TERM\nsleep 600 &\nwait\n")
    result = work.only()
    assert judged(result) == (Product.INCOMPLETE, Harness.TIMED_OUT, ExitCode.PRODUCT_FAILURE)
    assert result.built is False


def test_a_session_that_chooses_its_own_end(work: Workplace) -> None:
    leave = "import pytest\ndef test_b(): pytest.exit('enough', returncode=0)\n"
    work.write("tests/test_b.py", leave + "def test_c(): assert False\n")
    result = work.only()
    assert judged(result) == (Product.INCOMPLETE, Harness.CLEAN, ExitCode.PRODUCT_FAILURE)
    assert on_tests.exit_called(0, "enough") in result.findings
    assert on_tests.ended_within(0, ["tests/test_b.py::test_b"]) in result.verdict.evidence


def test_a_fixture_that_ends_the_session(work: Workplace) -> None:
    fixture = "import pytest\n@pytest.fixture\ndef leave(): pytest.exit('x', returncode=0)\n"
    work.write("tests/test_b.py", fixture + "def test_b(leave): pass\n")
    work.write("ci.yaml", CONFIG.replace(" -q", ""))  # silent about what it has collected
    result = work.only()
    assert judged(result) == (Product.INCOMPLETE, Harness.CLEAN, ExitCode.PRODUCT_FAILURE)
    assert on_tests.exit_called(0, "x") in result.findings
    assert on_tests.ended_early(0, 1, 2) in result.verdict.evidence


def test_odd_characters_are_no_obstacle(work: Workplace) -> None:
    test = """\
import os

def test_b():
    name = os.fsdecode(b"caf\\xe9.bin")
    open(f"../cpu/{name}", "w").close()  # into the results
    raise OSError(f"cannot open {name}")
"""
    work.write("tests/test_b.py", test)
    result = work.only()
    assert judged(result) == RED
    assert result.artifacts[r"caf\udce9.bin"] == r"cpu/caf\udce9.bin"


def test_a_broken_image(work: Workplace) -> None:
    error = InfrastructureError("cannot pull https://me:secret@host/base", remedy="Log in.")
    work.engine.prepare_error = error
    result = work.only()
    assert judged(result) == (
        Product.NOT_RUN,
        Harness.INFRASTRUCTURE,
        ExitCode.INFRASTRUCTURE,
    )
    assert result.findings == (on_stages.not_run("cannot pull https://***@host/base (Log in.)"),)
    assert "cannot pull https://***@host/base" in work.output()
    assert "secret" not in work.output() + result.model_dump_json()


def test_an_engine_that_refuses_the_run(work: Workplace) -> None:
    work.engine.refusal = InfrastructureError("minimum memory limit allowed is 6MB")
    result = work.only()
    assert judged(result) == (
        Product.NOT_RUN,
        Harness.INFRASTRUCTURE,
        ExitCode.INFRASTRUCTURE,
    )
    assert [evidence.text for evidence in result.verdict.evidence] == [str(work.engine.refusal)]


def test_a_remedy_is_no_part_of_the_log_above_it(work: Workplace) -> None:
    work.engine.prepare_error = InfrastructureError("no image\n    its log", remedy="Get one.")
    [evidence] = work.only().verdict.evidence
    assert evidence.text == "no image\n    its log\nGet one."


def test_an_engine_that_fails_later_loses_nothing(work: Workplace) -> None:
    work.engine.execute_error = InfrastructureError("the engine went away")
    result = work.only()
    assert (result.verdict.product, result.verdict.harness) == (Product.PASSED, Harness.LOST)
    assert "the engine went away" in result.notes


@pytest.mark.parametrize("step", ["prepare_error", "execute_error"])
def test_a_full_disk_is_a_result_like_any_other(work: Workplace, step: str) -> None:
    setattr(work.engine, step, OSError(28, "No space left on device"))
    result = work.only()
    assert result.verdict.harness in (Harness.INFRASTRUCTURE, Harness.LOST)
    assert any("No space left on device" in note for note in result.notes)


def test_a_fault_of_this_program_is_a_result_like_any_other(work: Workplace) -> None:
    work.engine.prepare_error = ZeroDivisionError("a bug")
    result = work.only()
    assert judged(result) == (Product.NOT_RUN, Harness.INFRASTRUCTURE, ExitCode.INFRASTRUCTURE)
    assert result.findings == (on_stages.not_run("ZeroDivisionError: a bug"),)
    assert "raise self.prepare_error" in work.output()  # for the developer who fixes it


def test_an_interrupt_while_the_image_is_built(work: Workplace) -> None:
    work.engine.prepare_error = KeyboardInterrupt()
    result, run = work.run()
    assert run.interrupted
    assert judged(result.platforms[0])[0] is Product.NOT_RUN
    assert "interrupted while the image was prepared" in result.platforms[0].notes[0]


def test_an_interrupt_keeps_what_was_measured(work: Workplace) -> None:
    work.engine.interrupted = True
    result, run = work.run()
    assert run.interrupted
    assert on_rows.interrupted() in result.platforms[0].findings
    assert result.platforms[0].build_install_s is not None


def test_an_interrupt_never_keeps_results_from_the_disk(
    work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, handler = Store.save, signal.getsignal(signal.SIGINT)

    def interrupted_save(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        save(*arguments)

    monkeypatch.setattr(Store, "save", interrupted_save)
    result, run = work.run()  # finds the same on disk and in the store
    assert run.interrupted
    reason = "the run was interrupted before this platform started"
    assert result.platforms[0].findings == (on_stages.not_run(reason),)
    assert signal.getsignal(signal.SIGINT) is handler


def test_resuming_a_finished_run_runs_nothing(work: Workplace) -> None:
    first, run = work.run()
    second = resumed(work, run)
    assert work.engine.calls == []
    assert second.platforms == first.platforms


def test_resuming_adopts_what_the_engine_still_has(work: Workplace) -> None:
    request = _interrupted_before_the_verdict(work)
    work.engine.adopted = facts(None, exit_code=0)
    result, _ = work.run(request)
    assert work.engine.calls == ["resume cpu"]
    assert result.platforms[0].verdict.product is Product.PASSED
    assert result.run_id == request.run_id
    assert result.platforms[0].notes[1].startswith("resumed: ")


def test_resuming_judges_results_without_a_verdict(work: Workplace) -> None:
    request = _interrupted_before_the_verdict(work)
    result, _ = work.run(request)
    assert work.engine.calls == ["resume cpu"]
    assert result.platforms[0].verdict.product is Product.PASSED
    assert [stage.name for stage in result.platforms[0].stages] == ["build", "pytest"]


def test_resuming_runs_again_what_was_judged_as_incomplete(work: Workplace) -> None:
    flag = work.results.with_name("flag")
    leave_once = "if not flag.exists():\n        flag.touch()\n        os._exit(0)\n"
    test = (
        f"import os, pathlib\nflag = pathlib.Path({str(flag)!r})\ndef test_b():\n    {leave_once}"
    )
    work.write("tests/test_b.py", test)
    first, run = work.run()
    assert first.platforms[0].verdict.product is Product.INCOMPLETE
    result = resumed(work, run)
    assert work.engine.calls == ["resume cpu", "prepare cpu", "execute cpu"]
    assert result.platforms[0].verdict.product is Product.PASSED


def test_resuming_does_not_guess_the_events_of_another_version(work: Workplace) -> None:
    request = _interrupted_before_the_verdict(work)
    events = work.results / request.run_id / "cpu" / "engine-events.jsonl"
    first, *others = events.read_text().splitlines()
    older = json.dumps({**json.loads(first), "protocol": 2})
    events.write_text("\n".join([older, *others, ""]))
    result, _ = work.run(request)
    [row] = result.platforms
    assert judged(row) == NOT_JUDGED
    assert "agent's events: got protocol 2, expected 7" in row.verdict.evidence[0].text


def test_resuming_starts_over_without_a_container(work: Workplace) -> None:
    result = resumed(work, unprepared_run(work))
    assert work.engine.calls == ["resume cpu", "prepare cpu", "execute cpu"]
    assert result.platforms[0].verdict.product is Product.PASSED


def test_resuming_an_interrupted_run_runs_it_again(work: Workplace) -> None:
    request = _interrupted_before_the_verdict(work)
    events = work.results / request.run_id / "cpu" / "engine-events.jsonl"
    *others, last = events.read_text().splitlines()
    ended = json.dumps({**json.loads(last), "exit_code": 130, "interrupted": True})
    events.write_text("\n".join([*others, ended, ""]))
    result, _ = work.run(request)
    assert work.engine.calls == ["resume cpu", "prepare cpu", "execute cpu"]
    assert result.platforms[0].verdict.product is Product.PASSED


@pytest.mark.parametrize("resumed", [False, True])
def test_forged_times_are_not_believed(work: Workplace, resumed: bool) -> None:
    work.write("tests/test_a.py", FORGED_TIMES)
    if resumed:
        result, _ = work.run(_interrupted_before_the_verdict(work))
        assert work.engine.calls == ["resume cpu"]
    else:
        result, _ = work.run()
    [row] = result.platforms
    assert row.verdict.product is Product.PASSED
    [build] = [stage for stage in row.stages if stage.name == "build"]
    assert build.seconds is not None
    assert build.seconds > 0.005  # Python takes longer to start
    assert row.build_install_s == build.seconds
    found = [it for it in row.verdict.evidence if it.code == on_harness.record_changed.code]
    ends = f"exit code 0 after {build.seconds:.3f} s; the file has exit code 0 after 0.001 s"
    assert found == [on_harness.record_changed(f"stage build ended with {ends}")]


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda text: text[:200],
    "not UTF-8": lambda _: b"\xff",
    "empty": lambda _: b"",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_resuming_rebuilds_damaged_results(work: Workplace, name: str) -> None:
    first, run = work.run()
    path = run.records.folder / "results.json"
    path.write_bytes(DAMAGED[name](path.read_bytes()))
    result = resumed(work, run)
    assert work.engine.calls == ["resume cpu"]
    assert result.platforms[0].pytest == first.platforms[0].pytest
    assert result.platforms[0].verdict == first.platforms[0].verdict
    assert "its rows are rebuilt from the platforms' files" in work.output()


def test_resuming_with_other_sources_is_refused(work: Workplace) -> None:
    run = unprepared_run(work)
    result = read_results(run.records.folder / "results.json")
    work.write("tests/test_a.py", "def test_a(): assert False\n")
    with pytest.raises(UsageError, match=f"run {result.run_id} had other sources: files in"):
        work.run(run.request)
    assert work.engine.calls == ["resume cpu"]
    assert read_results(run.records.folder / "results.json") == result
    work.write("tests/test_a.py", PASSING)
    assert work.run(run.request)[0].platforms[0].verdict.product is Product.PASSED


def test_resuming_with_another_version_is_refused(work: Workplace) -> None:
    work.commit()
    run = unprepared_run(work)
    git(work.folder / "source", "tag", "v2")  # which the build may read
    with pytest.raises(UsageError, match="had other sources: files in"):
        work.run(run.request)
    git(work.folder / "source", "tag", "--delete", "v2")
    assert work.run(run.request)[0].platforms[0].verdict.product is Product.PASSED


def test_resuming_at_another_commit_is_refused(work: Workplace) -> None:
    work.commit()
    run = unprepared_run(work)
    work.commit()  # of the same files
    message = rf"commit \w+, but the run began with {run.request.commit}"
    with pytest.raises(UsageError, match=message):
        work.run(run.request)


def test_the_branch_is_that_of_the_start_of_the_run(work: Workplace) -> None:
    work.commit()
    work.commit()
    work.engine.prepare_error = InfrastructureError("no space left")
    result, run = work.run()
    source = work.folder / "source"
    branch = git(source, "symbolic-ref", "--short", "HEAD")
    parent = git(source, "rev-parse", "HEAD~1")
    assert (result.lineage.branch, result.lineage.parents) == (branch, (parent,))
    assert result.lineage.depth == 2
    git(source, "checkout", "--quiet", "-b", "another")
    work.new_engine()
    assert work.run(run.request)[0].lineage == result.lineage


def test_resuming_with_another_configuration_is_refused(work: Workplace) -> None:
    _, run = work.run()
    work.write("ci.yaml", CONFIG + "network: {}\n")
    with pytest.raises(UsageError, match=r"ci\.yaml has changed since run .* began"):
        load_request(work.results, run.request.run_id)


def unjudged_run(work: Workplace) -> RunRequest:
    """A run with a contract that its caller did not judge. The contract has changed since."""
    work.write("ci.yaml", f"{CONFIG}contracts: contracts\n")
    work.write("contracts/cpu.yaml", CONTRACT)
    _, run = work.run()
    (run.records.folder / "results.json").unlink()
    work.write("contracts/cpu.yaml", CONTRACT.replace("test_a: 1", "test_a: 2"))
    return run.request


def test_a_resumed_run_is_judged_by_the_contract_of_its_start(work: Workplace) -> None:
    result, _ = work.run(unjudged_run(work))
    assert result.platforms[0].verdict.product is Product.PASSED
    assert "no contracts" not in work.output()


def test_a_run_without_the_contract_of_its_start_is_judged_by_the_present_one(
    work: Workplace,
) -> None:
    request = unjudged_run(work)
    shutil.rmtree(work.results / request.run_id / "contracts")  # as an older version left it
    result, _ = work.run(request)
    assert result.platforms[0].verdict.product is Product.FAILED
    assert f"run {request.run_id} has no contracts of its start" in work.output()


class Blind:
    """An observer that sees nothing."""

    def event(self, event: Event) -> None:
        pass


class EditingEngine(LocalEngine):
    """Builds the image so slowly that a user edits the sources meanwhile."""

    def prepare(self, plan: RunPlan, observer: Observer) -> ImageFacts:
        (plan.source / "new.py").touch()
        return super().prepare(plan, observer)


def test_sources_that_change_while_the_image_is_made_are_noted(work: Workplace) -> None:
    work.engine = EditingEngine(record=work.engine.record)
    [note] = [note for note in work.only().notes if note.startswith("the sources changed")]
    assert note.endswith("have changed since the run began")


@pytest.mark.parametrize("error", [InfrastructureError("unreadable"), KeyboardInterrupt()])
def test_what_was_prepared_is_removed_if_no_stage_can_begin(
    work: Workplace, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(platform, "source_changes", fail)
    result, run = work.run()
    assert judged(result.platforms[0])[0] is Product.NOT_RUN
    assert run.interrupted is isinstance(error, KeyboardInterrupt)
    assert work.engine.calls == ["prepare cpu", "remove cpu"]


def test_results_inside_of_the_sources_are_none_of_them(work: Workplace) -> None:
    work.engine.prepare_error = InfrastructureError("no space left")
    work.results_name = "source/here"
    _, run = work.run()
    work.new_engine()
    assert work.run(run.request)[0].platforms[0].verdict.product is Product.PASSED


def test_a_run_that_is_still_going_on_is_not_resumed(work: Workplace) -> None:
    _, run = work.run()
    work.new_engine()
    before = (run.records.folder / "results.json").read_bytes()
    with (
        FileLock(run.records.folder / ".lock"),
        pytest.raises(UsageError, match=f"run {run.request.run_id} is still running"),
    ):
        work.run(run.request)
    assert work.engine.calls == []
    assert (run.records.folder / "results.json").read_bytes() == before


def test_two_attempts_never_mix(work: Workplace) -> None:
    _, run = work.run()
    # As if the machine had gone down before the agent's end: nothing to adopt, nothing judged.
    events = run.records.folder / "cpu" / "engine-events.jsonl"
    events.write_text("".join(events.read_text().splitlines(keepends=True)[:-1]))
    (run.records.folder / "results.json").unlink()
    result, _ = work.run(run.request)
    assert result.platforms[0].verdict.product is Product.PASSED
    assert (run.records.folder / "cpu.attempt-1" / "events.jsonl").is_file()


def _interrupted_before_the_verdict(work: Workplace) -> RunRequest:
    """A run whose caller died after the stages and before anybody looked at them."""
    run = unprepared_run(work)
    run_agent(run.plans[0], Blind())
    return run.request


def test_an_unknown_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no run 'x' in"):
        load_request(tmp_path, "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", r"request\.json: got a request of version None, expected version 1"),
        ('{"version": 2}', r"request\.json: got a request of version 2, expected version 1"),
        ('{"imported": true}', "run x was imported, expected a run that began here"),
        ('{"version": 1}', r"request\.json: got an invalid request: .*validation errors"),
        ("[" * 5000, r"request\.json: got an invalid request: nested too deeply"),
        (
            '{"version": 1e999}',
            r"request\.json: got an invalid request: got 1e999, which is not finite",
        ),
    ],
)
def test_an_invalid_request_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "request.json").write_text(text)
    with pytest.raises(UsageError, match=message):
        load_request(tmp_path, "x")


def test_a_run_id_names_time_and_commit(work: Workplace) -> None:
    result, _ = work.run()
    time, commit, digits = result.run_id.split("-")
    assert time == f"{result.started_at:%Y%m%dT%H%M%SZ}"
    assert (commit, len(digits)) == ("nogit", 4)


def test_a_filter_that_is_not_run_is_noted(work: Workplace) -> None:
    work.write(".gitattributes", "*.bin filter=own\n")
    work.write("a.bin", "stored")
    work.commit()
    work.write("a.bin", "checked out")
    result, _ = work.run()
    assert result.dirty
    [note] = [it for it in result.platforms[0].notes if "filter" in it]
    assert note == (
        "the sources count as changed: only a git filter, which is not run, can compare 1 file:"
        " a.bin"
    )
