"""All facts about one platform's run, before it is judged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ci.facts.benchmarks import BenchmarkReading
from ci.facts.difference import Difference, compare_suites
from ci.facts.operators import fallbacks, mismatches, overload_counts
from ci.facts.pytest_output import ListedFailure, PytestOutput
from ci.facts.record import RunRecord
from ci.facts.sentences.on_harness import killed_for_memory
from ci.facts.sentences.sentence import Exit
from ci.facts.shards import Shards, division_errors
from ci.facts.suite import adapt_to_processor, restrict_to_selection, suite_of
from ci.model.details import Rerun
from ci.model.execution import ExecutionFacts
from ci.model.outcomes import PytestLog, Selection
from ci.model.plan import RunPlan
from ci.model.results import Distribution, OverloadCount, is_compiled_only
from ci.model.verdicts import Evidence
from ci.protocol.distributions import WHEEL_SUFFIX
from ci.protocol.events import CommandEnd, DiskFull, StageFinished
from ci.protocol.job import DISK_FULL, StagePlan
from ci.protocol.pytest_status import TESTS_FAILED, is_pytest
from ci.protocol.stage_kind import StageKind

# What pytest means by its other exit statuses (pytest.ExitCode).
UNFINISHED = {2: "interrupted", 3: "internal error", 4: "usage error", 5: "no tests collected"}

# pytest-xdist's own assertion that no test was left.
_LEFT_BY_WORKER = re.compile(r"AssertionError: \('(.+)', <WorkerController \w+>\)")


@dataclass(frozen=True, kw_only=True)
class Case:
    """All facts about one platform's run, which the verdict and the notes are made from."""

    plan: RunPlan
    record: RunRecord
    tests: PytestLog | None
    output: PytestOutput
    facts: ExecutionFacts
    torch: str | None = None
    """The version of torch in the environment of the stages; ``None``: unknown, or no torch."""
    reruns: Sequence[Rerun] = ()
    benchmarks: Mapping[str, BenchmarkReading] = field(default_factory=dict)
    """The results of benchmark stages, by their names."""
    distributions: Sequence[Distribution] = ()
    """The wheels and source distributions in the results."""
    agent_file: RunRecord | None = None
    """The record in ``events.jsonl``, which the code under test may have changed."""

    def end_of(self, stage: StagePlan) -> StageFinished | None:
        return self.record.finished_stages.get(stage.name)

    @property
    def commands(self) -> list[StagePlan]:
        """All stages but pytest's."""
        return [stage for stage in self.plan.stages if stage.kind is not StageKind.PYTEST]

    @cached_property
    def failed_commands(self) -> list[StagePlan]:
        """The stages other than pytest's that ended with an error."""
        ends = [(stage, self.end_of(stage)) for stage in self.commands]
        return [stage for stage, end in ends if end is not None and end.failed]

    @property
    def tests_given(self) -> bool:
        """Whether nothing else than the distribution that was made elsewhere was tested.

        A source distribution is built here, and the tests run with its wheel.
        """
        given = self.plan.given
        if given is not None and given.path.suffix != WHEEL_SUFFIX:
            return any(it.installed for it in self.distributions)
        return any(it.installed and it.given for it in self.distributions)

    @property
    def pytest_stage(self) -> StagePlan:
        return self.plan.pytest_stage

    @property
    def ends(self) -> list[StageFinished]:
        return list(self.record.finished_stages.values())

    @property
    def session_ended(self) -> bool:
        return self.tests is not None and self.tests.exit_status is not None

    @property
    def pytest_end(self) -> StageFinished | None:
        return self.end_of(self.pytest_stage)

    @property
    def disk_full(self) -> bool:
        """Whether a stage or the agent met a full disk, which may also have cut their records."""
        run = self.record.run_finished
        codes = (self.facts.exit_code, run.exit_code if run else None)
        return DISK_FULL in codes or self.record.first(DiskFull) is not None

    @cached_property
    def shards(self) -> Shards:
        return self.record.shards(self.pytest_stage.name)

    @cached_property
    def division_errors(self) -> tuple[str, ...]:
        """Why the shards may not have run each test exactly once."""
        return tuple(division_errors(self.pytest_stage, self.shards, self.tests))

    @cached_property
    def pytest_runs(self) -> int:
        """Number of runs of pytest in its stage, as far as the plugin, log and output show them."""
        known = self.pytest_end.pytest_runs if self.pytest_end else None
        printed = 0 if is_pytest(self.pytest_stage.command) else self.output.sessions
        return max(known or 0, self.tests.sessions if self.tests else 0, printed)

    @property
    def exit_reason(self) -> str | None:
        """The reason that was passed to ``pytest.exit``; ``None``: nothing shows a call of it."""
        call, _, reason = (self.output.ending or "").partition(": ")
        is_pytests = self.shows_pytest or is_pytest(self.pytest_stage.command)
        return reason if call == "Exit" and is_pytests else None

    @property
    def worker_interrupted(self) -> bool:
        """Whether pytest-xdist took the end of a worker's session for Ctrl-C."""
        return (self.output.ending or "").endswith(" received keyboard-interrupt")

    @property
    def left_by_worker(self) -> str | None:
        """The test in which a worker of pytest-xdist ended its session, in the error of that."""
        found = filter(None, map(_LEFT_BY_WORKER.search, self.output.last_lines))
        return next((it[1] for it in found), None)

    @property
    def shows_pytest(self) -> bool:
        """Whether anything shows that the test command ran pytest."""
        end = self.pytest_end
        known = end is not None and (end.pytest_status is not None or end.pytest_runs)
        return self.tests is not None or bool(known)

    @property
    def missing_failures(self) -> Sequence[ListedFailure]:
        """The failures that pytest listed, if its log lacks them: it has no failure at all."""
        found = self.tests.tests if self.tests else ()
        return () if any(test.outcome.bad for test in found) else self.output.listed

    @property
    def selection(self) -> Selection | None:
        """The operators in the library, as its tests recorded them; ``None``: all."""
        return self.tests.selection if self.tests else None

    @cached_property
    def placement_errors(self) -> tuple[str, ...]:
        """One line for each way in which operator tests did not run as the run requested.

        They may have run on another device, platform or slot, or with another library.
        """
        if self.tests is None:
            return ()
        found, library = [], self.selection
        if library is not None and library.asked != self.plan.selected:
            requested = self.plan.selected or "all operators"
            found.append(f"requested {requested}; the library has {library.asked}: {library}")
        found += mismatches(
            self.tests,
            platform=self.plan.platform,
            torch_device=self.plan.torch_device,
            simulated=self.plan.simulated,
        )
        # A contract lists the accepted fallbacks; others count as newly skipped.
        if self.plan.expected_suite is None:
            found += fallbacks(self.tests, self.plan.torch_device)
        return tuple(found)

    @cached_property
    def simulated(self) -> bool:
        """Whether a simulated device was requested, or recorded by any test."""
        tests = self.tests.tests if self.tests else ()
        return self.plan.simulated or any(t.operator and t.operator.simulated for t in tests)

    @property
    def compiled_only(self) -> bool:
        """Whether no test was to run on the device, which cannot be simulated."""
        return is_compiled_only(self.plan.platform, simulated=self.plan.simulated)

    @cached_property
    def changes(self) -> Difference | None:
        """Differences from the contract; ``None``: no contract, or an unfinished suite."""
        expected = self.plan.expected_suite
        if expected is None or self.tests is None:
            return None
        if self.pytest_runs > 1 or not is_complete(self.tests, self.output.collected):
            return None
        suite = suite_of(self.tests.tests)
        expected = adapt_to_processor(expected, suite, self.tests.processor)
        if self.selection is not None and self.selection.asked == self.plan.selected:
            expected, suite = restrict_to_selection(expected, suite, self.selection)
        return compare_suites(expected, suite)

    @property
    def has_another_torch(self) -> bool:
        """Whether the contract was made with another version of torch, or with an unknown one."""
        return self.plan.contract is not None and self.plan.contract.torch != self.torch

    @property
    def memory_limit_bytes(self) -> int | None:
        """The configured memory limit; the host engine cannot set one."""
        return None if self.facts.engine == "host" else self.plan.container.memory_bytes

    @cached_property
    def killed_for_memory(self) -> Evidence | None:
        """How the kernel killed processes for memory, with the cause; ``None``: it did not."""
        limit, reached = self.memory_limit_bytes, self.memory_limit_reached
        if victims := self._memory_kills:
            kills, stage = victims[0].oom_kills, victims[0].stage
            return killed_for_memory(kills, stage, limit, reached=reached)
        # Kills in reruns are not part of the judged run.
        if self.facts.oom_killed and not any(it.oom_kills for it in self.record.reruns.values()):
            return killed_for_memory(None, None, limit, reached=reached)
        return None

    @property
    def memory_limit_reached(self) -> bool:
        """Whether the configured limit, if any, caused a kill for memory.

        The kernel's count of kills includes both causes. If the kernel does not record whether the
        limit was reached, assume that it was.
        """
        hits = [end.memory_limit_hits for end in self._memory_kills]
        return self.memory_limit_bytes is not None and (not hits or any(n != 0 for n in hits))

    @property
    def machine_out_of_memory(self) -> bool:
        """Whether a process was killed because the machine, not a limit, ran out of memory."""
        return self.killed_for_memory is not None and not self.memory_limit_reached

    @property
    def _memory_kills(self) -> list[StageFinished]:
        return [end for end in self.ends if end.oom_kills and end.exit_code != 0]

    @cached_property
    def overloads(self) -> tuple[OverloadCount, ...]:
        return overload_counts(self.tests.tests) if self.tests else ()


def is_complete(tests: PytestLog, collected: int | None = None) -> bool:
    """Whether a suite finished, so that a test missing in its log does not exist."""
    ended = tests.exit_status in (0, TESTS_FAILED) and not tests.running and tests.sessions == 1
    return ended and not tests.unreadable_lines and tests.begun >= (collected or 0)


def exit_of(end: CommandEnd) -> Exit:
    return Exit(end.exit_code, end.signal, by_agent=end.exit_code == 0 and end.failed)
