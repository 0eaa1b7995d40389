"""Judge a run: events, per-test log and execution facts become a verdict with evidence. Pure.

The product passes if the per-test log, the exit status of pytest's process and pytest's closing
summary agree: see ``pytest_verdict``. A process that is killed after a passing summary is
``passed`` and ``exit_after_summary``.

The harness is judged separately: how the processes of the run ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from signal import Signals

from ci.facts.case import UNFINISHED, Case, exit_of
from ci.facts.difference import group_lines
from ci.facts.events import compare_records
from ci.facts.pytest_verdict import (
    FAULTS,
    LAST_PYTEST_STATUS,
    SIGNALLED,
    ProductOpinion,
    judge_suite,
)
from ci.facts.sentences import on_artifacts, on_harness, on_stages, on_tests
from ci.facts.sentences.on_harness import Source
from ci.gates.regression import ChangeKind
from ci.model.outcomes import TORCH_DECIDES, Outcome, PytestLog
from ci.model.verdicts import Evidence, Harness, Product, Verdict
from ci.protocol.agent_files import BENCHMARKS
from ci.protocol.events import (
    AgentRestarted,
    ArtifactCut,
    ArtifactMissing,
    DiskFull,
    LeaseFailed,
    NetworkRemained,
    StageLost,
)
from ci.protocol.job import StagePlan
from ci.protocol.pytest_status import USUAL, is_pytest
from ci.util.text import counted, first_line, shorten

MOST_REASONS = 3  # of skipped tests
LONGEST_REASON = 100  # characters of one

# Changes that break a contract. Newly failing tests are not listed: they fail the run anyway.
BREACHES = [kind for kind in ChangeKind if kind.is_loss]
BREACHES.append(ChangeKind.REFUSED_TO_PASS)  # only with the torch that the contract states

HarnessOpinion = tuple[Harness, list[Evidence]]


def judge(case: Case) -> Verdict:
    """Judge the product and the harness, each with its evidence."""
    product, about_product = _product(case)
    harness, about_harness = _harness(case)
    out_of_memory = harness is Harness.OOM_KILLED and case.memory_limit_reached
    if out_of_memory and product is Product.INCOMPLETE:
        product = Product.FAILED  # it exceeded its configured memory limit
    if product is Product.FAILED and case.disk_full:
        product = Product.INCOMPLETE
    found = (*about_product, *about_harness, *_further_evidence(case))
    evidence = {it.text: it for it in found}  # each once
    return Verdict(product=product, harness=harness, evidence=tuple(evidence.values()))


def is_cut(verdict: Verdict) -> bool:
    """Whether a run ended as it was to: after the stage in question, before the tests."""
    return any(it.code == on_stages.stage_left_out.code for it in verdict.evidence)


def has_all_benchmarks(verdict: Verdict) -> bool:
    """Whether the results of every benchmark stage that ended could be read."""
    return all(it.code != on_artifacts.benchmarks_unreadable.code for it in verdict.evidence)


def not_run(reason: str) -> Verdict:
    """The verdict on a platform whose engine or image failed before the first stage."""
    evidence = (on_stages.platform_failed(reason),)
    return Verdict(product=Product.NOT_RUN, harness=Harness.INFRASTRUCTURE, evidence=evidence)


# The product


def _product(case: Case) -> ProductOpinion:
    if not case.record.finished_stages and not case.record.unfinished_stages:
        if case.facts.exit_code is None:  # the end is unknown
            return Product.INCOMPLETE, [on_stages.record_missing()]
        return Product.NOT_RUN, [on_stages.no_stage_started()]
    at = list(case.plan.stages).index(case.pytest_stage)
    if early := _failed_command(case) or _missing_result(case, case.plan.stages[:at]):
        return early
    if case.pytest_stage.left_out:
        return Product.NOT_RUN, [on_stages.stage_left_out(case.pytest_stage.name)]
    # The outcomes count only if all tests ran on the platform.
    suite, evidence = judge_suite(case)
    product, broken = suite, broken_contract(case)
    if case.placement_errors or broken:
        product = Product.FAILED
    late = _missing_result(case, case.plan.stages[at + 1 :])
    if missing := [*_missing_benchmarks(case)]:
        late = late or (Product.INCOMPLETE, missing)
    if case.plan.given is not None and not case.tests_given:
        late = late or (
            Product.INCOMPLETE,
            [on_artifacts.given_untested(case.plan.given.path.name)],
        )
    if late and product is Product.PASSED:
        return late
    # The reason for the verdict comes first.
    found = [*broken, *evidence] if suite is Product.PASSED else [*evidence, *broken]
    return product, [*map(on_tests.misplaced, case.placement_errors), *found]


def _failed_command(case: Case) -> ProductOpinion | None:
    if not case.failed_commands:
        return None
    end = case.record.finished_stages[case.failed_commands[0].name]
    killed = end.signal is not None and end.signal not in FAULTS
    from_outside = killed or end.ended_early or end.oom_kills
    product = Product.INCOMPLETE if from_outside else Product.FAILED
    return product, [on_stages.command_failed(end.stage, exit_of(end))]


def _missing_result(case: Case, stages: Sequence[StagePlan]) -> ProductOpinion | None:
    names = [it.name for it in stages if not it.left_out and case.end_of(it) is None]
    return (Product.INCOMPLETE, [on_stages.stage_without_result(names[0])]) if names else None


def _missing_benchmarks(case: Case) -> Iterator[Evidence]:
    """Yield each benchmark stage whose results are missing, although its command succeeded."""
    for stage in case.plan.stages:
        reading = case.benchmarks.get(stage.name)
        if reading is not None and reading.fault is not None:
            yield on_artifacts.benchmarks_unreadable(stage.name, stage.benchmarks, reading.fault)


def broken_contract(case: Case) -> list[Evidence]:
    """Return evidence of each change that breaks the contract; empty: there is none."""
    found, evidence = case.changes, []
    for kind in BREACHES:
        if kind is ChangeKind.REFUSED_TO_PASS and case.has_another_torch:
            continue
        if found and (changes := found.of(kind)):
            first, *others = group_lines(changes)
            evidence.append(on_tests.contract_broken(found.headline(kind), first))
            evidence += [on_tests.contract_broken(kind, line) for line in others]
    return evidence


def _torch_decided(case: Case) -> Iterator[Evidence]:
    """Yield evidence that torch alone made tests skip that the contract expects to pass."""
    changes = [it for kind in BREACHES if case.changes for it in case.changes.of(kind)]
    refused = [it for it in changes if it.after and it.after.reason in TORCH_DECIDES]
    if refused:
        tests, of = (sum(it.count for it in some) for some in (refused, changes))
        yield on_tests.torch_decided(tests, of)


# The harness


def _harness(case: Case) -> HarnessOpinion:
    """Return the first cause that applies, from the most to the least certain."""
    if case.facts.interrupted:
        return Harness.INFRASTRUCTURE, [on_harness.interrupted_by_caller()]
    if missing := not_provided(case):
        return Harness.INFRASTRUCTURE, [missing]
    if case.disk_full:
        found = case.record.first(DiskFull)
        return Harness.INFRASTRUCTURE, [on_stages.disk_full(found.text if found else None)]
    outside, code = _ended_from_outside(case), code_after_summary(case)
    if outside and code is None:
        return Harness.INFRASTRUCTURE, outside
    for stage in case.plan.stages:
        end = case.end_of(stage)
        if end is not None and end.timed_out:
            limit = on_stages.time_limit(stage.name, stage.timeout_s, end.seconds)
            return Harness.TIMED_OUT, [limit]
    killed_for_memory = [*filter(None, [case.killed_for_memory])]
    if code is not None:
        inner = case.pytest_end.pytest_status if case.pytest_end else None
        is_agents = case.record.run_finished is None
        text = on_harness.exit_after_summary(code, inner, by_agent=is_agents)
        return Harness.EXIT_AFTER_SUMMARY, [text, *outside, *killed_for_memory]
    if killed_for_memory:
        return Harness.OOM_KILLED, killed_for_memory
    # With a known exit code, the agent crashed instead.
    if case.facts.lost and case.facts.exit_code is None:
        return Harness.LOST, [on_harness.result_not_received()]
    if crashed := _crashed(case):
        return crashed
    if case.division_errors:
        return Harness.INFRASTRUCTURE, [*map(on_tests.shards_differ, case.division_errors)]
    return Harness.CLEAN, []


def not_provided(case: Case) -> Evidence | None:
    """Return why a stage did not get its device, or a container without a network."""
    if failed := case.record.first(LeaseFailed):
        return on_harness.lease_failed(failed.reason)
    remained = case.record.first(NetworkRemained)
    return on_harness.network_remained(remained.reason) if remained else None


def _ended_from_outside(case: Case) -> list[Evidence]:
    """Return evidence of a request or signal that ended the run and was not the caller's."""
    run = case.record.run_finished
    if case.record.first(AgentRestarted):
        found = [on_harness.container_restarted()]
    elif case.facts.ended_by:
        found = [on_harness.container_ended(case.facts.ended_by)]
    elif run is not None and run.interrupted:
        found = [on_harness.agent_signalled(run.signal_received)]
    else:
        sender = "the agent" if run is not None else "this caller"
        found = [
            on_harness.supervisor_signalled(it.stage, sender) for it in case.ends if it.interrupted
        ]
    if found and run is None and case.facts.exit_code is not None:
        found.append(_agent_ended(case))
    return found


def _agent_ended(case: Case) -> Evidence:
    return on_harness.agent_ended(case.facts.exit_code, started=bool(case.record.events))


def code_after_summary(case: Case) -> int | None:
    """Return the exit code that contradicts a finished pytest session.

    ``None``: there is none, or the pytest stage did not end, so its exit code is unknown. The
    container's code counts if the container was killed when only reruns remained.
    """
    end, run = case.pytest_end, case.record.run_finished
    if not case.session_ended or case.output.summary is None or end is None:
        return None
    wrapped = end.pytest_status == 0 and end.exit_code > LAST_PYTEST_STATUS
    if wrapped or end.exit_code >= SIGNALLED:
        return end.exit_code
    code = case.facts.exit_code
    if code is None or code < SIGNALLED or (run is not None and run.exit_code == code):
        return None
    return code if run is not None or all(map(case.end_of, case.plan.stages)) else None


def _crashed(case: Case) -> HarnessOpinion | None:
    if lost := case.record.first(StageLost):
        return Harness.INFRASTRUCTURE, [on_stages.stage_lost(lost.reason)]
    if died := _died_workers(case):
        return Harness.CRASHED, died
    for end in case.ends:
        if end.signal is not None:
            evidence = [on_stages.stage_killed(end.stage, exit_of(end), end.seconds)]
            if end.signal == Signals.SIGKILL:
                is_known = end.oom_kills is not None
                evidence.append(
                    on_stages.killed_from_outside() if is_known else on_stages.killer_unknown()
                )
            return Harness.CRASHED, evidence
    pytest, run, code = case.pytest_end, case.record.run_finished, case.facts.exit_code
    left = case.exit_reason is not None  # without an end of the session, or without a summary
    if pytest is not None and case.tests is not None and not case.session_ended and not left:
        is_wrapped = not is_pytest(case.pytest_stage.command)
        return Harness.CRASHED, [on_harness.left_session(exit_of(pytest), is_wrapped=is_wrapped)]
    if run is None:
        return Harness.INFRASTRUCTURE, [_agent_ended(case)]
    # pytest reports by itself why it does not start: a wrong option, a broken conftest.
    refused = case.tests is None and pytest is not None and pytest.exit_code in UNFINISHED
    explained = refused or left or case.output.only_listed
    if pytest is not None and case.output.summary is None and not explained:
        unseen = on_harness.no_summary if case.shows_pytest else on_harness.pytest_unseen
        return Harness.CRASHED, [unseen(exit_of(pytest))]
    if code not in (None, run.exit_code):
        return Harness.INFRASTRUCTURE, [on_harness.agent_disagrees(code, run.exit_code)]
    return None


def _died_workers(case: Case) -> list[Evidence]:
    if case.tests is None or not case.tests.crashed or case.worker_interrupted:
        return []
    return [on_tests.worker_died(case.tests.crashed)]


# Further evidence


def _further_evidence(case: Case) -> Iterator[Evidence]:
    tests, record = case.tests, case.record
    yield from _torch_decided(case)
    yield from _died_workers(case)
    if tests is not None and tests.running and not case.session_ended:
        yield on_tests.running_tests(tests.running)
    if tests is not None:
        yield from _skip_reasons(tests)
    for shard in case.shards.values():
        if shard.exit_code not in USUAL or shard.ended_early:
            of = case.pytest_stage.shards
            yield on_tests.shard_ended(shard.shard, of, exit_of(shard), shard.seconds)
    for end in case.ends:
        if end.oom_kills and end.exit_code == 0:
            yield on_harness.survived_kills(end.oom_kills, end.stage)
    if tests is not None and tests.damaged:
        yield on_tests.results_unreadable(tests.damaged)
    yield from (on_harness.device_changed(*change) for change in record.changed_devices)
    if case.agent_file is not None:
        yield from map(on_harness.record_changed, compare_records(record, case.agent_file))
    yield from _missing_benchmarks(case)
    for missing in record.every(ArtifactMissing):
        if not missing.name.startswith(BENCHMARKS):  # listed above
            yield on_artifacts.artifact_missing(missing.name, missing.path)
    for cut in record.every(ArtifactCut):
        yield on_artifacts.artifact_cut(cut.name, cut.left_out, cut.path)
    sources = {
        Source.EVENTS: case.agent_file,
        Source.LOG: tests,
        Source.OUTPUT: case.facts,
    }
    for name, source in sources.items():
        if source is not None and source.unreadable_lines:
            yield on_harness.unreadable_lines(name, source.unreadable_lines, source.longest_line)


def _skip_reasons(log: PytestLog) -> list[Evidence]:
    """``442 skipped: 300 no device; 120 dtype unsupported; 12 no sample; 10 for 4 more reasons``.

    Empty without recorded reasons.
    """
    skipped = [it for it in log.tests if it.outcome is Outcome.SKIPPED]
    counts = Counter(it.skip_reason or first_line(it.reason or "") for it in skipped)
    if not any(counts):
        return []
    shown = counts.most_common(MOST_REASONS)
    reasons = [shorten(reason, LONGEST_REASON) or "without a reason" for reason, _ in shown]
    if len(counts) > 1:
        reasons = [f"{n:,} {reason}" for reason, (_, n) in zip(reasons, shown, strict=True)]
    if others := counts.total() - sum(count for _, count in shown):
        reasons.append(f"{others:,} for {counted(len(counts) - len(shown), 'more reason')}")
    return [on_tests.skipped_tests(len(skipped), reasons)]
