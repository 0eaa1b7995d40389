"""Records of operator tests, counts of overloads, and checks where the tests ran.

The records are pytest's ``user_properties``. A project whose tests have no such records has no
operator tests, and this module does not affect it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ci.model.outcomes import (
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
from ci.model.results import OverloadCount, device_kind, is_compiled_only
from ci.util.text import join_names

# Characters; a selection of all operators has 30,000. The record becomes a part of results.json.
LONGEST_RECORD = 1 << 17
LARGEST_NUMBER = (1 << 31) - 1  # limit of the store's integer columns


# Reading


def recorded_properties(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties that a test recorded, by name; malformed ones are skipped."""
    properties = report.get("user_properties")
    return {
        pair[0]: pair[1]
        for pair in (properties if isinstance(properties, list) else ())
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
    }


_RECORDS = {"processor": Processor, "selection": Selection}


@cache  # creating one takes 1 ms, and every report may need one
def _reader(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_RECORDS[name])


def read_record(name: str, records: Mapping[str, Any]) -> Any:
    """Read the ``Processor`` or ``Selection`` record; ``None``: missing or not readable.

    The first test of each process records them.
    """
    if records.get(name) is None:
        return None
    # Through JSON, since only there strict mode accepts a list for a set.
    text = json.dumps(records[name])
    if len(text) > LONGEST_RECORD:
        return None
    try:
        return _reader(name).validate_json(text, strict=True)
    except ValidationError:
        return None


_TYPES: dict[str, type] = {
    **dict.fromkeys(OperatorRecord.__dataclass_fields__, str),
    **dict.fromkeys(("slot", "executed", "ran_slot"), int),
    **dict.fromkeys(("active", "simulated"), bool),
}


def operator_record(properties: Mapping[str, Any]) -> OperatorRecord | None:
    """Read the record of an operator test; unreadable fields are ``None``."""
    known: dict[str, Any] = {
        name: value
        for name, value in properties.items()
        # `type` instead of isinstance, to which a bool is an int.
        if type(value) is _TYPES.get(name)
        and not (type(value) is int and abs(value) > LARGEST_NUMBER)
    }
    return OperatorRecord(**known) if "overload" in known else None


def known_reason(text: str | None) -> bool:
    """Return whether a text is a known skip reason."""
    if text is None:
        return False
    return text in SKIP_REASONS or text.startswith(f"{VENDOR_DEFECT} ")


def skip_reason(record: OperatorRecord | None, message: str | None) -> str | None:
    """Return the reason of a skipped test: the recorded one, else the start of its message.

    The reason of a vendor defect includes its reference: ``vendor defect #123``.
    """
    recorded = record.reason if record else None
    if record is not None and recorded == VENDOR_DEFECT and record.quarantine:
        return f"{VENDOR_DEFECT} {record.quarantine}"
    prefix = (message or "").partition(": ")[0]
    if recorded in (None, VENDOR_DEFECT) and known_reason(prefix):
        return prefix
    return recorded


# Counts of overloads


@dataclass
class _Overloads:
    """Overloads of one slot and device, by the results of their tests."""

    active: set[str] = field(default_factory=set)
    executed: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    kernels: dict[str, str] = field(default_factory=dict)


def overload_counts(tests: Iterable[TestOutcome]) -> tuple[OverloadCount, ...]:
    """Count overloads by slot and device, both where they are active and where they ran."""
    # By slot, device, and whether the device is simulated.
    found: dict[tuple[int, str, bool], _Overloads] = defaultdict(_Overloads)
    for test in tests:
        record = test.operator
        if record is None or record.slot is None or record.device is None:
            continue
        simulated = bool(record.simulated)
        asked = found[record.slot, record.device, simulated]
        if record.active is not False:  # None: the test failed before it was known
            asked.active.add(record.overload)
        slot = record.slot if record.ran_slot is None else record.ran_slot
        ran = found[slot, record.ran_device or record.device, simulated]
        if record.kernel:
            ran.kernels[record.overload] = record.kernel
        if record.ran:
            ran.executed.add(record.overload)
            if test.outcome.good:
                ran.passed.add(record.overload)
        if test.outcome.bad:
            ran.failed.add(record.overload)
    counts = []
    for (slot, device, simulated), overloads in sorted(found.items(), key=itemgetter(0)):
        passed = overloads.passed - overloads.failed
        kernels = Counter(overloads.kernels.get(name) for name in passed)
        counts.append(
            OverloadCount(
                slot=slot,
                device=device,
                active=len(overloads.active),
                executed=len(overloads.executed),
                passed=len(passed),
                simulated=simulated,
                kernels={name: kernels[name] for name in KERNELS} if simulated else {},
            )
        )
    return tuple(counts)


# Backend proof: did the operator tests run on the requested device, platform and slot?
#
# Tests may pass although they ran on the CPU, on another vendor's device or on another slot. The
# records of the tests reveal this.


RecordedTest = tuple[TestOutcome, OperatorRecord]
Mismatch = Callable[[OperatorRecord], object]  # the mismatch; falsy: as requested, or unknown


def mismatches(
    log: PytestLog, *, platform: str, torch_device: str, simulated: bool
) -> tuple[str, ...]:
    """Return one line for each way in which operator tests did not run on the platform.

    A test counts only for the first way that applies: one made for the CPU also runs there.
    """
    device, compiled_only = torch_device, is_compiled_only(platform, simulated=simulated)
    operators = _recorded_tests(log)
    executed = [(test, record) for test, record in operators if record.ran]
    # A failed test counts already, and may have failed before it recorded its device.
    passed = [(test, record) for test, record in executed if not test.outcome.bad]
    kind = f"a {device_kind(simulated=simulated)} {device}"
    wanted = f"{device} to be compiled only" if compiled_only else kind
    asked = wanted if compiled_only else device
    checks = [
        (asked, operators, "tests were made for", _other_value("device", device)),
        (platform, operators, "tests were made for", _other_value("platform", platform)),
        (wanted, operators, "tests were on", _other_kind(simulated)),
    ]
    if compiled_only:  # every test must skip because the device is missing
        checks += [
            (wanted, operators, "tests skipped:", _skipped(NOT_ACTIVE)),
            (wanted, operators, "tests", _ran_without_device),
        ]
    else:
        checks += [
            (device, executed, "executed tests ran on", _other_value("ran_device", device)),
            (platform, executed, "executed tests ran on", _other_value("ran_platform", platform)),
            ("the slot of each test", executed, "executed tests ran on", _other_slot),
            (device, operators, "tests skipped:", _skipped(NOT_ACTIVE, NO_DEVICE)),
            (device, passed, "passed tests ran", _unrecorded_device),
        ]
    reported: set[str] = set()
    found = [line for check in checks for line in _mismatch_lines(*check, reported)]
    if log.exit_status is None:
        return tuple(found)
    # A suite that skips every operator test succeeds, but proves nothing.
    failed = any(test.outcome.bad for test, _ in operators)
    if operators and not executed and not failed and not compiled_only:
        found.append(f"no operator test executed a sample, of {len(operators):,}")
    if simulated and not operators:  # only tests can prove what the device is
        found.append(f"requested {wanted}; no test recorded its device")
    return tuple(found)


def fallbacks(log: PytestLog, torch_device: str) -> tuple[str, ...]:
    """Return one line for each device that tests fell back to, and therefore skipped.

    Only a test made for the requested device falls back; the others are mismatches.
    """
    other = _other_value("ran_device", torch_device)

    def place(record: OperatorRecord) -> object:
        return None if record.ran or record.device != torch_device else other(record)

    tests = _recorded_tests(log)
    return tuple(_mismatch_lines(torch_device, tests, "tests fell back to", place, set()))


def _recorded_tests(log: PytestLog) -> list[RecordedTest]:
    return [(test, test.operator) for test in log.tests if test.operator is not None]


def _other_value(field: str, wanted: str) -> Mismatch:
    def place(record: OperatorRecord) -> object:
        value = getattr(record, field)
        return value if value != wanted else None

    return place


def _other_kind(simulated: bool) -> Mismatch:
    def place(record: OperatorRecord) -> object:
        if bool(record.simulated) is simulated:
            return None
        return "a simulated one" if record.simulated else "one that is not simulated"

    return place


def _other_slot(record: OperatorRecord) -> str | None:
    if record.ran_slot is None or record.ran_slot == record.slot:
        return None
    return f"slot {record.ran_slot}, not {record.slot}"


def _skipped(*reasons: str) -> Mismatch:
    return lambda record: record.reason if record.reason in reasons else None


def _unrecorded_device(record: OperatorRecord) -> str | None:
    """A missing record proves nothing."""
    return "without recording their device" if record.ran_device is None else None


def _ran_without_device(record: OperatorRecord) -> str | None:
    """Return what a test did other than skip because it had no device."""
    if record.ran:
        return "executed a sample"
    return None if record.reason in (NOT_ACTIVE, NO_DEVICE) else "did not skip for lack of a device"


def _mismatch_lines(
    requested: str,
    tests: Sequence[RecordedTest],
    what: str,
    place: Mismatch,
    reported: set[str],
) -> Iterator[str]:
    """Yield a line for each place; ``reported`` are tests in earlier lines, and gets these too."""
    found: dict[str, list[str]] = defaultdict(list)
    for test, record in tests:
        if test.node_id not in reported and (where := place(record)):
            reported.add(test.node_id)
            # add.out-float32-cpu-slot8: what is between the brackets, if anything is.
            _, bracket, parameters = test.node_id.partition("[")
            found[str(where)].append(parameters.removesuffix("]") if bracket else test.node_id)
    for where, names in sorted(found.items()):
        share = f"{len(names):,} of {len(tests):,} {what} {where}"
        yield f"requested {requested}; {share}: {join_names(names)}"
