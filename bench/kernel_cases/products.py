"""Products of square matrices."""

from __future__ import annotations

from functools import partial

from torch.nn import functional

import torch
from bench.kernel_cases.case import KernelCase, dtype_name


def products(size: int, dtype: torch.dtype) -> list[KernelCase]:
    """Of ``size``³ multiplications."""
    title = f"{dtype_name(dtype)} {size}³"
    case = partial(
        KernelCase, title=title, size=size, dtype=dtype, out_dtype=dtype, flops=2 * size**3
    )

    def make(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape) / size**0.25).to(dtype)

    def squares() -> tuple[torch.Tensor, torch.Tensor]:
        return make(size, size), make(size, size)

    return [
        case("gemm", squares, torch.mm),
        case("matmul", squares, torch.matmul),
        case(
            "linear",
            lambda: (*squares(), make(size)),
            functional.linear,
            reference=torch.ops.aten.linear.out,
        ),
    ]
