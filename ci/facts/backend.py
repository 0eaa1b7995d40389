"""Backend proof: did the operator tests run where the run was asked to run them?

A fallback to the CPU, another vendor's device or a slot that is not there leaves a suite
green; what each test recorded about itself tells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from ci.model.results import is_compiled_only, kind
from ci.model.tests import NO_DEVICE, NOT_ACTIVE, OperatorRecord, PytestLog, TestOutcome
from ci.util.text import first_names

Operator = tuple[TestOutcome, OperatorRecord]
Place = Callable[[OperatorRecord], object]  # falsy: as requested, or unknown


def mismatches(
    log: PytestLog, *, platform: str, torch_device: str, simulated: bool
) -> tuple[str, ...]:
    """One line for each way in which operator tests ran elsewhere than on the platform."""
    operators = [(test, test.operator) for test in log.tests if test.operator is not None]
    executed = [(test, record) for test, record in operators if record.ran]
    if is_compiled_only(platform, simulated=simulated):
        return _beyond_compilation(log, operators, platform=platform, torch_device=torch_device)
    wanted = f"a {kind(simulated=simulated)} {torch_device}"
    return (
        *_elsewhere(wanted, operators, "tests were on", _other_kind(simulated)),
        *_elsewhere(
            torch_device, executed, "executed tests ran on", _not("ran_device", torch_device)
        ),
        *_elsewhere(platform, executed, "executed tests ran on", _not("ran_platform", platform)),
        *_elsewhere("the slot of each test", executed, "executed tests ran on", _other_slot),
        *_elsewhere(torch_device, operators, "tests were made for", _not("device", torch_device)),
        *_elsewhere(platform, operators, "tests were made for", _not("platform", platform)),
        *_elsewhere(torch_device, operators, "tests skipped:", _out_of_reach),
        *_elsewhere(torch_device, executed, "executed tests ran", _nowhere),
        *_nothing(log, operators, executed),
        *(_unproven(log, operators, wanted) if simulated else ()),
    )


def _beyond_compilation(
    log: PytestLog, operators: Sequence[Operator], *, platform: str, torch_device: str
) -> tuple[str, ...]:
    """One line for each way in which operator tests say more than that the device is not here."""
    wanted = f"{torch_device} to be compiled only"
    return (
        *_elsewhere(wanted, operators, "tests were on", _other_kind(simulated=True)),
        *_elsewhere(wanted, operators, "tests were made for", _not("device", torch_device)),
        *_elsewhere(platform, operators, "tests were made for", _not("platform", platform)),
        *_elsewhere(wanted, operators, "tests skipped:", _inactive),
        *_elsewhere(wanted, operators, "tests", _beyond),
        *_unproven(log, operators, wanted),
    )


def fallbacks(log: PytestLog, torch_device: str) -> tuple[str, ...]:
    """One line for each device that tests fell back to; they have skipped for it."""
    operators = [(test, test.operator) for test in log.tests if test.operator is not None]

    def place(record: OperatorRecord) -> object:
        return None if record.ran else _not("ran_device", torch_device)(record)

    return tuple(_elsewhere(torch_device, operators, "tests fell back to", place))


def short_name(node_id: str) -> str:
    """``add.out-float32-cpu-slot8``: what stands between the brackets, if anything does."""
    _, bracket, parameters = node_id.partition("[")
    return parameters.removesuffix("]") if bracket else node_id


def _not(field: str, wanted: str) -> Place:
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


def _nowhere(record: OperatorRecord) -> str | None:
    """What nobody says is no proof."""
    return "without saying where" if record.ran_device is None else None


def _inactive(record: OperatorRecord) -> str | None:
    return NOT_ACTIVE if record.reason == NOT_ACTIVE else None


def _out_of_reach(record: OperatorRecord) -> str | None:
    return record.reason if record.reason in (NOT_ACTIVE, NO_DEVICE) else None


def _beyond(record: OperatorRecord) -> str | None:
    """What a test did that had no device; one that failed to say why it skips has failed anyway."""
    if record.ran:
        return "executed a sample"
    return None if record.reason in (NOT_ACTIVE, NO_DEVICE) else "did not skip for want of a device"


def _elsewhere(requested: str, tests: Sequence[Operator], what: str, place: Place) -> Iterator[str]:
    found: dict[str, list[str]] = defaultdict(list)
    for test, record in tests:
        if where := place(record):
            found[str(where)].append(short_name(test.node_id))
    for where, names in sorted(found.items()):
        share = f"{len(names):,} of {len(tests):,} {what} {where}"
        yield f"requested {requested}; {share}: {first_names(names)}"


def _nothing(
    log: PytestLog, operators: Sequence[Operator], executed: Sequence[Operator]
) -> Iterator[str]:
    """A suite that skips every operator is green, and proves nothing."""
    failed = any(test.outcome.bad for test, _ in operators)
    if operators and not executed and not failed and log.exit_status is not None:
        yield f"no operator test executed a sample, of {len(operators):,}"


def _unproven(log: PytestLog, operators: Sequence[Operator], wanted: str) -> Iterator[str]:
    """Who says that a device is simulated has to have tests that saw it."""
    if not operators and log.exit_status is not None:
        yield f"requested {wanted}; no test says what it ran on"
