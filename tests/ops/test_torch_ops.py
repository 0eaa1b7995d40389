"""Every generated overload on slot 8 matches ATen on the same device bit for bit.

For the recorded arguments, with contiguous outs of the right shape and dtype. With other layouts,
torch's own kernels may be wrong: ``test_boundary_memory`` compares these with another result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import oracles
import pytest
from harness import (
    CallOutcome,
    FallbackError,
    MismatchError,
    RefusedError,
    UnsteadyError,
    VacuousError,
    check,
    taken_instead,
)
from installed import (
    TORCH_SLOT,
    Overload,
    WrongImplementationError,
    check_device,
    is_recording_torch,
    overloads,
)
from names import operator_test_id
from processor import this_processor
from properties import Record
from reasons import SkipReason, classify, skip
from samples import Sample, UnboundArgumentError, load
from samples.absent import why_absent
from target import skip_without_device

import infini.ops

# torch itself warns about some samples.
pytestmark = pytest.mark.filterwarnings("ignore")

NO_DTYPE = "nosample"


@dataclass(frozen=True)
class Case:
    """One test: an overload with the samples of one dtype."""

    overload: Overload
    dtype: str
    samples: tuple[Sample, ...]
    slot: int = TORCH_SLOT

    @property
    def properties(self) -> dict[str, Any]:
        """The properties in the test's id and record."""
        name = self.overload.qualified_name
        return {"overload": name, "dtype": self.dtype, "slot": self.slot}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    device = metafunc.config.getoption("device")
    cases = [case for overload in overloads() for case in cases_of(overload)]
    ids = [operator_test_id(device=device, **case.properties) for case in cases]
    metafunc.parametrize("case", cases, ids=ids)


def cases_of(overload: Overload) -> list[Case]:
    """Returns a case per dtype; an overload without samples keeps one, so it cannot vanish."""
    groups = _SAMPLES.get(overload.qualified_name, {})
    if not groups:
        return [Case(overload, NO_DTYPE, ())]
    return [Case(overload, dtype, tuple(samples)) for dtype, samples in groups.items()]


_SAMPLES = load().samples


def test_overload(case: Case, record: Record) -> None:
    slots = case.overload.active_slots(record.device)
    record.write_request(**case.properties, active=case.slot in slots)
    if case.slot not in slots:
        skip(SkipReason.SLOT_NOT_ACTIVE, f"slot {case.slot} on {record.device}; active: {slots}")
    skip_without_device(record.device, record.platform)
    _skip_what_cannot_run(case, record.device)
    record.write_kernel(case.overload.aten())
    run = Run(case, record.device)
    try:
        for number, sample in enumerate(case.samples):
            run.execute(sample, by_keyword=number % 2 == 1)
    finally:
        record.write_run(executed=run.executed, device=run.ran_device)
    if run.spreads:
        record.property("spread", "; ".join(run.spreads))
    if run.adapted:
        record.property("adapted", "; ".join(dict.fromkeys(run.adapted)))
    if record.device != "cpu" and run.executed:
        record.property("against_cpu", oracles.summary(run.verdicts))
    if not run.executed:
        if run.needs is not None:
            record.write_missing_features(run.needs)
        skip(*run.refusals[0])


def _skip_what_cannot_run(case: Case, device: str) -> None:
    if case.overload.aten() is None:
        skip(SkipReason.NOT_IN_THIS_TORCH, f"torch.ops.aten has no {case.overload.qualified_name}")
    if not case.samples:
        skip(*why_absent(case.overload.aten(), device))


class Run:
    """The samples of one case: how many ran, where, and why the others did not."""

    def __init__(self, case: Case, device: str) -> None:
        self.case = case
        self._device = device
        self.executed = 0
        self.ran_device: str | None = None
        self.refusals: list[tuple[SkipReason, str]] = []
        self.needs: str | None = None
        """The missing features of the processor if the first refused sample needs them."""
        self.verdicts: list[str] = []
        self.spreads: list[str] = []
        """The outputs that torch gives differently each time."""
        self.adapted: list[str] = []
        """What was changed in samples that torch refuses as they were recorded."""

    def execute(self, sample: Sample, *, by_keyword: bool, may_adapt: bool = True) -> None:
        try:
            outcome = self._check(sample, by_keyword=by_keyword)
        except RefusedError as error:
            needs = this_processor().missing_features(str(error))
            reason = SkipReason.INSTRUCTION_SET if needs else classify(error.cause)
            if reason is None:
                if self._is_as_recorded or not may_adapt:
                    raise
                other = taken_instead(sample, self.case.overload.aten(), self._device)
                if other is not None:
                    self.adapted.append(other.change)
                    self.execute(other.sample, by_keyword=by_keyword, may_adapt=False)
                    return
                reason = SkipReason.TORCH_REFUSES
            if not self.refusals:
                self.needs = needs
            self.refusals.append((reason, str(error)))
        except FallbackError as error:
            # If another sample ran on the device, the test counts as run there.
            self.ran_device = self.ran_device or "cpu"
            self.refusals.append((SkipReason.NO_KERNEL, f"fell back to the CPU: {error}"))
        except UnsteadyError as error:
            self.refusals.append((SkipReason.NOTHING_TO_COMPARE, str(error)))
        except (UnboundArgumentError, VacuousError) as error:
            if is_recording_torch():
                raise
            self.refusals.append((SkipReason.NOT_IN_THIS_TORCH, str(error)))
        except (MismatchError, WrongImplementationError):
            self.executed += 1
            raise
        else:
            self.executed += 1
            self.ran_device = outcome.ran_device
            self.spreads += outcome.spreads
            if self._device != "cpu":
                aten = self.case.overload.aten()
                self.verdicts.append(oracles.against_cpu(sample, aten, outcome.arguments))

    @property
    def _is_as_recorded(self) -> bool:
        """Whether torch took the samples as they are, when they were recorded."""
        return self._device == "cpu" and is_recording_torch()

    def _check(self, sample: Sample, *, by_keyword: bool) -> CallOutcome:
        """Runs a sample; if the library picks another overload, passes it the other way too."""
        overload = self.case.overload
        for style in (by_keyword, not by_keyword):
            call = overload.call(self.case.slot, by_keyword=style)
            try:
                outcome = check(sample, overload.aten(), call, self._device)
            except MismatchError:
                if _ran_overload() == overload.overload_name:
                    raise
            else:
                check_device(self._device)
                if _ran_overload() == overload.overload_name:
                    return outcome
        raise MismatchError(f"the library took the call for {overload.aten_name}.{_ran_overload()}")


def _ran_overload() -> str:
    return str(infini.ops.last_call().overload)
