"""A test that crashes, hangs or breaks the device costs one test, and is named."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree

import guards
import pytest

from ci.model.outcomes import Outcome
from tests.guards.toy_suite import Run, run_suite

TOYS = """
import ctypes, os, signal, unittest

import pytest


def passes(): pass
def fails(): assert "torch" == "library"
def segfaults(): ctypes.string_at(0)
def aborts(): os.abort()
def dies_as_torch_does(): os.abort()
def is_killed(): os.kill(os.getpid(), signal.SIGKILL)
def exits(): os._exit(0)
def hangs(): ctypes.PyDLL(None).pause()  # holds the interpreter lock
def breaks_the_device():
    os.environ["DEVICE_IS_BROKEN"] = "1"
    raise RuntimeError("illegal memory access")
def skips(): pytest.skip("dtype unsupported: no kernel for 'Half'")
def skips_for_another_reason(): pytest.skip("later")
def skips_without_a_message(): pytest.skip("dtype unsupported: ")
def misses_a_module(): pytest.importorskip("no_such_module")
def skips_as_unittest_does(): raise unittest.SkipTest("later")
def expects_to_fail(): pytest.xfail("later")


def toys(*behaviours):
    return pytest.mark.parametrize(
        "behave", [pytest.param(toy, id=f"{toy.__name__}-float32-toy-slot8") for toy in behaviours]
    )
"""

EVERYTHING = (
    TOYS
    + """
@toys(passes, fails, segfaults, aborts, dies_as_torch_does, is_killed, exits, hangs,
      breaks_the_device, skips, skips_for_another_reason, skips_without_a_message, misses_a_module,
      skips_as_unittest_does, expects_to_fail)
def test_toy(behave):
    behave()


@pytest.mark.skipif(True, reason="later")
def test_marked_to_skip(): pass


@pytest.mark.skipif(True, reason="not in this torch: float8")
def test_marked_to_skip_for_a_reason(): pass


@pytest.mark.xfail(strict=False)
def test_marked_to_fail(): pass


@pytest.fixture
def hangs_at_its_end():
    yield
    hangs()


def test_fails_and_hangs_at_its_end(hangs_at_its_end): fails()


def test_last(): pass
"""
)


@pytest.fixture(scope="module", params=[("-n", "2"), ()], ids=["two workers", "no option"])
def everything(request: pytest.FixtureRequest) -> Run:
    return run_suite(EVERYTHING, "--hang-after=2", *request.param)


TESTS = 20
DEATHS = {
    "segfaults": "Segmentation fault\n",
    "aborts": "Aborted\n",
    "is_killed": "killed by another process, or ended by a call of exit() (no traceback)\n",
    "exits": "killed by another process, or ended by a call of exit() (no traceback)\n",
    "hangs": "timed out after 2 s\n",
    "breaks_the_device": "the device no longer answers after this test\n",
}
NO_REASONS = {
    "skips_for_another_reason": "'later'",
    "skips_without_a_message": "'dtype unsupported:'",
    "misses_a_module": "\"could not import 'no_such_module'",
    "skips_as_unittest_does": "'later'",
    "expects_to_fail": "'xfail later'",
}


class TestEverything:
    def test_each_test_counts_once(self, everything: Run) -> None:
        log = everything.log
        assert len(log.tests) == TESTS
        assert log.count(Outcome.PASSED) == 2
        assert log.count(Outcome.SKIPPED) == 3
        assert log.count(Outcome.FAILED) + log.count(Outcome.ERROR) == TESTS - 5
        assert len(log.crashed) == len(DEATHS) + 1
        assert not log.running
        assert (log.exit_status, everything.exit_status) == (1, 1)

    @pytest.mark.parametrize("name", DEATHS)
    def test_the_report_says_how_the_test_died(self, everything: Run, name: str) -> None:
        reason = everything.outcome(name).reason
        assert reason
        assert reason.startswith("worker 'gw")
        assert f"slot8]': {DEATHS[name]}" in reason

    @pytest.mark.parametrize("name", ["segfaults", "aborts", "hangs"])
    def test_the_stack_has_the_frames_of_the_test_alone(self, everything: Run, name: str) -> None:
        reason = str(everything.outcome(name).reason)
        assert f"in {name}\n" in reason
        assert "in test_toy\n" in reason
        assert "pytest" not in reason.partition("To see what it prints: ")[0].partition("\n")[2]

    def test_the_error_that_broke_the_device_is_reported(self, everything: Run) -> None:
        reason = str(everything.outcome("breaks_the_device").reason)
        assert "RuntimeError: illegal memory access" in reason

    def test_a_dead_test_has_the_properties_in_its_name(self, everything: Run) -> None:
        assert everything.properties("segfaults") == {
            "platform": "toy",
            "overload": "segfaults",
            "dtype": "float32",
            "device": "toy",
            "slot": 8,
        }

    def test_a_death_that_torch_dies_alone_is_skipped_with_its_signal(
        self, everything: Run
    ) -> None:
        outcome = everything.outcome("dies_as_torch_does")
        assert outcome.outcome is Outcome.SKIPPED
        assert outcome.reason == "torch crashes: SIGABRT, without the library, too"
        assert everything.properties("dies_as_torch_does")["reason"] == "torch crashes"

    def test_the_time_limit_covers_the_teardown_of_a_failed_test(self, everything: Run) -> None:
        hung = "test_toy.py::test_fails_and_hangs_at_its_end (timed out after 2 s)"
        assert hung in everything.log.crashed

    @pytest.mark.parametrize("name", NO_REASONS)
    def test_a_skip_outside_of_the_vocabulary_fails(self, everything: Run, name: str) -> None:
        outcome = everything.outcome(name)
        assert outcome.outcome is Outcome.FAILED
        assert str(outcome.reason).startswith(f"skip reason: got {NO_REASONS[name]}")

    def test_skip_and_xfail_marks_outside_of_the_vocabulary_fail(self, everything: Run) -> None:
        failed = everything.log.node_ids(Outcome.FAILED, Outcome.ERROR)
        assert {"test_toy.py::test_marked_to_skip", "test_toy.py::test_marked_to_fail"} <= {*failed}

    def test_a_skip_records_its_reason(self, everything: Run) -> None:
        assert everything.properties("skips") == {"reason": "dtype unsupported"}

    def test_junit_names_every_test(self, everything: Run) -> None:
        cases = ElementTree.fromstring(everything.junit).iter("testcase")  # noqa: S314
        assert len({case.attrib["name"] for case in cases}) == TESTS


def test_a_module_that_skips_itself_fails() -> None:
    run = run_suite("import pytest\npytest.importorskip('no_such_module')\n")
    assert run.exit_status == 1
    assert (
        ", expected 'REASON: detail' with a reason of reasons.py: not in this torch, " in run.output
    )


def test_too_many_deaths_end_the_run_and_fail_it() -> None:
    """Even if the quarantine expects each of them."""
    tests = TOYS + "@pytest.mark.parametrize('number', range(9))\ndef test_toy(number): aborts()\n"
    run = run_suite(tests, "--max-worker-restart=2", quarantine=quarantine_of("test_toy.py*"))
    assert run.log.count(Outcome.SKIPPED) == 3
    assert (
        "6 of 9 tests did not run. If too many workers died, the device or the build " in run.output
    )
    assert (run.log.exit_status, run.exit_status) == (1, 1)


DIES_WHEN_MORE_IS_SENT = """

import threading

WORKER_DIED = threading.Event()


def pytest_runtest_logreport(report):
    # Handle the end of the second test only after the worker has died in the third.
    worker = dict(report.user_properties).get("worker")
    if report.when == "teardown" and worker and hasattr(report, "node"):
        os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)


@pytest.hookimpl(tryfirst=True)
def pytest_report_from_serializable(data):
    # The thread that reads from the worker notices its death even later.
    if "test_third" in data["nodeid"]:
        WORKER_DIED.wait()


def pytest_runtest_logstart(nodeid):
    if "test_third" in nodeid:  # the event after the end of the second test
        WORKER_DIED.set()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish():
    WORKER_DIED.set()
"""


def test_a_death_while_more_tests_are_sent_costs_one_test() -> None:
    """A worker first gets 4 of 16 tests, then more; it starts a test once it has the next."""
    tests = """
def test_first(): pass
def test_second(record_property): record_property("worker", os.getpid())
def test_third(): is_killed()
@pytest.mark.parametrize("number", range(13))
def test_other(number): pass
"""
    run = run_suite(TOYS + tests, hooks=DIES_WHEN_MORE_IS_SENT)
    assert run.log.count(Outcome.PASSED) == 15
    assert [name.partition(" ")[0] for name in run.log.crashed] == ["test_toy.py::test_third"]
    assert run.exit_status == 1


def test_a_test_that_dies_of_what_torch_did_before_runs_again() -> None:
    """As after a kernel that damages memory, which a later garbage collection reads."""
    tests = """
damaged = []
def damages_memory(): damaged.append(True)
def reads_memory(): damaged and ctypes.string_at(0)
@toys(passes, damages_memory, reads_memory)
def test_toy(behave): behave()
"""
    run = run_suite(TOYS + tests, "-rA")
    assert run.log.count(Outcome.PASSED) == 3
    assert "3 passed, 1 rerun in " in run.output
    dies = "runs again: torch, without the library, dies, too, after the tests before it"
    reason = next(report["longrepr"] for report in run.reports if report["outcome"] == "rerun")
    assert reason.startswith(f"{dies} in the process (2): SIGSEGV\nworker 'gw0' crashed")
    assert "Segmentation fault" in reason
    assert not run.log.crashed
    assert run.exit_status == 0


def test_a_test_that_dies_again_fails() -> None:
    tests = """
def damages_memory(): pass
@toys(damages_memory, segfaults)
def test_toy(behave): behave()
"""
    run = run_suite(TOYS + tests)
    assert "1 failed, 1 passed, 1 rerun in " in run.output
    assert run.outcome("segfaults").outcome is Outcome.FAILED


def test_an_internal_error_of_a_run_is_shown() -> None:
    tests = "import pytest\ndef test_toy(): pytest.exit('out of order', returncode=3)\n"
    with pytest.raises(pytest.fail.Exception, match=r"(?s)with status 3:\n.*Exit: out of order"):
        run_suite(tests, "-n0")


@pytest.mark.parametrize("argument", ["-n0", "-s", "--collect-only", "-pno:xdist", "--setup-show"])
def test_options_to_watch_tests_start_no_worker(argument: str) -> None:
    run = run_suite("def test_passes(): pass", argument)
    assert run.exit_status == 0
    assert "worker" not in run.output


def test_a_debugger_is_detected() -> None:
    assert not guards.is_debugged()
    sys.settrace(lambda *_: None)
    try:
        assert guards.is_debugged()
    finally:
        sys.settrace(None)


def quarantine_of(test: str, outcome: str = "crashes", **keys: object) -> str:
    entry = {
        "test": f'"{test}"',
        "outcome": outcome,
        "reason": "known",
        "date": "2026-11-21",
        "reference": "'#1'",
        **keys,
    }
    return "toy:\n- " + "\n  ".join(f"{key}: {value}" for key, value in entry.items()) + "\n"


QUARANTINE = """
toy:
- {test: fails, outcome: fails, reason: wrong sum, date: 2026-11-21, reference: '#1'}
- {test: segfaults, outcome: crashes, reason: null operand, date: 2026-11-21, reference: '#2'}
- {test: hangs, outcome: hangs, reason: waits for itself, date: 2026-11-21, reference: '#3'}
- {test: passes, outcome: fails, reason: wrong once, date: 2026-11-21, reference: '#4'}
- {test: aborts, outcome: fails, reason: wrong sum, date: 2026-11-21, reference: '#5'}
- {test: skips, outcome: fails, reason: wrong sum, date: 2026-11-21, reference: '#6'}
- {test: is_killed, slot: 0, outcome: fails, reason: other, date: 2026-11-21, reference: '#7'}
"""


@pytest.fixture(scope="module")
def run() -> Run:
    toys = "@toys(passes, fails, segfaults, hangs, aborts, skips)\n"
    tests = TOYS + toys + "def test_toy(behave): behave()\n"
    return run_suite(tests, "--hang-after=2", quarantine=QUARANTINE)


class TestQuarantine:
    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("fails", "vendor defect #1: wrong sum; AssertionError: assert 'torch' == 'library'"),
            ("segfaults", "vendor defect #2: null operand; Segmentation fault"),
            ("hangs", "vendor defect #3: waits for itself; timed out after 2 s"),
        ],
    )
    def test_an_expected_outcome_is_skipped(self, run: Run, name: str, reason: str) -> None:
        assert run.outcome(name).outcome is Outcome.SKIPPED
        assert run.outcome(name).reason == reason
        assert run.properties(name)["reason"] == "vendor defect"
        assert run.properties(name)["quarantine"] == reason.split()[2].strip(":")

    def test_a_test_that_passes_is_not_skipped(self, run: Run) -> None:
        assert run.outcome("passes").outcome is Outcome.PASSED

    def test_a_worse_outcome_than_expected_fails(self, run: Run) -> None:
        assert run.outcome("aborts").outcome is Outcome.FAILED
        assert "The quarantine expects that this test fails: aborts (line 7)." in str(
            run.outcome("aborts").reason
        )
        assert run.exit_status == 1

    def test_the_closing_line_lists_the_entries_to_review(self, run: Run) -> None:
        assert (
            "quarantine: 3 of 6 entries confirmed; stale: passes (line 6); "
            "only skipped: skips (line 8); worse than expected: aborts (line 7); "
            "without a test: is_killed slot 0 (line 9)\n"
        ) in run.output


def test_entries_of_deselected_tests_are_not_reported() -> None:
    run = run_suite("def test_toy(): pass\n", "-k", "toy", quarantine=quarantine_of("other"))
    assert run.exit_status == 0
    assert "without a test" not in run.output


def test_a_wrong_quarantine_is_a_usage_error() -> None:
    run = run_suite("def test_toy(): pass\n", quarantine=quarantine_of("add", outcome="fail"))
    assert run.exit_status == 4
    assert (
        "ERROR: quarantine.yaml:3: outcome: expected fails, crashes, hangs; got 'fail'\n"
        in run.output
    )
    assert "Traceback" not in run.output


def test_the_stack_of_a_crash_leaves_out_the_interpreter_s_own_frames() -> None:
    """Python 3.14's faulthandler shows C frames too; dozens of them are Python's own."""
    crash_log = """Fatal Python error: Aborted

Current thread 0x00007fabf1fe8200 [python] (most recent call first):
  File "/src/test_toy.py", line 2 in aborts
  File "/ci/lib/python3.14/site-packages/_pytest/python.py", line 166 in pytest_pyfunc_call

Current thread's C stack trace (most recent call first):
  Binary file "/ci/bin/python", at _Py_DumpStack+0x4a [0x499c1d]
  Binary file "/usr/lib/x86_64-linux-gnu/libc.so.6", at abort+0x24 [0x7fabf2011507]
  Binary file "/ci/lib/python3.14/site-packages/infini/ops/libinfini_ops.so", at +0x29fba [0x7f]
  Binary file "/usr/lib/libpython3.14.so.1.0", at Py_RunMain+0x3aa [0x7376aa]
  Binary file "/ci/bin/python3.14" [0x743494]
"""
    kept = guards._stack(crash_log).splitlines()
    frames = [line.split("/")[-1] for line in kept if line.startswith("  ")]
    assert [frame.partition('"')[0] for frame in frames] == [
        *("test_toy.py", "libc.so.6", "libinfini_ops.so"),
    ]
