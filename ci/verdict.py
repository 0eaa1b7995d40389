"""Pure judgement: events, per-test log and execution facts become a verdict with evidence.

The per-test log decides about the tests, never an exit code alone: a session that ended well
and a process that was killed afterwards are ``passed`` and ``exit_after_summary``, and an exit
code of 0 without a log is ``incomplete``. So is a suite in which no test passed: skipped,
empty and missing are never success.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from signal import Signals
from typing import TYPE_CHECKING

from ci.analysis.backend import fallbacks, mismatches
from ci.analysis.difference import Difference, Kind, difference, headline, lines_of
from ci.analysis.operators import overload_counts
from ci.analysis.suite import on_processor, suite_of
from ci.details import Rerun
from ci.events import RunRecord, StageFinished
from ci.plan import ContractPlan, StageKind, StagePlan
from ci.pytest_log import Outcome, PytestLog
from ci.results import (
    Evidence,
    Grade,
    Harness,
    OverloadCount,
    Product,
    Verdict,
    is_compiled_only,
)
from ci.text import counted, first_names

if TYPE_CHECKING:
    from ci.engines.base import ExecutionFacts

# Signals that a process brings upon itself; SIGKILL and SIGTERM come from outside.
FAULTS = frozenset(
    {Signals.SIGSEGV, Signals.SIGABRT, Signals.SIGBUS, Signals.SIGFPE, Signals.SIGILL}
)
TESTS_FAILED = 1  # pytest's exit status
# Of a contract; what fails newly fails anyway.
BREACHES = (Kind.VANISHED, Kind.PASS_TO_SKIP, Kind.NEWLY_SKIPPED)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Everything that is known about one platform's run."""

    stages: Sequence[StagePlan]
    record: RunRecord
    tests: PytestLog | None
    facts: ExecutionFacts
    platform: str
    torch_device: str
    asked_simulated: bool = False
    collected: int | None = None
    """Tests that pytest said it would run; ``None``: it did not say."""
    contract: ContractPlan | None = None
    reruns: Sequence[Rerun] = ()

    def finished(self, stage: StagePlan) -> StageFinished | None:
        return self.record.finished_stages.get(stage.name)

    @property
    def commands(self) -> list[StagePlan]:
        return [stage for stage in self.stages if stage.kind is StageKind.COMMAND]

    @property
    def pytest_stage(self) -> StagePlan:
        return next(stage for stage in self.stages if stage.kind is StageKind.PYTEST)

    @property
    def session_ended(self) -> bool:
        return self.tests is not None and self.tests.exit_status is not None

    @cached_property
    def misplaced(self) -> tuple[str, ...]:
        """How operator tests ran elsewhere than the run was asked for."""
        if self.tests is None:
            return ()
        found = mismatches(
            self.tests,
            platform=self.platform,
            torch_device=self.torch_device,
            simulated=self.asked_simulated,
        )
        if self.contract is not None and self.contract.suite is not None:
            return found  # it says which fallbacks people have accepted; others skip newly
        return (*found, *fallbacks(self.tests, self.torch_device))

    @cached_property
    def simulated(self) -> bool:
        """Asked for, or by what any test says."""
        tests = self.tests.tests if self.tests else ()
        return self.asked_simulated or any(t.operator and t.operator.simulated for t in tests)

    @property
    def compiled_only(self) -> bool:
        """Whether no test was to run on the device, which nothing can stand in for."""
        return is_compiled_only(self.platform, simulated=self.asked_simulated)

    @cached_property
    def changes(self) -> Difference | None:
        """Against the contract; ``None``: there is none, or the suite did not get to its end."""
        if self.contract is None or self.contract.suite is None or self.tests is None:
            return None
        if not complete(self.tests, self.collected):
            return None
        suite = suite_of(self.tests.tests)
        expected = on_processor(self.contract.suite, suite, self.tests.processor)
        return difference(expected, suite)

    @cached_property
    def overloads(self) -> tuple[OverloadCount, ...]:
        return overload_counts(self.tests.tests) if self.tests else ()


Opinion = tuple[Product, list[Evidence]]


def judge(case: Case) -> Verdict:
    """Judge the product and the harness, each with its evidence."""
    product, about_product = _product(case)
    harness, about_harness = _harness(case)
    evidence = (*about_product, *about_harness, *_details(case))
    return Verdict(product=product, harness=harness, evidence=evidence)


def not_run(reason: str) -> Verdict:
    """The verdict on a platform whose engine or image failed before the first stage."""
    evidence = (_fact(reason),)
    return Verdict(product=Product.NOT_RUN, harness=Harness.INFRASTRUCTURE, evidence=evidence)


def _fact(text: str) -> Evidence:
    return Evidence(grade=Grade.FACT, text=text)


def _likely(text: str) -> Evidence:
    return Evidence(grade=Grade.LIKELY, text=text)


def _unknown(text: str) -> Evidence:
    return Evidence(grade=Grade.UNKNOWN, text=text)


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
        return Product.INCOMPLETE, [_unknown(text)]
    return Product.NOT_RUN, [_fact("no stage was started")]


def _out_of_sight(case: Case) -> bool:
    """The engine lost it; where an exit code is known, the agent crashed instead."""
    return case.facts.lost and case.facts.exit_code is None


def _failed_command(case: Case) -> Opinion | None:
    for stage in case.commands:
        end = case.finished(stage)
        if end is not None and end.failed:
            product = Product.INCOMPLETE if _ended_from_outside(end) else Product.FAILED
            text = f"stage {stage.name} ended with {_exit(end)}; its output is {stage.name}.log"
            return product, [_fact(text)]
    return None


def _without_result(case: Case, stages: Sequence[StagePlan]) -> Opinion | None:
    names = [stage.name for stage in stages if case.finished(stage) is None]
    return (Product.INCOMPLETE, [_fact(f"stage {names[0]} has no result")]) if names else None


def _ended_from_outside(end: StageFinished) -> bool:
    killed = end.signal is not None and end.signal not in FAULTS
    return killed or end.timed_out or end.interrupted or bool(end.oom_kills)


def _suite(case: Case) -> Opinion:
    tests = case.tests
    if tests is None:
        return Product.INCOMPLETE, [_fact(_no_log(case))]
    if bad := tests.named(Outcome.FAILED, Outcome.ERROR):
        failures, errors = map(tests.count, (Outcome.FAILED, Outcome.ERROR))
        counts = f"{failures} failed, {counted(errors, 'error')}"
        return Product.FAILED, [_fact(f"{counts}: {first_names(bad)}")]
    if tests.exit_status is None:
        return _unfinished_session(case, tests)
    if tests.unreadable_lines:
        lines = counted(tests.unreadable_lines, "unreadable line")
        return Product.INCOMPLETE, [_fact(f"the per-test log has {lines}")]
    return _cut_short(case, tests) or _finished_session(tests, tests.exit_status)


def complete(tests: PytestLog, collected: int | None = None) -> bool:
    """Whether a suite got to its end, so that a test that is not there is none."""
    ended = tests.exit_status in (0, TESTS_FAILED) and not tests.running
    return ended and not tests.unreadable_lines and tests.begun >= (collected or 0)


def _proven(case: Case, suite: Opinion) -> Opinion:
    """What the tests say counts where they ran on the platform, and all of them."""
    product, evidence = suite
    broken = _broken_contract(case)
    if case.misplaced or broken:
        product = Product.FAILED
    return product, [*map(_fact, case.misplaced), *evidence, *broken]


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
    return [*map(_fact, evidence)]


def _no_log(case: Case) -> str:
    end = case.finished(case.pytest_stage)
    how = f"ended with {_exit(end)}; its output is {end.stage}.log" if end else "has no result"
    return f"there is no per-test log; stage {case.pytest_stage.name} {how}"


def _unfinished_session(case: Case, tests: PytestLog) -> Opinion:
    end = case.finished(case.pytest_stage)
    results = counted(len(tests.tests), "result")
    done = _fact(f"pytest did not get to its end; its log has {results}")
    own = end is not None and end.signal in FAULTS
    return Product.FAILED if own else Product.INCOMPLETE, [done]


def _cut_short(case: Case, tests: PytestLog) -> Opinion | None:
    """``pytest.exit`` chooses the exit status, and 0 is among the choices."""
    ended = f"pytest ended with status {tests.exit_status}"
    if tests.running:
        return Product.INCOMPLETE, [_fact(f"{ended} in the middle of {first_names(tests.running)}")]
    if case.collected is not None and tests.begun < case.collected:
        text = f"{ended} before its end: {tests.begun} of {case.collected} collected tests began"
        return Product.INCOMPLETE, [_likely(text)]
    return None


def _finished_session(tests: PytestLog, status: int) -> Opinion:
    passed, skipped = tests.count(Outcome.PASSED), tests.count(Outcome.SKIPPED)
    if not passed:
        text = f"no test passed: {skipped} skipped" if tests.tests else "no test was collected"
        return Product.INCOMPLETE, [_fact(text)]
    if status != 0:
        product = Product.FAILED if status == TESTS_FAILED else Product.INCOMPLETE
        return product, [_fact(f"pytest ended with status {status}, though no test failed")]
    return Product.PASSED, [
        _fact(f"pytest ended with status 0: {passed} passed, {skipped} skipped")
    ]


# The harness


def _harness(case: Case) -> tuple[Harness, list[Evidence]]:
    """The first that applies, from the most to the least certain."""
    if case.facts.interrupted or any(e.interrupted for e in _ends(case)):
        return Harness.INFRASTRUCTURE, [_fact("the run was interrupted by its caller")]
    if failed := case.record.lease_failed:
        return Harness.INFRASTRUCTURE, [_fact(failed.reason)]
    opinions = (_timed_out, _after_summary, _out_of_memory, _lost, _crashed)
    found = (opinion(case) for opinion in opinions)
    return next((opinion for opinion in found if opinion), (Harness.CLEAN, []))


def _timed_out(case: Case) -> tuple[Harness, list[Evidence]] | None:
    for end in _ends(case):
        if end.timed_out:
            text = f"stage {end.stage} was ended after {end.seconds:.0f} s, its time limit"
            return Harness.TIMED_OUT, [_fact(text)]
    return None


def _after_summary(case: Case) -> tuple[Harness, list[Evidence]] | None:
    """A process that ended otherwise than the session it had reported."""
    code = code_after_summary(case)
    if code is None:
        return None
    evidence = [_fact(f"exit code {code} after the pytest summary")]
    if memory := _out_of_memory(case):
        evidence += memory[1]
    return Harness.EXIT_AFTER_SUMMARY, evidence


def code_after_summary(case: Case) -> int | None:
    """The exit code that contradicts a finished pytest session, if there is one."""
    if case.tests is None or case.tests.exit_status is None:
        return None
    end = case.finished(case.pytest_stage)
    if end is not None and end.exit_code != case.tests.exit_status:
        return end.exit_code
    finished = case.record.run_finished
    expected = finished.exit_code if finished else None
    actual = case.facts.exit_code
    return actual if actual != expected else None


def _out_of_memory(case: Case) -> tuple[Harness, list[Evidence]] | None:
    victims = [end for end in _ends(case) if end.oom_kills and end.exit_code != 0]
    if victims:
        end = victims[0]
        text = f"the kernel killed {end.oom_kills} processes of stage {end.stage} for memory"
        return Harness.OOM_KILLED, [_fact(text)]
    # What a rerun brought about is no part of the run that is judged.
    if case.facts.oom_killed and not any(end.oom_kills for end in case.record.reruns.values()):
        return Harness.OOM_KILLED, [_fact("the engine reports an out-of-memory kill")]
    return None


def _lost(case: Case) -> tuple[Harness, list[Evidence]] | None:
    if not _out_of_sight(case):
        return None
    return Harness.LOST, [_fact("the agent vanished without a result")]


def _crashed(case: Case) -> tuple[Harness, list[Evidence]] | None:
    if case.tests is not None and case.tests.crashed:
        text = f"a pytest worker process died in {first_names(case.tests.crashed)}"
        return Harness.CRASHED, [_fact(text)]
    for end in _ends(case):
        if end.signal is not None:
            return Harness.CRASHED, [_fact(_killed(end)), *_outside(end)]
    left = case.finished(case.pytest_stage)
    if left is not None and case.tests is not None and not case.session_ended:
        text = f"pytest left with {_exit(left)} and did not end its session"
        return Harness.CRASHED, [_fact(text)]
    if case.record.run_finished is None:
        began = bool(case.record.events)
        how = "ended without a result" if began else "never began"
        text = f"the agent {how}, exit code {case.facts.exit_code}"
        return Harness.CRASHED if began else Harness.INFRASTRUCTURE, [_fact(text)]
    return None


def _killed(end: StageFinished) -> str:
    return f"stage {end.stage} was killed by {_exit(end)} after {end.seconds:.0f} s"


def _outside(end: StageFinished) -> list[Evidence]:
    if end.signal != Signals.SIGKILL:
        return []
    if end.oom_kills is None:
        return [_unknown("who sent SIGKILL; the kernel's out-of-memory counter is not readable")]
    return [_likely("SIGKILL came from outside: the kernel counts no out-of-memory kill")]


# What else a reader should know


def _details(case: Case) -> list[Evidence]:
    details = []
    if case.tests is not None and case.tests.running and not case.session_ended:
        details.append(_fact(f"pytest was running {first_names(case.tests.running)}"))
    for end in _ends(case):
        if end.oom_kills and end.exit_code == 0:
            text = f"the kernel killed {end.oom_kills} processes of stage {end.stage} for memory"
            details.append(_fact(f"{text}, yet the stage ended well"))
    details += [
        _fact(f"device {after.uuid} was {before.health} before the tests, {after.health} after")
        for before, after in case.record.changed_devices
    ]
    details += [
        _fact(f"artifact {missing.name} is missing: there is no {missing.path}")
        for missing in case.record.missing_artifacts
    ]
    details += [
        _fact(f"artifact {cut.name} is without {counted(cut.left_out, 'file')} of {cut.path}")
        for cut in case.record.cut_artifacts
    ]
    if case.record.unreadable_lines:
        lines = counted(case.record.unreadable_lines, "unreadable line")
        details.append(_fact(f"events.jsonl has {lines}"))
    return details


def _ends(case: Case) -> list[StageFinished]:
    return list(case.record.finished_stages.values())


def _exit(end: StageFinished) -> str:
    if end.signal is None:
        told = end.exit_code == 0 and end.failed
        return f"exit code {end.exit_code}" + (", after it had been told to" if told else "")
    try:
        return f"signal {Signals(end.signal).name} (exit code {end.exit_code})"
    except ValueError:  # a real-time signal has no name
        return f"signal {end.signal} (exit code {end.exit_code})"
