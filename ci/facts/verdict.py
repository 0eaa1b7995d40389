"""Judge a run: events, per-test log and execution facts become a verdict with evidence. Pure.

The product passes if the per-test log, the exit status of pytest's process and pytest's closing
summary agree. Exit codes 1 to 5 are pytest's own verdict and outrank the log, since plugins may
decide after its last line. A process that is killed after a passing summary is ``passed`` and
``exit_after_summary``. An exit code of 0 without a log is ``incomplete``, and so is a suite in
which no test passed: skipped, empty and missing are never success.

The harness is judged separately: how the processes of the run ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from signal import Signals

from ci.agent.pytest_report import NO_TESTS, TESTS_FAILED, USUAL, worst_status
from ci.agent.pytest_stage import is_pytest
from ci.facts.case import UNFINISHED, Case
from ci.facts.difference import ChangeKind, group_lines
from ci.facts.events import compare_records
from ci.model.events import (
    AgentRestarted,
    ArtifactCut,
    ArtifactMissing,
    CommandEnd,
    LeaseFailed,
    NetworkRemained,
    RunRecord,
    StageFinished,
    StageLost,
)
from ci.model.job import StagePlan
from ci.model.results import Evidence, ExecutionFacts, Grade, Harness, Product, Verdict
from ci.model.tests import Outcome, PytestLog
from ci.util.text import counted, describe_unreadable, join_names, signal_name

# Changes that break a contract. Newly failing tests are not listed: they fail the run anyway.
BREACHES = [kind for kind in ChangeKind if kind.regression and kind is not ChangeKind.NEWLY_FAILING]
BREACHES.append(ChangeKind.REFUSED_TO_PASS)  # only with the torch that the contract states
# Signals that a process causes itself; SIGKILL and SIGTERM come from outside.
FAULTS = frozenset(
    {Signals.SIGSEGV, Signals.SIGABRT, Signals.SIGBUS, Signals.SIGFPE, Signals.SIGILL}
)
LAST_PYTEST_STATUS = max(UNFINISHED)
NOTICEABLE_END_S = 1.0  # most processes end within it after SIGTERM
SIGNALLED = 128  # a shell reports signal n as exit code 128 + n
NO_SUMMARY = (
    "it crashed or called os._exit, or `-qq`, `-p no:terminal` or a plugin suppresses the"
    " summary: run pytest without these"
)

ProductOpinion = tuple[Product, list[Evidence]]
HarnessOpinion = tuple[Harness, list[Evidence]]


def judge(case: Case) -> Verdict:
    """Judge the product and the harness, each with its evidence."""
    product, about_product = _product(case)
    harness, about_harness = _harness(case)
    out_of_memory = harness is Harness.OOM_KILLED and memory_limit_reached(case)
    if out_of_memory and product is Product.INCOMPLETE:
        product = Product.FAILED  # it exceeded its configured memory limit
    evidence = dict.fromkeys([*about_product, *about_harness, *_further_evidence(case)])
    return Verdict(product=product, harness=harness, evidence=tuple(evidence))


def not_run(reason: str) -> Verdict:
    """The verdict on a platform whose engine or image failed before the first stage."""
    evidence = (fact(reason),)
    return Verdict(product=Product.NOT_RUN, harness=Harness.INFRASTRUCTURE, evidence=evidence)


# The product


def _product(case: Case) -> ProductOpinion:
    if not case.record.finished_stages and not case.record.unfinished_stages:
        if case.facts.exit_code is None:  # the end is unknown
            text = "the agent's record could not be fetched, so a stage may have started"
            return Product.INCOMPLETE, [unknown(text)]
        return Product.NOT_RUN, [fact("no stage started")]
    at = list(case.stages).index(case.pytest_stage)
    if early := _failed_command(case) or _missing_result(case, case.stages[:at]):
        return early
    # The outcomes count only if all tests ran on the platform.
    suite, evidence = _suite(case)
    product, broken = suite, broken_contract(case)
    if case.placement_errors or broken:
        product = Product.FAILED
    late = _missing_result(case, case.stages[at + 1 :])
    if late and product is Product.PASSED:
        return late
    # The reason for the verdict comes first.
    found = [*broken, *evidence] if suite is Product.PASSED else [*evidence, *broken]
    return product, [*map(fact, case.placement_errors), *found]


def _failed_command(case: Case) -> ProductOpinion | None:
    for stage in case.commands:
        end = case.end_of(stage)
        if end is not None and end.failed:
            killed = end.signal is not None and end.signal not in FAULTS
            from_outside = killed or end.timed_out or end.interrupted or end.oom_kills
            how = f"ended with {format_exit(end)}; its output is {stage.name}.log"
            product = Product.INCOMPLETE if from_outside else Product.FAILED
            return product, [fact(f"stage {stage.name} {how}")]
    return None


def _missing_result(case: Case, stages: Sequence[StagePlan]) -> ProductOpinion | None:
    names = [stage.name for stage in stages if case.end_of(stage) is None]
    return (Product.INCOMPLETE, [fact(f"stage {names[0]} has no result")]) if names else None


def _suite(case: Case) -> ProductOpinion:
    tests, end, collected = case.tests, case.pytest_end, case.collected
    if tests is None:
        return _by_exit_status(case) or (Product.INCOMPLETE, [fact(_no_log(case))])
    if bad := tests.node_ids(Outcome.FAILED, Outcome.ERROR):
        if len(bad) == len(tests.crashed) and machine_out_of_memory(case):
            text = f"worker processes were killed for memory in {join_names(tests.crashed)}"
            return Product.INCOMPLETE, [fact(text)]
        failures, errors = map(tests.count, (Outcome.FAILED, Outcome.ERROR))
        counts = f"{failures} failed, {counted(errors, 'error')}"
        if tests.failed_subtests:
            counts += f", {counted(tests.failed_subtests, 'failed subtest')}"
        return Product.FAILED, [fact(f"{counts}: {join_names(bad)}")]
    ended = tests.exit_status is not None
    if end is None or (not ended and machine_out_of_memory(case)):
        return _unfinished_session(case, tests)
    if by_status := _by_exit_status(case):
        return by_status
    # pytest may exit with 0 before its session ends, once all tests have ended.
    all_ended = collected is not None and tests.begun >= collected and not tests.running
    # Without a closing summary, hooks may still have changed the verdict.
    if (not ended and (end.failed or not all_ended)) or (case.summary is None and end.failed):
        return _unfinished_session(case, tests)
    if case.division_errors:
        return Product.INCOMPLETE, [*map(fact, case.division_errors)]
    if tests.unreadable_lines:
        lines = describe_unreadable(tests.unreadable_lines, tests.longest_line)
        return Product.INCOMPLETE, [fact(f"the per-test log has {lines}")]
    if short := _early_end(case, tests):
        return Product.INCOMPLETE, short
    passed, skipped = tests.count(Outcome.PASSED), tests.count(Outcome.SKIPPED)
    if not passed:
        text = f"no test passed: {skipped} skipped" if tests.tests else "no test was collected"
        return Product.INCOMPLETE, [fact(text)]
    how = "pytest ended with status 0" if ended else "pytest exited early"
    return Product.PASSED, [fact(f"{how}: {passed} passed, {skipped} skipped")]


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
    if case.tests is None:
        text += f"; {_no_log(case)}"
    elif status not in UNFINISHED and not case.session_ended:
        whose = "its" if text.startswith("pytest") else "pytest's"
        text += f" before the end of {whose} session"
    elif status == TESTS_FAILED and not is_wrapped:
        text += _without_failure(case)
    evidence = [fact(text), *(_early_end(case, case.tests) if case.tests else ())]
    if case.last_lines:
        lines = " | ".join(case.last_lines)
        evidence.append(fact(f"last lines of {case.pytest_stage.name}.log: {lines}"))
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


def broken_contract(case: Case) -> list[Evidence]:
    """Return evidence of each change that breaks the contract; empty: there is none."""
    found, evidence = case.changes, []
    for kind in BREACHES:
        if kind is ChangeKind.REFUSED_TO_PASS and case.has_another_torch:
            continue
        if found and (changes := found.of(kind)):
            first, *others = group_lines(changes)
            evidence.append(fact(f"contract: {found.headline(kind)}: {first}"))
            evidence += [fact(f"contract: {kind}: {line}") for line in others]
    return evidence


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


# The harness


def _harness(case: Case) -> HarnessOpinion:
    """Return the first cause that applies, from the most to the least certain."""
    if case.facts.interrupted:
        return Harness.INFRASTRUCTURE, [fact("the run was interrupted by its caller")]
    if failed := case.record.first(LeaseFailed) or case.record.first(NetworkRemained):
        return Harness.INFRASTRUCTURE, [fact(failed.reason)]
    outside, code = _ended_from_outside(case), code_after_summary(case)
    if outside and code is None:
        return Harness.INFRASTRUCTURE, outside
    for stage in case.stages:
        end = case.end_of(stage)
        if end is not None and end.timed_out:
            return Harness.TIMED_OUT, [fact(_format_time_limit(stage, end))]
    killed_for_memory = _killed_for_memory(case)
    if code is not None:
        inner = case.pytest_end.pytest_status if case.pytest_end else None
        known = ", though pytest exited with 0" if inner == 0 else ""
        if case.record.run_finished is None:
            known = ", the agent's own: it ended without a result"
        text = f"exit code {code} after the pytest summary{known}"
        return Harness.EXIT_AFTER_SUMMARY, [fact(text), *outside, *killed_for_memory]
    if killed_for_memory:
        return Harness.OOM_KILLED, killed_for_memory
    # With a known exit code, the agent crashed instead.
    if case.facts.lost and case.facts.exit_code is None:
        return Harness.LOST, [fact("the agent's result was not received")]
    if crashed := _crashed(case):
        return crashed
    if case.division_errors:
        return Harness.INFRASTRUCTURE, [*map(fact, case.division_errors)]
    return Harness.CLEAN, []


def _ended_from_outside(case: Case) -> list[Evidence]:
    """Return evidence of a request or signal that ended the run and was not the caller's."""
    run, found = case.record.run_finished, []
    if case.record.first(AgentRestarted):
        found.append("the container was restarted from outside; nothing ran in it a second time")
    elif case.facts.ended_by:
        how = f"by a request like `{case.facts.ended_by}`"
        found.append(f"the container was ended from outside, {how}")
    elif run is not None and run.interrupted:
        name = "a signal" if run.signal_received is None else signal_name(run.signal_received)
        found.append(f"the agent received {name}, which this caller did not send")
    else:
        sender = "the agent" if run is not None else "this caller"
        found += [
            f"the supervisor of stage {end.stage} received a signal that {sender} did not send"
            for end in case.ends
            if end.interrupted
        ]
    if found and run is None and case.facts.exit_code is not None:
        found.append(_agent_ended(case))
    return [*map(fact, found)]


def _agent_ended(case: Case) -> str:
    how = "ended without a result" if case.record.events else "did not start"
    return f"the agent {how}, exit code {case.facts.exit_code}"


def _format_time_limit(stage: StagePlan, end: StageFinished) -> str:
    """``stage pytest reached its time limit of 60 s``, and how much longer it took to end."""
    longer = max(end.seconds - stage.timeout_s, 0.0)
    text = f"stage {stage.name} reached its time limit of {stage.timeout_s:g} s"
    return text if longer < NOTICEABLE_END_S else f"{text}; it took {longer:.0f} s to end it"


def code_after_summary(case: Case) -> int | None:
    """Return the exit code that contradicts a finished pytest session.

    ``None``: there is none, or the pytest stage did not end, so its exit code is unknown. The
    container's code counts if the container was killed when only reruns remained.
    """
    end, run = case.pytest_end, case.record.run_finished
    if not case.session_ended or case.summary is None or end is None:
        return None
    wrapped = end.pytest_status == 0 and end.exit_code > LAST_PYTEST_STATUS
    if wrapped or end.exit_code >= SIGNALLED:
        return end.exit_code
    code = case.facts.exit_code
    if code is None or code < SIGNALLED or (run is not None and run.exit_code == code):
        return None
    return code if run is not None or all(map(case.end_of, case.stages)) else None


def _killed_for_memory(case: Case) -> list[Evidence]:
    """Return evidence of kills for memory, with the cause; empty: there was none."""
    limit = case.memory_limit_bytes
    if limit is None:
        why = "no limit is configured, so the machine ran out"
    elif memory_limit_reached(case):
        why = f"the configured limit is {limit:,} bytes"
    else:
        why = f"the configured limit of {limit:,} bytes was not reached, so the machine ran out"
    if victims := _memory_kills(case):
        return [fact(f"{_format_kills(victims[0])}: {why}")]
    # Kills in reruns are not part of the judged run.
    if case.facts.oom_killed and not any(end.oom_kills for end in case.record.reruns.values()):
        return [fact(f"the engine reports an out-of-memory kill: {why}")]
    return []


def memory_limit_reached(case: Case) -> bool:
    """Whether the configured limit, if any, caused a kill for memory.

    The kernel's count of kills includes both causes. If the kernel does not record whether the
    limit was reached, assume that it was.
    """
    hits = [end.memory_limit_hits for end in _memory_kills(case)]
    return case.memory_limit_bytes is not None and (not hits or any(n != 0 for n in hits))


def _memory_kills(case: Case) -> list[StageFinished]:
    return [end for end in case.ends if end.oom_kills and end.exit_code != 0]


def _format_kills(end: StageFinished) -> str:
    processes = counted(end.oom_kills or 0, "process")
    return f"the kernel killed {processes} of stage {end.stage} for memory"


def machine_out_of_memory(case: Case) -> bool:
    """Whether a process was killed because the machine, not a limit, ran out of memory."""
    return bool(_killed_for_memory(case)) and not memory_limit_reached(case)


def _crashed(case: Case) -> HarnessOpinion | None:
    if lost := case.record.first(StageLost):
        return Harness.INFRASTRUCTURE, [fact(lost.reason)]
    if case.tests is not None and case.tests.crashed:
        text = f"a pytest worker process died in {join_names(case.tests.crashed)}"
        return Harness.CRASHED, [fact(text)]
    for end in case.ends:
        if end.signal is not None:
            how = f"was killed by {format_exit(end)} after {end.seconds:.0f} s"
            evidence = [fact(f"stage {end.stage} {how}")]
            if end.signal == Signals.SIGKILL and end.oom_kills is None:
                why = "the kernel's out-of-memory counter is not readable"
                text = f"the sender of SIGKILL is unknown: {why}"
                evidence.append(unknown(text))
            elif end.signal == Signals.SIGKILL:
                text = "SIGKILL came from outside: the kernel counts no out-of-memory kill"
                evidence.append(likely(text))
            return Harness.CRASHED, evidence
    pytest, run, code = case.pytest_end, case.record.run_finished, case.facts.exit_code
    if pytest is not None and case.tests is not None and not case.session_ended:
        text = f"pytest exited early with {format_exit(pytest)} and did not end its session"
        if not is_pytest(case.pytest_stage.command):  # the exit code is the wrapper's
            text = "pytest did not end its session, and the test command ended with"
            text += f" {format_exit(pytest)}"
        return Harness.CRASHED, [fact(text)]
    if run is None:
        return Harness.INFRASTRUCTURE, [fact(_agent_ended(case))]
    # pytest reports by itself why it does not start: a wrong option, a broken conftest.
    refused = case.tests is None and pytest is not None and pytest.exit_code in UNFINISHED
    if pytest is not None and case.summary is None and not refused:
        text = f"pytest printed no closing summary, {format_exit(pytest)}: {NO_SUMMARY}"
        if not case.shows_pytest:
            text = f"nothing shows that pytest ran: {format_exit(pytest)}, no log and no summary"
        return Harness.CRASHED, [fact(text)]
    if code not in (None, run.exit_code):
        text = f"the agent ended with exit code {code}, but had recorded {run.exit_code}"
        return Harness.INFRASTRUCTURE, [fact(text)]
    return None


# Further evidence


def _further_evidence(case: Case) -> list[Evidence]:
    texts = []
    if case.tests is not None and case.tests.running and not case.session_ended:
        texts.append(f"pytest was running {join_names(case.tests.running)}")
    texts += [
        f"shard {end.shard} of {case.pytest_stage.shards} ended with {format_exit(end)}"
        f" after {end.seconds:.0f} s"
        for end in case.shards.values()
        if end.exit_code not in USUAL or end.ended_early
    ]
    for end in case.ends:
        if end.oom_kills and end.exit_code == 0:
            texts.append(f"{_format_kills(end)}, but the stage succeeded")
    if case.tests is not None and case.tests.damaged:
        texts.append(f"unreadable in the per-test log: results of {join_names(case.tests.damaged)}")
    texts += [
        f"device {uuid} was {before} before the tests, {after} after"
        for uuid, before, after in case.record.changed_devices
    ]
    if case.agent_file is not None:
        what = "events.jsonl differs from the events that the engine received"
        texts += [f"{what}: {how}" for how in compare_records(case.record, case.agent_file)]
    texts += [
        f"artifact {missing.name} is missing: {missing.path} does not exist"
        for missing in case.record.every(ArtifactMissing)
    ]
    texts += [
        f"artifact {cut.name} lacks {counted(cut.left_out, 'file')} of {cut.path}"
        for cut in case.record.every(ArtifactCut)
    ]
    sources: Sequence[tuple[str, RunRecord | PytestLog | ExecutionFacts | None]] = (
        ("events.jsonl has {}", case.agent_file),
        ("the per-test log has {}", case.tests),
        ("the agent's output has {}, kept in agent.log", case.facts),
    )
    texts += [
        text.format(describe_unreadable(source.unreadable_lines, source.longest_line))
        for text, source in sources
        if source is not None and source.unreadable_lines
    ]
    return [*map(fact, texts)]


# Constructors of evidence


def fact(text: str) -> Evidence:
    return Evidence(grade=Grade.FACT, text=text)


def likely(text: str) -> Evidence:
    return Evidence(grade=Grade.LIKELY, text=text)


def unknown(text: str) -> Evidence:
    return Evidence(grade=Grade.UNKNOWN, text=text)


def format_exit(end: CommandEnd) -> str:
    if end.signal is None:
        was_ended = end.exit_code == 0 and end.failed
        return f"exit code {end.exit_code}" + (", after the agent ended it" if was_ended else "")
    return f"signal {signal_name(end.signal)} (exit code {end.exit_code})"
