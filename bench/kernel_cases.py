"""Hand-written and Triton operators beside torch's own kernels, at sizes that fill the machine.

Each case makes fresh operands on request, so that a timing can rotate through sets that together
do not fit the caches; ``exact`` is the same in float64, on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.nn import functional

import torch

COLUMNS = 1024  # of rows that are normalized


@dataclass(frozen=True)
class Case:
    """One operator with operands of one shape and dtype.

    ``inputs`` makes the arguments in the operator's order; ``reference`` and ``exact`` take them,
    the one to write into ``out`` with torch's own kernels, the other to return the value.
    """

    operator: str
    inputs: Callable[[], tuple[Any, ...]]
    reference: Callable[..., object]
    exact: Callable[..., torch.Tensor]
    title: str
    dtype: torch.dtype
    out_dtype: torch.dtype
    flops: int = 0  # 0: bound by memory

    @property
    def name(self) -> str:
        return f"{self.operator} {self.title}"

    def operands(self, device: str, seed: int) -> tuple[tuple[Any, ...], torch.Tensor]:
        """Inputs and an out on ``device``, always the same for one seed."""
        torch.manual_seed(seed)
        inputs = self.inputs()
        shape = self.exact(*(moved(value, "meta") for value in inputs)).shape
        out = torch.empty(shape, dtype=self.out_dtype, device=device)
        return tuple(moved(value, device) for value in inputs), out


def moved(value: Any, *where: object) -> Any:
    """A tensor, a list of them, or anything else: on a device, of a dtype."""
    if isinstance(value, torch.Tensor):
        return value.to(*where)
    return [each.to(*where) for each in value] if isinstance(value, list) else value


def cases(*, elements: int, size: int) -> list[Case]:
    """All cases: ``elements`` of the memory-bound ones, products of ``size`` cubed."""
    return [
        case
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
        for case in (*_memory_bound(elements, dtype), *_products(size, dtype))
    ]


def bytes_moved(inputs: tuple[Any, ...], out: torch.Tensor) -> int:
    """What a memory-bound operator reads and writes at least."""
    values = [each for value in inputs for each in (value if isinstance(value, list) else [value])]
    tensors = [each for each in (out, *values) if isinstance(each, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _memory_bound(elements: int, dtype: torch.dtype) -> list[Case]:
    case = partial(Case, title=_dtype_name(dtype), dtype=dtype, out_dtype=dtype)
    half = torch.float32 if dtype is torch.float16 else torch.float16
    rows = elements // COLUMNS

    def make(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(dtype)

    def pair() -> tuple[torch.Tensor, torch.Tensor]:
        return make(elements), make(elements)

    def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return functional.rms_norm(x, (COLUMNS,), weight, eps)

    def masked_softmax(x: torch.Tensor) -> torch.Tensor:
        above = torch.ones(COLUMNS, COLUMNS, dtype=torch.bool, device=x.device).triu(1)
        return torch.softmax(x.masked_fill(above, -torch.inf), -1)

    return [
        case("add", pair, lambda x, y, out: torch.add(x, y, out=out), torch.add),
        case("mul", pair, lambda x, y, out: torch.mul(x, y, out=out), torch.mul),
        case(
            "swiglu",
            pair,
            lambda x, gate, out: torch.mul(x, functional.silu(gate), out=out),
            lambda x, gate: x * functional.silu(gate),
        ),
        case(
            "cast",
            lambda: (make(elements),),
            lambda x, out: out.copy_(x),
            torch.clone,
            title=f"{_dtype_name(dtype)} to {_dtype_name(half)}",
            out_dtype=half,
        ),
        case(
            "cat",
            lambda: ([make(1024, elements // 2048) for _ in range(2)], 1),
            lambda tensors, dim, out: torch.cat(tensors, dim, out=out),
            torch.cat,
        ),
        case(
            "rms_norm",
            lambda: (make(rows, COLUMNS), make(COLUMNS), 1e-6),
            lambda x, weight, eps, out: norm(x, weight, eps),  # noqa: ARG005 - torch's has no out
            norm,
        ),
        case(
            "causal_softmax",
            lambda: (make(rows // COLUMNS, COLUMNS, COLUMNS),),
            # Without the mask, which would be a second kernel.
            lambda x, out: torch.softmax(x, -1, out=out),
            masked_softmax,
        ),
    ]


def _products(size: int, dtype: torch.dtype) -> list[Case]:
    title = f"{_dtype_name(dtype)} {size}³"
    case = partial(Case, title=title, dtype=dtype, out_dtype=dtype, flops=2 * size**3)

    def make(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape) / size**0.25).to(dtype)

    def squares() -> tuple[torch.Tensor, torch.Tensor]:
        return make(size, size), make(size, size)

    return [
        case("gemm", squares, lambda a, b, out: torch.mm(a, b, out=out), torch.mm),
        case("matmul", squares, lambda a, b, out: torch.matmul(a, b, out=out), torch.matmul),
        case(
            "linear",
            lambda: (*squares(), make(size)),
            lambda x, w, b, out: torch.ops.aten.linear.out(x, w, b, out=out),
            functional.linear,
        ),
    ]


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
