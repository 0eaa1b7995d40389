"""Judge what pytest ran, by its log, its output and the exit status of its process. Pure.

Exit codes 1 to 5 are pytest's own verdict and outrank the log, since plugins may decide after its
last line. An exit code of 0 without a log is ``incomplete``, and so is a suite in which no test
passed: skipped, empty and missing are never success. One run of pytest is judged: several in one
stage are not added up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from signal import Signals

from ci.facts.case import UNFINISHED, Case, format_exit
from ci.model.results import Evidence, Product, fact, likely
from ci.model.tests import Outcome, PytestLog
from ci.protocol.pytest_status import NO_TESTS, TESTS_FAILED, is_pytest, worst_status
from ci.util.text import counted, describe_unreadable, join_names

INTERNAL_ERROR = 3  # pytest's exit status
LAST_PYTEST_STATUS = max(UNFINISHED)
SIGNALLED = 128  # a shell reports signal n as exit code 128 + n
# Signals that a process causes itself; SIGKILL and SIGTERM come from outside.
FAULTS = frozenset(
    {Signals.SIGSEGV, Signals.SIGABRT, Signals.SIGBUS, Signals.SIGFPE, Signals.SIGILL}
)
_EXIT = "_pytest.outcomes.Exit: "  # what a file that calls pytest.exit cannot be imported for
_NO_REPORT_LOG = re.compile(r"unrecognized arguments:.*--report-log")
NO_REPORT_LOG = (
    "pytest does not know --report-log: install pytest-reportlog, or add `-p pytest_reportlog` to"
    " the command if plugins are not loaded by themselves (PYTEST_DISABLE_PLUGIN_AUTOLOAD,"
    " --disable-plugin-autoload)"
)
_COLLECT_ONLY = re.compile(r"(?<!\S)--co(?:llect-?only)?(?!\S)")

ProductOpinion = tuple[Product, list[Evidence]]


def judge_suite(case: Case) -> ProductOpinion:
    """Judge the product by its tests, if the stages before them succeeded."""
    tests, end, collected = case.tests, case.pytest_end, case.collected
    if tests is None:
        found = _several_runs(case) or _exit_call(case) or _by_exit_status(case)
        return found or (Product.INCOMPLETE, [fact(_no_log(case))])
    if bad := tests.node_ids(Outcome.FAILED, Outcome.ERROR):
        return _bad_tests(case, tests, bad)
    ended = tests.exit_status is not None
    if end is None or (not ended and case.machine_out_of_memory):
        return _unfinished_session(case, tests)
    if found := _several_runs(case) or _exit_call(case) or _by_exit_status(case):
        return found
    # pytest may exit with 0 before its session ends, once all tests have ended.
    all_ended = collected is not None and tests.begun >= collected and not tests.running
    # Without a closing summary, hooks may still have changed the verdict.
    if (not ended and (end.failed or not all_ended)) or (case.summary is None and end.failed):
        return _unfinished_session(case, tests)
    if case.only_listed:
        return Product.INCOMPLETE, [fact(_only_listed(case))]
    if case.division_errors:
        return Product.INCOMPLETE, [*map(fact, case.division_errors)]
    if tests.unreadable_lines:
        lines = describe_unreadable(tests.unreadable_lines, tests.longest_line)
        return Product.INCOMPLETE, [fact(f"the per-test log has {lines}")]
    if short := _early_end(case, tests):
        return Product.INCOMPLETE, short
    passed, skipped = tests.count(Outcome.PASSED), tests.count(Outcome.SKIPPED)
    if not passed:
        text = f"no test passed: {skipped} skipped" if tests.tests else _no_test(tests)
        return Product.INCOMPLETE, [fact(text)]
    how = "pytest ended with status 0" if ended else "pytest exited early"
    return Product.PASSED, [fact(f"{how}: {passed} passed, {skipped} skipped")]


def _bad_tests(case: Case, tests: PytestLog, bad: Sequence[str]) -> ProductOpinion:
    """Judge a suite in which a test failed, or a file could not be collected."""
    reasons = [test.reason or "" for test in tests.tests if test.outcome.bad]
    if all(reason.startswith(_EXIT) for reason in reasons):
        text = f"pytest.exit was called in {join_names(bad)}: {reasons[0][len(_EXIT) :]}"
        return Product.INCOMPLETE, [fact(text)]
    if len(bad) == len(tests.crashed) and case.machine_out_of_memory:
        text = f"worker processes were killed for memory in {join_names(tests.crashed)}"
        return Product.INCOMPLETE, [fact(text)]
    if len(bad) == len(tests.crashed) and case.worker_interrupted:
        return Product.INCOMPLETE, [fact(_worker_left(tests.crashed)), *_not_run(case)]
    failures, errors = map(tests.count, (Outcome.FAILED, Outcome.ERROR))
    counts = f"{failures} failed, {counted(errors, 'error')}"
    if tests.failed_subtests:
        counts += f", {counted(tests.failed_subtests, 'failed subtest')}"
    return Product.FAILED, [fact(f"{counts}: {join_names(bad)}"), *besides_failures(case)]


def besides_failures(case: Case) -> list[Evidence]:
    """Return why the failed tests may not be all that failed."""
    opinions = _several_runs(case), _exit_call(case)
    return [*(it for found in opinions if found for it in found[1]), *_not_run(case)]


def _several_runs(case: Case) -> ProductOpinion | None:
    """Judge a stage that runs pytest more than once; ``None``: it does not.

    Each run replaces the JUnit file, the summary and perhaps the log of those before it. A second
    run of the failed tests hides the first one.
    """
    if case.pytest_runs <= 1:
        return None
    status = exit_status(case)
    how_often = "twice" if case.pytest_runs == 2 else f"{case.pytest_runs} times"
    ended = f" (one run exited with {_named(status)})" if status else ""
    text = (
        f"pytest ran {how_often} in stage {case.pytest_stage.name}{ended}, and the results have"
        " only a part of these runs: call pytest once, as in `pytest unit integ`, or give each call"
        " a stage of its own"
    )
    return Product.FAILED if status == TESTS_FAILED else Product.INCOMPLETE, [fact(text)]


def _exit_call(case: Case) -> ProductOpinion | None:
    """Judge a suite that called ``pytest.exit``, which may choose any exit status."""
    if case.exit_reason is None or case.pytest_end is None or case.pytest_end.ended_early:
        return None
    how = f" with status {status}" if (status := exit_status(case)) is not None else ""
    text = f"pytest.exit ended the suite{how}: {case.exit_reason}"
    return Product.INCOMPLETE, [fact(text), *(_early_end(case, case.tests) if case.tests else ())]


def _only_listed(case: Case) -> str:
    stage, file = case.pytest_stage, case.config_file
    if _COLLECT_ONLY.search(" ".join(stage.command)):
        where = f"the command of stage {stage.name}"
    elif _COLLECT_ONLY.search(stage.environment.get("PYTEST_ADDOPTS", "")):
        where = f"PYTEST_ADDOPTS of stage {stage.name}"
    else:
        where = f"`addopts`{f' of {file}' if file else ''} or PYTEST_ADDOPTS"
    return f"pytest only collected the tests and ran none: remove --collect-only from {where}"


def _no_test(tests: PytestLog) -> str:
    if tests.begun:
        return f"{counted(tests.begun, 'test')} began, but none ran: remove --setup-only"
    return "no test ran: none was collected, or an option such as --collect-only runs none"


def _not_run(case: Case) -> list[Evidence]:
    """Detect tests that a session left out after its workers died, and say why."""
    tests = case.tests
    if tests is None or not tests.crashed or tests.begun >= (case.collected or 0):
        return []
    text = f"{(case.collected or 0) - tests.begun} of {case.collected} collected tests did not run"
    if case.ending is not None and case.exit_reason is None:
        text += f": pytest-xdist stopped: {case.ending}"
    if any(name.endswith(" times)") for name in tests.crashed):
        text += "; --dist loadscope and loadfile repeat a test that kills its worker"
    return [fact(f"{text}; run the tests that died alone")]


def _worker_left(tests: Sequence[str]) -> str:
    return (
        f"the session of a pytest worker ended in {join_names(tests)}, as with pytest.exit:"
        " pytest-xdist does not show the reason; run the test without -n"
    )


def _named(status: int) -> str:
    """``4: usage error``; ``1`` has no such words."""
    return f"{status}: {UNFINISHED[status]}" if status in UNFINISHED else str(status)


def exit_status(case: Case) -> int | None:
    """Return the exit status that decides about the suite; ``None``: pytest reported none.

    In this order:

    1. codes 1 to 5 of the stage's process, which are pytest's, also from a wrapper;
    2. codes 1 to 4 of a shard, if another one ended worse: the stage then has that one's code;
    3. pytest's recorded exit status inside a wrapper;
    4. other codes below 128, which pytest does not use;
    5. the exit status in the log, as hooks may change it after the log's last line.
    """
    end = case.pytest_end
    code = end.exit_code if end is not None else 0
    if 0 < code <= LAST_PYTEST_STATUS:
        return code
    by_shards = [it.exit_code for it in case.shards.values() if not it.ended_early]
    if failed := [status for status in by_shards if 0 < status < NO_TESTS]:
        return worst_status(failed)
    if end is not None and end.pytest_status is not None:
        return end.pytest_status
    if 0 < code < SIGNALLED:
        return code
    return case.tests.exit_status if case.tests else None


def _by_exit_status(case: Case) -> ProductOpinion | None:
    """Judge an exit status other than 0, if no test failed."""
    status, end = exit_status(case), case.pytest_end
    if not status:
        return None
    inner = end.pytest_status if end is not None else None
    is_wrapped = end is not None and status == end.exit_code and inner not in (None, status)
    meaning = f": {UNFINISHED[status]}" if status in UNFINISHED else ""
    if status == INTERNAL_ERROR and case.left_by_worker:
        return Product.INCOMPLETE, [fact(_worker_left([case.left_by_worker])), *_last_lines(case)]
    if is_wrapped:
        text = f"pytest exited with {inner}, and the test command with {status}"
    elif end is None or status not in (end.exit_code, inner):
        text = f"pytest ended its session with {status}{meaning}"
    elif inner is None and not is_pytest(case.pytest_stage.command):
        text = f"the test command exited with {status}"  # which a wrapper may choose
        text += f", in pytest's terms{meaning}" if meaning else ""
    else:
        who = "the test command" if status > LAST_PYTEST_STATUS else "pytest"
        text = f"{who} exited with {status}{meaning}"
    if case.tests is None and any(_NO_REPORT_LOG.search(line) for line in case.last_lines):
        text += f": {NO_REPORT_LOG}"
    elif case.tests is None:
        text += f"; {_no_log(case)}"
    elif status not in UNFINISHED and not case.session_ended:
        whose = "its" if text.startswith("pytest") else "pytest's"
        text += f" before the end of {whose} session"
    elif status == TESTS_FAILED and not is_wrapped:
        text += _without_failure(case)
    evidence = [fact(text), *(_early_end(case, case.tests) if case.tests else ())]
    evidence += _last_lines(case)
    return Product.INCOMPLETE if status in UNFINISHED else Product.FAILED, evidence


def _without_failure(case: Case) -> str:
    """Say what is known of the failure that pytest's exit status shows, and its log lacks."""
    tests, summary = case.tests, case.summary
    if found := case.missing_failures:
        return f"; it lists as failed what its log lacks: {join_names([it.test for it in found])}"
    count = summary.count("failed", "error", "errors") if summary else 0
    if count:
        counts = counted(count, "failure")
        return f"; its closing summary counts {counts} that its log lacks"
    if tests is not None and (tests.unreadable_lines or _early_end(case, tests)):
        return ", and no result in its log is a failure"
    return " although no test failed: a plugin or hook set this status"


def _last_lines(case: Case) -> list[Evidence]:
    lines = " | ".join(case.last_lines)
    return [fact(f"last lines of {case.pytest_stage.name}.log: {lines}")] if lines else []


def _no_log(case: Case) -> str:
    end = case.pytest_end
    how = (
        f"ended with {format_exit(end)}; its output is {end.stage}.log" if end else "has no result"
    )
    unseen = case.facts.lost and case.facts.exit_code is None
    log = "no per-test log was copied out" if unseen else "there is no per-test log"
    return f"{log}; stage {case.pytest_stage.name} {how}"


def _unfinished_session(case: Case, tests: PytestLog) -> ProductOpinion:
    end = case.pytest_end
    if tests.exit_status is None:
        text = f"pytest did not finish; its log has {counted(len(tests.tests), 'result')}"
    else:  # hooks still run then, and may change the verdict
        how = f"ended with {format_exit(end)}" if end else "has no result"
        printed = "" if case.summary else ", and pytest printed no closing summary"
        text = f"stage {case.pytest_stage.name} {how} after the end of the log{printed}"
    own = end is not None and end.signal in FAULTS
    return Product.FAILED if own else Product.INCOMPLETE, [fact(text)]


def _early_end(case: Case, tests: PytestLog) -> list[Evidence]:
    """Detect a session that ended early: ``pytest.exit`` can set any exit status, also 0."""
    if not case.session_ended:
        return []
    ended = f"pytest ended with status {tests.exit_status}"
    if tests.lost:
        return [fact(f"{ended}, and its log lacks the outcome of {join_names(tests.lost)}")]
    if tests.running:
        return [fact(f"{ended} in the middle of {join_names(tests.running)}")]
    if case.collected is not None and tests.begun < case.collected:
        text = f"{ended} before its end: {tests.begun} of {case.collected} collected tests began"
        return [likely(text)]
    return []
