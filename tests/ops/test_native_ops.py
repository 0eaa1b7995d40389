"""Hand-written implementations, slots 0 to 7, against torch on the CPU within tolerance.

Recorded samples come from torch's own tests; here the operands are laid out in the ways
that hand-written kernels get wrong: strided, broadcast and empty, inputs and outputs. What is
recorded for the same overload runs too, where the implementation says that it takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness import poison
from installed import NATIVE_SLOTS, check_device, check_slot, class_name, operator_names
from names import operator_test_id
from properties import Record
from reasons import SkipReason, skip
from samples import load
from samples.values import dtype_name
from target import skip_without_device

import infini.ops
import torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


@dataclass(frozen=True)
class Elementwise:
    """What the tests must know of an elementwise operator with a native implementation."""

    reference: Callable[..., torch.Tensor]
    inputs: int
    dtypes: tuple[torch.dtype, ...]
    recorded: str  # the overload whose samples fit


# Every operator with a native slot needs an entry; test_every_native_operator_is_tested.
OPERATORS = {"add": Elementwise(torch.add, 2, FLOATS + INTEGERS, "add.out")}


def contiguous(make: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    return [make(3, 4, 5), make(3, 4, 5), make(3, 4, 5)]


def transposed(make: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    return [make(5, 4, 3).transpose(0, 2), make(4, 3, 5).transpose(0, 1), make(3, 4, 5)]


def sliced(make: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    return [make(6, 8)[::2, 1::2], make(3, 9)[:, 5:], make(3, 4)]


def strided_out(make: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    return [make(3, 4), make(4, 3).t(), make(4, 6)[:, ::2].t()]


def broadcast(make: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    return [make(4, 1), make(3, 1, 5), make(3, 4, 5)]


def expanded(make: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    return [make(1, 5).expand(4, 5), make(()).expand(4, 5), make(4, 5)]


def scalars(make: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    return [make(()), make(()), make(())]


def empty(make: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    return [make(0, 3), make(1, 3), make(0, 3)]


LAYOUTS = (contiguous, transposed, sliced, strided_out, broadcast, expanded, scalars, empty)


@dataclass(frozen=True)
class Case:
    """One native implementation with operands of one dtype."""

    name: str
    slot: int
    dtype: torch.dtype

    @property
    def asked(self) -> dict[str, Any]:
        """What id and record say of the test."""
        return {"overload": self.name, "dtype": dtype_name(self.dtype), "slot": self.slot}


def native_slots(name: str, device: str) -> list[int]:
    """Returns the active hand-written slots of a public operator."""
    operator_class = getattr(infini.ops, class_name(name))
    active = operator_class.active_implementation_indices(device)
    return [slot for slot in active if slot in NATIVE_SLOTS]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    device = metafunc.config.getoption("device")
    cases = list(_cases(device, metafunc.config.getoption("slot") or []))
    ids = [operator_test_id(device=device, **case.asked) for case in cases]
    metafunc.parametrize("case", cases, ids=ids)


def _cases(device: str, asked: list[int]) -> Iterator[Case]:
    """Yields the slots that the library has on the device, and those that were asked for."""
    for name, operator in OPERATORS.items():
        slots = {*native_slots(name, device), *(slot for slot in asked if slot in NATIVE_SLOTS)}
        for slot in sorted(slots):
            for dtype in operator.dtypes:
                yield Case(name, slot, dtype)


def test_every_native_operator_is_tested(device: str) -> None:
    native = {name for name in operator_names() if native_slots(name, device)}
    assert native <= OPERATORS.keys()


def test_native(case: Case, record: Record) -> None:
    active = case.slot in native_slots(case.name, record.device)
    record.asked(**case.asked, active=active)
    if not active:
        skip(SkipReason.SLOT_NOT_ACTIVE, f"slot {case.slot} on {record.device}")
    skip_without_device(record.device, record.platform)
    operator = OPERATORS[case.name]
    run = Run(case, record.device)
    for layout in LAYOUTS:
        operands = _operands(operator, case, layout)
        run.execute(layout.__name__, operands, {}, operator.reference)
    for number, (operands, keywords) in enumerate(_recorded(operator, case)):
        run.execute(f"recorded {number}", operands, keywords, operator.reference, may_refuse=True)
    record.ran(executed=run.executed, device=run.ran_device)
    assert not run.failures, "\n".join(run.failures)


class Run:
    """What one case executed, and what of it failed."""

    def __init__(self, case: Case, device: str) -> None:
        self._case = case
        self._device = device
        self.executed = 0
        self.ran_device: str | None = None
        self.failures: list[str] = []

    def execute(
        self,
        title: str,
        operands: list[torch.Tensor],
        keywords: dict[str, Any],
        reference: Callable[..., torch.Tensor],
        *,
        may_refuse: bool = False,
    ) -> None:
        *inputs, out = operands
        expected = reference(*inputs, **keywords)
        out.copy_(poison(expected))
        try:
            self._check([tensor.to(self._device) for tensor in inputs], keywords, out, expected)
        except ValueError as error:
            # What the implementation does not take, it says.
            if may_refuse and f"slot {self._case.slot} takes " in str(error):
                return
            self.failures.append(f"{title}: {error}")
        except Exception as error:
            self.failures.append(f"{title}: {error}")
        self.executed += 1

    def _check(
        self,
        inputs: list[torch.Tensor],
        keywords: dict[str, Any],
        out: torch.Tensor,
        expected: torch.Tensor,
    ) -> None:
        actual = out.to(self._device)
        address = actual.data_ptr()
        function: Any = getattr(infini.ops, self._case.name)
        function(*inputs, actual, **keywords, implementation_index=self._case.slot)
        check_slot(self._case.name, self._case.slot)
        check_device(self._device)
        self.ran_device = actual.device.type
        assert actual.data_ptr() == address, "the memory of out moved"
        torch.testing.assert_close(actual.cpu(), expected)


def _operands(
    operator: Elementwise, case: Case, layout: Callable[..., list[torch.Tensor]]
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    low = 0 if case.dtype == torch.uint8 else -50

    def make(*shape: int) -> torch.Tensor:
        return torch.empty(*shape).uniform_(low, 50).to(case.dtype)

    *inputs, out = layout(make)
    return [*inputs[: operator.inputs], out]


def _recorded(
    operator: Elementwise, case: Case
) -> Iterator[tuple[list[torch.Tensor], dict[str, Any]]]:
    """Yields the operands and the other arguments of the recorded calls of one dtype."""
    for sample in load().samples.get(operator.recorded, {}).get(dtype_name(case.dtype), []):
        name, _, overload = operator.recorded.partition(".")
        schema = getattr(getattr(torch.ops.aten, name), overload)._schema
        if not sample.fits(schema):
            continue
        arguments = sample.bind(schema, "cpu")
        tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
        others = {
            key: value for key, value in arguments.items() if not isinstance(value, torch.Tensor)
        }
        yield tensors, others
