"""Hand-written and Triton operators beside torch's own kernels, at sizes that fill the machine.

Each case makes fresh operands on request, so that a timing can rotate through sets that together
do not fit the caches; ``exact`` is the same in float64, on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.nn import functional

import torch

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One operator with operands of one shape and dtype.

    ``inputs`` makes the arguments in the operator's order; ``reference`` and ``exact`` take them,
    the one to write into ``out`` with torch's own kernels, the other to return the value.
    """

    operator: str
    title: str
    dtype: torch.dtype
    inputs: Callable[[], tuple[Any, ...]]
    reference: Callable[..., object]
    exact: Callable[..., torch.Tensor]
    out_dtype: torch.dtype
    flops: int = 0  # 0: bound by memory

    @property
    def name(self) -> str:
        return f"{self.operator} {self.title}"

    def operands(self, device: str, seed: int) -> tuple[tuple[Any, ...], torch.Tensor]:
        """Inputs and an out on ``device``, always the same for one seed."""
        torch.manual_seed(seed)
        inputs = self.inputs()
        shape = self.exact(*_shapes_only(inputs)).shape
        out = torch.empty(shape, dtype=self.out_dtype, device=device)
        return tuple(moved(value, device) for value in inputs), out


def moved(value: Any, device: str) -> Any:
    """A tensor, a list of them, or anything else, on ``device``."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return [each.to(device) for each in value] if isinstance(value, list) else value


def _shapes_only(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(moved(value, "meta") for value in inputs)


def cases(*, elements: int, size: int) -> list[Case]:
    """All cases: ``elements`` of the memory-bound ones, products of ``size`` cubed."""
    found = []
    for dtype in _FLOATS:
        found += [*_elementwise(elements, dtype), *_rows(elements, dtype), *_products(size, dtype)]
    return found


def bytes_moved(inputs: tuple[Any, ...], out: torch.Tensor) -> int:
    """What a memory-bound operator reads and writes at least."""
    tensors = [out]
    for value in inputs:
        tensors += value if isinstance(value, list) else [value]
    tensors = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _elementwise(elements: int, dtype: torch.dtype) -> list[Case]:
    def make(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(dtype)

    def pair() -> tuple[torch.Tensor, torch.Tensor]:
        return make(elements), make(elements)

    def case(operator: str, reference: Callable[..., object], exact: Any, **more: Any) -> Case:
        given = {"inputs": pair, "out_dtype": dtype, "title": _dtype_name(dtype), **more}
        return Case(operator=operator, dtype=dtype, reference=reference, exact=exact, **given)

    half = torch.float32 if dtype is torch.float16 else torch.float16
    return [
        case("add", lambda x, y, out: torch.add(x, y, out=out), torch.add),
        case("mul", lambda x, y, out: torch.mul(x, y, out=out), torch.mul),
        case(
            "swiglu",
            lambda x, gate, out: torch.mul(x, functional.silu(gate), out=out),
            lambda x, gate: x * functional.silu(gate),
        ),
        case(
            "cast",
            lambda x, out: out.copy_(x),
            lambda x: x.clone(),
            inputs=lambda: (make(elements),),
            out_dtype=half,
            title=f"{_dtype_name(dtype)} to {_dtype_name(half)}",
        ),
        case(
            "cat",
            lambda tensors, dim, out: torch.cat(tensors, dim, out=out),
            lambda tensors, dim: torch.cat(tensors, dim),
            inputs=lambda: ([make(1024, elements // 2048) for _ in range(2)], 1),
        ),
    ]


def _rows(elements: int, dtype: torch.dtype) -> list[Case]:
    columns = 1024
    rows = elements // columns

    def normalized() -> tuple[Any, ...]:
        return torch.randn(rows, columns).to(dtype), torch.randn(columns).to(dtype), 1e-6

    def scores() -> tuple[torch.Tensor]:
        return (torch.randn(elements // columns**2, columns, columns).to(dtype),)

    def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return functional.rms_norm(x, (columns,), weight, eps)

    def masked_softmax(x: torch.Tensor) -> torch.Tensor:
        above = torch.ones(columns, columns, dtype=torch.bool, device=x.device).triu(1)
        return torch.softmax(x.masked_fill(above, -torch.inf), -1)

    return [
        Case(
            operator="rms_norm",
            title=_dtype_name(dtype),
            dtype=dtype,
            inputs=normalized,
            # Torch's has no out.
            reference=lambda x, weight, eps, out: norm(x, weight, eps),  # noqa: ARG005
            exact=norm,
            out_dtype=dtype,
        ),
        Case(
            operator="causal_softmax",
            title=_dtype_name(dtype),
            dtype=dtype,
            inputs=scores,
            # Without the mask, which would be a second kernel.
            reference=lambda x, out: torch.softmax(x, -1, out=out),
            exact=masked_softmax,
            out_dtype=dtype,
        ),
    ]


def _products(size: int, dtype: torch.dtype) -> list[Case]:
    def make(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape) / size**0.25).to(dtype)

    def case(operator: str, inputs: Any, reference: Any, exact: Any) -> Case:
        return Case(
            operator=operator,
            title=f"{_dtype_name(dtype)} {size}³",
            dtype=dtype,
            inputs=inputs,
            reference=reference,
            exact=exact,
            out_dtype=dtype,
            flops=2 * size**3,
        )

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
