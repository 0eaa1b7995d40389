"""Rows of a model that are quantized, and their products with weights that are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from bench.kernel_cases.case import KernelCase, counted, dtype_name

FLOAT8, INT8 = torch.float8_e4m3fn, torch.int8
MOST = {FLOAT8: 448, INT8: 127}
COLUMNS, GROUP_SIZE, EPS = 4096, 128, 1e-10
SIZE = 1024  # of products


def quantized(rows: int, dtype: torch.dtype) -> Iterator[KernelCase]:
    """All operators of quantization."""
    yield _with_given_scale("static_scaled_fp8_quant", FLOAT8, rows, dtype)
    yield _with_given_scale("static_scaled_int8_quant", INT8, rows, dtype, None)
    with_own_scales = partial(_with_own_scales, rows=rows, dtype=dtype)
    yield with_own_scales("dynamic_scaled_fp8_quant", FLOAT8, rows * COLUMNS)
    yield with_own_scales("dynamic_per_token_scaled_fp8_quant", FLOAT8, COLUMNS, (None,))
    yield with_own_scales("dynamic_scaled_int8_quant", INT8, COLUMNS)
    groups = GROUP_SIZE, EPS
    yield with_own_scales(
        "per_token_group_fp8_quant", FLOAT8, GROUP_SIZE, (*groups, -448, 448, False)
    )
    yield with_own_scales("per_token_group_quant_int8", INT8, GROUP_SIZE, (*groups, -127, 127))
    for kind in (FLOAT8, INT8):
        yield _product(kind, rows, dtype)


def _title(rows: int, dtype: torch.dtype) -> str:
    return f"{dtype_name(dtype)}, {counted(rows, 'row')}"


def _rounded(x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """What is then converted to ``kind``."""
    limited = x.clamp(-MOST[kind], MOST[kind])
    return limited if kind is FLOAT8 else limited.round()


def _with_given_scale(
    operator: str, kind: torch.dtype, rows: int, dtype: torch.dtype, *more: None
) -> KernelCase:
    def exact(x: torch.Tensor, scale: torch.Tensor, *_: None) -> torch.Tensor:
        return (x * (1 / scale)).clamp(-MOST[kind], MOST[kind])

    def reference(
        x: torch.Tensor, scale: torch.Tensor, *_: None, out: torch.Tensor
    ) -> torch.Tensor:
        return out.copy_(_rounded(x.float() * (1 / scale), kind))

    return KernelCase(
        operator=operator,
        inputs=lambda: (torch.randn(rows, COLUMNS).to(dtype), torch.tensor([0.05]), *more),
        exact=exact,
        reference=reference,
        title=f"{_title(rows, dtype)} of {COLUMNS}",
        size=rows * COLUMNS,
        dtype=dtype,
        out_dtype=kind,
    )


def _with_own_scales(
    operator: str,
    kind: torch.dtype,
    group_size: int,
    more: tuple[Any, ...] = (),
    *,
    rows: int,
    dtype: torch.dtype,
) -> KernelCase:
    """``group_size`` elements have one scale; ``more`` are arguments after the rows."""
    shape = (rows, COLUMNS // group_size) if group_size <= COLUMNS else (1,)

    def exact(x: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        groups = x.reshape(-1, group_size)
        scales = groups.abs().amax(-1, keepdim=True) / MOST[kind]
        return (groups / scales).view_as(x), scales.view(shape)

    def reference(x: torch.Tensor, *_: Any, out: tuple[torch.Tensor, torch.Tensor]) -> None:
        quotients, scales = exact(x.float())
        out[0].copy_(_rounded(quotients, kind))
        out[1].copy_(scales)

    return KernelCase(
        operator=operator,
        inputs=lambda: (torch.randn(rows, COLUMNS).to(dtype), *more),
        exact=exact,
        reference=reference,
        title=f"{_title(rows, dtype)} of {COLUMNS}",
        size=rows * COLUMNS,
        dtype=dtype,
        out_dtype=kind,
        other_dtype=torch.float32,
    )


def _product(kind: torch.dtype, rows: int, dtype: torch.dtype) -> KernelCase:
    def scaled(
        a: torch.Tensor, b: torch.Tensor, a_scales: torch.Tensor, b_scales: torch.Tensor
    ) -> torch.Tensor:
        return a_scales * (b_scales * (a.to(a_scales.dtype) @ b.to(a_scales.dtype)))

    def factors() -> tuple[torch.Tensor, ...]:
        a, weight = (_rounded(30 * torch.randn(each, SIZE), kind).to(kind) for each in (rows, SIZE))
        return a, weight.t(), torch.rand(rows, 1), torch.rand(1, SIZE)

    return KernelCase(
        operator="scaled_mm",
        inputs=factors,
        exact=scaled,
        # Torch's own functions are slower: `_scaled_mm`, which takes no scales of rows with
        # float16, and, without VNNI, `_int_mm`.
        reference=lambda *arguments, out: out.copy_(scaled(*arguments)),
        title=f"{dtype_name(kind)} to {_title(rows, dtype)} x {SIZE}²",
        size=rows,
        dtype=dtype,
        out_dtype=dtype,
        flops=2 * rows * SIZE**2,
    )
