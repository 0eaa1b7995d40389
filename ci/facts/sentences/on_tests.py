"""What the tests did, and how pytest ended."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from ci.facts.sentences.sentence import Exit, fact, likely
from ci.util.text import counted, join_names


@fact
def suite_passed(passed: int, skipped: int, *, ended: bool) -> str:
    """Nothing to do."""
    how = "pytest ended with status 0" if ended else "pytest exited early"
    return f"{how}: {passed} passed, {skipped} skipped"


@fact
def failed_tests(failed: int, errors: int, subtests: int, tests: Sequence[str]) -> str:
    """Run one of the tests again with `python -m ci rerun`."""
    counts = f"{failed} failed, {counted(errors, 'error')}"
    counts += f", {counted(subtests, 'failed subtest')}" if subtests else ""
    return f"{counts}: {join_names(tests)}" if tests else counts


@fact
def nothing_passed(skipped: int) -> str:
    """Look at the reasons below; `junit.xml` has that of each test."""
    return f"no test passed: {skipped} skipped"


@fact
def no_test_ran() -> str:
    """Look for an option that excludes all tests."""
    return "no test ran: none was collected, or an option such as --collect-only runs none"


@fact
def only_set_up(began: int) -> str:
    """Remove the option."""
    return f"{counted(began, 'test')} began, but none ran: remove --setup-only"


@fact
def only_collected(where: str) -> str:
    """Remove the option."""
    return f"pytest only collected the tests and ran none: remove --collect-only from {where}"


@fact
def several_runs(runs: int, stage: str, status: str | None) -> str:
    """Call pytest once in a stage."""
    how_often = "twice" if runs == 2 else f"{runs} times"
    ended = f" (one run exited with {status})" if status else ""
    return (
        f"pytest ran {how_often} in stage {stage}{ended}, and the results have"
        " only a part of these runs: call pytest once, as in `pytest unit integ`, or give each call"
        " a stage of its own"
    )


@fact
def exit_called(status: int | None, reason: str) -> str:
    """A test, a fixture or a hook called `pytest.exit`: remove its reason."""
    how = f" with status {status}" if status is not None else ""
    return f"pytest.exit ended the suite{how}: {reason}"


@fact
def exit_called_in_file(tests: Sequence[str], reason: str) -> str:
    """A file of tests called `pytest.exit` when it was imported: remove its reason."""
    return f"pytest.exit was called in {join_names(tests)}: {reason}"


class Reporter(StrEnum):
    """What an exit status was read from."""

    PYTEST = "pytest"
    SESSION = "session"
    COMMAND = "command"
    WRAPPER = "wrapper"


_REPORTERS = {
    Reporter.PYTEST: "pytest exited with",
    Reporter.SESSION: "pytest ended its session with",
    Reporter.COMMAND: "the test command exited with",
    Reporter.WRAPPER: "pytest exited with {}, and the test command with",
}
# Details of ``bad_exit``
SET_BY_HOOK = " although no test failed: a plugin or hook set this status"


def before_end(reporter: Reporter) -> str:
    """Return the detail of a session that did not end."""
    whose = "pytest's" if reporter is Reporter.COMMAND else "its"
    return f" before the end of {whose} session"


@fact
def bad_exit(reporter: Reporter, status: int, inner: int | None, detail: str) -> str:
    """Look for what sets the exit status: a wrapper, a hook, a plugin or pytest itself."""
    return f"{_REPORTERS[reporter].format(inner)} {status}{detail}"


@fact
def last_lines(stage: str, lines: Sequence[str]) -> str:
    """They often name the cause."""
    return f"last lines of {stage}.log: {' | '.join(lines)}"


@fact
def no_log(stage: str, end: Exit | None, *, is_lost: bool) -> str:
    """Read the stage's log. A wrapper must pass its arguments on to pytest."""
    how = f"ended with {end}; its output is {stage}.log" if end else "has no result"
    log = "no per-test log was copied out" if is_lost else "there is no per-test log"
    return f"{log}; stage {stage} {how}"


@fact
def session_unfinished(results: int) -> str:
    """The evidence on the harness says how the process ended."""
    return f"pytest did not finish; its log has {counted(results, 'result')}"


@fact
def ended_after_log(stage: str, end: Exit | None, *, has_summary: bool) -> str:
    """Look for a hook or plugin that runs after the last test."""
    how = f"ended with {end}" if end else "has no result"
    printed = "" if has_summary else ", and pytest printed no closing summary"
    return f"stage {stage} {how} after the end of the log{printed}"


@fact
def outcomes_missing(status: int | None, tests: Sequence[str]) -> str:
    """Run these tests alone."""
    return (
        f"pytest ended with status {status}, and its log lacks the outcome of {join_names(tests)}"
    )


@fact
def ended_within(status: int | None, tests: Sequence[str]) -> str:
    """Look for a call of `pytest.exit` in these tests."""
    return f"pytest ended with status {status} in the middle of {join_names(tests)}"


@likely
def ended_early(status: int | None, began: int, collected: int) -> str:
    """Look for a call of `pytest.exit`, or an option such as `-x`."""
    text = f"{began} of {collected} collected tests began"
    return f"pytest ended with status {status} before its end: {text}"


@fact
def omitted_tests(count: int, collected: int, ending: str | None, *, repeats: bool) -> str:
    """Run the tests that died alone."""
    text = f"{count} of {collected} collected tests did not run"
    text += f": pytest-xdist stopped: {ending}" if ending else ""
    if repeats:
        text += "; --dist loadscope and loadfile repeat a test that kills its worker"
    return f"{text}; run the tests that died alone"


@fact
def workers_killed(tests: Sequence[str]) -> str:
    """Run fewer processes or platforms at once."""
    return f"worker processes were killed for memory in {join_names(tests)}"


@fact
def worker_left(tests: Sequence[str]) -> str:
    """Run the test without `-n`."""
    return (
        f"the session of a pytest worker ended in {join_names(tests)}, as with pytest.exit:"
        " pytest-xdist does not show the reason; run the test without -n"
    )


@fact
def worker_died(tests: Sequence[str]) -> str:
    """Run these tests alone."""
    return f"a pytest worker process died in {join_names(tests)}"


@fact
def running_tests(tests: Sequence[str]) -> str:
    """Run these tests alone."""
    return f"pytest was running {join_names(tests)}"


@fact
def skipped_tests(tests: int, reasons: Sequence[str]) -> str:
    """The most frequent reasons with their counts. `junit.xml` has that of each test."""
    return f"{tests:,} skipped: {'; '.join(reasons)}"


@fact
def results_unreadable(tests: Sequence[str]) -> str:
    """Let the tests print less, or add `-s` to the test command."""
    return f"unreadable in the per-test log: results of {join_names(tests)}"


@fact
def misplaced(how: str) -> str:
    """A test whose operator fell back to the CPU must be skipped; check that torch finds the
    device."""
    return how


@fact
def shards_differ(how: str) -> str:
    """Let all shards collect the same tests, as the text says."""
    return how


@fact
def shard_ended(shard: int, shards: int, end: Exit, seconds: float) -> str:
    """Read `pytest.shard-N.log`."""
    return f"shard {shard} of {shards} ended with {end} after {seconds:.0f} s"


@fact
def contract_broken(change: str, line: str) -> str:
    """Find out why the tests changed. If that is intended, rewrite the contract."""
    return f"contract: {change}: {line}"


@likely
def torch_decided(tests: int, of: int) -> str:
    """Compare with the torch that the contract names; report the calls to torch, or its plug-in."""
    return f"torch alone refuses or crashes in tests that break the contract: {tests:,} of {of:,}"
