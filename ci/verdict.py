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
from ci.pytest_log import ClosingSummary, Outcome, PytestLog
from ci.results import (
    Evidence,
    Grade,
    Harness,
    OverloadCount,
    Product,
    Verdict,
    is_compiled_only,
)
from ci.text import counted, first_names, unreadable

if TYPE_CHECKING:
    from ci.engines.base import ExecutionFacts

# Signals that a process brings upon itself; SIGKILL and SIGTERM come from outside.
FAULTS = frozenset(
    {Signals.SIGSEGV, Signals.SIGABRT, Signals.SIGBUS, Signals.SIGFPE, Signals.SIGILL}
)
TESTS_FAILED = 1  # pytest's exit status
# What pytest means by its other exit statuses (pytest.ExitCode).
UNFINISHED = {
    2: "interrupted",
    3: "internal error",
    4: "usage error",
    5: "no tests collected",
}
LAST_PYTEST_STATUS = max(UNFINISHED)
SIGNALLED = 128  # the least exit code by which a shell reports a signal
NO_SUMMARY = (
    "it crashed or was made to leave, or `-qq`, `-p no:terminal` or a plugin suppresses the"
    " summary: run pytest without these"
)
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
    summary: ClosingSummary | None = None
    """pytest's closing summary in the stage's output; ``None``: there is none."""
    last_lines: Sequence[str] = ()
    """The end of the output of pytest's stage."""
    memory_limit_bytes: int | None = None
    """The configured memory limit that the engine applied."""
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

    @property
    def pytest_end(self) -> StageFinished | None:
        return self.finished(self.pytest_stage)

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
    limited = case.memory_limit_bytes is not None
    if harness is Harness.OOM_KILLED and product is Product.INCOMPLETE and limited:
        product = Product.FAILED  # it needs more than it was given
    evidence = dict.fromkeys([*about_product, *about_harness, *_details(case)])
    return Verdict(product=product, harness=harness, evidence=tuple(evidence))


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
        return _by_exit_status(case) or (Product.INCOMPLETE, [_fact(_no_log(case))])
    if bad := tests.named(Outcome.FAILED, Outcome.ERROR):
        if len(bad) == len(tests.crashed) and _machine_ran_out(case):
            text = f"worker processes were killed for memory in {first_names(tests.crashed)}"
            return Product.INCOMPLETE, [_fact(text)]
        failures, errors = map(tests.count, (Outcome.FAILED, Outcome.ERROR))
        counts = f"{failures} failed, {counted(errors, 'error')}"
        return Product.FAILED, [_fact(f"{counts}: {first_names(bad)}")]
    if tests.exit_status is None and _machine_ran_out(case):
        return _unfinished_session(case, tests)
    if by_status := _by_exit_status(case):
        return by_status
    if tests.exit_status is None and not _left_at_the_end(case, tests):
        return _unfinished_session(case, tests)
    if tests.unreadable_lines:
        lines = unreadable(tests.unreadable_lines, tests.longest_line)
        return Product.INCOMPLETE, [_fact(f"the per-test log has {lines}")]
    if case.pytest_end is None and case.summary is None:
        text = f"stage {case.pytest_stage.name} has no result, and pytest no closing summary"
        return Product.INCOMPLETE, [_fact(text)]
    if short := _cut_short(case, tests):
        return Product.INCOMPLETE, short
    return _finished_session(tests)


def exit_status(case: Case) -> int | None:
    """The exit status that decides about the suite; ``None``: pytest did not get to one.

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
    who = _who_exited(case, status)
    text = f"{who} with {status}"
    if status in UNFINISHED:
        text += f": {UNFINISHED[status]}"
    if case.tests is None:
        text += f"; {_no_log(case)}"
    elif status not in UNFINISHED and not case.session_ended:
        text += " before the end of its session"
    elif status == TESTS_FAILED and who in (PYTEST_EXITED, SESSION_ENDED):
        text += " although no test failed: a plugin or hook decided so"
    short = _cut_short(case, case.tests) if case.tests is not None else []
    product = Product.INCOMPLETE if status in UNFINISHED else Product.FAILED
    return product, [_fact(text), *short, *_last_lines(case)]


PYTEST_EXITED = "pytest exited"
SESSION_ENDED = "pytest ended its session"


def _who_exited(case: Case, status: int) -> str:
    end = case.pytest_end
    if end is None or status not in (end.exit_code, end.pytest_status):
        return SESSION_ENDED
    if status > LAST_PYTEST_STATUS:
        return "the test command exited"
    if end.pytest_status in (None, status):
        return PYTEST_EXITED
    return f"pytest exited with {end.pytest_status}, and the test command"


def _last_lines(case: Case) -> list[Evidence]:
    if not case.last_lines:
        return []
    return [_fact(f"last lines of {case.pytest_stage.name}.log: {' | '.join(case.last_lines)}")]


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
    end = case.pytest_end
    how = f"ended with {_exit(end)}; its output is {end.stage}.log" if end else "has no result"
    return f"there is no per-test log; stage {case.pytest_stage.name} {how}"


def _unfinished_session(case: Case, tests: PytestLog) -> Opinion:
    end = case.pytest_end
    results = counted(len(tests.tests), "result")
    done = _fact(f"pytest did not get to its end; its log has {results}")
    own = end is not None and end.signal in FAULTS
    return Product.FAILED if own else Product.INCOMPLETE, [done]


def _left_at_the_end(case: Case, tests: PytestLog) -> bool:
    """Whether pytest left with 0 before the end of its session, when all tests had ended."""
    end, collected = case.pytest_end, case.collected
    all_ended = collected is not None and tests.begun >= collected and not tests.running
    return all_ended and end is not None and not end.failed


def _cut_short(case: Case, tests: PytestLog) -> list[Evidence]:
    """``pytest.exit`` chooses the exit status, and 0 is among the choices."""
    if not case.session_ended:
        return []
    ended = f"pytest ended with status {tests.exit_status}"
    if tests.running:
        return [_fact(f"{ended} in the middle of {first_names(tests.running)}")]
    if case.collected is not None and tests.begun < case.collected:
        text = f"{ended} before its end: {tests.begun} of {case.collected} collected tests began"
        return [_likely(text)]
    return []


def _finished_session(tests: PytestLog) -> Opinion:
    passed, skipped = tests.count(Outcome.PASSED), tests.count(Outcome.SKIPPED)
    if not passed:
        text = f"no test passed: {skipped} skipped" if tests.tests else "no test was collected"
        return Product.INCOMPLETE, [_fact(text)]
    ended = "pytest left" if tests.exit_status is None else "pytest ended with status 0"
    return Product.PASSED, [_fact(f"{ended}: {passed} passed, {skipped} skipped")]


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
    """A process that ended otherwise than the pytest whose closing summary it had printed."""
    code = code_after_summary(case)
    if code is None:
        return None
    end = case.pytest_end
    known = ", though pytest exited with 0" if end is not None and end.pytest_status == 0 else ""
    evidence = [_fact(f"exit code {code} after the pytest summary{known}")]
    if memory := _out_of_memory(case):
        evidence += memory[1]
    return Harness.EXIT_AFTER_SUMMARY, evidence


def code_after_summary(case: Case) -> int | None:
    """The exit code that says nothing of a finished pytest session, if there is one."""
    if not case.session_ended or case.summary is None:
        return None
    end = case.pytest_end
    if end is not None:
        wrappers = end.pytest_status == 0 and end.exit_code > LAST_PYTEST_STATUS
        if wrappers or end.exit_code >= SIGNALLED:
            return end.exit_code
    finished = case.record.run_finished
    expected = finished.exit_code if finished else None
    actual = case.facts.exit_code
    return actual if actual != expected else None


def _out_of_memory(case: Case) -> tuple[Harness, list[Evidence]] | None:
    limit = case.memory_limit_bytes
    why = (
        "no limit is configured, so the machine ran out"
        if limit is None
        else f"the configured limit is {limit:,} bytes"
    )
    victims = [end for end in _ends(case) if end.oom_kills and end.exit_code != 0]
    if victims:
        end = victims[0]
        text = f"the kernel killed {end.oom_kills} processes of stage {end.stage} for memory"
        return Harness.OOM_KILLED, [_fact(f"{text}: {why}")]
    # What a rerun brought about is no part of the run that is judged.
    if case.facts.oom_killed and not any(end.oom_kills for end in case.record.reruns.values()):
        return Harness.OOM_KILLED, [_fact(f"the engine reports an out-of-memory kill: {why}")]
    return None


def _machine_ran_out(case: Case) -> bool:
    return case.memory_limit_bytes is None and _out_of_memory(case) is not None


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
    left = case.pytest_end
    if left is not None and case.tests is not None and not case.session_ended:
        text = f"pytest left with {_exit(left)} and did not end its session"
        return Harness.CRASHED, [_fact(text)]
    if left is not None and case.summary is None and not _refused(case, left):
        text = f"pytest printed no closing summary, {_exit(left)}: {NO_SUMMARY}"
        return Harness.CRASHED, [_fact(text)]
    if case.record.run_finished is None:
        how = "ended without a result" if case.record.events else "never began"
        text = f"the agent {how}, exit code {case.facts.exit_code}"
        return Harness.INFRASTRUCTURE, [_fact(text)]
    return None


def _refused(case: Case, end: StageFinished) -> bool:
    """Whether pytest itself said why it did not begin: a wrong option, a broken conftest."""
    return case.tests is None and end.exit_code in UNFINISHED


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
        lines = unreadable(case.record.unreadable_lines, case.record.longest_line)
        details.append(_fact(f"events.jsonl has {lines}"))
    tests, facts = case.tests, case.facts
    if tests is not None and tests.unreadable_lines:
        lines = unreadable(tests.unreadable_lines, tests.longest_line)
        details.append(_fact(f"the per-test log has {lines}"))
    if facts.unreadable_lines:
        lines = unreadable(facts.unreadable_lines, facts.longest_line)
        details.append(_fact(f"the agent's output has {lines}, kept in agent.log"))
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
