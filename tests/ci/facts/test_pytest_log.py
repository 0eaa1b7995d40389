"""The per-test log decides; recorded logs of real sessions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ci.agent.pytest_stage import failed_tests
from ci.facts.failures import reason_line
from ci.facts.pytest_log import parse_log
from ci.facts.pytest_output import read_output
from ci.model.outcomes import ClosingSummary, Outcome, PytestLog
from ci.plan.planning import WORKSPACE
from ci.protocol.pytest_report import ANSI
from ci.protocol.stable_names import TestNames
from ci.util.lines import LONGEST_REPORT, lines_of_file
from tests.ci.report_log import FINISH, finish, phases, report

DATA = Path(__file__).parents[1] / "data"


def recorded(name: str) -> PytestLog:
    return parse_log((DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines())


def printed(name: str) -> list[str]:
    return (DATA / f"{name}.log").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", ["mixed", "mixedx"])
def test_every_outcome_is_counted_once(name: str) -> None:
    log = recorded(name)
    assert {outcome.value: log.count(outcome) for outcome in Outcome} == {
        "failed": 3,  # one of them failed in its teardown too
        "error": 3,  # setup, teardown, and the file that cannot be imported
        "xpassed": 1,
        "passed": 2,
        "xfailed": 1,
        "skipped": 3,  # one of them a whole module
    }
    assert log.warnings == 2
    assert log.exit_status == 1
    assert log.running == ()
    assert log.unreadable_lines == 0
    assert len({test.node_id for test in log.tests}) == len(log.tests)


def test_reasons_are_the_messages_without_traceback() -> None:
    reasons = {test.node_id: test.reason for test in recorded("mixed").tests}
    assert reasons["test_a.py::test_skip"] == "no"
    assert reasons["test_a.py::test_err"] == "RuntimeError: setup"
    assert reasons["test_c.py"] == "module"
    assert reasons["test_a.py::test_ok[1]"] is None


def test_a_crash_names_the_running_test() -> None:
    log = recorded("crash")
    assert log.exit_status is None
    assert log.running == ("crash/test_crash.py::test_two",)
    assert [test.node_id for test in log.tests] == ["crash/test_crash.py::test_one"]


def test_a_worker_crash_is_a_failure_and_named() -> None:
    log = recorded("crashx")
    assert log.crashed == ("crash/test_crash.py::test_two",)
    assert log.node_ids(Outcome.FAILED) == ("crash/test_crash.py::test_two",)
    assert log.count(Outcome.PASSED) == 2
    assert log.running == ()


def test_the_cause_of_a_worker_crash_is_reported() -> None:
    crash = "worker 'gw0' crashed while running 'a::b': no end after 120 s\nTimeout (0:02:00)!"
    log = parse_log([report("a::b", "???", "failed", longrepr=crash)])
    assert log.crashed == ("a::b (no end after 120 s)",)


def test_a_crash_after_the_call_phase_is_a_failure_not_a_pass() -> None:
    crash = "worker 'gw0' crashed while running 'a::b'"
    lines = [*phases("a::b", "passed")[:2], report("a::b", "???", "failed", longrepr=crash)]
    log = parse_log(lines)
    assert [test.outcome for test in log.tests] == [Outcome.FAILED]


def test_a_rerun_that_passes_is_a_pass() -> None:
    lines = [*phases("a::b", "rerun"), *phases("a::b", "passed"), FINISH]
    log = parse_log(lines)
    assert [(test.outcome, test.seconds) for test in log.tests] == [(Outcome.PASSED, 1.5)]


def test_a_test_run_twice_counts_with_the_worse_outcome() -> None:
    log = parse_log([*phases("a::b", "failed"), *phases("a::b", "passed"), FINISH])
    assert [test.outcome for test in log.tests] == [Outcome.FAILED]


def subtest(outcome: str, message: str | None = None, **more: object) -> str:
    kind = {"$report_type": "SubTestReport"}  # of pytest and pytest-subtests
    context = {"msg": None, "kwargs": {"i": "1"}}
    named = {"_subtest.context": context, "longrepr": message}
    return report("a::b", "call", outcome, **{**kind, **named, **more})


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({}, "(i=1)"),
        ({"$report_type": None, "_report_type": "SubTestReport"}, "(i=1)"),  # reportlog 0.4
        ({"$report_type": "SubtestReport", "_subtest.context": None}, "(<subtest>)"),
        ({"_subtest.context": {"msg": "m: n", "kwargs": {"i": 1}}}, "[m: n] (i=1)"),
        ({"_subtest.context": "{'i': <object>}"}, "({'i': <object>})"),  # no JSON
    ],
)
def test_a_failing_subtest_fails_its_test_once(more: dict[str, Any], name: str) -> None:
    setup, call, teardown = phases("a::b", "passed")
    subtests = [subtest("passed", **more), subtest("failed", "E", **more)]
    log = parse_log([setup, *subtests, call, teardown, FINISH])
    [test] = log.tests
    assert (test.outcome, test.reason) == (Outcome.FAILED, f"subtest {name}: E")
    assert test.seconds == 1.5  # its subtests are a part of its call
    assert (log.failed_subtests, log.unreadable_lines) == (1, 0)


def test_a_test_has_the_reasons_of_all_its_subtests() -> None:
    setup, _, teardown = phases("a::b", "passed")
    call = report("a::b", "call", "failed", longrepr="contains 30 failed subtests")
    subtests = [subtest("failed", f"assert {n}") for n in range(30)]
    [test] = parse_log([setup, *subtests, call, teardown]).tests
    assert test.reason is not None
    lines = test.reason.splitlines()
    assert lines[::19] == ["subtest (i=1): assert 0", "subtest (i=1): assert 19"]
    assert lines[-1] == "and 10 more subtests"
    skips = [subtest("skipped", "no")] * 30
    [test] = parse_log([setup, *skips, subtests[0], teardown]).tests
    assert test.reason == "subtest (i=1): assert 0"
    own = report("a::b", "call", "failed", longrepr="assert own")
    [test] = parse_log([setup, subtests[0], own, teardown]).tests
    assert test.reason == "subtest (i=1): assert 0\nthe test: assert own"


@pytest.mark.parametrize(
    ("subtests", "reason"),
    [
        ([subtest("skipped", "no device")], "subtest (i=1): skipped: no device"),
        ([subtest("skipped", wasxfail="known")], "subtest (i=1): xfailed: known"),
        ([subtest("passed")], None),
    ],
)
def test_a_subtest_that_does_not_fail_leaves_its_test_as_it_is(
    subtests: list[str], reason: str | None
) -> None:
    setup, call, teardown = phases("a::b", "passed")
    [test] = parse_log([setup, *subtests, call, teardown, FINISH]).tests
    assert (test.outcome, test.reason, test.skip_reason) == (Outcome.PASSED, reason, None)


@pytest.mark.parametrize("status", [0, 1])
def test_a_plugin_that_repeats_a_test_may_take_back_its_subtests(status: int) -> None:
    """pytest-rerunfailures writes the subtests of an attempt before its setup."""
    end = finish(status)
    first = [subtest("failed", "E"), *phases("a::b", "rerun")]
    log = parse_log([*first, subtest("passed"), *phases("a::b", "passed"), end])
    [test] = log.tests
    expected = (Outcome.FAILED, "subtest (i=1): E") if status else (Outcome.PASSED, None)
    assert (test.outcome, test.reason) == expected
    second = [subtest("failed", "F"), *phases("a::b", "passed")]
    [test] = parse_log([*first, *second, end]).tests
    assert (test.outcome, test.reason) == (Outcome.FAILED, "subtest (i=1): F")


def test_a_report_of_a_plugins_own_class_counts() -> None:
    setup, _, teardown = phases("a::b", "passed")
    own = report("a::b", "call", "failed", **{"$report_type": "MyReport"})
    log = parse_log([setup, own, teardown, FINISH])
    assert log.node_ids(Outcome.FAILED) == ("a::b",)


REAL = """\
import unittest

import pytest

class Cases(unittest.TestCase):
    def test_fails(self):
        for i in range(3):
            with self.subTest("part", i=i):
                self.assertNotEqual(i, 1)

    def test_skips(self):
        with self.subTest(i=1):
            self.skipTest("no device")

def test_fixture(subtests):
    for word in "ab":
        with subtests.test("word", word=word):
            assert 1 == 2

def test_xfails(subtests):
    with subtests.test("known"):
        pytest.xfail("a bug")

@pytest.mark.xfail(reason="old")
def test_marked(): assert 0
"""


@pytest.mark.parametrize("options", [(), ("-n", "2"), ("-q", "-rA", "--color=yes")])
def test_the_subtests_of_real_sessions(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_a.py").write_text(REAL)
    log = tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--report-log={log}"]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True)
    found = parse_log(lines_of_file(log, LONGEST_REPORT))
    assert done.returncode == found.exit_status == 1
    assert found.unreadable_lines == 0
    # pytest-xdist makes representations of the representations: `i='1'`.
    reasons = {
        it.node_id: (it.reason or "").translate({ord("'"): "", ord('"'): ""}) for it in found.tests
    }
    assert {
        test.node_id.partition("::")[2]: (test.outcome, reasons[test.node_id])
        for test in found.tests
    } == {
        "Cases::test_fails": (Outcome.FAILED, "subtest [part] (i=1): AssertionError: 1 == 1"),
        "Cases::test_skips": (Outcome.PASSED, "subtest (i=1): skipped: no device"),
        "test_fixture": (
            Outcome.FAILED,
            "subtest [word] (word=a): assert 1 == 2\nsubtest [word] (word=b): assert 1 == 2",
        ),
        "test_xfails": (Outcome.PASSED, "subtest [known]: xfailed: a bug"),
        "test_marked": (Outcome.XFAILED, "old"),
    }
    output = read_output(done.stdout.splitlines(), found)
    assert output.summary is not None
    assert output.summary.text in ANSI.sub("", done.stdout)
    assert output.summary.count("failed") == 4  # three subtests and the test of two of them
    assert {it.test for it in output.listed} == {*found.node_ids(Outcome.FAILED)}


@pytest.mark.parametrize(
    "line",
    [
        *('{"$report_type": "TestRep', "[]", "null", "{}", '{"$report_type": "TestReport"}'),
        *("\x00", "[" * 200_000, '{"$report_type": []}', '{"$report_type": null}'),
        *(report("a::c", "call", "passed", duration=value) for value in ("x", -1, 1e300, [1])),
        report("a::c", "call", "passed").replace("0.5", "1e999"),
        report("a::c", "call", "passed").replace("0.5", "NaN"),
        report("a::c", "call", "passed").replace("0.5", "1" * 5000),
        *(report("a::c", "call", "passed").replace(f'"{text}"', "3") for text in ("a::c", "call")),
        report("a::c", "call", "passed").replace('"passed"', "[]"),
        *map(finish, ("0", True, None, 1 << 40)),
        finish().replace("0}", "1e999}"),
        '{"$report_type": "CollectReport", "outcome": "failed"}',
    ],
)
def test_unreadable_lines_are_counted_and_the_rest_is_read(line: str) -> None:
    log = parse_log([*phases("a::b", "passed"), line])
    assert log.unreadable_lines == 1
    assert log.count(Outcome.PASSED) == 1


@pytest.mark.parametrize("duration", [-1308871447.75, 1308871447.75])
def test_a_phase_in_which_the_clock_was_set_took_no_time(duration: float) -> None:
    """As pytest 8.1 reports a test of itsdangerous 2.2.0, whose fixture freezes the time."""
    stopped = (
        json.dumps({**json.loads(it), "duration": duration}) for it in phases("a::c", "passed")
    )
    log = parse_log([*phases("a::b", "passed"), *stopped])
    assert (log.unreadable_lines, log.damaged) == (0, ())
    assert {test.node_id: test.seconds for test in log.tests}["a::c"] == 0.0


def test_half_a_character_is_written_out() -> None:
    log = parse_log(phases("a::b[\udce9]", "passed"))  # JSON spells it \\udce9
    assert [test.node_id for test in log.tests] == [r"a::b[\udce9]"]


def test_every_prefix_of_a_log_is_readable() -> None:
    text = (DATA / "mixed.jsonl").read_text(encoding="utf-8")
    whole = recorded("mixed")
    known = {test.node_id for test in whole.tests}
    for end in range(0, len(text), 97):
        log = parse_log(text[:end].splitlines())
        assert log.unreadable_lines <= 1
        assert {test.node_id for test in log.tests} <= known


MIXED = "3 failed, 3 passed, 3 skipped, 1 xfailed, 1 xpassed, 2 warnings, 4 errors in 1.23s"


@pytest.mark.parametrize(
    ("name", "text"), [("crashx", "1 failed, 2 passed in 1.27s"), ("mixedx", MIXED)]
)
def test_the_closing_summary_is_verbatim(name: str, text: str) -> None:
    summary = read_output(printed(name)).summary
    assert summary == ClosingSummary(text=text, seconds=float(text[-5:-1]))


@pytest.mark.parametrize("name", ["mixed", "mixedx"])
def test_the_output_agrees_with_its_log(name: str) -> None:
    output, log = read_output(printed(name)), recorded(name)
    assert output.collected == log.begun == 11
    later = [*printed(name), "===== 1 failed, 30 passed in 0.10s ====="]
    assert read_output(later, log).summary == output.summary


def test_a_rerun_is_not_another_test() -> None:
    again = [*phases("t.py::test_a", "rerun"), *phases("t.py::test_a", "passed")]
    assert parse_log([*again, *phases("t.py::test_b", "passed")]).begun == 2
    broken = {"$report_type": "CollectReport", "nodeid": "u.py", "outcome": "failed"}
    assert parse_log([*again, json.dumps(broken)]).begun == 1


def test_a_test_whose_worker_died_began() -> None:
    crash = report("t.py::test_a", "???", "failed", longrepr="worker 'gw0' crashed while running a")
    assert parse_log([crash]).begun == 1


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("collected 1 item", 1),
        ("collecting ... collected 3 items", 3),
        ("collected 20 items / 12 deselected / 8 selected", 8),
        ("\x1b[1mcollecting ... \x1b[0mcollected 20 items / 2 errors", 20),
        ("1 worker [7 items]", 7),
        ("a test says: collected 5 items", None),
    ],
)
def test_how_many_tests_were_collected(text: str, count: int | None) -> None:
    assert read_output(["rootdir: /workspace", text]).collected == count


@pytest.mark.parametrize(
    "text",
    [
        "9206 passed, 8664 skipped, 104 warnings in 177.98s (0:02:57)",
        "no tests ran in 0.01s",
        "1 passed, 2 subtests passed in 3.00s",
        "1 passed, 1 known-flaky in 0.02s",
        "2 in progress, 1 Bekannt (№ 7), 3 failed in 61.00s (0:01:01)",
        "1 failed, 2 passed, 1 rerun in 0.10s",
    ],
)
@pytest.mark.parametrize(
    "frame", ["{}", "===== {} ====", "\x1b[32m=== \x1b[1m{}\x1b[0m ===\x1b[0m"]
)
def test_summaries_with_and_without_frame_and_color(text: str, frame: str) -> None:
    summary = read_output(["== 7 failed in 1.00s ==", frame.format(text), "Killed"]).summary
    assert summary is not None
    assert summary.text == text


SESSION = [*phases("a::b", "passed"), *phases("a::c", "passed"), *phases("a::d", "failed"), FINISH]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["1 failed, 2 passed in 0.1s", "9 failed in 0.2s"], 0),
        (["1 failed, 2 passed in 0.1s", "3 modules transformed in 0.2s"], 0),
        (["== 1 failed, 1 passed in 0.1s ==", "1 failed, 2 passed in 0.2s"], 1),
        # Words of plugins: one beside pytest's own, only such, and one for what failed.
        (["== 7 passed in 0.1s ==", "1 failed, 1 passed, 1 known-flaky in 0.2s"], 1),
        (["3 known flaky in 0.1s", "4 passed in 0.2s"], 0),
        (["2 passed, 1 xfailed, 1 rerun in 0.1s", "8 failed in 0.2s"], 0),
        # A plugin that hides reports.
        (["1 failed in 0.1s"], 0),
        (["no tests ran in 0.1s"], 0),
        # Printed by tests of a session with -qq.
        (
            ["===== 5 failed in 0.1s =====", "3 files left in 0.2s or less", "4 passed in 0.3s"],
            None,
        ),
    ],
)
def test_the_summary_is_the_line_that_agrees_with_the_log(
    lines: list[str], found: int | None
) -> None:
    summary = read_output(lines, parse_log(SESSION)).summary
    assert (summary and summary.text) == (None if found is None else lines[found].strip("= "))


@pytest.mark.parametrize(
    ("line", "is_summary"),
    [
        ("5 deselected in 0.01s", True),
        ("1 warning in 0.01s", True),
        ("== 2 known-flaky in 0.01s ==", True),
        ("2 tests collected in 0.01s", False),
        ("12 modules transformed in 0.01s", False),
        ("1 passed in 0.01s, 2 to go", False),
        ("it took 3 passed in 1.0s", False),
        (f"1 {'x' * 600} in 0.01s", False),
        ("1 passed, 1 \x07bell in 0.01s", False),
    ],
)
def test_a_line_like_a_summary_without_a_log(line: str, is_summary: bool) -> None:
    assert (read_output([line]).summary is not None) is is_summary


def test_the_failures_that_pytest_lists() -> None:
    lines = [
        "===== short test summary info =====",  # printed by a test
        "FAILED inner.py::test_a - assert 0",
        "===== short test summary info =====",
        "SKIPPED [1] test_a.py:3: no",
        "FAILED test_a.py::test_b[x y] - assert 1 == 2",
        "SUBFAILED[a::b] (i=1) test_a.py::T::test_c - AssertionError: no",
        "[m] (i=1) SUBFAIL test_a.py::test_d - no",
        "ERROR test_b.py",
        "ERROR something else happened",
        "===== 3 failed, 1 error in 0.1s =====",
        "FAILED to clean up after::all",
    ]
    assert read_output(lines).listed == (
        ("test_a.py::test_b[x y]", "assert 1 == 2"),
        ("test_a.py::T::test_c", "AssertionError: no"),
        ("test_a.py::test_d", "no"),
        ("test_b.py", ""),
    )


def test_a_crashed_session_has_no_summary() -> None:
    assert read_output(printed("crash")).summary is None


def test_the_counts_of_a_summary() -> None:
    text = "3 failed, 3000 passed, 1 skipped, 1 xfailed, 2 subtests passed, 1 warning, 4 errors"
    summary = ClosingSummary(text=f"{text} in 1.23s", seconds=1.23)
    names = ("failed", "passed", "skipped", "xfailed", "xpassed")
    assert [summary.count(name) for name in names] == [3, 3000, 1, 1, 0]
    assert summary.count("error", "errors") == 4
    assert summary.count("warning", "warnings") == 1
    assert ClosingSummary(text="no tests ran in 0.01s", seconds=0.01).count("passed") == 0
    own = ClosingSummary(text="1 passed, 2 failed-known, 3 passed in time in 1.2s", seconds=1.2)
    assert (own.count("passed"), own.count("failed"), own.total) == (1, 0, 6)


@pytest.mark.parametrize("longrepr", [[], {}, [[]], {"reprcrash": []}, {"reprcrash": {}}, 3])
def test_odd_reasons_are_no_obstacle(longrepr: object) -> None:
    log = parse_log([report("a::b", "call", "failed", longrepr=longrepr)])
    assert log.unreadable_lines == 0
    assert log.count(Outcome.FAILED) == 1


def test_a_line_of_any_length_is_counted_with_its_length(tmp_path: Path) -> None:
    path = tmp_path / "pytest.jsonl"
    with path.open("w") as file:
        for _ in range(64):
            file.write("[" * (1 << 20))
        file.write("\n" + "\n".join([*phases("a::b", "passed"), FINISH]))
    log = parse_log(lines_of_file(path, LONGEST_REPORT))
    assert (log.count(Outcome.PASSED), log.exit_status) == (1, 0)
    assert (log.unreadable_lines, log.longest_line) == (1, 64 << 20)


LONG = "x" * LONGEST_REPORT


@pytest.mark.parametrize("order", ["first", "last"])  # pytest before 9.2, and since
def test_a_failure_counts_in_a_line_that_is_too_long(tmp_path: Path, order: str) -> None:
    fields: dict[str, object] = json.loads(report('a::b["c"]', "call", "failed"))
    node_id = fields.pop("nodeid")
    fields["longrepr"] = {"reprcrash": {"path": "a", "lineno": 1, "message": 'assert "0"'}}
    fields["sections"] = [["stdout", LONG + '"nodeid": "c::d", "outcome": "passed"']]
    head, tail = ({"nodeid": node_id}, {}) if order == "first" else ({}, {"nodeid": node_id})
    line = json.dumps({**head, **fields, **tail})
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join([phases('a::b["c"]', "passed")[0], line, FINISH]))
    log = parse_log(lines_of_file(path, LONGEST_REPORT))
    assert [(it.node_id, it.outcome, it.reason) for it in log.tests] == [
        (node_id, Outcome.FAILED, 'assert "0"')
    ]
    assert (log.damaged, log.unreadable_lines, log.longest_line) == ((node_id,), 1, len(line))
    assert failed_tests(path) == [node_id]


@pytest.mark.parametrize("value", ["NaN", "1" + "0" * 30, "[" * 60 + "]" * 60])
def test_a_failure_counts_in_spite_of_a_value_that_cannot_be_read(value: str) -> None:
    line = report("a::b", "call", "failed", duration=0, user_properties=[["x", "VALUE"]])
    line = line.replace('"VALUE"', value).replace('"duration": 0', f'"duration": {value}')
    log = parse_log([line, FINISH])
    assert log.node_ids(Outcome.FAILED) == log.damaged == ("a::b",)
    passed = parse_log([line.replace('"failed"', '"passed"'), FINISH])
    assert (passed.tests, passed.damaged) == ((), ("a::b",))


@pytest.mark.parametrize("length", [LONGEST_REPORT, 2000, 2047])
def test_a_failure_counts_whose_message_is_too_long(tmp_path: Path, length: int) -> None:
    crash = {"path": "a", "lineno": 1, "message": "é" * length}  # written as \\u00e9
    more = {"longrepr": {"reprcrash": crash}, "duration": 1e99}
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join([report("a::b", "call", "failed", **more), FINISH]))
    log = parse_log(lines_of_file(path, LONGEST_REPORT))
    assert log.node_ids(Outcome.FAILED) == ("a::b",)
    assert log.tests[0].reason == "é" * min(length, 2000)


def test_a_damaged_file_that_cannot_be_collected_is_an_error() -> None:
    record = {"nodeid": "a.py", "outcome": "failed", "longrepr": "E   no", "result": 10**40}
    log = parse_log([json.dumps({**record, "$report_type": "CollectReport", "long": "x" * 5000})])
    assert (log.node_ids(Outcome.ERROR), log.begun) == (("a.py",), 0)
    warning = {"nodeid": "a", "outcome": "failed", "x": 10**40, "y": "x" * 5000}
    log = parse_log([json.dumps({**warning, "$report_type": "WarningMessage"})])
    assert (log.tests, log.damaged) == ((), ())


def test_a_test_without_an_outcome_is_lost() -> None:
    setup, _, teardown = phases("a::b", "passed")
    log = parse_log([setup, teardown, *phases("a::c", "passed"), FINISH])
    assert (log.lost, log.count(Outcome.PASSED)) == (("a::b",), 1)


FOLDER = "/var/infini-ci-20260101T000000Z-cpu-ab12_x9"
NAMES = {
    f"a.py::b[1-{FOLDER}/workspace/data/a.txt-{FOLDER}/workspace]": (
        "a.py::b[1-/workspace/data/a.txt-/workspace]"
    ),
    f"a.py::b[{FOLDER}/venv/lib/x]": "a.py::b[/opt/venv/lib/x]",
    f"a.py::b[{FOLDER}/venv.txt-/real{FOLDER}/venv]": (
        "a.py::b[/var/infini-ci/venv.txt-/opt/venv]"
    ),
    f"..{FOLDER}/venv/lib/a.py::b": "../opt/venv/lib/a.py::b",
    f"{FOLDER.strip('/')}/venv/lib/a.py::b": "var/infini-ci/venv/lib/a.py::b",
    "../venv/lib/python3.11/site-packages/a.py::b": (
        "../opt/venv/lib/python3.11/site-packages/a.py::b"
    ),
    f"b[{FOLDER.replace('/', '_')}_workspace]": "b[_var_infini-ci_workspace]",
    "a.py::b[/var/infini-ci-other/workspace]": "a.py::b[/var/infini-ci-other/workspace]",
    "a.py::b[../venv/x]": "a.py::b[../venv/x]",
}


@pytest.mark.parametrize("name", NAMES)
def test_names_do_not_depend_on_the_folder_of_their_run(name: str) -> None:
    crash = f"worker 'gw0' crashed while running {name!r}: Aborted"
    folders = (FOLDER, f"/real{FOLDER}")
    lines = [*phases(name, "passed"), report(name, "???", "failed", longrepr=crash)]
    log = parse_log(lines, folders)
    [test] = log.tests
    assert test.node_id == NAMES[name]
    assert log.crashed == (f"{NAMES[name]} (Aborted)",)
    assert reason_line(test.reason, test.node_id) == "its process died: Aborted"
    assert TestNames(folders)(NAMES[name]) == NAMES[name]
    assert TestNames(folders)(f"{FOLDER}/workspace") == WORKSPACE
    assert parse_log(lines).tests[0].node_id == name  # a container


@pytest.mark.parametrize("outcome", ["passed", "failed"])
def test_what_is_kept_of_a_log_has_a_limit(monkeypatch: pytest.MonkeyPatch, outcome: str) -> None:
    """Else a log of 4 GiB takes 24 GiB of memory."""
    monkeypatch.setattr("ci.facts.pytest_log.LARGEST_LOG", 10_000)
    tests = [phases(f"a::{number:0100}", outcome) for number in range(50)]
    log = parse_log([*(line for lines in tests for line in lines), FINISH])
    assert 10 < len(log.tests) < 20
    assert log.unreadable_lines == 3 * (50 - len(log.tests))
    assert log.exit_status == 0


def test_an_invalid_slot_is_refused() -> None:
    properties = [["overload", "add"], ["slot", 10**30], ["executed", 1]]
    [test] = parse_log([report("a::b", "call", "failed", user_properties=properties)]).tests
    assert test.operator is not None
    assert (test.operator.slot, test.operator.executed) == (None, 1)


def test_digits_after_a_count_are_no_work() -> None:
    """With every start and every length of them tried, this line alone took minutes."""
    assert read_output(["collected 7 items / " + "1" * 1_000_000]).collected == 7


OUTER = "===== test session starts =====\n"
GREEN = "===== 1 passed in 0.01s =====\n"


@pytest.mark.parametrize(
    ("text", "sessions"),
    [
        (OUTER + GREEN, 1),
        (OUTER + GREEN + OUTER + "===== 1 failed in 0.01s =====\n", 2),
        (OUTER + OUTER + GREEN + OUTER + GREEN + GREEN, 1),  # a test prints the output of others
        (OUTER + OUTER + GREEN, 0),  # one of them crashed
        ("1 passed in 0.01s\n1 passed in 0.01s\n", 0),  # with -q nothing marks their ends
        (OUTER + GREEN + "\n\n", 1),
    ],
)
def test_sessions_that_follow_each_other_are_counted(text: str, sessions: int) -> None:
    assert read_output(text.splitlines()).sessions == sessions


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        (GREEN + "!!! _pytest.outcomes.Exit: service is down !!!", "Exit: service is down"),
        ("! _pytest.outcomes.Exit: it is down! !\n" + GREEN, "Exit: it is down!"),
        (GREEN + "\x1b[31m!!! _pytest.outcomes.Exit: down !!!\x1b[0m\n", "Exit: down"),
        (GREEN + "!!! _pytest.outcomes.Exit: two\nlines !!!", "Exit: two"),
        ("test_a.py ...  [100%]Exit: service is down\n\n", "Exit: service is down"),
        ("Exit: service is down", "Exit: service is down"),
        ("E   _pytest.outcomes.Exit: service is down", "Exit: service is down"),
        (GREEN + "Traceback\n_pytest.outcomes.Exit: service is down", "Exit: service is down"),
        (GREEN + "Exit: of the wrapper", None),
        ("Exit: printed by a test\n" + GREEN, None),
        ("!!! _pytest.outcomes.Exit: of a nested one !!!\n" + 9 * "line\n" + GREEN, None),
        ("=== xdist: maximum crashed workers reached: 8 ===\n" + GREEN, "maximum crashed workers"),
        (
            "! xdist.dsession.Interrupted: <W gw1> received keyboard-interrupt !\n" + GREEN,
            "<W gw1>",
        ),
        ("!!! stopping after 1 failures !!!\n" + GREEN, None),
    ],
)
def test_why_a_session_ended(text: str, ending: str | None) -> None:
    found = read_output(text.splitlines()).ending
    assert found is None if ending is None else (found or "").startswith(ending)


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("===== 1 test collected in 0.01s =====", True),
        ("3/4 tests collected (1 deselected) in 0.01s", True),
        ("no tests collected in 0.01s", True),
        ("===== 2 tests collected, 1 error in 0.10s =====", True),
        (GREEN, False),
        ("===== 1 test collected in 0.01s =====\n" + OUTER + GREEN, False),
        ("collected 3 items", False),
    ],
)
def test_a_pytest_that_only_collects(text: str, listed: bool) -> None:
    assert read_output(text.splitlines()).only_listed is listed


@pytest.mark.parametrize(
    "line",
    [
        "configfile: pytest.ini",
        "rootdir: /w, configfile: pytest.ini",
        "rootdir: /w, inifile: pytest.ini, testpaths: tests",
    ],
)
def test_the_configuration_file(line: str) -> None:
    assert read_output([line]).config_file == "pytest.ini"


def test_a_log_of_two_sessions_has_the_worse_status() -> None:
    start, red, green = '{"$report_type": "SessionStart"}', finish(1), finish(0)
    for lines, expected in [
        ([start, red, start, green], (2, 1)),
        ([start, start, green, red], (2, 1)),
        ([start, start, green], (2, None)),
        ([start, green], (1, 0)),
        ([green], (1, 0)),
    ]:
        log = parse_log(lines)
        assert (log.sessions, log.exit_status) == expected


def test_a_test_that_kills_worker_after_worker_is_named_once() -> None:
    crash = "worker 'gw0' crashed while running 't.py::test_a'"
    line = report("t.py::test_a", "???", "failed", longrepr=crash)
    assert parse_log([line] * 9).crashed == ("t.py::test_a (9 times)",)
    assert parse_log([line]).crashed == ("t.py::test_a",)
