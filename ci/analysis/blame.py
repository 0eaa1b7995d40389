"""Whose fault a failing test is: an environment's, the library's, or that of both together. Pure.

Four cells decide it: the old and the new library, each in the old and in the new environment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from ci.model.outcomes import Outcome

Value = TypeVar("Value", covariant=True)
# What failed, where it was no test: a build, or a suite that broke its contract or ran no test.
BUILD, SUITE = "the build", "the suite"


class CellOutcome(StrEnum):
    """How a test ended in a cell."""

    PASSED = "passed"
    FAILED = "failed"
    UNSTABLE = "unstable"  # it both failed and passed
    SKIPPED = "skipped"
    MISSING = "missing"  # this library has no such test
    NOT_BUILT = "not built"
    NOT_RUN = "not run"  # the run says nothing of it

    @property
    def is_decisive(self) -> bool:
        return self in (CellOutcome.PASSED, CellOutcome.FAILED)


class Fault(StrEnum):
    """Whose fault a failing test is."""

    UPSTREAM = "upstream"  # fails in the new environment, whatever the library
    LIBRARY = "library"  # fails with the new library, whatever the environment
    TOGETHER = "both together"  # fails only with the new library in the new environment
    EACH = "each alone"  # either change is enough
    BEFORE = "failed before"  # also with neither of the changes
    ENVIRONMENT = "environment"  # not reproducible, or it follows the machine
    UNDECIDED = "undecided"  # a cell that decides it says nothing
    NONE = "no failure"

    @property
    def is_product(self) -> bool:
        """Whether it is a failure of the product, and known to be one."""
        return self not in (Fault.ENVIRONMENT, Fault.UNDECIDED, Fault.NONE)


@dataclass(frozen=True, kw_only=True)
class Quadrants(Generic[Value]):
    """A value for each of the four cells."""

    old: Value
    """The old library in the old environment."""
    new_library: Value
    """The new library in the old environment."""
    new_environment: Value
    """The old library in the new environment."""
    new: Value
    """The new library in the new environment."""

    @property
    def all(self) -> Mapping[str, Value]:
        """The values by the name of their cell."""
        return {name: getattr(self, name) for name in CELLS}


CELLS = tuple(Quadrants.__dataclass_fields__)


@dataclass(frozen=True, kw_only=True)
class CellRun:
    """What one run of a cell says of its tests."""

    run_id: str
    machine: str
    """The machine with its devices and its engine."""
    built: bool | None
    passed: bool
    """The verdict on the product."""
    complete: bool
    """Whether every test that it has was run."""
    outcomes: Mapping[str, Outcome]
    messages: Mapping[str, str | None]
    """Those of the tests that failed."""
    ended_in: AbstractSet[str] = frozenset()
    """Tests in which the process ended."""
    recovered: AbstractSet[str] = frozenset()
    """Tests that failed, and passed when the run repeated them."""
    broke_contract: bool = False
    """Whether the suite broke its contract, other than by these failures."""

    @property
    def failed(self) -> list[str]:
        """What failed: tests, files that could not be collected, the build or the suite."""
        if self.built is False:
            return [BUILD]
        bad = [test for test, outcome in self.outcomes.items() if outcome.bad]
        bad += sorted(self.ended_in - {*bad})
        is_bad_suite = self.broke_contract or not (bad or self.passed)
        return [*bad, SUITE] if is_bad_suite else bad

    def outcome(self, test: str) -> CellOutcome:
        """How a test, a file of tests, the build or the suite ended."""
        if test == BUILD:
            ends = {True: CellOutcome.PASSED, False: CellOutcome.FAILED, None: CellOutcome.NOT_RUN}
            return ends[self.built]
        if self.built is False:
            return CellOutcome.NOT_BUILT
        if test == SUITE:
            if SUITE in self.failed:
                return CellOutcome.FAILED
            return CellOutcome.PASSED if self.passed or self.complete else CellOutcome.NOT_RUN
        if test in self.recovered:
            return CellOutcome.UNSTABLE
        file = test.partition("::")[0]
        ending = self.outcomes.get(test) or self.outcomes.get(file)
        if test in self.ended_in or (ending and ending.bad):
            return CellOutcome.FAILED
        if ending:
            return CellOutcome.PASSED if ending.good else CellOutcome.SKIPPED
        if test == file and any(it.startswith(f"{file}::") for it in self.outcomes):
            return CellOutcome.PASSED  # this file was collected
        return CellOutcome.MISSING if self.complete else CellOutcome.NOT_RUN


@dataclass(frozen=True, kw_only=True)
class BlamedTest:
    """A test that fails with both changes, and whose fault it is."""

    test: str
    fault: Fault
    outcomes: Quadrants[CellOutcome]
    message: str | None = None


def blame_tests(cells: Quadrants[Sequence[CellRun]]) -> list[BlamedTest]:
    """Judge every test that failed in a run of the new library in the new environment."""
    failed = dict.fromkeys(test for run in cells.new for test in run.failed)
    messages = {test: text for run in cells.new for test, text in run.messages.items()}
    return [_blamed(test, messages.get(test), cells) for test in failed]


def _blamed(test: str, message: str | None, cells: Quadrants[Sequence[CellRun]]) -> BlamedTest:
    found = [(run.machine, run.outcome(test)) for runs in cells.all.values() for run in runs]
    outcomes = Quadrants(
        **{
            name: combine_outcomes([run.outcome(test) for run in runs])
            for name, runs in cells.all.items()
        }
    )
    fault = Fault.ENVIRONMENT if _follows_machine(found) else judge_cells(outcomes)
    return BlamedTest(test=test, fault=fault, outcomes=outcomes, message=message)


def newly_skipped(cells: Quadrants[Sequence[CellRun]]) -> list[str]:
    """Return the tests that passed without the changes, and that both changes together skip.

    They have no fault, as nothing failed, but nothing tested them either.
    """
    passed = dict.fromkeys(
        test for run in cells.old for test, outcome in run.outcomes.items() if outcome.good
    )
    skipped = CellOutcome.SKIPPED
    ends = ((test, combine_outcomes([run.outcome(test) for run in cells.new])) for test in passed)
    return [test for test, end in ends if end is skipped]


def combine_outcomes(outcomes: Sequence[CellOutcome]) -> CellOutcome:
    """Combine the outcomes of a test in several runs of one cell."""
    decisive = {it for it in outcomes if it.is_decisive}
    if len(decisive) > 1 or CellOutcome.UNSTABLE in outcomes:
        return CellOutcome.UNSTABLE
    return next(iter([*decisive, *outcomes]), CellOutcome.NOT_RUN)


def _follows_machine(found: Sequence[tuple[str, CellOutcome]]) -> bool:
    """Whether a test fails on some machines and passes on others, and on none of them both."""
    by_machine = defaultdict(set)
    for machine, outcome in found:
        if outcome.is_decisive:
            by_machine[machine].add(outcome)
    return (
        len(by_machine) > 1
        and all(len(ends) == 1 for ends in by_machine.values())
        and (len(set().union(*by_machine.values())) > 1)
    )


def judge_cells(outcomes: Quadrants[CellOutcome]) -> Fault:
    """Judge a test by its outcomes in the four cells. Defined for all of them."""
    if CellOutcome.UNSTABLE in outcomes.all.values():
        return Fault.ENVIRONMENT
    if outcomes.new is not CellOutcome.FAILED:
        return Fault.NONE if outcomes.new is CellOutcome.PASSED else Fault.UNDECIDED
    return next(_verdicts(outcomes), Fault.UNDECIDED)


def _verdicts(outcomes: Quadrants[CellOutcome]) -> Iterator[Fault]:
    """Yield the judgments that hold for a test that fails with both changes, the first one best."""
    failed, passed = CellOutcome.FAILED, CellOutcome.PASSED
    old, library, environment = outcomes.old, outcomes.new_library, outcomes.new_environment
    changes = (library, environment)
    if changes == (failed, passed):
        yield Fault.LIBRARY
    elif changes == (passed, failed):
        yield Fault.UPSTREAM
    elif changes == (passed, passed) and old is failed:
        yield Fault.ENVIRONMENT  # no change explains that it fails with none and with both
    elif changes == (passed, passed):
        yield Fault.TOGETHER
    elif failed not in changes:
        return
    elif old is failed:
        yield Fault.BEFORE
    elif changes == (failed, failed) and old is passed:
        yield Fault.EACH
    elif library is failed and (old is passed or environment is CellOutcome.MISSING):
        yield Fault.LIBRARY  # also for a test that only the new library has
    elif environment is failed and old is passed:
        yield Fault.UPSTREAM
