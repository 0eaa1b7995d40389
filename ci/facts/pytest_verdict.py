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

from ci.facts.case import UNFINISHED, Case, exit_of
from ci.facts.sentences import on_harness, on_tests
from ci.facts.sentences.on_harness import Source
from ci.facts.sentences.on_tests import Reporter
from ci.model.outcomes import Outcome, PytestLog
from ci.model.verdicts import Evidence, Product
from ci.protocol.pytest_status import NO_TESTS, TESTS_FAILED, is_pytest, worst_status
from ci.util.text import counted, join_names

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
    tests, end, collected = case.tests, case.pytest_end, case.output.collected
    if tests is None:
        found = _several_runs(case) or _exit_call(case) or _by_exit_status(case)
        return found or (Product.INCOMPLETE, [_no_log(case)])
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
    if (not ended and (end.failed or not all_ended)) or (
        case.output.summary is None and end.failed
    ):
        return _unfinished_session(case, tests)
    if case.output.only_listed:
        return Product.INCOMPLETE, [_only_listed(case)]
    if case.division_errors:
        return Product.INCOMPLETE, [*map(on_tests.shards_differ, case.division_errors)]
    if tests.unreadable_lines:
        lines, longest = tests.unreadable_lines, tests.longest_line
        return Product.INCOMPLETE, [on_harness.unreadable_lines(Source.LOG, lines, longest)]
    if short := _early_end(case):
        return Product.INCOMPLETE, short
    passed, skipped = tests.count(Outcome.PASSED), tests.count(Outcome.SKIPPED)
    if passed:
        return Product.PASSED, [on_tests.suite_passed(passed, skipped, ended=ended)]
    if tests.tests:
        return Product.INCOMPLETE, [on_tests.nothing_passed(skipped)]
    return Product.INCOMPLETE, [
        on_tests.only_set_up(tests.begun) if tests.begun else on_tests.no_test_ran()
    ]


def _bad_tests(case: Case, tests: PytestLog, bad: Sequence[str]) -> ProductOpinion:
    """Judge a suite in which a test failed, or a file could not be collected."""
    reasons = [test.reason or "" for test in tests.tests if test.outcome.bad]
    if all(reason.startswith(_EXIT) for reason in reasons):
        return Product.INCOMPLETE, [on_tests.exit_called_in_file(bad, reasons[0][len(_EXIT) :])]
    if len(bad) == len(tests.crashed) and case.machine_out_of_memory:
        return Product.INCOMPLETE, [on_tests.workers_killed(tests.crashed)]
    if len(bad) == len(tests.crashed) and case.worker_interrupted:
        return Product.INCOMPLETE, [on_tests.worker_left(tests.crashed), *_not_run(case)]
    failures, errors = map(tests.count, (Outcome.FAILED, Outcome.ERROR))
    failed = on_tests.failed_tests(failures, errors, tests.failed_subtests, bad)
    return Product.FAILED, [failed, *besides_failures(case)]


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
    status, stage = exit_status(case), case.pytest_stage.name
    named = f"{status}{_meaning(status)}" if status else None
    found = on_tests.several_runs(case.pytest_runs, stage, named)
    return Product.FAILED if status == TESTS_FAILED else Product.INCOMPLETE, [found]


def _exit_call(case: Case) -> ProductOpinion | None:
    """Judge a suite that called ``pytest.exit``, which may choose any exit status."""
    if case.exit_reason is None or case.pytest_end is None or case.pytest_end.ended_early:
        return None
    found = on_tests.exit_called(exit_status(case), case.exit_reason)
    return Product.INCOMPLETE, [found, *_early_end(case)]


def _only_listed(case: Case) -> Evidence:
    stage, file = case.pytest_stage, case.output.config_file
    if _COLLECT_ONLY.search(" ".join(stage.command)):
        where = f"the command of stage {stage.name}"
    elif _COLLECT_ONLY.search(stage.environment.get("PYTEST_ADDOPTS", "")):
        where = f"PYTEST_ADDOPTS of stage {stage.name}"
    else:
        where = f"`addopts`{f' of {file}' if file else ''} or PYTEST_ADDOPTS"
    return on_tests.only_collected(where)


def _not_run(case: Case) -> list[Evidence]:
    """Detect tests that a session left out after its workers died, and say why."""
    tests, collected = case.tests, case.output.collected or 0
    if tests is None or not tests.crashed or tests.begun >= collected:
        return []
    ending = case.output.ending if case.exit_reason is None else None
    left = collected - tests.begun
    return [on_tests.omitted_tests(left, collected, ending, repeats=tests.crashed_again)]


def _meaning(status: int) -> str:
    """``: usage error``; 1 has no such words."""
    return f": {UNFINISHED[status]}" if status in UNFINISHED else ""


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
    meaning = _meaning(status)
    if status == INTERNAL_ERROR and case.left_by_worker:
        return Product.INCOMPLETE, [on_tests.worker_left([case.left_by_worker]), *_last_lines(case)]
    reporter, detail = Reporter.PYTEST, meaning
    if is_wrapped:
        reporter, detail = Reporter.WRAPPER, ""
    elif end is None or status not in (end.exit_code, inner):
        reporter = Reporter.SESSION
    elif inner is None and not is_pytest(case.pytest_stage.command):  # a wrapper may choose it
        reporter = Reporter.COMMAND
        detail = f", in pytest's terms{meaning}" if meaning else ""
    elif status > LAST_PYTEST_STATUS:
        reporter = Reporter.COMMAND
    if case.tests is None and any(_NO_REPORT_LOG.search(line) for line in case.output.last_lines):
        detail += f": {NO_REPORT_LOG}"
    elif case.tests is None:
        detail += f"; {_no_log(case).text}"
    elif status not in UNFINISHED and not case.session_ended:
        detail += on_tests.before_end(reporter)
    elif status == TESTS_FAILED and not is_wrapped:
        detail += _without_failure(case)
    bad = on_tests.bad_exit(reporter, status, inner, detail)
    evidence = [bad, *_early_end(case), *_last_lines(case)]
    return Product.INCOMPLETE if status in UNFINISHED else Product.FAILED, evidence


def _without_failure(case: Case) -> str:
    """Say what is known of the failure that pytest's exit status shows, and its log lacks."""
    tests, summary = case.tests, case.output.summary
    if found := case.missing_failures:
        return f"; it lists as failed what its log lacks: {join_names([it.test for it in found])}"
    if count := summary.count("failed", "error", "errors") if summary else 0:
        return f"; its closing summary counts {counted(count, 'failure')} that its log lacks"
    if tests is not None and (tests.unreadable_lines or _early_end(case)):
        return ", and no result in its log is a failure"
    return on_tests.SET_BY_HOOK


def _last_lines(case: Case) -> list[Evidence]:
    lines = case.output.last_lines
    return [on_tests.last_lines(case.pytest_stage.name, lines)] if lines else []


def _no_log(case: Case) -> Evidence:
    end = case.pytest_end
    is_lost = case.facts.lost and case.facts.exit_code is None
    return on_tests.no_log(case.pytest_stage.name, exit_of(end) if end else None, is_lost=is_lost)


def _unfinished_session(case: Case, tests: PytestLog) -> ProductOpinion:
    end = case.pytest_end
    if tests.exit_status is None:
        found = on_tests.session_unfinished(len(tests.tests))
    else:  # hooks still run then, and may change the verdict
        stage, how = case.pytest_stage.name, exit_of(end) if end else None
        found = on_tests.ended_after_log(stage, how, has_summary=case.output.summary is not None)
    own = end is not None and end.signal in FAULTS
    return Product.FAILED if own else Product.INCOMPLETE, [found]


def _early_end(case: Case) -> list[Evidence]:
    """Detect a session that ended early: ``pytest.exit`` can set any exit status, also 0."""
    tests = case.tests
    if tests is None or tests.exit_status is None:
        return []
    if tests.lost:
        return [on_tests.outcomes_missing(tests.exit_status, tests.lost)]
    if tests.running:
        return [on_tests.ended_within(tests.exit_status, tests.running)]
    if case.output.collected is not None and tests.begun < case.output.collected:
        return [on_tests.ended_early(tests.exit_status, tests.begun, case.output.collected)]
    return []
