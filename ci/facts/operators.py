"""What the tests of an operator library record about themselves, and what it adds up to.

The records are pytest's ``user_properties``; a project whose tests have none of them has no
operator tests, and nothing here concerns it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ci.model.results import OverloadCount
from ci.model.tests import (
    KERNELS,
    SKIP_REASONS,
    VENDOR_DEFECT,
    OperatorRecord,
    Processor,
    Selection,
)

if TYPE_CHECKING:
    from ci.model.tests import TestOutcome


LARGEST_NUMBER = (1 << 31) - 1


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
