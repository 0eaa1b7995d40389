"""Operands of hand-written implementations, laid out in the ways that such kernels get wrong.

Strided, broadcast, empty, at odd addresses and of odd sizes, in memory with margins that no kernel
may change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
INTEGERS = (*SIGNED, *UNSIGNED)

MARGIN = 64  # elements around every operand, which no kernel may touch
INFINITY, NAN = float("inf"), float("nan")
HOSTILE = (
    INFINITY,
    -INFINITY,
    NAN,
    0.0,
    -0.0,
    1.5,
    -3.0,
)  # special values, which floats have rules for


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far a result may be from the exact one: ``rtol`` and ``atol`` of torch's comparison."""

    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Example:
    """One call: the arguments by name, the memory of the out, and the expected values."""

    title: str
    arguments: dict[str, Any]
    out: torch.Tensor
    expected: torch.Tensor
    tolerance: Tolerance = field(default_factory=Tolerance)
    keeps_out: bool = False  # the call reads what it writes; else that is pre-filled with garbage
    is_optional: bool = False  # an implementation may refuse the call
    name: str = "out"  # of ``out``
    others: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    """What is written beside ``out``, by name: the memory, and the expected values."""

    @property
    def outs(self) -> dict[str, torch.Tensor]:
        """The memory of everything that is written, by name."""
        return {self.name: self.out} | {name: out for name, (out, _) in self.others.items()}

    @property
    def results(self) -> dict[str, torch.Tensor]:
        """The expected values of ``outs``."""
        others = {name: expected for name, (_, expected) in self.others.items()}
        return {self.name: self.expected} | others


def in_margin(values: torch.Tensor) -> torch.Tensor:
    """Returns the values, contiguous, in the middle of memory that is longer."""
    memory = torch.ones(values.numel() + 2 * MARGIN, dtype=values.dtype)
    middle = memory[MARGIN : MARGIN + values.numel()].view(values.shape)
    return middle.copy_(values)


class Maker:
    """Makes operands of one dtype, the same ones each time."""

    def __init__(self, dtype: torch.dtype, low: float = -4.0, high: float = 4.0) -> None:
        self._dtype = dtype
        self._low = 0 if dtype in (*UNSIGNED, torch.bool) else low
        self._high = 2 if dtype is torch.bool else high
        self._random = torch.Generator().manual_seed(0)

    def __call__(self, *shape: int) -> torch.Tensor:
        values = torch.empty(shape).uniform_(self._low, self._high, generator=self._random)
        if self._dtype is torch.bool:
            values = values.floor()  # 0 or 1: any other number is True
        return in_margin(values.to(self._dtype))

    def of(self, values: Any) -> torch.Tensor:
        return in_margin(torch.tensor(values).to(self._dtype))


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the values in float64, of integers in int64."""
    return tensor.double() if tensor.is_floating_point() else tensor.long()


def tolerance(dtype: torch.dtype, *, ulps: float = 2.0, size: float = 0.0) -> Tolerance:
    """Returns the tolerance of a result that is computed in float32 or wider and rounded once.

    ``ulps`` are relative to the result; ``size`` is the size of the terms if it is a sum.
    """
    if not dtype.is_floating_point:
        return Tolerance()
    computed = torch.finfo(torch.float64 if dtype is torch.float64 else torch.float32).eps
    own = torch.finfo(dtype)
    return Tolerance(
        rtol=max(2 * own.eps, ulps * computed),
        # At least what float32 may flush to zero, and the smallest number of the dtype.
        atol=max(torch.finfo(torch.float32).tiny, own.tiny * own.eps, size * computed),
    )


def as_integer(number: float, dtype: torch.dtype) -> int:
    """The documented rule of casts, in exact numbers."""
    limit = 2**64 if dtype is torch.uint64 else 2**63
    whole = int(number) if -(2**63) <= number < limit else -(2**63)
    info = torch.iinfo(dtype)
    least, bits = int(info.min), int(info.bits)
    return (whole - least) % (1 << bits) + least


class Mover:
    """Copies operands to a device with their strides; those that share memory still do."""

    def __init__(self, device: str) -> None:
        self._device = device
        # Keeps the storages: a later one may get the address of a storage that is gone.
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._memories: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self(each) for each in value]
        if not isinstance(value, torch.Tensor) or self._device == "cpu":
            return value
        storage = value.untyped_storage()
        self._storages[storage._cdata] = storage
        key = (storage._cdata, value.dtype)
        if key not in self._memories:
            self._memories[key] = memory_of(value).to(self._device)
        place = value.shape, value.stride(), value.storage_offset()
        return self._memories[key].as_strided(*place)


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns all of the memory that a tensor lies in."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided((size,), (1,), 0)


def outside(*tensors: torch.Tensor) -> torch.Tensor:
    """Returns the bytes of the memories of tensors, with zeros in place of their elements."""
    memories = {}
    for tensor in tensors:
        key = tensor.untyped_storage().data_ptr()
        if key not in memories:
            memories[key] = memory_of(tensor).to("cpu", copy=True)
        place = tensor.shape, tensor.stride(), tensor.storage_offset()
        memories[key].as_strided(*place).zero_()
    return torch.cat([memory.view(torch.uint8) for memory in memories.values()])


# Elementwise operators: two inputs and an out of each layout.

Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def contiguous(make: Maker) -> Operands:
    return make(3, 4, 5), make(3, 4, 5), make(3, 4, 5)


def transposed(make: Maker) -> Operands:
    return make(5, 4, 3).transpose(0, 2), make(4, 3, 5).transpose(0, 1), make(3, 4, 5)


def sliced(make: Maker) -> Operands:
    return make(6, 8)[::2, 1::2], make(3, 9)[:, 5:], make(3, 4)


def strided_out(make: Maker) -> Operands:
    return make(3, 4), make(4, 3).t(), make(4, 6)[:, ::2].t()


def same_strides(make: Maker) -> Operands:
    """Dense in another order: as good as contiguous."""
    return (
        make(4, 3, 2).permute(2, 0, 1),
        make(4, 3, 2).permute(2, 0, 1),
        make(4, 3, 2).permute(2, 0, 1),
    )


def broadcast(make: Maker) -> Operands:
    return make(4, 1), make(3, 1, 5), make(3, 4, 5)


def expanded(make: Maker) -> Operands:
    return make(1, 5).expand(4, 5), make().expand(4, 5), make(4, 5)


def scalars(make: Maker) -> Operands:
    return make(), make(), make()


def empty(make: Maker) -> Operands:
    return make(0, 3), make(1, 3), make(0, 3)


def unaligned(make: Maker) -> Operands:
    """Each at another distance from an address that is aligned for vectors."""
    return make(70)[1:68], make(70)[2:69], make(70)[3:]


def odd(make: Maker) -> Operands:
    return make(7, 33), make(7, 33), make(7, 33)


def rows_apart(make: Maker) -> Operands:
    return make(5, 40)[:, :33], make(5, 37)[:, 4:], make(5, 64)[:, 1:34]


def large(make: Maker) -> Operands:
    return make(3, 50_021), make(50_021), make(3, 50_021)


LAYOUTS = (
    *(contiguous, transposed, sliced, strided_out, same_strides, broadcast, expanded, scalars),
    *(empty, unaligned, odd, rows_apart, large),
)
