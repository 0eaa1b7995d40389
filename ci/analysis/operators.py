"""What the tests of an operator library record about themselves, and what it adds up to.

The records are pytest's ``user_properties``; a project whose tests have none of them has no
operator tests, and nothing here concerns it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ci.results import OverloadCount
from ci.text import counted

if TYPE_CHECKING:
    from ci.pytest_log import TestOutcome

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
LARGEST_NUMBER = (1 << 31) - 1
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


def processor_of(properties: object) -> Processor | None:
    """The record of a test that says what the processor can do; the first of a process does."""
    for pair in properties if isinstance(properties, list) else []:
        match pair:
            case ["processor", facts]:
                return read_processor(facts)
    return None


def read_processor(facts: object) -> Processor | None:
    """What ``Processor.facts`` or a test wrote; ``None`` where it is neither."""
    match facts:
        case {"torch": str(torch), "onednn": str() | None as onednn, "features": list(features)}:
            names = frozenset(name for name in features if isinstance(name, str))
            return Processor(torch=torch, onednn=onednn, features=names)
    return None


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


def selection_of(properties: object) -> Selection | None:
    """The record of a test that says what the library was narrowed to; the first of a process."""
    for pair in properties if isinstance(properties, list) else []:
        match pair:
            case [
                "selection",
                {
                    "asked": str(asked),
                    "operators": list(operators),
                    "overloads": int(overloads),
                    "of": int(of),
                    "left_out": dict(left_out),
                },
            ]:
                return Selection(
                    asked=asked,
                    operators=frozenset(name for name in operators if isinstance(name, str)),
                    overloads=overloads,
                    of=of,
                    left_out={n: count for n, count in left_out.items() if type(count) is int},
                )
    return None


_TYPES: dict[str, type] = {
    **dict.fromkeys(OperatorRecord.__dataclass_fields__, str),
    **dict.fromkeys(("slot", "executed", "ran_slot"), int),
    **dict.fromkeys(("active", "simulated"), bool),
}


def operator_record(properties: object) -> OperatorRecord | None:
    """Read ``user_properties`` as the per-test log has them: a list of names and values."""
    pairs = properties if isinstance(properties, list) else []
    known: dict[str, Any] = {
        pair[0]: pair[1]
        for pair in pairs
        # A bool is an int to isinstance, and no slot.
        if isinstance(pair, list)
        and len(pair) == 2
        and type(pair[1]) is _type_of(pair[0])
        # What no slot and no count is would be too much for a database.
        and not (type(pair[1]) is int and abs(pair[1]) > LARGEST_NUMBER)
    }
    return OperatorRecord(**known) if "overload" in known else None


def quarantine_of(properties: object) -> str | None:
    """The reference of the quarantine's entry for a test, be it an operator's or not."""
    pairs = properties if isinstance(properties, list) else []
    found = [pair[1] for pair in pairs if isinstance(pair, list) and pair[:1] == ["quarantine"]]
    return found[0] if found and isinstance(found[0], str) else None


def _type_of(name: object) -> type | None:
    return _TYPES.get(name) if isinstance(name, str) else None


def known_reason(text: str | None) -> bool:
    """Whether a text is a reason of the vocabulary."""
    if text is None:
        return False
    return text in SKIP_REASONS or text.startswith(f"{VENDOR_DEFECT} ")


def skip_reason(record: OperatorRecord | None, message: str | None) -> str | None:
    """The reason of a skipped test: what it recorded, else what its message begins with.

    A vendor's defect is told with its reference: ``vendor defect #123``.
    """
    recorded = record.reason if record else None
    if record is not None and recorded == VENDOR_DEFECT and record.quarantine:
        return f"{VENDOR_DEFECT} {record.quarantine}"
    told = (message or "").partition(": ")[0]
    if recorded in (None, VENDOR_DEFECT) and known_reason(told):
        return told
    return recorded


_Place = tuple[int, str, bool]  # slot, device, whether that is a simulated one


@dataclass
class _Overload:
    """What the tests of one overload on one slot and device say."""

    active: bool = False
    executed: bool = False
    passed: bool = False
    failed: bool = False
    kernel: str | None = None

    @property
    def good(self) -> bool:
        return self.executed and self.passed and not self.failed


def overload_counts(tests: Iterable[TestOutcome]) -> tuple[OverloadCount, ...]:
    """Count overloads by slot and device, where they are active and where they really ran."""
    found: dict[_Place, dict[str, _Overload]] = defaultdict(lambda: defaultdict(_Overload))
    for test in tests:
        record = test.operator
        if record is None or record.slot is None or record.device is None:
            continue
        simulated = bool(record.simulated)
        asked = found[record.slot, record.device, simulated][record.overload]
        asked.active |= record.active is not False  # unknown where it failed before it could ask
        slot = record.slot if record.ran_slot is None else record.ran_slot
        ran = found[slot, record.ran_device or record.device, simulated][record.overload]
        ran.kernel = record.kernel or ran.kernel
        ran.executed |= record.ran
        ran.passed |= test.outcome.good and record.ran
        ran.failed |= test.outcome.bad
    return tuple(_count(place, overloads) for place, overloads in sorted(found.items()))


def _count(place: _Place, overloads: dict[str, _Overload]) -> OverloadCount:
    slot, device, simulated = place
    each = overloads.values()
    passed = [overload for overload in each if overload.good]
    kernels = Counter(overload.kernel for overload in passed)
    return OverloadCount(
        slot=slot,
        device=device,
        active=sum(overload.active for overload in each),
        executed=sum(overload.executed for overload in each),
        passed=len(passed),
        simulated=simulated,
        kernels={name: kernels[name] for name in KERNELS} if simulated else {},
    )
