"""Tests of a run: their outcomes, and the records of operator tests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from ci.util.text import counted

_COUNT = re.compile(r"(\d{1,9}) (.+)")
# What a closing summary counts beside tests; with "subtests passed" and the like.
_OTHERS = ("warning", "warnings", "deselected", "rerun")


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
    """One test, or one file that could not be collected; ``seconds`` counts all its phases."""

    __test__ = False  # not a test class, whatever its name

    node_id: str
    outcome: Outcome
    seconds: float
    reason: str | None
    """The message of a failure or a skip."""
    skip_reason: str | None = None
    """The skip reason, as a rule one of ``SKIP_REASONS``."""
    operator: OperatorRecord | None = None
    quarantine: str | None = None
    """The reference of its quarantine entry."""


@dataclass(frozen=True, kw_only=True)
class PytestLog:
    """The content of a per-test log."""

    tests: tuple[TestOutcome, ...]
    warnings: int
    exit_status: int | None
    """pytest's own exit status; ``None``: the session did not finish."""
    running: tuple[str, ...]
    """Tests that began and did not end."""
    crashed: tuple[str, ...]
    """Tests in which a worker process of pytest-xdist died: with the cause if known, and how often
    if more than once."""
    crashed_again: bool = False
    """Whether a worker died in one of them more than once."""
    begun: int = 0
    """Number of different tests that began; a file that could not be collected is not a test."""
    shards: Mapping[str, int] = field(default_factory=dict)
    """The shard of each running test, from 1 on; empty without shards."""
    repeated: tuple[str, ...] = ()
    """Tests that more than one shard ran."""
    processor: Processor | None = None
    """The processor, if a test recorded it."""
    selection: Selection | None = None
    """The operators in the library, if a test recorded that it has only some."""
    unreadable_lines: int = 0
    longest_line: int = 0
    """Bytes of the longest of them, if it exceeds the limit for a line."""
    sessions: int = 1
    """Number of pytest sessions that wrote the log; of shards, the most that one had."""
    damaged: tuple[str, ...] = ()
    """The tests that unreadable lines are of, as far as the lines show it."""
    lost: tuple[str, ...] = ()
    """Tests that ended, and whose outcome is not in the log."""
    failed_subtests: int = 0
    reports: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """Numbers of reports by shard and outcome: pytest's summary counts them, not the tests."""
    subtests: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """The same of the subtests."""

    def count(self, outcome: Outcome) -> int:
        return sum(test.outcome is outcome for test in self.tests)

    def node_ids(self, *outcomes: Outcome) -> tuple[str, ...]:
        """Node ids of the tests with one of the outcomes, in the order of the log."""
        return tuple(test.node_id for test in self.tests if test.outcome in outcomes)


@dataclass(frozen=True, kw_only=True)
class ClosingSummary:
    """pytest's last line as it printed it, without the ``=``, and its seconds."""

    text: str
    seconds: float

    def count(self, *names: str) -> int:
        """The count of ``passed``, ``failed``, ...; for several ``names``, their sum."""
        return sum(self.counts[name] for name in {*names})

    @property
    def counts(self) -> Counter[str]:
        """All counts, with the words that plugins add."""
        parts = map(_COUNT.fullmatch, self.text.rpartition(" in ")[0].split(", "))
        counts: Counter[str] = Counter()
        for part in filter(None, parts):
            counts[part[2]] += int(part[1])
        return counts

    @property
    def tests(self) -> Counter[Outcome]:
        """The counts of pytest's own outcomes."""
        counts = self.counts
        counts["error"] += counts["errors"]
        return Counter({outcome: counts[outcome] for outcome in Outcome})

    @property
    def is_usual(self) -> bool:
        """Whether it has a word of pytest's own."""
        return not self.counts.keys().isdisjoint({*Outcome, "errors", *_OTHERS})

    @property
    def total(self) -> int:
        """The number of tests, with those that a plugin counts under a word of its own."""
        counts = self.counts.items()
        return sum(n for it, n in counts if it not in _OTHERS and not it.startswith("subtests "))


# Valid skip reasons of operator tests; the same list as in tests/ops/reasons.py.
SKIP_REASONS = (
    "not in this torch",
    "no sample",
    "nothing to compare",
    "operand not recordable",
    "no kernel on this device",
    "dtype unsupported",
    "instruction set missing",
    "torch refuses",
    "torch crashes",
    "slot not active",
    "no device",
    "operator not selected",
    "vendor defect",
)
NOT_IN_TORCH = "not in this torch"
# What the device does not have.
UNSUPPORTED = ("no kernel on this device", "dtype unsupported")
NOT_ACTIVE = "slot not active"
NO_DEVICE = "no device"
INSTRUCTION_SET = "instruction set missing"
# What torch alone does with a call. Another torch, or another device, may take it.
TORCH_DECIDES = ("torch refuses", "torch crashes")
NOT_SELECTED = "operator not selected"
# Followed by the reference of the defect.
VENDOR_DEFECT = "vendor defect"
# Kinds of kernels on a simulated device: written for it, composed of other operators, or run on
# the CPU by the fallback.
KERNELS = ("own", "composite", "fallback")


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorRecord:
    """The record of one operator test; ``None``: not recorded, or not readable."""

    overload: str
    dtype: str | None = None
    slot: int | None = None
    device: str | None = None
    platform: str | None = None
    active: bool | None = None
    executed: int | None = None
    """Number of samples that were executed."""
    ran_device: str | None = None
    ran_slot: int | None = None
    ran_platform: str | None = None
    simulated: bool | None = None
    kernel: str | None = None
    """The kind of kernel that a simulated device used for the overload: one of ``KERNELS``."""
    reason: str | None = None
    needs: str | None = None
    """The missing features, in a test that skips for ``INSTRUCTION_SET``: see ``Processor.has``."""
    quarantine: str | None = None
    against_cpu: str | None = None
    """``agrees``, or ``differs`` or ``not comparable`` with a reason after a colon."""

    @property
    def ran(self) -> bool:
        return bool(self.executed)

    @property
    def differs_from_cpu(self) -> bool:
        return (self.against_cpu or "").partition(":")[0] == "differs"


@dataclass(frozen=True, kw_only=True)
class Processor:
    """The processor of a run, as its tests recorded it (``tests/ops/processor.py``)."""

    torch: str
    onednn: str | None
    features: frozenset[str]

    def has(self, needs: str) -> bool:
        """Whether it has all features of an alternative: ``avx512_fp16 or avx2 fma`` has two."""
        return any(self.features.issuperset(part.split()) for part in needs.split(" or "))

    @property
    def facts(self) -> dict[str, Any]:
        """Its section in ``results.json``."""
        return {"torch": self.torch, "onednn": self.onednn, "features": sorted(self.features)}


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The operators in a library, as its tests recorded them (``tests/ops/narrowing.py``)."""

    asked: str
    operators: frozenset[str]
    """Operator names, without overload."""
    overloads: int
    of: int
    """Overloads of the library without a selection."""
    left_out: Mapping[str, int]
    """Number of tests that the selection excluded, by function."""

    def has(self, overload: str) -> bool:
        """Whether the operator of an overload, ``add.out``, was selected."""
        return overload.partition(".")[0] in self.operators

    @property
    def counts(self) -> dict[str, Any]:
        """Its counts in ``results.json``."""
        return {"overloads": self.overloads, "of": self.of}

    def __str__(self) -> str:
        return f"selected {self.overloads:,} of {counted(self.of, 'overload')}"


class State(NamedTuple):
    """The outcome of a test, with the skip reason if it is a known one."""

    outcome: Outcome
    reason: str | None = None
    needs: str | None = None
    """In a contract: the processor features that the outcome needs (``Processor.has``). On a
    processor without them the test may skip."""

    def __str__(self) -> str:
        needs = f" with {self.needs}" if self.needs else ""
        return (self.reason or self.outcome.value) + needs

    @property
    def idle(self) -> bool:
        """Whether it neither passed nor failed: skipped or xfailed."""
        return not self.outcome.good and not self.outcome.bad


class OperatorTest(NamedTuple):
    """The name of an operator test, without its device."""

    function: str
    slot: int
    overload: str
    variant: str


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The test outcomes of a run on one platform, or those that a contract expects."""

    device: str | None
    """The device of the operator tests; ``None``: there are no such tests."""
    operators: Mapping[OperatorTest, State]
    functions: Mapping[str, Counter[State]]
    """Counts of all other tests by function."""
    others: Mapping[str, State] | None
    """All other tests by node id; ``None`` in a contract, which only counts them."""

    def counts(self) -> Counter[Outcome]:
        total = Counter(state.outcome for state in self.operators.values())
        for states in self.functions.values():
            for state, count in states.items():
                total[state.outcome] += count
        return total


class Ending(NamedTuple):
    """The state and the message of a test."""

    state: State
    message: str | None = None
