"""Properties of slot 0 on the CPU, over all places and values that a fault can hide in.

Examples miss a lane that is never the largest, a byte that no test writes, or the last number that
a type can hold. These tests visit all of them, or draw them from a seeded generator.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from native_operands import FLOATS, INTEGERS, NAN, UNSIGNED, Maker, tolerance

import infini.ops
import torch

# Longer than two rounds of four of the widest vectors, a vector, and a part of one.
ROW = 2 * 4 * 16 + 16 + 6
BLOCK = 512  # elements that src/cpu/row_elements.h gathers at a time

Array = np.ndarray[Any, Any]


def run(name: str, *arguments: Any, **keywords: Any) -> None:
    getattr(infini.ops, name)(*arguments, **keywords, implementation_index=0)


def is_accepted(name: str, *arguments: Any, **keywords: Any) -> bool:
    """Run slot 0; return False if it refuses the call."""
    try:
        run(name, *arguments, **keywords)
    except ValueError as error:
        if f"{name}: slot 0 takes " not in str(error):
            raise
        return False
    return True


def bits(values: Array, dtype: torch.dtype) -> torch.Tensor:
    """The floats with these bit patterns, in memory of their own."""
    return torch.from_numpy(np.ascontiguousarray(values)).view(dtype).clone()


class TestEveryPosition:
    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    def test_the_largest_of_a_softmax(self, dtype: torch.dtype) -> None:
        """Each element is the largest once, seen by rows of each length, or hidden from them."""
        positions = torch.arange(ROW)
        x = torch.zeros(ROW, ROW, ROW, dtype=dtype)
        x[positions, :, positions] = 1000.0  # the others vanish; as an exponent, it overflows
        out = torch.full_like(x, NAN)
        run("causal_softmax", x, out)
        seen = torch.ones(ROW, ROW).tril() / torch.arange(1, ROW + 1).unsqueeze(1)
        expected = seen.repeat(ROW, 1, 1)
        for position in range(ROW):
            expected[position, position:] = 0
            expected[position, position:, position] = 1
        allowed = tolerance(dtype, ulps=4)
        torch.testing.assert_close(
            out, expected.to(dtype), rtol=max(allowed.rtol, 1e-6), atol=allowed.atol
        )

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    def test_the_only_element_of_a_mean(self, dtype: torch.dtype) -> None:
        x, weight = torch.eye(ROW, dtype=dtype), Maker(dtype)(ROW)
        out = torch.full_like(x, NAN)
        run("rms_norm", x, weight, 0.0, out)
        expected = torch.diag(weight.double() * ROW**0.5).to(dtype)
        allowed = tolerance(dtype, ulps=8)
        torch.testing.assert_close(out, expected, rtol=allowed.rtol, atol=allowed.atol)

    @pytest.mark.parametrize("name", ["gemm", "matmul", "linear"])
    @pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64, *UNSIGNED], ids=str)
    @pytest.mark.parametrize("rows", [1, 7, ROW])
    def test_the_only_term_of_a_product(self, name: str, dtype: torch.dtype, rows: int) -> None:
        values = Maker(dtype, -100, 100)(ROW, ROW)
        one = torch.eye(ROW).to(dtype)
        for begin in range(0, ROW - rows + 1, rows):
            end = begin + rows
            for x, y, expected in (
                (one[begin:end], values, values[begin:end]),
                (values[begin:end], one, values[begin:end]),
            ):
                out = torch.full((rows, ROW), 77, dtype=dtype)
                run(name, x, y.t() if name == "linear" else y, out=out)
                assert torch.equal(out, expected), (begin, rows)


LENGTHS = (*range(70), *(BLOCK + more for more in (-1, 0, 1)), 2 * BLOCK, 2 * BLOCK + 1)


def with_step(values: Array, step: int) -> Array:
    """The same values ``step`` elements apart; 0 repeats the first one."""
    if step == 0:
        return np.broadcast_to(values[:1], values.shape)
    memory = np.zeros(abs(step) * len(values), values.dtype)
    view = memory[::step]
    view[:] = values
    return view


@pytest.mark.parametrize("name", ["add", "mul", "cast"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64"])
def test_every_length_with_every_step(name: str, dtype: str) -> None:
    """The steps of the operands choose what is gathered, and the length the last part."""
    generator = np.random.default_rng(0)
    target = "float16" if name == "cast" and dtype != "float16" else dtype
    for length in LENGTHS:
        values = generator.integers(-9, 10, (2, length)).astype(dtype)
        for steps in product((1, 2, -1, 0), (1, 3, 0), (1, 2)):
            x, y = with_step(values[0], steps[0]), with_step(values[1], steps[1])
            out = with_step(np.full(length, 77).astype(target), steps[2])
            if name == "cast":
                run(name, x, out)
            else:
                run(name, x, y, out)
            expected = {"add": x + y, "mul": x * y, "cast": x}[name].astype(target)
            np.testing.assert_array_equal(out, expected, err_msg=f"{length} with {steps}")


class TestOverlap:
    """Slot 0 takes an input that is apart from the out, or the same view, and no other."""

    @pytest.mark.parametrize(
        ("name", "inputs"),
        [("add", 2), ("mul", 2), ("swiglu", 2), ("cast", 1), ("causal_softmax", 1)],
    )
    def test_the_transpose_of_the_out(self, name: str, inputs: int) -> None:
        x = Maker(torch.float32)(9, 9)
        other = Maker(torch.float32)(9, 9)
        before = x.clone()
        for position in range(inputs):
            operands = [other] * inputs
            operands[position] = x.T
            assert not is_accepted(name, *operands, out=x)
            assert torch.equal(x, before)
        # The memory of an expanded row is not the matrix that begins there.
        assert not is_accepted(name, *[x[0].expand(9, 9)] * inputs, out=x)
        assert is_accepted(name, *[x] * inputs, out=x)

    def test_the_transpose_of_the_out_of_rms_norm(self) -> None:
        x, weight = Maker(torch.float32)(9, 9), torch.ones(9)
        assert not is_accepted("rms_norm", x.T, weight, out=x)
        assert is_accepted("rms_norm", x, weight, out=x)

    @pytest.mark.parametrize("name", ["add", "mul"])
    def test_an_array_and_its_transpose_are_right_at_any_slot(self, name: str) -> None:
        x = np.arange(81.0).reshape(9, 9)
        expected = {"add": x.T + x, "mul": x.T * x}[name]
        getattr(infini.ops, name)(x.T, x, x)
        np.testing.assert_array_equal(x, expected)

    def test_one_byte(self) -> None:
        size = 8
        for shift in range(-2 * size, 2 * size + 1):
            memory = np.arange(5 * size, dtype=np.uint8)
            out = memory[2 * size : 3 * size]
            x = memory[2 * size + shift : 3 * size + shift]
            apart = np.ones(size, np.uint8)
            wanted = shift == 0 or abs(shift) >= size
            assert is_accepted("add", x, apart, out.copy())
            assert is_accepted("add", x, apart, out) == wanted, shift
            assert is_accepted("mul", apart, x, out) == wanted, shift
            assert is_accepted("cast", x, out) == wanted, shift
            assert is_accepted("cat", [x], 0, out) == wanted, shift

    def test_one_byte_of_an_element(self) -> None:
        for shift in range(-12, 17):
            memory = np.zeros(32, np.uint8)
            memory = memory[-memory.ctypes.data % 4 :]
            x, out = memory[12 + shift : 16 + shift], memory[12:28].view(np.float32)
            assert is_accepted("cast", x, out) == (shift <= -4 or shift >= 16), shift

    def test_random_views_of_one_memory(self) -> None:
        """An accepted call gives what it gives with copies, and writes only the out."""
        generator = random.Random(0)  # noqa: S311 - reproducible, not secret
        accepted = 0
        for _ in range(3000):
            memory = np.arange(64, dtype=np.int32)
            shape = [generator.choice((1, 2, 3, 3)) for _ in range(generator.randint(1, 3))]
            out, (out_at, out_apart) = random_view(memory, shape, generator)
            if generator.random() < 0.3:
                x, (x_at, _) = permuted(out, out_at, generator)
            else:
                x, (x_at, _) = random_view(memory, shape, generator)
            same = x_at.tolist() == out_at.tolist()
            is_over = x_at.min() > out_at.max() or x_at.max() < out_at.min()
            steps = [each for each, size in zip(out.strides, shape, strict=True) if size > 1]
            if not out_apart and 0 not in steps:
                continue  # as in torch, one of the writes to an element wins
            expected = memory.copy()
            expected[out_at] = 3 * memory[x_at]
            if not is_accepted("add", x, x, 2, out):
                assert not (out_apart and is_over), (shape, x.strides, out.strides)
                np.testing.assert_array_equal(memory, np.arange(64))
                continue
            assert out_apart, (shape, out.strides)
            assert same or is_over or len({*x_at.flat} & {*out_at.flat}) == 0
            np.testing.assert_array_equal(memory, expected)
            accepted += 1
        assert accepted > 500


View = tuple[Array, tuple[Array, bool]]  # and its elements' places in memory, if each has its own


def random_view(memory: Array, shape: list[int], generator: random.Random) -> View:
    while True:
        strides = [generator.choice((-9, -3, -1, 0, 1, 2, 3, 6, 9, 10)) for _ in shape]
        offset = generator.randrange(len(memory))
        places = offset + sum(
            np.arange(size).reshape(-1, *[1] * (len(shape) - 1 - i)) * stride
            for i, (size, stride) in enumerate(zip(shape, strides, strict=True))
        )
        places = np.broadcast_to(places, shape)
        if places.min() >= 0 and places.max() < len(memory):
            return view_at(memory, offset, shape, strides), (places, is_apart(places))


def permuted(view: Array, places: Array, generator: random.Random) -> View:
    """The view with its dimensions in another order, if it keeps its shape; else the view."""
    order = generator.sample(range(view.ndim), view.ndim)
    if view.transpose(order).shape != view.shape:
        order = [*range(view.ndim)]
    places = places.transpose(order)
    return view.transpose(order), (places, is_apart(places))


def view_at(memory: Array, offset: int, shape: list[int], strides: list[int]) -> Array:
    steps = [stride * memory.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(memory[offset:], shape, steps)


def is_apart(places: Array) -> bool:
    return len({*places.flat}) == places.size


@pytest.mark.parametrize("dtype", ["int16", "float32", "float64"])
def test_addresses_between_elements(dtype: str) -> None:
    """NumPy has views of raw bytes at any address; slot 0 takes those of whole elements."""
    size = np.dtype(dtype).itemsize
    memory = np.zeros(3 * 4 * size + size, np.uint8)
    memory = memory[-memory.ctypes.data % size :]
    for shift in range(size + 1):
        odd = memory[shift : shift + 4 * size].view(dtype)
        even = np.ones(4, dtype)
        for operands in ((odd, even, even), (even, odd, even), (even, even, odd)):
            assert is_accepted("add", *operands) == (shift % size == 0)
        assert is_accepted("cast", odd, np.ones(4, "int64")) == (shift % size == 0)
        assert is_accepted("cat", [even, odd], 0, np.ones(8, dtype)) == (shift % size == 0)


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


def as_integer(number: float, dtype: str) -> int:
    """The documented rule of casts, in exact numbers."""
    limit = 2**64 if dtype == "uint64" else 2**63
    whole = int(number) if -(2**63) <= number < limit else -(2**63)
    info = np.iinfo(dtype)
    return (whole - info.min) % 2**info.bits + info.min


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
        """Alone and among small ones, since blocks of small ones are converted in another way."""
        values = [0.0, NAN, float("inf"), torch.finfo(dtype).max, 0.99, 1.5, 300.75, 70000.0]
        values += [2.0**bit + step for bit in range(66) for step in (-1, -0.5, 0, 0.5, 1)]
        x = torch.tensor([*values, *(-each for each in values)], dtype=torch.float64).to(dtype)
        among = torch.full((len(x), BLOCK + 9), -1.75).to(dtype)
        among[torch.arange(len(x)), torch.arange(len(x)) * 7 % (BLOCK + 9)] = x
        for floats in (x, among):
            out = torch.zeros(floats.shape, dtype=getattr(torch, target))
            run("cast", floats, out)
            distinct, places = np.unique(floats.double().numpy(), return_inverse=True)
            expected = [as_integer(each, target) for each in distinct.tolist()]
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


class TestStorage:
    """Torch's own kernels do not notice that a storage was freed or made shorter."""

    @pytest.mark.parametrize("position", range(3))
    @pytest.mark.parametrize(
        "make",
        [
            lambda: torch.ones(4),
            lambda: torch.ones(9)[5:],
            lambda: torch.ones(4, 3)[:, 1],
            lambda: torch.ones(2, 8).t()[::2, 1],
        ],
        ids=["whole", "end", "column", "last"],
    )
    def test_a_storage_that_is_too_short(self, position: int, make: Any) -> None:
        operands = [torch.ones(4), torch.ones(4), torch.ones(4)]
        short = operands[position] = make()
        last = short.storage_offset() + 3 * short.stride(0)
        storage = short.untyped_storage()
        storage.resize_(4 * (last + 1))
        run("add", *operands)
        for size in (4 * (last + 1) - 1, 4 * last, 4, 0):
            storage.resize_(size)
            for index in (0, None):
                with pytest.raises(ValueError, match=rf"has {size} bytes, expected at least"):
                    infini.ops.add(*operands, implementation_index=index)

    def test_an_element_of_a_list(self) -> None:
        short = torch.ones(4)
        short.untyped_storage().resize_(0)
        with pytest.raises(ValueError, match="has 0 bytes, expected at least 16"):
            infini.ops.cat([torch.ones(4), short], 0, torch.ones(8))

    def test_a_storage_that_is_long_enough(self) -> None:
        repeated, out = torch.ones(1).expand(5), torch.zeros(5)
        run("add", repeated, repeated, out)
        assert out.tolist() == [2] * 5
        empty = torch.ones(0, 3)
        empty.untyped_storage().resize_(0)
        run("add", empty, empty, empty)


FORK = """
import os, warnings
from pathlib import Path

import infini.ops
import torch

tasks = Path("/proc/self/task")
x, weight, out = torch.ones(1024, 1024), torch.ones(1024), torch.zeros(1024, 1024)
torch.set_num_threads(4)  # of the library; torch's own threads do not survive a fork
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads


def started():
    before = set(tasks.iterdir())
    infini.ops.rms_norm(x, weight, out, implementation_index=0)
    assert abs(out.numpy() - 1).max() < 1e-3
    out.numpy()[:] = 0
    return len(set(tasks.iterdir()) - before)


assert started() > 0
child = os.fork()
if child == 0:
    threads = started()
    print(f"the child started {threads} threads", flush=True)
    os._exit(0 if threads > 0 else 1)
assert os.waitpid(child, 0)[1] == 0, "the child failed"
assert started() == 0, "the parent lost its threads"
"""


@pytest.mark.operators("rms_norm")
def test_the_child_of_a_fork_starts_threads_of_its_own() -> None:
    """It has none of its parent's, and must not wait for them."""
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=60)
