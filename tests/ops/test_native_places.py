"""Slot 0 on the CPU, over all places that a fault can hide in: lanes, steps, memory, threads.

Examples miss a lane that is never the largest, or an overlap of one byte. These tests visit all of
them, or draw them from a seeded generator.
"""

from __future__ import annotations

import ctypes
import mmap
import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from native_examples import OPERATORS
from native_operands import FLOATS, NAN, UNSIGNED, Maker, tolerance
from slot_zero import BLOCK, CHUNK, STREAMED, Array, is_accepted, run

import infini.ops
import torch

pytestmark = pytest.mark.cpu_kernels

# Longer than two rounds of four of the widest vectors, a vector, and a part of one.
ROW = 2 * 4 * 16 + 16 + 6


Batch = tuple[dict[str, torch.Tensor], dict[str, Any]]
ROWS = 37


def norms(make: Maker, *names: str) -> Batch:
    return {name: make(ROWS, 1037) for name in names}, {"weight": make(1037)}


def activations(make: Maker) -> Batch:
    return {"input": make(ROWS, 2 * 1037), "out": make(ROWS, 1037)}, {}


def rotations(make: Maker) -> Batch:
    of_rows = {"positions": torch.arange(ROWS), "query": make(ROWS, 8 * 64)}
    return of_rows, {"key": None, "head_size": 64, "cos_sin_cache": make(ROWS, 64)}


# How to make rows, and the operands of all rows.
BATCHED: dict[str, Callable[[Maker], Batch]] = {
    "rms_norm": lambda make: norms(make, "input", "out"),
    "add_rms_norm": lambda make: norms(make, "input", "residual", "out", "residual_out"),
    "fused_add_rms_norm": lambda make: norms(make, "input", "residual"),
    "silu_and_mul": activations,
    "gelu_and_mul": activations,
    "gelu_tanh_and_mul": activations,
    "rotary_embedding": rotations,
    "causal_softmax": lambda make: ({each: make(ROWS, 5, 1037) for each in ("input", "out")}, {}),
    "scaled_softmax": lambda make: (
        {each: make(ROWS, 1037) for each in ("input", "out")},
        {"scale": -0.7},
    ),
}


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

    def test_a_product_in_parts(self) -> None:
        """Eight million elements are packed at a time, and what remains is less."""
        values = Maker(torch.int8, -100, 100)(8192, 1200)
        rows = torch.tensor([5, 8000])
        one = torch.zeros(2, 8192, dtype=torch.int8)
        one[[0, 1], rows] = 1
        expected = values[rows]
        for x, y, result in ((one, values, expected), (values.t(), one.t(), expected.t())):
            out, after = torch.full((2, *result.shape), 77, dtype=torch.int8)
            run("matmul", x, y, out)
            assert torch.equal(out, result)
            assert (after == 77).all()


LENGTHS = (*range(70), *(BLOCK + more for more in (-1, 0, 1)), 2 * BLOCK + 1, CHUNK, CHUNK + 1)


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


@pytest.mark.parametrize("name", ["add", "mul", "rms_norm"])
def test_a_result_that_is_stored_past_the_caches(name: str) -> None:
    """It is stored in whole lines of 64 bytes, and what is before and after them in another way.

    Its rows are all equal to a single one, which is stored in the usual way.
    """
    columns = 1021
    row, weight = np.random.default_rng(0).random((2, columns), np.float32)
    others = [weight, 1e-6] if name == "rms_norm" else [weight[:1]]
    expected = np.empty_like(row)
    run(name, row, *others, expected)
    shape = (STREAMED // row.nbytes + 2, columns)
    memory = np.empty(shape[0] * (columns + 2) + 2, np.float32)
    for before, gap in ((0, 0), (1, 0), (0, 1), (1, 2)):
        memory.fill(77)
        rows = memory[before:][: shape[0] * (columns + gap)].reshape(shape[0], columns + gap)
        run(name, np.broadcast_to(row, shape), *others, rows[:, :columns])
        assert (rows[:, :columns] == expected).all(), (before, gap)
        assert (rows[:, columns:] == 77).all()
        assert (memory[:before] == 77).all()
        assert (memory[before + rows.size :] == 77).all()


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

    @pytest.mark.parametrize("name", ["gelu_and_mul", "gelu_tanh_and_mul", "silu_and_mul"])
    def test_no_half_is_written_in_place(self, name: str) -> None:
        """An out of their shape is refused from the first to the last address of the input."""
        memory = Maker(torch.float32)(5, 8)
        x, before = memory[1:4], memory.clone()
        for out in (x[:, :4], x[:, 4:], x.view(6, 4)[:3], x.view(6, 4)[3:], memory[:, 4:][:3]):
            with pytest.raises(ValueError, match="; out must not overlap itself or an input; got"):
                run(name, x, out=out)
            assert torch.equal(memory, before)
        row = memory.view(-1)
        for begin in range(15):
            is_apart = begin <= 6 or begin >= 12
            assert is_accepted(name, row[8:12], out=row[begin : begin + 2]) == is_apart, begin

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

    def test_slices_of_one_tensor(self) -> None:
        """Their extents overlap, their elements do not: as the parts of a fused projection."""
        fused = Maker(torch.float32)(5, 3, 7)
        q, k, v = (fused[:, i] for i in range(3))
        expected = q + k
        assert is_accepted("add", q, k, v)
        torch.testing.assert_close(v, expected, rtol=0, atol=0)
        assert is_accepted("add", fused[:, :, :3], fused[:, :, 3:6], fused[:, :, 4:].clone())
        assert not is_accepted("add", fused[:, :, :3], fused[:, :, 3:6], fused[:, :, 4:])

    def test_views_of_one_memory(self) -> None:
        """Of random strides: what it takes has no common element, and the right result."""
        source = random.Random(0)  # noqa: S311 - the same in each run
        memory = np.zeros(96, np.uint8)

        def view(shape: list[int]) -> Array:
            strides = [source.choice((1, 2, 3, 4, 6, 8, 12)) for _ in shape]
            reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
            start = source.randrange(len(memory) - reach)
            return np.lib.stride_tricks.as_strided(memory[start:], shape, strides)

        taken = 0
        for _ in range(4000):
            shape = [source.choice((1, 2, 3)) for _ in range(3)]
            x, out = view(shape), view(shape)
            memory[:] = 0
            out[...] = 1
            overlaps_itself = memory.sum() != out.size
            x[...] = 2
            is_apart = (out == 1).all()
            is_same = x.ctypes.data == out.ctypes.data and x.strides == out.strides
            memory[:] = np.arange(len(memory))
            expected = x + np.uint8(1)
            if not overlaps_itself and is_accepted("add", x, np.ones(shape, np.uint8), out):
                assert is_apart or is_same, (shape, x.strides, out.strides)
                np.testing.assert_array_equal(out, expected)
                taken += abs(x.ctypes.data - out.ctypes.data) < 8 and not is_same
        assert taken > 50  # those that lie between each other

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


PRODUCTS = ["gemm", "linear", "matmul"]
Views = tuple[torch.Tensor, torch.Tensor]
# Of a square with one row and one column more than the views.
VIEWS_OF_ONE: dict[str, Callable[[torch.Tensor, int], Views]] = {
    "the same": lambda x, size: (x[:size, :size],) * 2,
    "its transpose": lambda x, size: (x[:size, :size], x[:size, :size].t()),
    "the next rows": lambda x, size: (x[:size, :size], x[1:, :size]),
    "the next columns, transposed": lambda x, size: (x[:size, 1:].t(), x[:size, :size]),
    "a repeated row": lambda x, size: (x[1:2, :size].expand(size, size), x[:size, :size]),
    "every element once more": lambda x, size: (
        x.flatten().unfold(0, size, 1)[:size],
        x[1:, :size],
    ),
}


def pairs_of_views(x: torch.Tensor, size: int) -> Iterator[tuple[str, Views]]:
    for title, views in VIEWS_OF_ONE.items():
        first, second = views(x, size)
        yield title, (first, second)
        yield f"{title}, reversed", (second, first)


class TestOperandsOfProductsInOneMemory:
    """Small integers: sums of them are exact in each order."""

    @staticmethod
    def square(dtype: torch.dtype, size: int) -> torch.Tensor:
        return Maker(dtype, -3, 3)(size, size).to(torch.int8).to(dtype)

    @pytest.mark.parametrize("dtype", [*FLOATS, torch.int16], ids=str)
    @pytest.mark.parametrize("name", PRODUCTS)
    def test_inputs(self, name: str, dtype: torch.dtype) -> None:
        for size in (1, 3, 16, 17, 40, ROW):
            memory = self.square(dtype, size + 1)
            before = memory.clone()
            for title, (a, b) in pairs_of_views(memory, size):
                out = torch.full((size, size), 77, dtype=dtype)
                run(name, a, b.t() if name == "linear" else b, out=out)
                expected = (a.double() @ b.double()).to(dtype)
                assert torch.equal(out, expected), (title, size)
                assert torch.equal(memory, before), (title, size)

    @pytest.mark.parametrize("name", PRODUCTS)
    def test_no_out_among_them(self, name: str) -> None:
        """An element of the out is the sum of many, so it can't replace one of the same view."""
        for size in (3, 40):
            memory, other = (self.square(torch.float32, size + 1) for _ in range(2))
            before, other = memory.clone(), other[:size, :size]
            for title, (x, out) in pairs_of_views(memory, size):
                for operands in ((x, other), (other, x), (x, x)):
                    assert not is_accepted(name, *operands, out=out), (title, size)
                if name == "linear":
                    assert not is_accepted(name, other, other, out[0], out=out), (title, size)
                assert torch.equal(memory, before), (title, size)

    @pytest.mark.parametrize("name", ["linear", "matmul"])
    def test_an_array_that_is_the_out_is_right_at_any_slot(self, name: str) -> None:
        x = self.square(torch.float32, 40).numpy()
        expected = x @ (x.T if name == "linear" else x)
        getattr(infini.ops, name)(x, x, out=x)
        np.testing.assert_array_equal(x, expected)


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
    return len({*places.flat}) == int(places.size)


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


@pytest.mark.parametrize("name", ["gemm", "matmul"])
def test_batches_that_do_not_broadcast_to_the_out_are_refused(name: str) -> None:
    batches = [shape for rank in range(3) for shape in product((1, 2, 3), repeat=rank)]
    for a, b, batch in product(batches, repeat=3):
        try:
            fits = torch.broadcast_shapes(a, b) == batch
        except RuntimeError:
            fits = False
        out = torch.zeros(*batch, 2, 4)
        accepted = is_accepted(name, torch.ones(*a, 2, 3), torch.ones(*b, 3, 4), out=out)
        assert accepted == fits, (a, b, batch)
        assert (out == (3 if fits else 0)).all(), (a, b, batch)


def test_lists_with_an_empty_dimension_before_the_joined_one() -> None:
    """The number of rows is a divisor."""
    for shape in ((0,), (0, 3), (3, 0), (1, 0, 2)):
        parts = [torch.ones(*shape, size) for size in (2, 5)]
        run("cat", parts, -1, torch.zeros(*shape, 7))


class TestBatches:
    """The same row gives the same bits in every batch, on any number of threads."""

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("name", BATCHED)
    def test_rows(self, name: str, dtype: torch.dtype) -> None:
        make = Maker(dtype)
        of_rows, others = BATCHED[name](make)
        outs = of_rows.keys() & {"out", "residual_out"}
        written = sorted(outs or of_rows.keys() & {"input", "residual", "query"})

        def results(part: slice, threads: int) -> list[torch.Tensor]:
            given = {each: values[part].clone() for each, values in of_rows.items()}
            torch.set_num_threads(threads)
            try:
                run(name, **given, **others)
            finally:
                torch.set_num_threads(1)
            return [given[each] for each in written]

        every = results(slice(None), 3)
        for part in (slice(0, 1), slice(16, 17), slice(5, 36), slice(36, 37)):
            for whole, alone in zip(every, results(part, 1), strict=True):
                assert torch.equal(whole[part].view(torch.uint8), alone.view(torch.uint8)), part


LIBC = ctypes.CDLL(None, use_errno=True)


def between_fences(values: torch.Tensor, *, at_end: bool) -> torch.Tensor:
    """Return a copy in memory of its own that begins, or ends, where nothing can be read."""
    size, page = values.numel() * values.element_size(), mmap.PAGESIZE
    room = -(-size // page) * page
    memory = mmap.mmap(-1, room + 2 * page)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for fence in (begin, begin + page + room):
        if LIBC.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = page + (room - size if at_end else 0)
    copy = torch.frombuffer(memory, dtype=values.dtype, count=values.numel(), offset=offset)
    return copy.view(values.shape).copy_(values)


Shapes = tuple[tuple[int, ...], ...]


def two_alike(n: int) -> Shapes:
    return (3, n), (3, n), (3, n)


def halves(n: int) -> Shapes:
    return (3, 2 * n), (3, n)


# The shapes of the inputs and of the out, by a length.
SHAPES: dict[str, Callable[[int], Shapes]] = {
    "add": two_alike,
    "mul": two_alike,
    "swiglu": two_alike,
    "cast": lambda n: ((3, n), (3, n)),
    "cat": lambda n: ((3, n), (2, n), (5, n)),
    "causal_softmax": lambda n: ((min(3, n), n), (min(3, n), n)),
    "rms_norm": lambda n: ((3, n), (n,), (3, n)),
    "gemm": lambda n: ((5, 9), (9, n), (5, n)),
    "matmul": lambda n: ((5, n), (n, 7), (5, 7)),
    "linear": lambda n: ((5, 9), (n, 9), (5, n)),
    "gelu_and_mul": halves,
    "gelu_tanh_and_mul": halves,
    "silu_and_mul": halves,
}


@pytest.mark.parametrize("at_end", [False, True], ids=["begin", "end"])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, id=f"{name}-{dtype}")
        for name in SHAPES
        for dtype in FLOATS
        if dtype in OPERATORS[name].dtypes
    ],
)
def test_nothing_outside_of_the_operands_is_touched(
    name: str, dtype: torch.dtype, at_end: bool
) -> None:
    """Vector code reads whole vectors; one before or after the memory of an operand is too much."""
    make = Maker(dtype)
    for length in (*range(1, 40), *range(63, 70), 127, 128, 129, ROW):
        *shapes, shape = SHAPES[name](length)
        inputs = [make(*each) for each in shapes]
        expected, out = (torch.full(shape, 77).to(dtype) for _ in range(2))
        run(name, *as_arguments(name, inputs), out=expected)
        fenced = [between_fences(each, at_end=at_end) for each in inputs]
        result = between_fences(out, at_end=at_end)
        run(name, *as_arguments(name, fenced), out=result)
        # The libraries of products sum in another order at another address.
        allowed = tolerance(dtype, size=300)
        torch.testing.assert_close(result, expected, rtol=allowed.rtol, atol=allowed.atol)


def as_arguments(name: str, inputs: list[torch.Tensor]) -> tuple[Any, ...]:
    return (inputs, 0) if name == "cat" else tuple(inputs)


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
