"""Judge a run: events, per-test log and execution facts become a verdict with evidence. Pure.

The product passes if the per-test log, the exit status of pytest's process and pytest's closing
summary agree: see ``pytest_verdict``. A process that is killed after a passing summary is
``passed`` and ``exit_after_summary``.

The harness is judged separately: how the processes of the run ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from signal import Signals

from ci.facts.case import UNFINISHED, Case, format_exit, format_kills
from ci.facts.difference import ChangeKind, group_lines
from ci.facts.events import compare_records
from ci.facts.pytest_verdict import (
    FAULTS,
    LAST_PYTEST_STATUS,
    SIGNALLED,
    ProductOpinion,
    judge_suite,
)
from ci.model.results import (
    Evidence,
    ExecutionFacts,
    Harness,
    Product,
    Verdict,
    fact,
    likely,
    unknown,
)
from ci.model.tests import PytestLog
from ci.protocol.events import (
    AgentRestarted,
    ArtifactCut,
    ArtifactMissing,
    LeaseFailed,
    NetworkRemained,
    RunRecord,
    StageFinished,
    StageLost,
)
from ci.protocol.job import StagePlan
from ci.protocol.pytest_status import USUAL, is_pytest
from ci.util.text import counted, describe_unreadable, join_names, signal_name

# Changes that break a contract. Newly failing tests are not listed: they fail the run anyway.
BREACHES = [kind for kind in ChangeKind if kind.regression and kind is not ChangeKind.NEWLY_FAILING]
BREACHES.append(ChangeKind.REFUSED_TO_PASS)  # only with the torch that the contract states
NOTICEABLE_END_S = 1.0  # most processes end within it after SIGTERM
NO_SUMMARY = (
    "it crashed or called os._exit, or `-qq`, `-p no:terminal` or a plugin suppresses the"
    " summary: run pytest without these"
)

HarnessOpinion = tuple[Harness, list[Evidence]]


def judge(case: Case) -> Verdict:
    """Judge the product and the harness, each with its evidence."""
    product, about_product = _product(case)
    harness, about_harness = _harness(case)
    out_of_memory = harness is Harness.OOM_KILLED and case.memory_limit_reached
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
    suite, evidence = judge_suite(case)
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
    killed_for_memory = [*map(fact, filter(None, [case.killed_for_memory]))]
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


def _crashed(case: Case) -> HarnessOpinion | None:
    if lost := case.record.first(StageLost):
        return Harness.INFRASTRUCTURE, [fact(lost.reason)]
    if died := _died_workers(case):
        return Harness.CRASHED, died
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
    left = case.exit_reason is not None  # without an end of the session, or without a summary
    if pytest is not None and case.tests is not None and not case.session_ended and not left:
        text = f"pytest exited early with {format_exit(pytest)} and did not end its session"
        if not is_pytest(case.pytest_stage.command):  # the exit code is the wrapper's
            text = "pytest did not end its session, and the test command ended with"
            text += f" {format_exit(pytest)}"
        return Harness.CRASHED, [fact(text)]
    if run is None:
        return Harness.INFRASTRUCTURE, [fact(_agent_ended(case))]
    # pytest reports by itself why it does not start: a wrong option, a broken conftest.
    refused = case.tests is None and pytest is not None and pytest.exit_code in UNFINISHED
    explained = refused or left or case.only_listed
    if pytest is not None and case.summary is None and not explained:
        text = f"pytest printed no closing summary, {format_exit(pytest)}: {NO_SUMMARY}"
        if not case.shows_pytest:
            text = f"nothing shows that pytest ran: {format_exit(pytest)}, no log and no summary"
        return Harness.CRASHED, [fact(text)]
    if code not in (None, run.exit_code):
        text = f"the agent ended with exit code {code}, but had recorded {run.exit_code}"
        return Harness.INFRASTRUCTURE, [fact(text)]
    return None


def _died_workers(case: Case) -> list[Evidence]:
    if case.tests is None or not case.tests.crashed or case.worker_interrupted:
        return []
    return [fact(f"a pytest worker process died in {join_names(case.tests.crashed)}")]


# Further evidence


def _further_evidence(case: Case) -> list[Evidence]:
    texts = [it.text for it in _died_workers(case)]
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
            texts.append(f"{format_kills(end)}, but the stage succeeded")
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
