"""Operators that take as long as their operands need to be read and written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

from torch.nn import functional

import torch
from bench.kernel_cases.case import KernelCase, counted, dtype_name, readable

COLUMNS = 1024  # at most, in rows that are normalized
# Operators of halves, by their activation.
GATES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu_and_mul": functional.gelu,
    "gelu_tanh_and_mul": partial(functional.gelu, approximate="tanh"),
    "silu_and_mul": functional.silu,
}
INFERENCE_COLUMNS = 4096


def memory_bound(
    elements: int, dtype: torch.dtype, columns: int | None = None, many: str | None = None
) -> Iterator[KernelCase]:
    """Of ``elements``, in rows of ``columns``; ``many`` is their number in words."""
    columns = columns or min(COLUMNS, math.isqrt(elements))
    many = many or f"{readable(elements)} elements"
    case = partial(KernelCase, size=elements, dtype=dtype, out_dtype=dtype)
    yield from _elementwise(case, dtype, many, elements // columns, columns)
    of_rows = partial(case, title=f"{dtype_name(dtype)}, {many}")
    yield from _of_rows(of_rows, dtype, elements // columns, columns)


def inference(rows: int) -> Iterator[KernelCase]:
    """Rows of a model on an accelerator."""
    many = f"{counted(rows, 'row')} of {INFERENCE_COLUMNS}"
    for case in memory_bound(rows * INFERENCE_COLUMNS, torch.bfloat16, INFERENCE_COLUMNS, many):
        if case.operator in ("add", "mul", "rms_norm", "add_rms_norm", "swiglu", *GATES):
            yield case


def gated_halves(
    activation: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> torch.Tensor:
    """Activate the first half of the columns, and multiply it by the second."""
    first, second = x.chunk(2, -1)
    return activation(first) * second


def _elementwise(
    case: Callable[..., KernelCase], dtype: torch.dtype, many: str, rows: int, columns: int
) -> list[KernelCase]:
    name = dtype_name(dtype)
    case = partial(case, title=f"{name}, {many}")
    half = torch.float32 if dtype is torch.float16 else torch.float16

    def make(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(dtype)

    def pair() -> tuple[torch.Tensor, torch.Tensor]:
        return make(rows * columns), make(rows * columns)

    return [
        case("add", pair, torch.add),
        case("mul", pair, torch.mul),
        case(
            "swiglu",
            pair,
            lambda x, gate: x * functional.silu(gate),
            reference=lambda x, gate, out: torch.mul(x, functional.silu(gate), out=out),
        ),
        *(
            case(
                name,
                lambda: (make(rows, 2 * columns),),
                partial(gated_halves, activation),
                # Into the out, as a caller without the operator would.
                reference=lambda x, out, activation=activation: torch.mul(
                    activation(x[:, :columns]), x[:, columns:], out=out
                ),
            )
            for name, activation in GATES.items()
        ),
        case(
            "cast",
            lambda: (make(rows * columns),),
            torch.clone,
            title=f"{name} to {dtype_name(half)}, {many}",
            out_dtype=half,
            reference=lambda x, out: out.copy_(x),
        ),
        case("cat", lambda: ([make(columns, rows // 2) for _ in range(2)], 1), torch.cat),
    ]


def _of_rows(
    case: Callable[..., KernelCase], dtype: torch.dtype, rows: int, columns: int
) -> list[KernelCase]:
    def make(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(dtype)

    def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return functional.rms_norm(x, (columns,), weight, eps)

    def added_norm(
        x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        return norm(total, weight, eps), total

    def masked_softmax(x: torch.Tensor) -> torch.Tensor:
        above = torch.ones(columns, columns, dtype=torch.bool, device=x.device).triu(1)
        return torch.softmax(x.masked_fill(above, -torch.inf), -1)

    return [
        case(
            "rms_norm",
            lambda: (make(rows, columns), make(columns), 1e-6),
            norm,
            # Torch's function has no out.
            reference=lambda x, weight, eps, out: norm(x, weight, eps),  # noqa: ARG005
        ),
        case(
            "add_rms_norm",
            lambda: (make(rows, columns), make(rows, columns), make(columns), 1e-6),
            added_norm,
            reference=lambda x, residual, weight, eps, out: norm(
                torch.add(x, residual, out=out[1]), weight, eps
            ),
        ),
        case(
            "causal_softmax",
            lambda: (make(rows // columns, columns, columns),),
            masked_softmax,
            # Without the mask, which would need a second kernel.
            reference=partial(torch.softmax, dim=-1),
        ),
        case(
            "scaled_softmax",
            lambda: (make(rows, columns), 0.125),
            lambda x, scale: torch.softmax(x * scale, -1),
            reference=lambda x, scale, out: torch.softmax(x * scale, -1, out=out),
        ),
    ]
