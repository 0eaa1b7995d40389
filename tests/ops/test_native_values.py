"""Slot 0 on the CPU, over all values that a fault can hide in.

Every 16-bit float and what is rounded to it, every payload of NaN, every byte of a bool, and the
limits of every type.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest
from native_examples import Function, gelu, gelu_tanh, silu
from native_operands import FLOATS, INTEGERS, NAN, UNSIGNED, as_integer, tolerance
from programs import output_of
from slot_zero import CHUNK, Array, is_accepted, run

import torch

pytestmark = pytest.mark.cpu_kernels


def bits(values: Array, dtype: torch.dtype) -> torch.Tensor:
    """The floats with these bit patterns, in memory of their own."""
    return torch.from_numpy(np.ascontiguousarray(values)).view(dtype).clone()


# As TestRounding does with the widest vectors. torch's results are those of the same process.
NARROWER_VECTORS = """
import infini.ops
import torch


def check(x, target):
    out = torch.full(x.shape, 77, dtype=target)
    infini.ops.cast(x, out, implementation_index=0)
    torch.testing.assert_close(out, x.to(target), rtol=0, atol=0, equal_nan=True)


halves = torch.arange(2**16, dtype=torch.int32)
lower = torch.tensor([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
floats = ((halves.long()[:, None] << 16) + lower).int().view(torch.float32).ravel()
for dtype in (torch.float16, torch.bfloat16):
    check(halves.short().view(dtype), torch.float32)
    check(floats, dtype)
"""


@pytest.mark.operators("cast")
@pytest.mark.parametrize("isa", ["baseline", "avx2"])
def test_every_16_bit_float_in_narrower_vectors(isa: str) -> None:
    environment = {**os.environ, "INFINI_OPS_CPU_ISA": isa}
    output_of([sys.executable, "-c", NARROWER_VECTORS], env=environment)


class TestRounding:
    """Each 16-bit float, and the numbers halfway between two of them, as torch rounds them."""

    @pytest.mark.parametrize("target", [*FLOATS, torch.bool], ids=str)
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_every_16_bit_float(self, dtype: torch.dtype, target: torch.dtype) -> None:
        self._compare(bits(np.arange(2**16, dtype=np.uint16), dtype), target)

    @pytest.mark.parametrize("target", [torch.float16, torch.bfloat16], ids=str)
    def test_the_float32_around_them(self, target: torch.dtype) -> None:
        upper = np.arange(2**16, dtype=np.uint32) << 16
        # The lower bits at which the 16 or 13 that are lost begin, tie, and end.
        lower = (0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
        self._compare(bits((upper[:, None] + np.uint32(lower)).ravel(), torch.float32), target)

    @pytest.mark.parametrize("beta", [1.0, 1.5, 4096.0])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_one_at_a_time(self, dtype: torch.dtype, beta: float) -> None:
        """The end of a product reads and writes an out with gaps without vectors."""
        x = bits(np.arange(2**16, dtype=np.uint16), dtype)
        memory = torch.full((2**16, 2), 77, dtype=dtype)
        memory[:, 0] = x
        zeros = torch.zeros(2**16, 1, dtype=dtype)
        run("gemm", zeros, zeros[:1], 1.0, beta, out=memory[:, :1])
        expected = (x.float() * beta).to(dtype)
        torch.testing.assert_close(memory[:, 0], expected, rtol=0, atol=0, equal_nan=True)
        assert (memory[:, 1] == 77).all()

    def _compare(self, x: torch.Tensor, target: torch.dtype) -> None:
        out = torch.full(x.shape, 77, dtype=target)
        run("cast", x, out)
        expected = x.to(target)
        # A NaN has many patterns, of which torch's vector code gives another than its scalar code.
        torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)

    @pytest.mark.parametrize("target", FLOATS, ids=str)
    @pytest.mark.parametrize("source", [torch.float32, torch.float64], ids=str)
    def test_every_payload_of_nan_in_every_lane(
        self, source: torch.dtype, target: torch.dtype
    ) -> None:
        """One bit of the payload is enough; rounding all bits up must not overflow."""
        integer, mantissa, width = (
            (np.uint32, 23, 32) if source is torch.float32 else (np.uint64, 52, 64)
        )
        infinity = ((1 << width - 1) - 1) >> mantissa << mantissa
        payloads = [1 << bit for bit in range(mantissa)] + [(1 << mantissa) - 1]
        patterns = [sign | infinity | each for sign in (0, 1 << width - 1) for each in payloads]
        length = 2 * 16 + 5
        for lane in range(length):
            x = np.full((len(patterns), length), 1.5, f"float{width}")
            x.view(integer)[:, lane] = patterns
            out = torch.zeros(x.shape, dtype=target)
            run("cast", torch.from_numpy(x), out)
            assert out[:, lane].isnan().all()
            out[:, lane] = 1.5
            assert (out == 1.5).all()


INTEGER_NAMES = [str(dtype).removeprefix("torch.") for dtype in INTEGERS]


def extremes(dtype: str, size: int = 200) -> Array:
    """Integers of all sizes, the limits of each type among them."""
    info = np.iinfo(dtype)
    ends = {sign * (1 << bit) + step for bit in range(65) for sign in (1, -1) for step in (-1, 0)}
    kept = [end for end in sorted(ends) if info.min <= end <= info.max]
    drawn = np.random.default_rng(0).integers(info.min, info.max, size, dtype, endpoint=True)
    return np.concatenate([np.array(kept, dtype), drawn])


class TestActivations:
    """Every 16-bit float, and each float32 of a sample of two million of every size."""

    FUNCTIONS: ClassVar[dict[str, Function]] = {
        "gelu_and_mul": gelu,
        "gelu_tanh_and_mul": gelu_tanh,
        "silu_and_mul": silu,
    }

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_every_16_bit_float(self, name: str, dtype: torch.dtype) -> None:
        x = bits(np.arange(2**16, dtype=np.uint16), dtype)
        exact = self.FUNCTIONS[name](x.double()).to(dtype)
        allowed = tolerance(dtype)
        out = self._activated(name, x)
        torch.testing.assert_close(
            out, exact, rtol=allowed.rtol / 2, atol=allowed.atol, equal_nan=True
        )

    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_the_error_in_units_of_the_last_place(self, name: str) -> None:
        patterns = np.arange(0, 0x7F800000, 1021, dtype=np.uint32)
        x = bits(np.concatenate([patterns, patterns | np.uint32(1 << 31)]), torch.float32)
        exact = self.FUNCTIONS[name](x.double())
        result = self._activated(name, x).double()
        normal = torch.finfo(torch.float32).tiny
        unit = exact.abs().clamp(min=normal).log2().floor().exp2() * 2.0**-23
        error = (result - exact).abs() / unit
        # Until the exponential is subnormal. The exponent of the tanh is rounded.
        allowed = torch.full_like(x, 7.0).double()
        if name == "gelu_tanh_and_mul":
            allowed = 4 + 3 * (1.6 * x.double() + 0.0714 * x.double() ** 3).abs()
        is_normal = exact.abs() > 128 * normal
        assert not result.isnan().any()
        assert (error[is_normal] <= allowed[is_normal]).all(), error[is_normal].max()
        assert ((result - exact).abs()[~is_normal] <= 2e-5 * 128 * normal).all()

    def _activated(self, name: str, x: torch.Tensor) -> torch.Tensor:
        out = torch.full(x.shape, 77).to(x.dtype)
        run(name, torch.cat([x, torch.ones_like(x)]), out)
        return out


class TestIntegers:
    @pytest.mark.parametrize("name", ["add", "mul"])
    @pytest.mark.parametrize("dtype", INTEGER_NAMES)
    def test_sums_and_products_wrap_around(self, name: str, dtype: str) -> None:
        x = extremes(dtype)
        x, y = np.meshgrid(x, x)
        out = np.full(x.shape, 77, dtype)
        run(name, x, y, out=out)
        np.testing.assert_array_equal(out, {"add": x + y, "mul": x * y}[name])

    @pytest.mark.parametrize("target", INTEGER_NAMES)
    @pytest.mark.parametrize("dtype", INTEGER_NAMES)
    def test_they_wrap_around_in_another_type(self, dtype: str, target: str) -> None:
        x = extremes(dtype)
        out = np.full(x.shape, 77, target)
        run("cast", x, out)
        info = np.iinfo(target)
        assert out.tolist() == [(each - info.min) % 2**info.bits + info.min for each in x.tolist()]

    @pytest.mark.parametrize("target", FLOATS, ids=str)
    @pytest.mark.parametrize("dtype", INTEGER_NAMES)
    def test_they_are_rounded_to_floats(self, dtype: str, target: torch.dtype) -> None:
        x = torch.from_numpy(extremes(dtype))
        out = torch.full(x.shape, 77, dtype=target)
        run("cast", x, out)
        # Through float32, as torch rounds to 16 bits.
        expected = (x if target.itemsize > 2 else x.float()).to(target)
        assert torch.equal(out, expected)

    @pytest.mark.parametrize("target", INTEGER_NAMES)
    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    def test_floats_in_and_out_of_range(self, dtype: torch.dtype, target: str) -> None:
        """Alone and among small ones, since chunks of small ones are converted in another way."""
        values = [0.0, NAN, float("inf"), torch.finfo(dtype).max, 0.99, 1.5, 300.75, 70000.0]
        values += [2.0**bit + step for bit in range(66) for step in (-1, -0.5, 0, 0.5, 1)]
        x = torch.tensor([*values, *(-each for each in values)], dtype=torch.float64).to(dtype)
        large = x[~(x.abs() < 2**30)]
        rows = torch.arange(len(large))
        among = torch.full((len(rows), CHUNK * 3 // 2), -1.75).to(dtype)
        among[rows, rows * 331 % among.shape[1]] = large
        for floats in (x, among, among[:, ::2]):
            out = torch.zeros(floats.shape, dtype=getattr(torch, target))
            run("cast", floats, out)
            distinct, places = np.unique(floats.double().numpy(), return_inverse=True)
            expected = [as_integer(each, getattr(torch, target)) for each in distinct.tolist()]
            np.testing.assert_array_equal(
                out.numpy(), np.array(expected, target)[places].reshape(out.shape)
            )


class TestBool:
    """NumPy's and torch's views can put any byte into a bool; every byte but 0 is true."""

    @pytest.mark.parametrize("target", [*FLOATS, *INTEGERS, torch.bool], ids=str)
    @pytest.mark.parametrize("step", [1, 3])
    def test_any_byte_is_0_or_1_elsewhere(self, target: torch.dtype, step: int) -> None:
        x = torch.arange(256, dtype=torch.uint8).repeat_interleave(step).view(torch.bool)[::step]
        out = torch.full((256,), 77).to(target)
        run("cast", x, out)
        numbers = out.view(torch.uint8) != 0 if target is torch.bool else out
        assert numbers.tolist() == [0] + [1] * 255

    def test_any_byte_in_a_list(self) -> None:
        values = np.arange(256, dtype=np.uint8).view(np.bool_)
        out = np.zeros(512, np.bool_)
        run("cat", [values, values[::-1]], 0, out)
        truth = [False, *[True] * 255]
        assert (out.view(np.uint8) != 0).tolist() == truth + truth[::-1]

    @pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
    def test_numbers_become_0_or_1(self, dtype: torch.dtype) -> None:
        if dtype.is_floating_point:
            info = torch.finfo(dtype)
            smallest = info.smallest_normal * info.eps
            values = [0.0, -0.0, smallest, -smallest, info.max, NAN, float("inf"), 0.25]
        else:
            # Those whose lower bytes are all zero.
            width = torch.iinfo(dtype).bits
            values = [0, torch.iinfo(dtype).min, *(1 << bit for bit in range(width - 1))]
        x = torch.tensor(values, dtype=dtype)
        out = torch.full(x.shape, 77, dtype=torch.uint8).view(torch.bool)
        run("cast", x, out)
        assert out.view(torch.uint8).tolist() == [int(value != 0) for value in values]


def limits(dtype: torch.dtype) -> Iterator[tuple[float, bool]]:
    """Yield numbers at the limits of a type, and whether the type can hold them."""
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        for sign in (1, -1):
            yield sign * info.max, True
            yield sign * float("inf"), True
            if dtype is not torch.float64:
                yield sign * float(np.nextafter(info.max, np.inf)), False
        return
    integers = torch.iinfo(dtype)
    # As in torch, a negative number may be subtracted from an unsigned one.
    lowest = integers.min or -integers.max
    ends = (lowest, integers.max, -(2**63), 2**63, 2**64 - 1)
    for number in sorted({end + step for end in ends for step in (-1, 0, 1)}):
        if -(2**63) <= number < 2**64:  # what a call can pass
            yield number, lowest <= number <= integers.max


class TestFactors:
    @pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
    def test_alpha_at_the_limits_of_the_type(self, dtype: torch.dtype) -> None:
        x, y = torch.tensor([0, 0, 1]).to(dtype), torch.tensor([1, 0.5, 3]).to(dtype)
        for alpha, fits in limits(dtype):
            out = torch.full_like(x, 77)
            assert is_accepted("add", x, y, alpha, out) == fits, alpha
            if dtype in UNSIGNED[1:]:  # torch does not add them
                pairs = zip(x.tolist(), y.tolist(), strict=True)
                sums = [int(a + alpha * b) % 2 ** torch.iinfo(dtype).bits for a, b in pairs]
                assert out.tolist() == (sums if fits else [77] * 3), alpha
            elif fits:
                assert torch.equal(out, torch.add(x, y, alpha=alpha)), alpha
            else:
                with pytest.raises(RuntimeError, match="overflow"):
                    torch.add(x, y, alpha=alpha)

    @pytest.mark.parametrize("name", ["alpha", "beta"])
    @pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64], ids=str)
    def test_those_of_gemm(self, name: str, dtype: torch.dtype) -> None:
        one = torch.ones(1, 1, dtype=dtype)
        for factor, fits in limits(dtype):
            factors = {"alpha": 0, "beta": 0} | {name: factor}
            if isinstance(factor, float) and factor in (float("inf"), -float("inf")):
                continue  # times zero is NaN
            out = one.clone()
            assert is_accepted("gemm", one, one, **factors, out=out) == fits, factor
            assert out.item() == (factor if fits else 1)
