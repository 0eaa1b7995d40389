"""Quantization and scaled products: errors against float64, and the same bits in every batch.

Also what NaN, infinity and zeros become.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import pytest
from native_examples import COMMON
from quantization_examples import FLOAT8, INT8, LARGEST, LEAST_SCALE

import infini.ops
import torch

pytestmark = pytest.mark.cpu_kernels
Tensor: TypeAlias = torch.Tensor
NAN, INFINITY = float("nan"), float("inf")


def per_tensor_float8(x: Tensor) -> tuple[Tensor, ...]:
    result, scale = torch.empty(x.shape, dtype=FLOAT8), torch.empty(1)
    infini.ops.dynamic_scaled_fp8_quant(x, result, scale)
    return result, scale


def per_token_float8(x: Tensor) -> tuple[Tensor, ...]:
    result, scale = torch.empty(x.shape, dtype=FLOAT8), torch.empty(*x.shape[:-1], 1)
    infini.ops.dynamic_per_token_scaled_fp8_quant(x, result=result, scale=scale)
    return result, scale


def per_token_int8(x: Tensor) -> tuple[Tensor, ...]:
    result, scale = torch.empty(x.shape, dtype=INT8), torch.empty(*x.shape[:-1], 1)
    infini.ops.dynamic_scaled_int8_quant(x, result, scale)
    return result, scale


def per_token_azp(x: Tensor) -> tuple[Tensor, ...]:
    result, scale = torch.empty(x.shape, dtype=INT8), torch.empty(*x.shape[:-1], 1)
    azp = torch.empty(scale.shape, dtype=torch.int32)
    infini.ops.dynamic_scaled_int8_quant(x, result, scale, azp=azp)
    return result, scale, azp


def per_group(quantized: torch.dtype, x: Tensor) -> tuple[Tensor, ...]:
    result = torch.empty(x.shape, dtype=quantized)
    scale = torch.empty(*x.shape[:-1], x.shape[-1] // 8)
    operator, most = infini.ops.per_token_group_fp8_quant, LARGEST
    if quantized is INT8:
        operator, most = infini.ops.per_token_group_quant_int8, 127.0
    operator(x, 8, 1e-10, -most, most, output_q=result, output_s=scale)
    return result, scale.repeat_interleave(8, -1)


Quantize = Callable[[Tensor], tuple[Tensor, ...]]
FUNCTIONS: dict[str, Quantize] = {
    "dynamic_scaled_fp8_quant": per_tensor_float8,
    "dynamic_per_token_scaled_fp8_quant": per_token_float8,
    "dynamic_scaled_int8_quant": per_token_int8,
    "dynamic_scaled_int8_quant-azp": per_token_azp,
    "per_token_group_fp8_quant": partial(per_group, FLOAT8),
    "per_token_group_quant_int8": partial(per_group, INT8),
}


def functions(*skipped: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "quantize",
        [
            pytest.param(each, id=name, marks=pytest.mark.operators(name.partition("-")[0]))
            for name, each in FUNCTIONS.items()
            if name not in skipped
        ],
    )


@functions()
@pytest.mark.parametrize("dtype", COMMON, ids=str)
def test_results_are_the_nearest_numbers(quantize: Quantize, dtype: torch.dtype) -> None:
    """In float64: half of the distance to the next number, and what float32 rounds."""
    x = torch.randn(33, 200, generator=torch.Generator().manual_seed(0)).to(dtype)
    result, scale, *azp = quantize(x)
    zero = azp[0].double() if azp else 0
    exact = x.double() / scale.double()
    got = result.double() - zero
    if result.dtype is FLOAT8:
        # Four bits of precision, and multiples of 2^-9 below 2^-6.
        half = 2.0 ** (torch.frexp(exact.clamp(min=-LARGEST, max=LARGEST)).exponent - 5).clamp(-10)
    else:
        half = torch.full_like(exact, 0.5)
    assert ((got - exact).abs() <= half + exact.abs() * 2**-21).all()
    assert result.double().unique().numel() > 100


@functions()
def test_a_nan_is_no_magnitude(quantize: Quantize) -> None:
    """In float8_e4m3fn it stays one, in int8 it becomes what 0 does. Others are as without it."""
    x = torch.linspace(-3, 5, 64).view(4, 16)
    with_nan = x.clone()
    with_nan[1, 3], with_nan[2, 5], x[1, 3], x[2, 5] = NAN, -NAN, x[1, 4], x[2, 6]
    (result, scale, *azp), (plain, plain_scale, *_) = quantize(with_nan), quantize(x)
    is_nan = with_nan.isnan()
    assert torch.equal(scale, plain_scale)
    assert torch.equal(result.double()[~is_nan], plain.double()[~is_nan])
    if result.dtype is FLOAT8:
        assert result.double()[is_nan].isnan().all()
    else:
        zero = azp[0].clamp(-128, 127).expand(4, 16) if azp else torch.zeros(4, 16)
        assert torch.equal(result.int()[is_nan], zero.int()[is_nan])


ZERO_SCALES = {
    "dynamic_scaled_fp8_quant": LEAST_SCALE,
    "dynamic_per_token_scaled_fp8_quant": LEAST_SCALE,
    "dynamic_scaled_int8_quant": 0.0,
    "dynamic_scaled_int8_quant-azp": 0.0,
    "per_token_group_fp8_quant": 1e-10 / LARGEST,
    "per_token_group_quant_int8": 1e-10 / 127,
}


@functions()
@pytest.mark.parametrize("value", [0.0, -0.0, NAN])
def test_zeros(quantize: Quantize, value: float) -> None:
    """Also of rows that have no number at all."""
    (name,) = (name for name, each in FUNCTIONS.items() if each is quantize)
    result, scale, *azp = quantize(torch.full((3, 16), value))
    assert scale.unique().tolist() == pytest.approx([ZERO_SCALES[name]])
    if azp:
        assert azp[0].unique().tolist() == result.unique().tolist() == [-128]
    elif result.dtype is INT8 or value == value:
        assert result.double().unique().tolist() == [0]
    else:
        assert result.double().isnan().all()


@functions()
def test_infinity_is_a_magnitude(quantize: Quantize) -> None:
    x = torch.ones(1, 16)
    x[0, 3] = INFINITY
    result, scale, *_ = quantize(x)
    assert scale[..., 0].item() == INFINITY
    if result.dtype is FLOAT8:
        assert result.double()[0, 3].isnan()
    assert result.double()[0, :3].unique().numel() == 1


@pytest.mark.operators("dynamic_scaled_int8_quant")
@pytest.mark.parametrize("value", [0.3, -7.25, 1e-30])
def test_a_row_of_one_number_is_exact(value: float) -> None:
    x = torch.full((2, 16), value)
    result, scale, azp = per_token_azp(x)
    assert torch.equal((result.int() - azp) * scale, x)


@pytest.fixture
def _several_threads() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


def product(a: Tensor, b: Tensor, out_dtype: torch.dtype = torch.float32) -> Tensor:
    out = torch.empty(a.shape[0], b.shape[1], dtype=out_dtype)
    infini.ops.scaled_mm(a, b, torch.ones(1), torch.ones(1), out=out)
    return out


@pytest.mark.operators("scaled_mm")
@pytest.mark.parametrize("steps", [1, 255, 2048, 2049, 5000])
@pytest.mark.parametrize("rows", [1, 7, 70])
def test_products_of_int8_are_exact(rows: int, steps: int) -> None:
    """As integers, which are rounded once."""
    random = torch.Generator().manual_seed(0)
    a, b = (
        torch.randint(-128, 128, shape, generator=random, dtype=torch.int8)
        for shape in ((rows, steps), (steps, 67))
    )
    a[0], b[:, 0] = -128, -128  # the largest sum, which is odd with the last step
    a[0, 0], b[0, 0] = 127, 127
    exact = a.long() @ b.long()
    assert torch.equal(product(a, b), exact.float())
    assert torch.equal(product(a, b.t().contiguous().t()), exact.float())


@pytest.mark.operators("scaled_mm")
def test_products_of_int8_are_exact_beyond_the_integers_of_float32() -> None:
    """Their sum exceeds 2^24 on the way, where float32 has no odd numbers, and comes back."""
    a, b = torch.full((1, 4000), -128).to(INT8), torch.full((4000, 1), -128).to(INT8)
    b[2000:] = 127
    a[0, 0], b[0, 0] = 1, 1
    exact = a.long() @ b.long()
    assert exact.item() % 2 == 1
    assert product(a, b).item() == exact.item()


@pytest.mark.operators("scaled_mm")
def test_every_float8_is_multiplied() -> None:
    every = torch.arange(256, dtype=torch.uint8).view(FLOAT8)
    got = product(every.view(256, 1), torch.ones(1, 1).to(FLOAT8))
    torch.testing.assert_close(got.flatten(), every.float(), rtol=0, atol=0, equal_nan=True)
    strided = every.view(torch.uint8).repeat_interleave(2).view(FLOAT8)[::2]
    got = product(torch.ones(1, 1).to(FLOAT8), strided.view(256, 1).t())
    torch.testing.assert_close(got.flatten(), every.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.usefixtures("_several_threads")
@pytest.mark.operators("scaled_mm")
@pytest.mark.parametrize("dtype", COMMON, ids=str)
def test_a_row_of_a_product_has_the_same_bits_in_every_batch(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    a = torch.randn(150, 1111, generator=random).to(FLOAT8)
    b = torch.randn(300, 1111, generator=random).to(FLOAT8).t()
    batches = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        batches.append(product(a, b, dtype))
    assert torch.equal(*batches)
    for rows in (slice(0, 1), slice(17, 22), slice(100, 150)):
        assert torch.equal(product(a[rows], b, dtype), batches[0][rows])


@pytest.mark.usefixtures("_several_threads")
@functions("dynamic_scaled_fp8_quant")
@pytest.mark.parametrize("dtype", COMMON, ids=str)
def test_a_row_has_the_same_bits_in_every_batch(quantize: Quantize, dtype: torch.dtype) -> None:
    x = torch.randn(65, 1032, generator=torch.Generator().manual_seed(0)).to(dtype)
    results = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        results.append([each.view(torch.uint8) for each in quantize(x)])
    for row in (0, 17, 64):
        alone = [each.view(torch.uint8) for each in quantize(x[row : row + 1])]
        for batch in results:
            assert all(map(torch.equal, alone, (each[row : row + 1] for each in batch)))


@pytest.mark.usefixtures("_several_threads")
@pytest.mark.operators("dynamic_scaled_fp8_quant")
def test_a_tensor_has_the_same_bits_with_any_number_of_threads() -> None:
    x = torch.randn(200_001, generator=torch.Generator().manual_seed(0))
    alone = per_tensor_float8(x)
    for threads in (2, 3, 5):
        torch.set_num_threads(threads)
        for got, expected in zip(per_tensor_float8(x), alone, strict=True):
            assert torch.equal(got.view(torch.uint8), expected.view(torch.uint8))
