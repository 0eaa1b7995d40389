"""Tests of a run: how they ended, and what those of operators recorded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from ci.util.text import counted

_COUNT = re.compile(r"(\d+) ([a-z ]+)")


class Outcome(StrEnum):
    """How a test ended, the worst first."""

    FAILED = "failed"
    ERROR = "error"
    XPASSED = "xpassed"
    PASSED = "passed"
    XFAILED = "xfailed"
    SKIPPED = "skipped"

    @property
    def good(self) -> bool:
        return self in (Outcome.PASSED, Outcome.XPASSED)

    @property
    def bad(self) -> bool:
        return self in (Outcome.FAILED, Outcome.ERROR)


@dataclass(frozen=True, kw_only=True, slots=True)
class TestOutcome:
    """One test, or one file that could not be collected; ``seconds`` of all its phases."""

    __test__ = False  # not a test class, whatever its name

    node_id: str
    outcome: Outcome
    seconds: float
    reason: str | None
    """The message of a failure or a skip."""
    skip_reason: str | None = None
    """Why it skipped, in the words that operator tests have for it."""
    operator: OperatorRecord | None = None
    quarantine: str | None = None
    """The reference of the quarantine's entry for it."""


@dataclass(frozen=True, kw_only=True)
class PytestLog:
    """What a per-test log holds."""

    tests: tuple[TestOutcome, ...]
    warnings: int
    exit_status: int | None
    """pytest's own exit status; ``None``: the session did not finish."""
    running: tuple[str, ...]
    """Tests that began and have no end."""
    crashed: tuple[str, ...]
    """Tests that a worker process of pytest-xdist died in, with the cause where that is known."""
    begun: int = 0
    """How many different tests began; a file that could not be collected is not a test."""
    processor: Processor | None = None
    """Where it ran, if a test says so."""
    selection: Selection | None = None
    """What the library was narrowed to, if a test says that it was."""
    unreadable_lines: int = 0
    longest_line: int = 0
    """Bytes of the longest of them, where one is longer than a line may be."""

    def count(self, outcome: Outcome) -> int:
        return sum(test.outcome is outcome for test in self.tests)

    def named(self, *outcomes: Outcome) -> tuple[str, ...]:
        """Node ids of the tests with one of the outcomes, in order of the log."""
        return tuple(test.node_id for test in self.tests if test.outcome in outcomes)


@dataclass(frozen=True, kw_only=True)
class ClosingSummary:
    """pytest's last line as it printed it, without the ``=``, and its seconds."""

    text: str
    seconds: float

    def count(self, *names: str) -> int:
        """How many there are of ``passed``, ``failed``, ...; of all ``names`` together."""
        found = _COUNT.findall(self.text.partition(" in ")[0])
        return sum(int(number) for number, name in found if name in names)


# Why a test may skip; tests/ops/reasons.py has the same list. Whatever else skips has no reason.
SKIP_REASONS = (
    "not in this torch",
    "no sample",
    "nothing to compare",
    "operand not recordable",
    "no kernel on this device",
    "dtype unsupported",
    "instruction set missing",
    "slot not active",
    "no device",
    "operator not selected",
    "vendor defect",
)
NOT_ACTIVE = "slot not active"
NO_DEVICE = "no device"
INSTRUCTION_SET = "instruction set missing"
NOT_SELECTED = "operator not selected"
# Followed by the reference of the defect.
VENDOR_DEFECT = "vendor defect"
# Of a simulated device: those that were written for it, those that are made of other operators,
# and the CPU's by way of the fallback.
KERNELS = ("own", "composite", "fallback")


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorRecord:
    """One test's record; ``None``: the test did not say, or nothing readable."""

    overload: str
    dtype: str | None = None
    slot: int | None = None
    device: str | None = None
    platform: str | None = None
    active: bool | None = None
    executed: int | None = None
    """Samples that were really executed."""
    ran_device: str | None = None
    ran_slot: int | None = None
    ran_platform: str | None = None
    simulated: bool | None = None
    kernel: str | None = None
    """What a simulated device has for the overload: one of ``KERNELS``."""
    reason: str | None = None
    needs: str | None = None
    """Of a test that skips for ``INSTRUCTION_SET``: see ``Processor.has``."""
    quarantine: str | None = None
    against_cpu: str | None = None

    @property
    def ran(self) -> bool:
        return bool(self.executed)


@dataclass(frozen=True, kw_only=True)
class Processor:
    """What the processor of a run can do, as its tests saw it (``tests/ops/processor.py``)."""

    torch: str
    onednn: str | None
    features: frozenset[str]

    def has(self, needs: str) -> bool:
        """Whether all features of one alternative are there: ``avx512_fp16 or avx2 fma``."""
        return any(self.features.issuperset(part.split()) for part in needs.split(" or "))

    @property
    def facts(self) -> dict[str, Any]:
        """What ``results.json`` has of it."""
        return {"torch": self.torch, "onednn": self.onednn, "features": sorted(self.features)}


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What a library was narrowed to, as its tests saw it (``tests/ops/narrowing.py``)."""

    asked: str
    operators: frozenset[str]
    """Names without overload."""
    overloads: int
    of: int
    """Overloads that it would have had."""
    left_out: Mapping[str, int]
    """Tests that were not run for it, by function."""

    def has(self, overload: str) -> bool:
        """Whether the operator of an overload, ``add.out``, was selected."""
        return overload.partition(".")[0] in self.operators

    @property
    def counts(self) -> dict[str, Any]:
        """What ``results.json`` has of it."""
        return {"overloads": self.overloads, "of": self.of}

    def __str__(self) -> str:
        return f"selected {self.overloads:,} of {counted(self.of, 'overload')}"


class State(NamedTuple):
    """How a test ended, and why it skipped if operator tests have a word for it."""

    outcome: Outcome
    reason: str | None = None
    needs: str | None = None
    """Of a contract: what the processor needs for this outcome (``Processor.has``). Without it
    the test may skip because instructions are missing."""

    def __str__(self) -> str:
        needs = f" with {self.needs}" if self.needs else ""
        return (self.reason or self.outcome.value) + needs

    @property
    def idle(self) -> bool:
        return not self.outcome.good and not self.outcome.bad


class OperatorTest(NamedTuple):
    """The name of an operator test, without its device."""

    function: str
    slot: int
    overload: str
    variant: str


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The outcomes of a run on one platform, or those that a contract expects."""

    device: str | None
    """Of the operator tests; ``None``: there are none."""
    operators: Mapping[OperatorTest, State]
    functions: Mapping[str, Counter[State]]
    """All other tests by function."""
    others: Mapping[str, State] | None
    """All other tests by node id; ``None``: a contract, which only counts them."""

    def counts(self) -> Counter[Outcome]:
        total = Counter(state.outcome for state in self.operators.values())
        for states in self.functions.values():
            for state, count in states.items():
                total[state.outcome] += count
        return total


class Ending(NamedTuple):
    """How a test ended, and what it said."""

    state: State
    message: str | None = None
