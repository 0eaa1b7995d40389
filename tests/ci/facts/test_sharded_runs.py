"""Runs whose tests several processes share: merged files, verdicts, history."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from signal import SIGSEGV
from typing import Any
from xml.etree import ElementTree

import pytest

from ci import cli
from ci.engines.host.workfolder import host_job
from ci.errors import ConfigError, ExitCode, UsageError
from ci.facts.environment_key import environment_key
from ci.facts.pytest_log import parse_log
from ci.facts.pytest_output import PytestOutput, read_output
from ci.facts.sentences import on_rows, on_tests
from ci.facts.sentences.on_tests import suite_passed
from ci.facts.sentences.sentence import Exit
from ci.facts.shards import division_errors, merge_files, merge_outputs
from ci.facts.suite import suite_of
from ci.facts.timeline import read_timeline
from ci.gates.rules import exit_code
from ci.model.outcomes import Outcome, PytestLog
from ci.model.plan import RunPlan, SelectionPlan
from ci.model.results import PlatformResult
from ci.model.verdicts import Harness, Product
from ci.plan.planning import RunOptions
from ci.plan.project import load_project, plan_run
from ci.plan.request import RunRequest, new_request, read_request
from ci.protocol.events import ShardFinished
from ci.protocol.job import Column, StagePlan
from ci.protocol.stage_kind import StageKind
from ci.run.dry_run import plan_document
from ci.run.estimates import with_recorded_times
from ci.run.session import Recorded, Sources
from ci.util.files import LARGEST_COPY
from tests.ci.agent_job import stage_plan
from tests.ci.local_engine import LocalEngine
from tests.ci.report_log import finish, phases, report
from tests.ci.workplace import CONFIG, Workplace, new_workplace
from tests.findings import finding

# Of every outcome, with files that all shards collect: one skips itself, one warns.
SUITE = {
    "test_a": "import pytest, warnings\nwarnings.warn('of the collection')\n"
    "@pytest.mark.parametrize('n', range(6))\n"
    "def test_good(n): warnings.warn(f'{n} of a test')\n"
    "def test_bad(): assert 1 == 2\n"
    "@pytest.mark.xfail\ndef test_known(): assert 0\n",
    "test_b": "import pytest\n@pytest.mark.skip(reason='later')\ndef test_idle(): pass\n"
    "def test_other(): pass\n@pytest.fixture\ndef broken(): 1 / 0\ndef test_error(broken): pass\n",
    "test_c": "import pytest\npytest.skip('not here', allow_module_level=True)\n",
}
CRASH = "import os, signal\ndef test_a(): os.kill(os.getpid(), signal.SIGSEGV)\n"


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    return new_workplace(tmp_path)


def write(work: Workplace, suite: Mapping[str, str]) -> None:
    (work.folder / "source/tests/test_a.py").unlink()
    for name, text in suite.items():
        work.write(f"tests/{name}.py", text)


def planned(work: Workplace, options: RunOptions | None = None) -> RunPlan:
    source = work.folder / "source"
    project = load_project(source / "ci.yaml", {})
    places: dict[str, Any] = {"run_id": "next", "source": source, "results": work.results}
    [plan] = plan_run(project, ("cpu",), **places, options=options or RunOptions())
    return plan


def row_of(work: Workplace, shards: int) -> tuple[PlatformResult, Path]:
    result, run = work.run(shards=shards)
    return result.platforms[0], run.records.folder / "cpu"


def judgment(row: PlatformResult) -> tuple[Product, Harness]:
    return row.verdict.product, row.verdict.harness


def texts(row: PlatformResult) -> list[str]:
    return [it.text for it in row.verdict.evidence]


def logged(folder: Path) -> PytestLog:
    return parse_log((folder / "pytest.jsonl").read_text().splitlines())


def test_shards_give_the_row_of_one_process(work: Workplace) -> None:
    write(work, SUITE)
    alone, alone_files = row_of(work, 1)
    shared, shared_files = row_of(work, 3)
    assert alone.pytest is not None
    assert shared.pytest is not None
    timed = {"seconds", "summary"}
    assert shared.pytest.model_dump(exclude=timed) == alone.pytest.model_dump(exclude=timed)
    counts = "1 failed, 7 passed, 2 skipped, 1 xfailed, 7 warnings, 1 error in "
    assert (alone.pytest.summary or "").startswith(counts)
    assert (shared.pytest.summary or "").startswith(counts)
    assert shared.verdict.product is alone.verdict.product is Product.FAILED
    assert shared.verdict.harness is Harness.CLEAN
    assert texts(shared) == texts(alone)
    assert set(shared.failures) == set(alone.failures)
    assert suite_of(logged(shared_files).tests) == suite_of(logged(alone_files).tests)


def test_a_row_has_its_shards(work: Workplace) -> None:
    write(work, SUITE)
    row, folder = row_of(work, 2)
    assert [(it.shard, it.tests) for it in row.shards] == [(1, 6), (2, 5)]
    assert sorted(it.exit_code or 0 for it in row.shards) in ([0, 1], [1, 1])
    assert row.pytest_s == max(it.seconds or 0.0 for it in row.shards)
    assert on_rows.shards(2, [it.seconds or 0.0 for it in row.shards]) in row.findings
    assert environment_key(row).shards == "2 shards"
    alone, _ = row_of(work, 1)
    assert alone.shards == ()
    assert environment_key(alone).shards == "none"
    cases = ElementTree.parse(folder / "junit.xml").iter("testcase")  # noqa: S314 - our own
    names = [case.get("name") for case in cases]
    assert len([name for name in names if name and "test_" in name]) >= 11
    output = (folder / "pytest.log").read_text()
    assert "===== shard 1 of 2: pytest.shard-1.log =====\n" in output
    assert "===== shard 2 of 2: pytest.shard-2.log =====\n" in output
    lanes = read_timeline(folder)
    assert lanes is not None
    assert {span.lane for span in lanes.spans} == {"stages", "tests 1", "tests 2"}


def test_a_passing_suite_passes(work: Workplace) -> None:
    """Three shards and one test: no test is left for two of them."""
    row, _ = row_of(work, 3)
    assert judgment(row) == (Product.PASSED, Harness.CLEAN)
    assert row.verdict.evidence == (suite_passed(passed=1, skipped=0, ended=True),)
    assert row.pytest is not None
    assert (row.pytest.summary or "").startswith("1 passed in ")
    assert [it.exit_code for it in row.shards] == [0, 5, 5]


def test_no_test_at_all_is_no_pass(work: Workplace) -> None:
    write(work, {"test_a": ""})
    row, _ = row_of(work, 2)
    assert row.verdict.product is Product.INCOMPLETE
    assert "no tests collected" in texts(row)[0]


def test_what_ran_before_and_beside_a_crash_counts(work: Workplace) -> None:
    write(work, {"test_a": CRASH, "test_b": "def test_b(): pass\n"})
    row, _ = row_of(work, 2)
    assert judgment(row) == (Product.FAILED, Harness.CRASHED)
    assert row.pytest is not None
    assert (row.pytest.passed, row.pytest.summary) == (1, None)
    assert on_tests.running_tests(["tests/test_a.py::test_a"]) in row.verdict.evidence
    crashed = finding(on_tests.shard_ended, shards=2, end=Exit(139, SIGSEGV)._asdict())
    assert crashed.is_in(row.verdict.evidence)
    assert [it.test for it in row.failures] == ["tests/test_a.py::test_a"]


def test_a_test_that_ends_its_process_is_named_with_that_end(work: Workplace) -> None:
    write(work, {"test_a": CRASH, "test_b": CRASH.replace("SIGSEGV", "SIGABRT")})
    row, _ = row_of(work, 2)
    assert {it.test: it.message for it in row.failures} == {
        f"tests/test_{name}.py::test_a": f"the process ended in this test with signal {how}"
        for name, how in (("a", "SIGSEGV (exit code 139)"), ("b", "SIGABRT (exit code 134)"))
    }


def test_a_status_that_a_hook_sets_counts_beside_a_crash(work: Workplace) -> None:
    """One shard exits with 1 though its log ends with 0; the other dies after its summary."""
    hooks = """\
import os, pytest, signal

names = set()

@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    names.update(item.name for item in session.items)
    if "test_a" in names:
        session.exitstatus = 1

def pytest_unconfigure(config):
    config.get_terminal_writer().flush()
    if "test_b" in names:
        os.kill(os.getpid(), signal.SIGSEGV)
"""
    tests = {f"test_{name}": f"def test_{name}(): pass\n" for name in "ab"}
    write(work, {"conftest": hooks, **tests})
    row, folder = row_of(work, 2)
    assert logged(folder).exit_status == 0
    assert sorted(it.exit_code or 0 for it in row.shards) == [1, 139]
    assert row.verdict.product is Product.FAILED
    assert exit_code([row]) is ExitCode.PRODUCT_FAILURE


@pytest.mark.parametrize(
    "test",
    [
        "@pytest.mark.xdist_group(str(os.getpid()))\ndef test(): pass\n",
        "@pytest.mark.parametrize('n', [os.getpid()])\ndef test(n): pass\n",
    ],
)
def test_shards_that_collect_other_tests_are_detected(work: Workplace, test: str) -> None:
    """The group, or the name, of a test has the number of its process."""
    write(work, {"test_a": f"import os, pytest\n{test}", "test_b": "def test_b(): pass\n"})
    row, _ = row_of(work, 2)
    assert judgment(row) == (Product.INCOMPLETE, Harness.INFRASTRUCTURE)
    assert texts(row)[0].startswith("the shards collected different tests (2, 2), so some may")


def test_a_suite_that_removes_the_plugin_is_detected(work: Workplace) -> None:
    remove = "def pytest_configure(config):\n"
    remove += "    config.pluginmanager.unregister(name='infini_ci_shard')\n"
    write(work, {"conftest": remove, "test_a": "def test_a(): pass\n"})
    row, _ = row_of(work, 2)
    assert judgment(row) == (Product.INCOMPLETE, Harness.INFRASTRUCTURE)
    assert list(row.verdict.evidence[:2]) == [
        on_tests.shards_differ(
            "shard 1, 2 did not record which tests it collected: the test command must pass its"
            " arguments and PYTHONPATH on to pytest"
        ),
        on_tests.shards_differ("more than one shard ran tests/test_a.py::test_a"),
    ]
    assert row.pytest is not None
    assert row.pytest.passed == 1


def stage(shards: int = 2) -> StagePlan:
    column = Column.PYTEST
    return stage_plan("pytest", "pytest", kind=StageKind.PYTEST, column=column, shards=shards)


def test_logs_of_a_killed_agent_are_merged(tmp_path: Path) -> None:
    """One is cut in the middle of a line, one does not exist, and nothing else does."""
    half = "\n".join([*phases("a"), report("b", "setup")])
    (tmp_path / "pytest.shard-1.jsonl").write_text(half + '\n{"$report')
    (tmp_path / "pytest.shard-3.jsonl").write_text("\n".join([*phases("c"), finish(0)]))
    assert merge_files(tmp_path, stage(3)) == []
    log = logged(tmp_path)
    assert {test.node_id for test in log.tests} == {"a", "c"}
    assert (log.running, log.exit_status, log.unreadable_lines) == (("b",), None, 1)
    assert not (tmp_path / "junit.xml").exists()
    assert not (tmp_path / "pytest.log").exists()
    merge_files(tmp_path, stage(3))  # a later caller judges again
    assert logged(tmp_path) == log


def test_files_that_are_too_large_to_merge(tmp_path: Path) -> None:
    """A hostile suite can make a file that takes no room, and whose copy would fill the disk."""
    for shard in (1, 2):
        with (tmp_path / f"pytest.shard-{shard}.jsonl").open("wb") as file:
            file.truncate(LARGEST_COPY + 1)
    assert merge_files(tmp_path, stage()) == [
        "the files pytest.jsonl of the shards cannot be merged: File too large"
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "pytest.shard-1.jsonl",
        "pytest.shard-2.jsonl",
    ]


@pytest.mark.parametrize(
    ("statuses", "expected"), [((0, 5), 0), ((1, 0), 1), ((0, None), None), ((3, 1), 3)]
)
def test_all_sessions_have_to_finish(
    tmp_path: Path, statuses: tuple[int | None, ...], expected: int | None
) -> None:
    for number, status in enumerate(statuses, 1):
        lines = phases(str(number)) + ([] if status is None else [finish(status)])
        (tmp_path / f"pytest.shard-{number}.jsonl").write_text("\n".join(lines) + "\n")
    merge_files(tmp_path, stage())
    assert logged(tmp_path).exit_status == expected


def test_warnings_of_the_collection_count_once() -> None:
    lines = []
    for shard in (1, 2):
        lines.append(json.dumps({"$report_type": "Shard", "shard": shard}))
        for when in ("config", "collect", "runtest"):
            lines.append(json.dumps({"$report_type": "WarningMessage", "when": when}))
    assert parse_log(lines).warnings == 4


@pytest.mark.parametrize("shard", [0, -1, 1001, "1", True, None])
def test_a_marker_that_no_merge_writes(shard: object) -> None:
    log = parse_log([json.dumps({"$report_type": "Shard", "shard": shard}), finish(0)])
    assert (log.unreadable_lines, log.exit_status) == (1, 0)


def ended(shard: int, **changes: Any) -> dict[int, ShardFinished]:
    usual = {"seconds": 1.0, "exit_code": 0, "collected": 5, "selected": 2, "digest": "a"}
    return {shard: ShardFinished(stage="pytest", shard=shard, **{**usual, **changes})}


def printed(line: str) -> PytestOutput:
    return replace(read_output([f"== {line} =="]), last_lines=(line,))


def test_a_summary_is_that_of_one_process() -> None:
    outputs = [
        printed("1 failed, 1 passed, 4 deselected, 1 warning in 61.20s (0:01:01)"),
        printed("2 passed, 4 deselected in 72.04s (0:01:12)"),
        printed("5 deselected in 0.01s"),
    ]
    ends = {**ended(1, exit_code=1), **ended(2), **ended(3, selected=1, exit_code=5)}
    found = merge_outputs(outputs, None, ends)
    assert found.summary is not None
    text = "1 failed, 3 passed, 1 deselected, 1 warning in 72.04s (0:01:12)"
    assert (found.summary.text, found.summary.seconds) == (text, 72.04)
    assert (found.collected, found.last_lines) == (5, outputs[0].last_lines)


def test_a_summary_keeps_the_words_of_plugins() -> None:
    outputs = [printed("2 passed, 1 known flaky in 1.00s"), printed("1 known flaky in 2.00s")]
    log = parse_log([*(line for name in "abcd" for line in phases(name)), finish(0)])
    found = merge_outputs(outputs, log, {**ended(1), **ended(2)})
    assert found.summary is not None
    assert found.summary.text == "2 passed, 2 known flaky in 2.00s"


def test_counts_of_a_summary_come_from_the_log_if_it_is_complete() -> None:
    lines = [*phases("a"), report("b", "setup", "skipped"), report("b", "teardown")]
    log = parse_log([*lines, finish(0)])
    skips = [printed("1 passed, 2 skipped in 1.00s"), printed("1 skipped in 2.00s")]
    found = merge_outputs(skips, log, {**ended(1), **ended(2)})
    assert found.summary is not None
    assert found.summary.text == "1 passed, 1 skipped in 2.00s"
    assert log.count(Outcome.SKIPPED) == 1


def test_a_shard_without_a_summary() -> None:
    outputs = [printed("2 passed in 1.00s"), replace(printed("Killed"), summary=None)]
    found = merge_outputs(outputs, None, ended(1))
    assert (found.summary, found.collected, found.last_lines) == (None, None, ("Killed",))


def test_division_is_checked_only_where_it_can_be() -> None:
    assert division_errors(stage(1), {}, None) == []
    assert division_errors(stage(), {**ended(1), **ended(2)}, parse_log([])) == []
    died = ended(2, exit_code=139, signal=11, digest=None, collected=None, selected=None)
    assert division_errors(stage(), {**ended(1), **died}, None) == []
    [other] = division_errors(stage(), {**ended(1), **ended(2, digest="b", collected=6)}, None)
    assert other.startswith("the shards collected different tests (5, 6)")
    [silent] = division_errors(stage(), {**ended(1), **ended(2, digest=None)}, None)
    assert silent.startswith("shard 2 did not record")


def test_tests_are_shared_by_their_times_in_the_newest_run(work: Workplace) -> None:
    write(work, SUITE)
    plan = planned(work, RunOptions(engine="docker", shards=2))
    assert [it.shards for it in plan.stages] == [1, 2]
    with work.open_store() as store:
        assert with_recorded_times(store, "tiny", plan) == plan
    _, folder = row_of(work, 1)
    with work.open_store() as store:
        known = with_recorded_times(store, "tiny", plan)
        seconds = {it.node_id: it.seconds for it in logged(folder).tests}
        assert known.pytest_stage.seconds == pytest.approx(seconds, abs=1e-6)
        assert json.loads(host_job(known, folder))["stages"][1]["shards"] == 2
        assert with_recorded_times(store, "other", plan) == plan
        selected = replace(plan, selection=SelectionPlan(variable="X", operators="abs"))
        assert with_recorded_times(store, "tiny", selected) == selected
        assert with_recorded_times(store, "tiny", replace(plan, simulated=True)).stages == (
            plan.stages
        )
        alone = planned(work)
        assert with_recorded_times(store, "tiny", alone) is alone


def run_command(work: Workplace, *options: str) -> list[Any]:
    """Run the platform by the command line; return the stages of the job that the agent got."""
    places = ["--source", str(work.folder / "source"), "--results", str(work.results)]
    cli.main(["run", "cpu", "--engine", "docker", *places, *options])
    job = json.loads((work.results / "latest/cpu.json").read_text())
    stages: list[Any] = job["stages"]
    return stages


def test_the_command_line_asks_for_shards(
    work: Workplace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No run has recorded any time before the first one."""
    write(work, SUITE)
    monkeypatch.setattr("ci.commands.run.select_engine", lambda _: work.engine)
    first = run_command(work, "--shards=2")
    assert [(it["shards"], it["seconds"]) for it in first] == [(1, {}), (2, {})]
    second = run_command(work, "--shards=3")
    assert (second[1]["shards"], len(second[1]["seconds"])) == (3, 12)
    assert [it["shards"] for it in run_command(work)] == [1, 1]
    assert on_rows.shards(2, []).text in capsys.readouterr().out
    request = read_request(work.results, (work.results / "latest").resolve().name)
    assert request.shards == 1


def test_a_resumed_run_keeps_its_shards(
    work: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    source = work.folder / "source"
    request = new_request(
        *(load_project(source / "ci.yaml", {}), ["cpu"]),
        source_folder=source,
        results=work.results,
        options=RunOptions(engine="docker", shards=2),
    )
    read = RunRequest.model_validate_json(request.model_dump_json())
    _, run = work.run(read)
    assert [it.shards for it in run.plans[0].stages] == [1, 2]
    assert cli.main(["run", "--resume", request.run_id, "--shards=3"]) == ExitCode.USAGE
    assert "--reruns, --shards, --select and --until." in capsys.readouterr().err


def test_a_dry_run_names_the_shards(work: Workplace) -> None:
    plan = planned(work, RunOptions(engine="docker", shards=2))
    document = plan_document(plan, LocalEngine())
    assert [it["shards"] for it in document["stages"]] == [1, 2]


@pytest.mark.parametrize("number", ["0", "-1", "x", "65"])
def test_an_invalid_number_of_shards(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["run", "cpu", f"--shards={number}"])
    assert (
        f"got '{number}', expected a number of at least 1 and at most 64" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("command", "got"),
    [
        # Such a Python would not find the plugin.
        ("python -B -I -m pytest", "python -I"),
        ("python -B -BE -m pytest", "python -BE"),
        # Each shard would empty such a temporary folder.
        ("python -m pytest --basetemp=/tmp/of-tests", "--basetemp"),
        ("python -m pytest --basetemp /tmp/of-tests", "--basetemp"),
    ],
)
def test_a_command_that_no_shards_can_share(work: Workplace, command: str, got: str) -> None:
    work.write("ci.yaml", CONFIG.replace("python -m pytest", command))
    assert planned(work).pytest_stage.shards == 1
    with pytest.raises(UsageError, match=f"stage pytest: got `{got}`, expected"):
        planned(work, RunOptions(shards=2))


def test_a_session_runs_its_tests_in_one_process(work: Workplace) -> None:
    source = work.folder / "source"
    project = load_project(source / "ci.yaml", {})
    result, run = work.run(shards=2)
    recorded = Recorded(request=run.request, result=result.platforms[0], results=work.results)
    plan = recorded.plan(Sources(folder=source, project=project), "session", work.results)
    assert plan.shards == 1


def test_the_first_sharded_run_and_the_next_are_comparable(work: Workplace) -> None:
    """Once with, once without recorded times: the same tests in the same environment."""
    write(work, SUITE)
    first, _ = row_of(work, 2)
    second, _ = row_of(work, 2)
    assert environment_key(first) == environment_key(second)


def test_artifacts_cannot_replace_files_of_shards(work: Workplace) -> None:
    work.write("ci.yaml", CONFIG.replace("generated: out", "junit.shard-1.xml: out"))
    with pytest.raises(ConfigError, match=r"junit\.shard-1\.xml"):
        load_project(work.folder / "source/ci.yaml", {})
