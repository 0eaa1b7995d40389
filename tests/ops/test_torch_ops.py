"""Every generated overload on slot 8 does exactly what ATen does on the same device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from harness import RefusedError, VacuousError, check
from installed import TORCH_SLOT, Overload, overloads
from reasons import TORCH_DEFECTS, SkipReason, classify, skip
from samples import Sample, UnboundArgumentError, load

# What torch has to say about a sample is not the library's doing.
pytestmark = pytest.mark.filterwarnings("ignore")

NO_DTYPE = "nosample"


@dataclass(frozen=True)
class Case:
    """One test: an overload with the samples of one dtype."""

    overload: Overload
    dtype: str
    samples: tuple[Sample, ...]
    slot: int = TORCH_SLOT


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    device = metafunc.config.getoption("device")
    cases = [case for overload in overloads() for case in cases_of(overload)]
    ids = [
        f"{case.overload.qualified_name}-{case.dtype}-{device}-slot{case.slot}" for case in cases
    ]
    metafunc.parametrize("case", cases, ids=ids)


def cases_of(overload: Overload) -> list[Case]:
    """Returns a case per dtype; an overload without samples keeps one, so it cannot vanish."""
    groups = _SAMPLES.get(overload.qualified_name, {})
    if not groups:
        return [Case(overload, NO_DTYPE, ())]
    return [Case(overload, dtype, tuple(samples)) for dtype, samples in groups.items()]


_SAMPLES = load().samples


def test_overload(
    case: Case, device: str, platform: str, record_property: Callable[[str, object], None]
) -> None:
    record_property("overload", case.overload.qualified_name)
    record_property("dtype", case.dtype)
    record_property("slot", case.slot)
    record_property("device", device)
    record_property("platform", platform)
    active = case.slot in case.overload.active_slots(device)
    record_property("active", active)
    _skip_what_cannot_run(case, device, active)
    executed, refusals = _execute(case, device)
    record_property("executed", executed)
    if not executed:
        skip(*refusals[0])


def _skip_what_cannot_run(case: Case, device: str, active: bool) -> None:
    name = case.overload.qualified_name
    if not active:
        slots = case.overload.active_slots(device)
        skip(SkipReason.SLOT_NOT_ACTIVE, f"slot {case.slot} on {device}; active: {slots}")
    if case.overload.aten() is None:
        skip(SkipReason.NOT_IN_THIS_TORCH, f"torch.ops.aten has no {name}")
    if not case.samples and name in TORCH_DEFECTS:
        skip(SkipReason.TORCH_DEFECT, TORCH_DEFECTS[name])
    if not case.samples:
        skip(SkipReason.NO_SAMPLE, f"no call of {name} is recorded")


def _execute(case: Case, device: str) -> tuple[int, list[tuple[SkipReason, str]]]:
    """Runs the samples, by position and by keyword in turn; returns what ran and what did not."""
    refusals: list[tuple[SkipReason, str]] = []
    for number, sample in enumerate(case.samples):
        call = case.overload.call(case.slot, by_keyword=number % 2 == 1)
        try:
            check(sample, case.overload.aten(), call, device)
        except RefusedError as error:
            reason = classify(error.cause)
            if reason is None:
                raise
            refusals.append((reason, str(error)))
        except VacuousError as error:
            refusals.append((SkipReason.NO_SAMPLE, str(error)))
        except UnboundArgumentError as error:
            refusals.append((SkipReason.NOT_IN_THIS_TORCH, str(error)))
    return len(case.samples) - len(refusals), refusals
