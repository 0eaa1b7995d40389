"""Hand-written implementations, slots 0 to 7, against torch on the CPU within tolerance.

Recorded samples come from torch's own tests; here the operands are laid out in the ways
that hand-written kernels get wrong: strided, broadcast and empty, inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness import poison
from installed import NATIVE_SLOTS, class_name, operator_names
from reasons import SkipReason, skip

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


# Every operator with a native slot needs an entry; test_every_native_operator_is_tested.
OPERATORS = {"add": Elementwise(torch.add, 2, FLOATS + INTEGERS)}


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
    """One native implementation with operands of one dtype in one layout."""

    name: str
    slot: int
    dtype: torch.dtype
    layout: Callable[..., list[torch.Tensor]]


def native_slots(name: str, device: str) -> list[int]:
    """Returns the active hand-written slots of a public operator."""
    operator_class = getattr(infini.ops, class_name(name))
    active = operator_class.active_implementation_indices(device)
    return [slot for slot in active if slot in NATIVE_SLOTS]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    device = metafunc.config.getoption("device")
    cases = list(_cases(device))
    ids = [
        f"{case.name}-{case.layout.__name__}-{str(case.dtype)[6:]}-{device}-slot{case.slot}"
        for case in cases
    ]
    metafunc.parametrize("case", cases, ids=ids)


def _cases(device: str) -> Iterator[Case]:
    """Yields at least one case per listed operator, on a device without native slots too."""
    for name, operator in OPERATORS.items():
        for slot in native_slots(name, device) or [NATIVE_SLOTS[0]]:
            for dtype in operator.dtypes:
                for layout in LAYOUTS:
                    yield Case(name, slot, dtype, layout)


def test_every_native_operator_is_tested(device: str) -> None:
    native = {name for name in operator_names() if native_slots(name, device)}
    assert native <= OPERATORS.keys()


def test_native(
    case: Case, device: str, platform: str, record_property: Callable[[str, object], None]
) -> None:
    active = case.slot in native_slots(case.name, device)
    record_property("overload", case.name)
    record_property("dtype", str(case.dtype)[6:])
    record_property("slot", case.slot)
    record_property("device", device)
    record_property("platform", platform)
    record_property("active", active)
    if not active:
        skip(SkipReason.SLOT_NOT_ACTIVE, f"slot {case.slot} on {device}")
    operator = OPERATORS[case.name]
    *inputs, out = _operands(operator, case)
    expected = operator.reference(*inputs)
    out.copy_(poison(expected))
    actual = out.to(device)
    address, on_device = actual.data_ptr(), [tensor.to(device) for tensor in inputs]
    function: Any = getattr(infini.ops, case.name)
    function(*on_device, actual, implementation_index=case.slot)
    assert actual.data_ptr() == address
    torch.testing.assert_close(actual.cpu(), expected)
    record_property("executed", 1)


def _operands(operator: Elementwise, case: Case) -> list[torch.Tensor]:
    torch.manual_seed(0)
    low = 0 if case.dtype == torch.uint8 else -50

    def make(*shape: int) -> torch.Tensor:
        return torch.empty(*shape).uniform_(low, 50).to(case.dtype)

    *inputs, out = case.layout(make)
    return [*inputs[: operator.inputs], out]
