"""Every sentence of a verdict, and every note of a row: once, with its code and its parameters.

A sentence is called with its parameters and returns ``Evidence`` that has its code, its grade, the
parameters and the text. Decide by the code, as in ``it.code == no_contract.code``, never by the
text. Each docstring says what the sentence means or what to do: ``docs/reference/findings.md`` is
generated from them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, NamedTuple, ParamSpec

from pydantic import ValidationError, validate_call

from ci.model.results import Evidence, Grade, Harness, Verdict
from ci.util.text import counted, describe_unreadable, first_line, join_names, signal_name

MOST_LISTED = 20  # of a list among the parameters; a text has five
MOST_NAMED = 3  # runs in a sentence
SHORT_DIGEST = 12  # digits
NOTICEABLE_END_S = 1.0  # most processes end within it after SIGTERM
NO_ISOLATION = "--no-build-isolation"
PENDING = "this platform had no result yet when these results were written"

P = ParamSpec("P")


class Sentence(Generic[P]):
    """A sentence, named after the function that writes it."""

    def __init__(self, write: Callable[P, str], grade: Grade) -> None:
        self.code = write.__name__.replace("_", "-")
        self.grade = grade
        self.write: Callable[..., str] = write
        SENTENCES[self.code] = self

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.write)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Evidence:
        parameters = self.signature.bind(*args, **kwargs).arguments
        return Evidence(
            grade=self.grade,
            text=self.write(*args, **kwargs),
            code=self.code,
            parameters={name: _plain(value) for name, value in parameters.items()},
        )

    def reworded(self, found: Evidence, **changes: Any) -> str | None:
        """Return the text with other parameters; ``None`` if this sentence did not write it.

        The evidence may come from elsewhere, so its parameters are checked.
        """
        if found.code != self.code:
            return None
        try:
            return validate_call(self.write)(**{**found.parameters, **changes})
        except ValidationError:
            return None


SENTENCES: dict[str, Sentence[Any]] = {}


def _plain(value: Any) -> Any:
    """Return a parameter as JSON has it."""
    match value:
        case Exit():
            return value._asdict()
        case str() | None:
            return str(value) if value else value
        case Sequence():
            return list(value[:MOST_LISTED])
    return value


def fact(write: Callable[P, str]) -> Sentence[P]:
    return Sentence(write, Grade.FACT)


def likely(write: Callable[P, str]) -> Sentence[P]:
    return Sentence(write, Grade.LIKELY)


def unknown(write: Callable[P, str]) -> Sentence[P]:
    return Sentence(write, Grade.UNKNOWN)


class Exit(NamedTuple):
    """How a command ended."""

    exit_code: int
    signal: int | None = None
    by_agent: bool = False
    """Whether the agent ended a command that then had exit code 0."""

    def __str__(self) -> str:
        if self.signal is not None:
            return f"signal {signal_name(self.signal)} (exit code {self.exit_code})"
        return f"exit code {self.exit_code}" + (
            ", after the agent ended it" if self.by_agent else ""
        )


# Where the run did not begin


@fact
def platform_failed(reason: str) -> str:
    """Remove the cause that the text names, and run the platform again."""
    return reason


def is_pending(verdict: Verdict) -> bool:
    """Whether the run had not got to the platform, or through it, when its results were saved."""
    return any(
        it.code == platform_failed.code and it.parameters.get("reason") == PENDING
        for it in verdict.evidence
    )


@fact
def not_run(reason: str) -> str:
    """Remove the cause that the text names, and run the platform again."""
    return f"not run: {first_line(reason)}"


@fact
def not_judged(reason: str) -> str:
    """Remove the cause that the text names; `--resume` judges the platform again."""
    return f"not judged: {first_line(reason)}"


@fact
def no_result(of: str, run: str) -> str:
    """Run the command."""
    return (
        f"no run of this {of} has a result: its job did not start, its results were lost,"
        f" or its sources had uncommitted changes. Run it: {run}"
    )


@fact
def only_selected(of: str, runs: Sequence[str], run: str) -> str:
    """`report` expected a run of all operators: run the command."""
    return (
        f"no result of all operators: this {of} has only selected ones:"
        f" {join_names(runs, MOST_NAMED)}. Run all of them: {run}"
    )


@unknown
def record_missing() -> str:
    """The connection to the container was lost: use `--resume`."""
    return "the agent's record could not be fetched, so a stage may have started"


@fact
def no_stage_started() -> str:
    """The evidence on the harness says why."""
    return "no stage started"


# Stages


@fact
def command_failed(stage: str, end: Exit) -> str:
    """Read the stage's log: the compiler's first error is usually the cause."""
    return f"stage {stage} ended with {end}; its output is {stage}.log"


@fact
def stage_failed(stage: str) -> str:
    """Read the stage's log: the compiler's first error is usually the cause."""
    return f"stage {stage} failed"


@fact
def stage_without_result(stage: str) -> str:
    """The run ended before this stage: the evidence on the harness says why."""
    return f"stage {stage} has no result"


@fact
def stage_left_out(stage: str) -> str:
    """`bisect` and `rerun-alarm` run the stages that another one needs, and that one."""
    return f"stage {stage} was left out: only another stage was asked for"


@fact
def time_limit(stage: str, limit_s: float, seconds: float) -> str:
    """Look for a hang in the named test, or raise `timeout_s` of the stage."""
    longer = max(seconds - limit_s, 0.0)
    text = f"stage {stage} reached its time limit of {limit_s:g} s"
    return text if longer < NOTICEABLE_END_S else f"{text}; it took {longer:.0f} s to end it"


@fact
def stage_killed(stage: str, end: Exit, seconds: float) -> str:
    """Of a crash, run the named test alone. Of SIGKILL or SIGTERM, find the sender."""
    return f"stage {stage} was killed by {end} after {seconds:.0f} s"


@unknown
def killer_unknown() -> str:
    """The sender may be the kernel, for lack of memory, or a user."""
    why = "the kernel's out-of-memory counter is not readable"
    return f"the sender of SIGKILL is unknown: {why}"


@likely
def killed_from_outside() -> str:
    """Find the sender: another program or user of the machine."""
    return "SIGKILL came from outside: the kernel counts no out-of-memory kill"


@fact
def disk_full(text: str | None) -> str:
    """Make room on the disk of the engine, or of this machine; then run the platform again."""
    return text or "the disk of the stages was full, also for the agent's records"


@fact
def stage_lost(reason: str) -> str:
    """Find out what killed the agent's process; then run the platform again."""
    return reason


# Tests


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


# The harness


@fact
def interrupted_by_caller() -> str:
    """Use `--resume`."""
    return "the run was interrupted by its caller"


@fact
def lease_failed(reason: str) -> str:
    """Wait for the named run, end the program that uses the device, or raise `wait_s`."""
    return reason


@fact
def network_remained(reason: str) -> str:
    """Use `--resume`."""
    return reason


@fact
def exit_after_summary(exit_code: int, inner: int | None, *, by_agent: bool) -> str:
    """The tests count. Look at what the test command does after pytest."""
    known = ", though pytest exited with 0" if inner == 0 else ""
    if by_agent:
        known = ", the agent's own: it ended without a result"
    return f"exit code {exit_code} after the pytest summary{known}"


@fact
def killed_for_memory(
    processes: int | None, stage: str | None, limit: int | None, *, reached: bool
) -> str:
    """Run fewer compilers, processes or platforms at once, or raise the limit."""
    if limit is None:
        why = "no limit is configured, so the machine ran out"
    elif reached:
        why = f"the configured limit is {limit:,} bytes"
    else:
        why = f"the configured limit of {limit:,} bytes was not reached, so the machine ran out"
    if processes is None:
        return f"the engine reports an out-of-memory kill: {why}"
    return f"the kernel killed {counted(processes, 'process')} of stage {stage} for memory: {why}"


@fact
def survived_kills(processes: int, stage: str) -> str:
    """Run fewer compilers at once: another run may not survive it."""
    kills = f"the kernel killed {counted(processes, 'process')} of stage {stage} for memory"
    return f"{kills}, but the stage succeeded"


@fact
def result_not_received() -> str:
    """Use `--resume`."""
    return "the agent's result was not received"


@fact
def container_restarted() -> str:
    """Let nothing restart containers of runs; then start the run again."""
    return "the container was restarted from outside; nothing ran in it a second time"


@fact
def container_ended(request: str) -> str:
    """Find out who ended it, and use `--resume`."""
    return f"the container was ended from outside, by a request like `{request}`"


@fact
def agent_signalled(signal: int | None) -> str:
    """Find the sender, and use `--resume`."""
    name = "a signal" if signal is None else signal_name(signal)
    return f"the agent received {name}, which this caller did not send"


@fact
def supervisor_signalled(stage: str, sender: str) -> str:
    """Find the sender, and use `--resume`."""
    return f"the supervisor of stage {stage} received a signal that {sender} did not send"


@fact
def agent_ended(exit_code: int | None, *, started: bool) -> str:
    """Find out who removed or killed the container, and use `--resume`."""
    how = "ended without a result" if started else "did not start"
    return f"the agent {how}, exit code {exit_code}"


@fact
def agent_disagrees(exit_code: int | None, recorded: int) -> str:
    """Something in the container changed the agent's exit code: start the run again."""
    return f"the agent ended with exit code {exit_code}, but had recorded {recorded}"


@fact
def left_session(end: Exit, *, is_wrapped: bool) -> str:
    """Look for a call of `os._exit`."""
    if is_wrapped:  # the exit code is the wrapper's
        return f"pytest did not end its session, and the test command ended with {end}"
    return f"pytest exited early with {end} and did not end its session"


@fact
def no_summary(end: Exit) -> str:
    """Look for a call of `os._exit`, or an option that suppresses the summary."""
    return (
        f"pytest printed no closing summary, {end}: it crashed or called os._exit, or `-qq`,"
        " `-p no:terminal` or a plugin suppresses the summary: run pytest without these"
    )


@fact
def pytest_unseen(end: Exit) -> str:
    """A wrapper must pass its arguments on to pytest."""
    return f"nothing shows that pytest ran: {end}, no log and no summary"


@fact
def device_changed(device: str, before: str, after: str) -> str:
    """Check the device before you trust the results."""
    return f"device {device} was {before} before the tests, {after} after"


@fact
def record_changed(how: str) -> str:
    """Find out which test or build step writes to `events.jsonl`."""
    return f"events.jsonl differs from the events that the engine received: {how}"


@fact
def artifact_missing(name: str, path: str) -> str:
    """Correct `artifacts` in `ci.yaml`, or the stage that makes the file."""
    return f"artifact {name} is missing: {path} does not exist"


@fact
def artifact_cut(name: str, files: int, path: str) -> str:
    """Choose fewer files in `artifacts` of `ci.yaml`."""
    return f"artifact {name} lacks {counted(files, 'file')} of {path}"


@fact
def given_tested(name: str, sha256: str, removed: int) -> str:
    """The file of `--wheel` or `--sdist` was tested. Modules that it has too were removed from the
    sources, so that no test imports them from there."""
    text = f"tested {name} (SHA-256 {sha256[:SHORT_DIGEST]}), which was made elsewhere"
    return text + (f"; {counted(removed, 'module')} removed from the sources" if removed else "")


@fact
def given_untested(name: str) -> str:
    """Let no stage or test install the project or change its installed files. `RECORD` of the wheel
    must have the hashes of all its files."""
    return f"nothing shows that the tests ran with {name} installed, which was made elsewhere"


@fact
def wheel_shadowed(names: Sequence[str]) -> str:
    """`python -m pytest` searches the sources first. To test the wheel, run `pytest`, set
    PYTHONSAFEPATH=1, keep packages in a folder `src`, or use `--wheel`."""
    shown = join_names(names, MOST_NAMED)
    return f"the tests import {shown} from the sources, not from the installed wheel"


@fact
def distribution_untested(names: Sequence[str]) -> str:
    """Install the wheel with `{wheel}` in the stage's command, and let no stage or test change its
    installed files. `RECORD` of the wheel must have the hashes of all its files."""
    shown = join_names(names, MOST_NAMED)
    return f"nothing shows that the tests ran with what was kept installed: {shown}"


@fact
def benchmarks_unreadable(stage: str, path: str, fault: str) -> str:
    """Correct `benchmarks` of the stage, or the option with which its tool writes the file."""
    return f"stage {stage}: no results of benchmarks in {path}: {fault}"


@fact
def benchmarks_without_value(stage: str, names: Sequence[str]) -> str:
    """Their tool reports that they failed or were skipped: read the stage's log."""
    shown = join_names(names, MOST_NAMED)
    return f"stage {stage}: {counted(len(names), 'benchmark')} without a value: {shown}"


@fact
def benchmarks_left_out(count: int) -> str:
    """Measure fewer benchmarks, or give them shorter names."""
    return f"{counted(count, 'benchmark')} left out: there are more than a result can have"


class Source(StrEnum):
    """A record with lines that cannot be read."""

    EVENTS = "events"
    LOG = "log"
    OUTPUT = "output"


_SOURCES = {
    Source.EVENTS: "events.jsonl has {}",
    Source.LOG: "the per-test log has {}",
    Source.OUTPUT: "the agent's output has {}, kept in agent.log",
}


@fact
def unreadable_lines(source: Source, lines: int, longest: int) -> str:
    """Let the tests print less: a process may also have been killed while it wrote."""
    return _SOURCES[source].format(describe_unreadable(lines, longest))


# Attempts


@fact
def attempt_failed(attempt: int, engine: str, reason: str) -> str:
    """Another attempt followed it."""
    return f"attempt {attempt} on engine {engine} failed: {reason}"


@fact
def no_further_attempt(reason: str) -> str:
    """Remove the cause that the text names."""
    return f"no further attempt: {reason}"


@fact
def earlier_attempts(count: int) -> str:
    """Look at the evidence: an engine may need repair."""
    return f"{counted(count, 'earlier attempt')} failed: see the evidence"


# Notes on the verdict


@fact
def full_suite() -> str:
    """Every test of the suite ran, none failed."""
    return "full suite passed"


@fact
def selected_suite() -> str:
    """The run was narrowed with `--select`."""
    return "suite of the selected operators passed"


@fact
def suite_without_device() -> str:
    """The library was compiled; tests that need the device were skipped."""
    return "all tests that run without a device passed"


@fact
def suite_unfinished() -> str:
    """The evidence names the test that was running."""
    return "the suite did not finish"


@fact
def failed_counts(failed: int, subtests: int, errors: int) -> str:
    """Run one of the tests again with `python -m ci rerun`."""
    parts = [f"{counted(failed, 'test')} failed"] if failed else []
    if subtests:  # pytest's summary counts them beside their tests
        parts = [f"{it} with {counted(subtests, 'failed subtest')}" for it in parts]
    return ", ".join([*parts, *([counted(errors, "error")] if errors else [])])


@fact
def interrupted() -> str:
    """Use `--resume`."""
    return "interrupted"


@fact
def wrapper_returned(exit_code: int | None, *, by_agent: bool) -> str:
    """The tests count. Look at what the test command does after pytest."""
    who = "the agent" if by_agent else "outer wrapper"
    return f"{who} returned {exit_code} after the pytest summary"


@fact
def process_crashed(tests: Sequence[str]) -> str:
    """Run the named test alone."""
    return f"process crashed in {join_names(tests)}" if tests else "process crashed"


@fact
def no_closing_line(exit_code: int, *, shows_pytest: bool) -> str:
    """The evidence names what may suppress it."""
    known = "pytest printed no closing summary" if shows_pytest else "nothing shows that pytest ran"
    return f"{known} (exit code {exit_code})"


_HARNESS = {
    Harness.OOM_KILLED: "killed for lack of memory",
    Harness.TIMED_OUT: "timed out",
    Harness.LOST: "container lost",
    Harness.INFRASTRUCTURE: "infrastructure failure",
}


@fact
def harness_failed(harness: Harness) -> str:
    """The evidence has the cause."""
    return _HARNESS[harness]


# Notes on the suite


@fact
def selected(overloads: int, of: int) -> str:
    """The run was narrowed with `--select`."""
    return f"selected {overloads:,} of {counted(of, 'overload')}"


@fact
def selection_unrecorded(operators: str) -> str:
    """The suite does not record what the library has."""
    return f"selected {operators}; no test recorded which of them the library has"


@fact
def shards(count: int, seconds: Sequence[float]) -> str:
    """The tests ran in several processes, with the seconds of each."""
    times = " + ".join(f"{it:.0f}" for it in seconds)
    return f"{count} shards" + (f" ({times} s)" if times else "")


@fact
def reruns(tests: int, attempts: int, passed: int) -> str:
    """The result of `--reruns`. The verdict remains that of the first attempt."""
    which = counted(tests, "failed test")
    if not attempts:
        return f"{which} without a result in any rerun"
    if not passed:
        return f"{which} failed again in all {counted(attempts, 'rerun')}"
    share, ending = f"{passed:,} of", "flaky"
    if passed == attempts:  # a rerun does not run the tests before it
        share, ending = "all", "flaky, or dependent on the tests before"
    return f"{which} passed in {share} {counted(attempts, 'rerun')}: {ending}"


@fact
def reruns_ended(reason: str, *, after_some: bool) -> str:
    """Remove the cause that the text names."""
    return f"no {'more ' if after_some else ''}reruns: {reason}"


@fact
def simulated_device() -> str:
    """A program stood in for the device. The row proves nothing about the vendor's hardware."""
    return "simulated device: no vendor hardware was used"


@fact
def compiled_only(skipped: int | None) -> str:
    """The library was compiled, and only tests that need no device ran."""
    count = "" if skipped is None else f", {counted(skipped, 'test')} skipped"
    return f"no device: compiled only{count}; no vendor hardware was used"


@fact
def no_contract(platform: str, update: str | None) -> str:
    """The platform has no file of expected outcomes: run the command and commit the file."""
    return f"no contract for {platform} yet{f'; write it with {update}' if update else ''}"


@fact
def contract_differs(changes: Sequence[str], update: str | None) -> str:
    """Find out why the tests changed. If that is intended, run the command and commit the file."""
    return f"contract: {'; '.join([*changes, *([f'update with: {update}'] if update else ())])}"


@fact
def overloads_executed(shares: Sequence[str]) -> str:
    """How many overloads of operators at least one test executed."""
    return f"overloads executed: {', '.join(shares)}"


@fact
def overloads_passed(own: int, composite: int, fallback: int) -> str:
    """What computed the results on a simulated device."""
    return (
        f"overloads passed: {own:,} by own kernels, {composite:,} composite,"
        f" {fallback:,} by the CPU fallback"
    )


@fact
def instructions_missing(tests: int, needs: Sequence[str]) -> str:
    """See [Processors](../processors.md)."""
    return f"{counted(tests, 'test')} skipped, the processor lacks {'; '.join(needs)}"


@fact
def quarantined(tests: int, entries: Sequence[str]) -> str:
    """A known defect of the vendor made the tests fail, as expected."""
    return f"{counted(tests, 'test')} quarantined: {', '.join(entries)}"


@fact
def quarantine_stale(entries: Sequence[str]) -> str:
    """Tests pass in spite of their quarantine: remove these entries."""
    return f"quarantine stale: {', '.join(entries)}"


@fact
def differs_from_cpu(overloads: Sequence[str]) -> str:
    """Compare the results of these overloads with those of the CPU."""
    count = counted(len(overloads), "overload")
    return f"results differ from the CPU: {count}: {join_names(overloads)}"


# Notes on the environment


@fact
def lease_waited(seconds: float) -> str:
    """The run waited for a free device. The time is not part of the total."""
    return f"device lease waited {seconds:.0f} s"


@fact
def host_engine() -> str:
    """The run used no container: the code under test ran as your user."""
    return "host engine: a fresh virtual environment on this machine, without isolation"


@fact
def tools(versions: Sequence[str]) -> str:
    """The tools of the host engine's stages, which are those of a machine, not of an image."""
    return ", ".join(versions)


@fact
def cold_cache() -> str:
    """Nothing was compiled before. Do not compare build times with those of a warm cache."""
    return "cold compiler cache"


@fact
def warm_cache(hit_rate: float) -> str:
    """How much was compiled before. Do not compare build times with those of a cold cache."""
    return f"warm compiler cache ({100 * hit_rate:.0f} % hits)"


@fact
def compiled_untested(modules: Sequence[str]) -> str:
    """The tests imported the sources, which lack the compiled modules."""
    return (
        f"not tested: compiled {join_names(modules)}: python -m pytest imports the sources, which"
        " lack it; use pytest --import-mode=importlib"
    )


@fact
def sources_tested(modules: Sequence[str]) -> str:
    """Let `pyproject.toml` include the modules."""
    return (
        f"the sources were tested, not what was installed, which lacks {join_names(modules)}:"
        " python -m pytest imports the sources; use pytest --import-mode=importlib"
    )


@fact
def requirements_missing(stage: str, packages: Sequence[str]) -> str:
    """Add the packages to the file of `requirements:` in `ci.yaml`, or leave out the option."""
    return (
        f"stage {stage} builds without isolation, and the environment lacks {join_names(packages)}"
        " of build-system.requires: add to the file of `requirements:` what is missing, or leave"
        f" out {NO_ISOLATION}"
    )


@fact
def kept(name: str) -> str:
    """`python -m ci shell` opens in it; `gc` removes it."""
    return f"kept for `shell`: {name}"


@fact
def not_listed(count: int, what: str) -> str:
    """The row of `results.json` would be too large to be read again."""
    return f"{counted(count, what)} not listed"


@fact
def reported(text: str) -> str:
    """What the engine found, or the copying of sources and results. The text says what to do."""
    return text
