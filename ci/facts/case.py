"""All that is known about one platform's run, and the words for its evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from signal import Signals
from typing import TYPE_CHECKING

from ci.facts.backend import fallbacks, mismatches
from ci.facts.difference import Difference, difference
from ci.facts.operators import overload_counts
from ci.facts.suite import narrowed, on_processor, suite_of
from ci.model.details import Rerun
from ci.model.events import RunRecord, StageFinished
from ci.model.plan import ContractPlan, StageKind, StagePlan
from ci.model.results import Evidence, Grade, OverloadCount, is_compiled_only
from ci.model.tests import ClosingSummary, PytestLog, Selection

if TYPE_CHECKING:
    from ci.model.results import ExecutionFacts


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
    selected: str | None = None
    """Operators that the run was asked for; ``None``: all."""
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
    def ends(self) -> list[StageFinished]:
        return list(self.record.finished_stages.values())

    @property
    def session_ended(self) -> bool:
        return self.tests is not None and self.tests.exit_status is not None

    @property
    def pytest_end(self) -> StageFinished | None:
        return self.finished(self.pytest_stage)

    @property
    def selection(self) -> Selection | None:
        """What the library was narrowed to, by what its tests say; ``None``: it was not."""
        return self.tests.selection if self.tests else None

    @cached_property
    def misplaced(self) -> tuple[str, ...]:
        """How operator tests ran elsewhere, or with another library, than the run was asked for."""
        if self.tests is None:
            return ()
        found = (
            *_another_library(self.selection, self.selected),
            *mismatches(
                self.tests,
                platform=self.platform,
                torch_device=self.torch_device,
                simulated=self.asked_simulated,
            ),
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
        """Whether no test was to run on the device, for which there is no substitute."""
        return is_compiled_only(self.platform, simulated=self.asked_simulated)

    @cached_property
    def changes(self) -> Difference | None:
        """Against the contract; ``None``: there is none, or the suite did not finish."""
        if self.contract is None or self.contract.suite is None or self.tests is None:
            return None
        if not complete(self.tests, self.collected):
            return None
        suite = suite_of(self.tests.tests)
        expected = on_processor(self.contract.suite, suite, self.tests.processor)
        if self.selection is not None and self.selection.asked == self.selected:
            expected, suite = narrowed(expected, suite, self.selection)
        return difference(expected, suite)

    @cached_property
    def overloads(self) -> tuple[OverloadCount, ...]:
        return overload_counts(self.tests.tests) if self.tests else ()


def _another_library(found: Selection | None, asked: str | None) -> Iterator[str]:
    """Say that a library has other operators than those the run was asked for."""
    if found is not None and found.asked != asked:
        yield f"requested {asked or 'all operators'}; the library has {found.asked}: {found}"


def complete(tests: PytestLog, collected: int | None = None) -> bool:
    """Whether a suite finished, so that a test that is not in its log does not exist."""
    ended = tests.exit_status in (0, TESTS_FAILED) and not tests.running
    return ended and not tests.unreadable_lines and tests.begun >= (collected or 0)


def fact(text: str) -> Evidence:
    return Evidence(grade=Grade.FACT, text=text)


def likely(text: str) -> Evidence:
    return Evidence(grade=Grade.LIKELY, text=text)


def unknown(text: str) -> Evidence:
    return Evidence(grade=Grade.UNKNOWN, text=text)


def shown_exit(end: StageFinished) -> str:
    if end.signal is None:
        told = end.exit_code == 0 and end.failed
        return f"exit code {end.exit_code}" + (", after it had been told to" if told else "")
    try:
        return f"signal {Signals(end.signal).name} (exit code {end.exit_code})"
    except ValueError:  # a real-time signal has no name
        return f"signal {end.signal} (exit code {end.exit_code})"
