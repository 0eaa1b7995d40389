"""Pure judgement: events, per-test log and execution facts become a verdict with evidence.

The product passes where the per-test log, the exit status of pytest's process and, after
them, pytest's closing summary agree. Exit codes 1 to 5 are pytest's own verdict, whatever the
log says: plugins decide after its last line. A process that is killed after a passing summary
is ``passed`` and ``exit_after_summary``, and an exit code of 0 without a log is
``incomplete``. So is a suite in which no test passed: skipped, empty and missing are never
success.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from ci.facts.case import (
    FAULTS,
    LAST_PYTEST_STATUS,
    SIGNALLED,
    TESTS_FAILED,
    UNFINISHED,
    Case,
    fact,
    likely,
    shown_exit,
    unknown,
)
from ci.facts.difference import Kind, headline, lines_of
from ci.facts.harness import judge_harness, limit_reached, machine_ran_out
from ci.model.events import StageFinished
from ci.model.plan import StagePlan
from ci.model.results import Evidence, Harness, Product, Verdict
from ci.model.tests import Outcome, PytestLog
from ci.util.text import counted, first_names, unreadable

# Of a contract; what fails newly fails anyway.
BREACHES = (Kind.VANISHED, Kind.PASS_TO_SKIP, Kind.NEWLY_SKIPPED)


Opinion = tuple[Product, list[Evidence]]


def judge(case: Case) -> Verdict:
    """Judge the product and the harness, each with its evidence."""
    product, about_product = _product(case)
    harness, about_harness = judge_harness(case)
    out_of_memory = harness is Harness.OOM_KILLED and limit_reached(case)
    if out_of_memory and product is Product.INCOMPLETE:
        product = Product.FAILED  # it needs more than it was given
    evidence = dict.fromkeys([*about_product, *about_harness, *_details(case)])
    return Verdict(product=product, harness=harness, evidence=tuple(evidence))


def not_run(reason: str) -> Verdict:
    """The verdict on a platform whose engine or image failed before the first stage."""
    evidence = (fact(reason),)
    return Verdict(product=Product.NOT_RUN, harness=Harness.INFRASTRUCTURE, evidence=evidence)


# The product


def _product(case: Case) -> Opinion:
    if not case.record.finished_stages and not case.record.unfinished_stages:
        return _without_record(case)
    at = list(case.stages).index(case.pytest_stage)
    if early := _failed_command(case) or _without_result(case, case.stages[:at]):
        return early
    suite = _proven(case, _suite(case))
    late = _without_result(case, case.stages[at + 1 :])
    return late if late and suite[0] is Product.PASSED else suite


def _without_record(case: Case) -> Opinion:
    if case.facts.exit_code is None:  # nobody saw the end
        text = "whether a stage was started: the agent's record could not be fetched"
        return Product.INCOMPLETE, [unknown(text)]
    return Product.NOT_RUN, [fact("no stage was started")]


def _failed_command(case: Case) -> Opinion | None:
    for stage in case.commands:
        end = case.finished(stage)
        if end is not None and end.failed:
            product = Product.INCOMPLETE if _ended_from_outside(end) else Product.FAILED
            how = f"ended with {shown_exit(end)}; its output is {stage.name}.log"
            return product, [fact(f"stage {stage.name} {how}")]
    return None


def _without_result(case: Case, stages: Sequence[StagePlan]) -> Opinion | None:
    names = [stage.name for stage in stages if case.finished(stage) is None]
    return (Product.INCOMPLETE, [fact(f"stage {names[0]} has no result")]) if names else None


def _ended_from_outside(end: StageFinished) -> bool:
    killed = end.signal is not None and end.signal not in FAULTS
    return killed or end.timed_out or end.interrupted or bool(end.oom_kills)


def _suite(case: Case) -> Opinion:
    tests = case.tests
    if tests is None:
        return _by_exit_status(case) or (Product.INCOMPLETE, [fact(_no_log(case))])
    if bad := tests.named(Outcome.FAILED, Outcome.ERROR):
        if len(bad) == len(tests.crashed) and machine_ran_out(case):
            text = f"worker processes were killed for memory in {first_names(tests.crashed)}"
            return Product.INCOMPLETE, [fact(text)]
        failures, errors = map(tests.count, (Outcome.FAILED, Outcome.ERROR))
        counts = f"{failures} failed, {counted(errors, 'error')}"
        return Product.FAILED, [fact(f"{counts}: {first_names(bad)}")]
    if case.pytest_end is None or (tests.exit_status is None and machine_ran_out(case)):
        return _unfinished_session(case, tests)
    if by_status := _by_exit_status(case):
        return by_status
    if tests.exit_status is None and not _left_at_the_end(case, tests):
        return _unfinished_session(case, tests)
    if case.summary is None and case.pytest_end.failed:  # hooks may still have decided otherwise
        return _unfinished_session(case, tests)
    if tests.unreadable_lines:
        lines = unreadable(tests.unreadable_lines, tests.longest_line)
        return Product.INCOMPLETE, [fact(f"the per-test log has {lines}")]
    if short := _cut_short(case, tests):
        return Product.INCOMPLETE, short
    return _finished_session(tests)


def exit_status(case: Case) -> int | None:
    """The exit status that decides about the suite; ``None``: pytest did not report one.

    Codes 1 to 5 of the stage's process are pytest's, also where a wrapper passes them on. Next
    comes what pytest is known to have ended with inside a wrapper, then a code that pytest does
    not have. The log comes last: hooks may change the status after its last line.
    """
    end = case.pytest_end
    code = end.exit_code if end is not None else 0
    if 0 < code <= LAST_PYTEST_STATUS:
        return code
    if end is not None and end.pytest_status is not None:
        return end.pytest_status
    if 0 < code < SIGNALLED:
        return code
    return case.tests.exit_status if case.tests else None


def _by_exit_status(case: Case) -> Opinion | None:
    """What an exit status other than 0 means, where no test failed."""
    status = exit_status(case)
    if not status:
        return None
    end = case.pytest_end
    source = _source(end, status)
    text = source.format(status=status, inner=end and end.pytest_status)
    if status in UNFINISHED:
        text += f": {UNFINISHED[status]}"
    if case.tests is None:
        text += f"; {_no_log(case)}"
    elif status not in UNFINISHED and not case.session_ended:
        text += " before the end of its session"
    elif status == TESTS_FAILED and source in (_Source.PYTEST, _Source.SESSION):
        text += " although no test failed: a plugin or hook decided so"
    short = _cut_short(case, case.tests) if case.tests is not None else []
    product = Product.INCOMPLETE if status in UNFINISHED else Product.FAILED
    return product, [fact(text), *short, *_last_lines(case)]


class _Source(StrEnum):
    """Where an exit status comes from, in the words of the evidence."""

    PYTEST = "pytest exited with {status}"
    SESSION = "pytest ended its session with {status}"
    COMMAND = "the test command exited with {status}"
    WRAPPER = "pytest exited with {inner}, and the test command with {status}"


def _source(end: StageFinished | None, status: int) -> _Source:
    if end is None or status not in (end.exit_code, end.pytest_status):
        return _Source.SESSION
    if status > LAST_PYTEST_STATUS:
        return _Source.COMMAND
    return _Source.PYTEST if end.pytest_status in (None, status) else _Source.WRAPPER


def _last_lines(case: Case) -> list[Evidence]:
    if not case.last_lines:
        return []
    return [fact(f"last lines of {case.pytest_stage.name}.log: {' | '.join(case.last_lines)}")]


def _proven(case: Case, suite: Opinion) -> Opinion:
    """What the tests say counts where they ran on the platform, and all of them."""
    product, evidence = suite
    broken = _broken_contract(case)
    if case.misplaced or broken:
        product = Product.FAILED
    return product, [*map(fact, case.misplaced), *evidence, *broken]


def _broken_contract(case: Case) -> list[Evidence]:
    found = case.changes
    if found is None:
        return []
    evidence = []
    for kind in BREACHES:
        if changes := found.of(kind):
            first, *others = lines_of(changes)
            evidence.append(f"contract: {headline(kind, found)}: {first}")
            evidence += [f"contract: {kind}: {line}" for line in others]
    return [*map(fact, evidence)]


def _no_log(case: Case) -> str:
    end = case.pytest_end
    how = f"ended with {shown_exit(end)}; its output is {end.stage}.log" if end else "has no result"
    return f"there is no per-test log; stage {case.pytest_stage.name} {how}"


def _unfinished_session(case: Case, tests: PytestLog) -> Opinion:
    end = case.pytest_end
    if tests.exit_status is None:
        text = f"pytest did not finish; its log has {counted(len(tests.tests), 'result')}"
    else:  # where hooks run on, and may decide otherwise
        how = f"ended with {shown_exit(end)}" if end else "has no result"
        printed = "" if case.summary else ", and pytest printed no closing summary"
        text = f"stage {case.pytest_stage.name} {how} after the end of the log{printed}"
    own = end is not None and end.signal in FAULTS
    return Product.FAILED if own else Product.INCOMPLETE, [fact(text)]


def _left_at_the_end(case: Case, tests: PytestLog) -> bool:
    """Whether pytest exited with 0 before the end of its session, when all tests had ended."""
    end, collected = case.pytest_end, case.collected
    all_ended = collected is not None and tests.begun >= collected and not tests.running
    return all_ended and end is not None and not end.failed


def _cut_short(case: Case, tests: PytestLog) -> list[Evidence]:
    """``pytest.exit`` chooses the exit status, and 0 is among the choices."""
    if not case.session_ended:
        return []
    ended = f"pytest ended with status {tests.exit_status}"
    if tests.running:
        return [fact(f"{ended} in the middle of {first_names(tests.running)}")]
    if case.collected is not None and tests.begun < case.collected:
        text = f"{ended} before its end: {tests.begun} of {case.collected} collected tests began"
        return [likely(text)]
    return []


def _finished_session(tests: PytestLog) -> Opinion:
    passed, skipped = tests.count(Outcome.PASSED), tests.count(Outcome.SKIPPED)
    if not passed:
        text = f"no test passed: {skipped} skipped" if tests.tests else "no test was collected"
        return Product.INCOMPLETE, [fact(text)]
    ended = "pytest exited early" if tests.exit_status is None else "pytest ended with status 0"
    return Product.PASSED, [fact(f"{ended}: {passed} passed, {skipped} skipped")]


# What else a reader should know


def _details(case: Case) -> list[Evidence]:
    details = []
    if case.tests is not None and case.tests.running and not case.session_ended:
        details.append(fact(f"pytest was running {first_names(case.tests.running)}"))
    for end in case.ends:
        if end.oom_kills and end.exit_code == 0:
            text = f"the kernel killed {end.oom_kills} processes of stage {end.stage} for memory"
            details.append(fact(f"{text}, yet the stage ended well"))
    details += [
        fact(f"device {after.uuid} was {before.health} before the tests, {after.health} after")
        for before, after in case.record.changed_devices
    ]
    details += [
        fact(f"artifact {missing.name} is missing: there is no {missing.path}")
        for missing in case.record.missing_artifacts
    ]
    details += [
        fact(f"artifact {cut.name} is without {counted(cut.left_out, 'file')} of {cut.path}")
        for cut in case.record.cut_artifacts
    ]
    if case.record.unreadable_lines:
        lines = unreadable(case.record.unreadable_lines, case.record.longest_line)
        details.append(fact(f"events.jsonl has {lines}"))
    tests, facts = case.tests, case.facts
    if tests is not None and tests.unreadable_lines:
        lines = unreadable(tests.unreadable_lines, tests.longest_line)
        details.append(fact(f"the per-test log has {lines}"))
    if facts.unreadable_lines:
        lines = unreadable(facts.unreadable_lines, facts.longest_line)
        details.append(fact(f"the agent's output has {lines}, kept in agent.log"))
    return details
