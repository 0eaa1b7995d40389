"""What the tests of an operator library record about themselves, and what it adds up to.

The records are pytest's ``user_properties``; a project whose tests have none of them has no
operator tests, and nothing here concerns it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ci.model.results import OverloadCount, is_compiled_only, kind
from ci.model.tests import (
    KERNELS,
    NO_DEVICE,
    NOT_ACTIVE,
    SKIP_REASONS,
    VENDOR_DEFECT,
    OperatorRecord,
    Processor,
    PytestLog,
    Selection,
    TestOutcome,
)
from ci.util.text import first_names

LARGEST_NUMBER = (1 << 31) - 1  # what a column of the store has room for


# Reading


def _recorded(properties: object, name: str) -> object:
    """What a test recorded under a name; ``None``: nothing, or nothing readable."""
    for pair in properties if isinstance(properties, list) else []:
        if isinstance(pair, list) and len(pair) == 2 and pair[0] == name:
            value: object = pair[1]
            return value
    return None


def processor_of(properties: object) -> Processor | None:
    """The record of what the processor can do, which the first test of a process makes."""
    return read_processor(_recorded(properties, "processor"))


def read_processor(facts: object) -> Processor | None:
    """What ``Processor.facts`` or a test wrote; ``None`` where it is neither."""
    match facts:
        case {"torch": str(torch), "onednn": str() | None as onednn, "features": list(features)}:
            names = frozenset(name for name in features if isinstance(name, str))
            return Processor(torch=torch, onednn=onednn, features=names)
    return None


def selection_of(properties: object) -> Selection | None:
    """The record of what the library was narrowed to, by the first test of a process."""
    match _recorded(properties, "selection"):
        case {
            "asked": str(asked),
            "operators": list(operators),
            "overloads": int(overloads),
            "of": int(of),
            "left_out": dict(left_out),
        }:
            return Selection(
                asked=asked,
                operators=frozenset(name for name in operators if isinstance(name, str)),
                overloads=overloads,
                of=of,
                left_out={n: count for n, count in left_out.items() if type(count) is int},
            )
    return None


def quarantine_of(properties: object) -> str | None:
    """The reference of the quarantine's entry for a test, be it an operator's or not."""
    reference = _recorded(properties, "quarantine")
    return reference if isinstance(reference, str) else None


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
        and isinstance(pair[0], str)
        and type(pair[1]) is _TYPES.get(pair[0])
        and not (type(pair[1]) is int and abs(pair[1]) > LARGEST_NUMBER)
    }
    return OperatorRecord(**known) if "overload" in known else None


def known_reason(text: str | None) -> bool:
    """Whether a text is a reason of the vocabulary."""
    if text is None:
        return False
    return text in SKIP_REASONS or text.startswith(f"{VENDOR_DEFECT} ")


def skip_reason(record: OperatorRecord | None, message: str | None) -> str | None:
    """The reason of a skipped test: what it recorded, else what its message begins with.

    A vendor's defect has its reference: ``vendor defect #123``.
    """
    recorded = record.reason if record else None
    if record is not None and recorded == VENDOR_DEFECT and record.quarantine:
        return f"{VENDOR_DEFECT} {record.quarantine}"
    told = (message or "").partition(": ")[0]
    if recorded in (None, VENDOR_DEFECT) and known_reason(told):
        return told
    return recorded


# Counts of overloads


@dataclass
class _OverloadTests:
    """What the tests of one overload on one slot and device add up to."""

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
    # By slot, device and whether that is a simulated one.
    found: dict[tuple[int, str, bool], dict[str, _OverloadTests]] = defaultdict(
        lambda: defaultdict(_OverloadTests)
    )
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
    counts = []
    for (slot, device, simulated), overloads in sorted(found.items()):
        passed = [overload for overload in overloads.values() if overload.good]
        kernels = Counter(overload.kernel for overload in passed)
        counts.append(
            OverloadCount(
                slot=slot,
                device=device,
                active=sum(overload.active for overload in overloads.values()),
                executed=sum(overload.executed for overload in overloads.values()),
                passed=len(passed),
                simulated=simulated,
                kernels={name: kernels[name] for name in KERNELS} if simulated else {},
            )
        )
    return tuple(counts)


# Backend proof: did the operator tests run where the run was asked to run them?
#
# A fallback to the CPU, another vendor's device or a slot that is not there leaves a suite
# green; what each test recorded about itself shows it.


RecordedTest = tuple[TestOutcome, OperatorRecord]
Place = Callable[[OperatorRecord], object]  # falsy: as requested, or unknown


def mismatches(
    log: PytestLog, *, platform: str, torch_device: str, simulated: bool
) -> tuple[str, ...]:
    """One line for each way in which operator tests ran elsewhere than on the platform."""
    device, compiled_only = torch_device, is_compiled_only(platform, simulated=simulated)
    operators = _recorded_tests(log)
    executed = [(test, record) for test, record in operators if record.ran]
    if compiled_only:  # all that a test may record is that the device is missing
        wanted = f"{device} to be compiled only"
        checks = [
            (wanted, operators, "tests were on", _other_kind(simulated)),
            (wanted, operators, "tests were made for", _other("device", device)),
            (platform, operators, "tests were made for", _other("platform", platform)),
            (wanted, operators, "tests skipped:", _skipped(NOT_ACTIVE)),
            (wanted, operators, "tests", _beyond_compilation),
        ]
    else:
        wanted = f"a {kind(simulated=simulated)} {device}"
        checks = [
            (wanted, operators, "tests were on", _other_kind(simulated)),
            (device, executed, "executed tests ran on", _other("ran_device", device)),
            (platform, executed, "executed tests ran on", _other("ran_platform", platform)),
            ("the slot of each test", executed, "executed tests ran on", _other_slot),
            (device, operators, "tests were made for", _other("device", device)),
            (platform, operators, "tests were made for", _other("platform", platform)),
            (device, operators, "tests skipped:", _skipped(NOT_ACTIVE, NO_DEVICE)),
            (device, executed, "executed tests ran", _nowhere),
        ]
    found = [line for check in checks for line in _elsewhere(*check)]
    if log.exit_status is None:
        return tuple(found)
    # A suite that skips every operator is green, and proves nothing.
    failed = any(test.outcome.bad for test, _ in operators)
    if operators and not executed and not failed and not compiled_only:
        found.append(f"no operator test executed a sample, of {len(operators):,}")
    if simulated and not operators:  # only tests prove what the device is
        found.append(f"requested {wanted}; no test says what it ran on")
    return tuple(found)


def fallbacks(log: PytestLog, torch_device: str) -> tuple[str, ...]:
    """One line for each device that tests fell back to; they have skipped for it."""
    other = _other("ran_device", torch_device)

    def place(record: OperatorRecord) -> object:
        return None if record.ran else other(record)

    return tuple(_elsewhere(torch_device, _recorded_tests(log), "tests fell back to", place))


def _recorded_tests(log: PytestLog) -> list[RecordedTest]:
    return [(test, test.operator) for test in log.tests if test.operator is not None]


def _other(field: str, wanted: str) -> Place:
    def place(record: OperatorRecord) -> object:
        value = getattr(record, field)
        return value if value != wanted else None

    return place


def _other_kind(simulated: bool) -> Place:
    def place(record: OperatorRecord) -> object:
        if bool(record.simulated) is simulated:
            return None
        return "a simulated one" if record.simulated else "one that is not simulated"

    return place


def _other_slot(record: OperatorRecord) -> str | None:
    if record.ran_slot is None or record.ran_slot == record.slot:
        return None
    return f"slot {record.ran_slot}, not {record.slot}"


def _skipped(*reasons: str) -> Place:
    return lambda record: record.reason if record.reason in reasons else None


def _nowhere(record: OperatorRecord) -> str | None:
    """A missing record proves nothing."""
    return "without saying where" if record.ran_device is None else None


def _beyond_compilation(record: OperatorRecord) -> str | None:
    """What a test did that had no device; one without a skip reason has failed anyway."""
    if record.ran:
        return "executed a sample"
    return None if record.reason in (NOT_ACTIVE, NO_DEVICE) else "did not skip for want of a device"


def _elsewhere(
    requested: str, tests: Sequence[RecordedTest], what: str, place: Place
) -> Iterator[str]:
    found: dict[str, list[str]] = defaultdict(list)
    for test, record in tests:
        if where := place(record):
            # add.out-float32-cpu-slot8: what is between the brackets, if anything is.
            _, bracket, parameters = test.node_id.partition("[")
            found[str(where)].append(parameters.removesuffix("]") if bracket else test.node_id)
    for where, names in sorted(found.items()):
        share = f"{len(names):,} of {len(tests):,} {what} {where}"
        yield f"requested {requested}; {share}: {first_names(names)}"
