"""The CUDA implementations on host memory, against numpy in float64.

The emulator runs the kernels: every element type, operands laid out in the ways that kernels get
wrong, sizes near those of vectors, warps and blocks. The memory between the elements of an operand
must not change.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codegen.slots import measured_orders, read_slot_times
from tests.cuda.emulated import Buffers, Emulated, EmulatedError, Launch

SOURCES = Path(__file__).resolve().parents[2] / "src" / "cuda"
BFLOAT16 = np.dtype(np.uint16)
FLOATS = tuple(map(np.dtype, (np.float32, np.float16, BFLOAT16, np.float64)))
SMALL_FLOATS = FLOATS[:3]
# Not uint16, which is bfloat16 here.
UNSIGNED = tuple(map(np.dtype, (np.uint8, np.uint32, np.uint64)))
INTEGERS = (*UNSIGNED, *map(np.dtype, (np.int8, np.int16, np.int32, np.int64)))
ALL_TYPES = (*FLOATS, *INTEGERS, np.dtype(np.bool_))
EPSILON = {"float16": 2**-10, "uint16": 2**-7, "float32": 2**-21, "float64": 2**-48}

ERFC = np.vectorize(math.erfc, otypes=[float])

SIZES = (0, 1, 1, 2, 3, 5, 8, 16, 24, 31, 33, 64, 100, 129, 256, 257, 520, 1025)

Shape = tuple[int, ...]


def type_name(dtype: Any) -> str:
    return "bfloat16" if dtype == BFLOAT16 else np.dtype(dtype).name


def decode(array: np.ndarray) -> np.ndarray:
    """The values to compute with: floats as float64, integers as they are."""
    if array.dtype == BFLOAT16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def encode(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The inverse; rounds to nearest, ties to even."""
    if dtype != BFLOAT16:
        return values.astype(dtype)
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(BFLOAT16)


def count(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=int))


def contiguous(shape: Shape, dtype: np.dtype) -> np.ndarray:
    """Memory with NaN or -1 in it."""
    return np.full(count(shape) * dtype.itemsize, 0xFF, np.uint8).view(dtype).reshape(shape)


def shifted(shape: Shape, dtype: np.dtype) -> np.ndarray:
    """Begins where no vector may."""
    return contiguous((count(shape) + 1,), dtype)[1:].reshape(shape)


def padded(shape: Shape, dtype: np.dtype) -> np.ndarray:
    """Rows of whole vectors with whole vectors between them."""
    return contiguous((*shape[:-1], shape[-1] + 16), dtype)[..., : shape[-1]]


def cropped(shape: Shape, dtype: np.dtype) -> np.ndarray:
    """No dimension continues where the next one ends, so none can be merged."""
    larger = contiguous(tuple(size + 1 for size in shape), dtype)
    return larger[tuple(slice(size) for size in shape)]


def stepped(shape: Shape, dtype: np.dtype) -> np.ndarray:
    return contiguous((*shape[:-1], 2 * shape[-1]), dtype)[..., 1::2]


def transposed(shape: Shape, dtype: np.dtype) -> np.ndarray:
    return contiguous(swapped(shape), dtype).swapaxes(-1, -2)


def reversed_axes(shape: Shape, dtype: np.dtype) -> np.ndarray:
    return contiguous(shape[::-1], dtype).T


def swapped(shape: Shape) -> Shape:
    """Return the shape of transposed matrices."""
    return (*shape[:-2], *shape[:-3:-1])


LAYOUTS = (contiguous, shifted, padded, cropped, stepped, transposed, reversed_axes)
LAYOUTS_BY_RANK = {0: LAYOUTS[:2], 1: LAYOUTS[:5]}


class Maker:
    """Makes random operands of a type, of random sizes."""

    def __init__(self, seed: int, dtype: np.dtype) -> None:
        self.random = np.random.default_rng([seed, zlib.crc32(type_name(dtype).encode())])
        self.dtype = dtype
        self.is_plain = seed % 3 == 0  # all operands are contiguous

    def chance(self, probability: float) -> bool:
        return float(self.random.random()) < probability

    def size(self, *sizes: int) -> int:
        return int(self.random.choice(sizes))

    def shape(self, rank: int, most: int) -> Shape:
        """Of so many elements at most, also if a layout makes an empty dimension larger."""
        shape: list[int] = []
        for _ in range(rank):
            present = count([max(size, 1) for size in shape])
            shape.append(self.size(*(size for size in SIZES if size * present <= most)))
        self.random.shuffle(shape)
        return tuple(shape)

    def broadcastable(self, shape: Shape) -> Shape:
        """A shape that broadcasts to this one."""
        kept = shape[self.size(*range(len(shape) + 1)) if self.chance(0.2) else 0 :]
        return tuple(1 if self.chance(0.1) else size for size in kept)

    def memory(self, shape: Shape, dtype: np.dtype | None = None) -> np.ndarray:
        """For a tensor, laid out in some way."""
        layouts = LAYOUTS_BY_RANK.get(len(shape), LAYOUTS)
        layout = contiguous if self.is_plain else self.random.choice(np.array(layouts))
        return layout(shape, dtype or self.dtype)

    def fill(self, array: np.ndarray, low: float = -2, high: float = 2) -> np.ndarray:
        """With floats within limits, or integers of all sizes."""
        if array.dtype == np.bool_:
            array[...] = self.random.random(array.shape) < 0.5
        elif array.dtype in FLOATS:
            array[...] = encode(self.random.uniform(low, high, array.shape), array.dtype)
        else:
            of_type = np.iinfo(array.dtype)
            array[...] = self.random.integers(
                of_type.min, of_type.max, array.shape, array.dtype, endpoint=True
            )
        return array

    def operand(self, shape: Shape, dtype: np.dtype | None = None, *limits: float) -> np.ndarray:
        """With values; now and then expanded along a dimension."""
        is_expanded = shape and not self.is_plain and self.chance(0.2)
        expanded = self.size(*range(len(shape))) if is_expanded else None
        stored = tuple(1 if i == expanded else size for i, size in enumerate(shape))
        return np.broadcast_to(self.fill(self.memory(stored, dtype), *limits), shape)

    def out(self, shape: Shape, operand: np.ndarray) -> np.ndarray:
        """Memory, or now and then an operand, to be overwritten."""
        can_be_operand = operand.shape == shape and 0 not in operand.strides
        if can_be_operand and self.chance(0.2):
            operand.flags.writeable = True
            return operand
        return self.memory(shape)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A call: the expected values are float64, or of the type of `out`."""

    arguments: Sequence[Any]  # without the outs
    out: np.ndarray
    expected: np.ndarray
    scale: float = 1  # of the terms that the result is a sum of
    others: Sequence[tuple[np.ndarray, np.ndarray]] = ()  # further outs, and what is expected
    is_in_place: bool = False  # the outs are among the arguments

    @property
    def outs(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(self.out, self.expected), *self.others]

    @property
    def values(self) -> list[Any]:
        """What the call is given."""
        return [*self.arguments, *(out for out, _ in self.outs if not self.is_in_place)]


def elementwise(maker: Maker) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two operands and the memory of the result."""
    shape = maker.shape(maker.size(*range(6)), 5000)
    a, b = (maker.operand(maker.broadcastable(shape)) for _ in range(2))
    return a, b, maker.out(np.broadcast_shapes(a.shape, b.shape), a)


def add(maker: Maker) -> Case:
    a, b, out = elementwise(maker)
    alpha = maker.size(0, 1, 2, 3) if maker.dtype not in FLOATS else maker.random.uniform(-2, 2)
    expected = decode(a) + decode(b) * decode(b).dtype.type(alpha)
    return Case(arguments=(a, b, alpha), out=out, expected=expected, scale=4)


def mul(maker: Maker) -> Case:
    a, b, out = elementwise(maker)
    return Case(arguments=(a, b), out=out, expected=decode(a) * decode(b))


def swiglu(maker: Maker) -> Case:
    a, gate, out = elementwise(maker)
    expected = decode(a) * decode(gate) / (1 + np.exp(-decode(gate)))
    return Case(arguments=(a, gate), out=out, expected=expected)


def halves(maker: Maker, activation: Callable[[np.ndarray], np.ndarray]) -> Case:
    """Of values that can be in the tail of the activation."""
    shape = maker.shape(maker.size(1, 2, 3, 4), 2500)
    a = maker.operand(
        (*shape[:-1], 2 * shape[-1]), None, *maker.random.choice([(-2, 2), (-6, 6), (-13, 0)])
    )
    first, second = np.split(decode(a), 2, -1)
    return Case(arguments=(a,), out=maker.memory(shape), expected=activation(first) * second)


def silu_and_mul(maker: Maker) -> Case:
    return halves(maker, lambda x: x / (1 + np.exp(-x)))


def gelu_and_mul(maker: Maker) -> Case:
    return halves(maker, lambda x: x * ERFC(-x * math.sqrt(0.5)) / 2)


def gelu_tanh_and_mul(maker: Maker) -> Case:
    return halves(
        maker, lambda x: x / (1 + np.exp(-math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)))
    )


def cast(maker: Maker) -> Case:
    shape = maker.shape(maker.size(*range(6)), 5000)
    source = ALL_TYPES[maker.size(*range(len(ALL_TYPES)))]
    limits = (-2, 2) if maker.dtype in FLOATS else (0, 100)  # what every integer type has
    a = maker.operand(maker.broadcastable(shape), source, *limits)
    with np.errstate(over="ignore"):
        expected = decode(encode(np.broadcast_to(decode(a), shape), maker.dtype))
    return Case(arguments=(a,), out=maker.memory(shape), expected=expected)


def cat(maker: Maker) -> Case:
    shape = maker.shape(maker.size(1, 2, 3, 4), 1500)
    dim = maker.size(*range(-len(shape), len(shape)))
    tensors = []
    for _ in range(maker.size(1, 2, 3, 5, 20)):
        each = list(shape)
        each[dim] = maker.size(0, 1, 2, 3, 8, 16)
        tensors.append(maker.operand(tuple(each)))
    expected = np.concatenate([decode(tensor) for tensor in tensors], dim)
    return Case(arguments=(tensors, dim), out=maker.memory(expected.shape), expected=expected)


def rows(maker: Maker) -> Shape:
    """Many short ones, or a few of thousands of elements."""
    size = 33000 if maker.chance(0.1) else maker.size(*SIZES, 2048, 4099, 9000)
    return (*maker.shape(maker.size(0, 1, 2, 3), max(1, min(70, 9000 // max(size, 1)))), size)


def rms_norm(maker: Maker, shape: Shape = ()) -> Case:
    shape = shape or rows(maker)
    a, weight = maker.operand(shape), maker.operand(shape[-1:])
    epsilon = 0.5 if maker.chance(0.5) else 1e-6
    square = np.sum(decode(a) ** 2, -1, keepdims=True) / max(shape[-1], 1)
    expected = decode(a) / np.sqrt(square + epsilon) * decode(weight)
    return Case(arguments=(a, weight, epsilon), out=maker.memory(shape), expected=expected, scale=4)


def exact_added_norm(
    a: np.ndarray, residual: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    total = decode(a) + decode(residual)
    square = np.sum(total**2, -1, keepdims=True) / max(total.shape[-1], 1)
    return total / np.sqrt(square + 1e-6) * decode(weight), total


def add_rms_norm(maker: Maker, shape: Shape = ()) -> Case:
    shape = shape or rows(maker)
    a, residual, weight = maker.operand(shape), maker.operand(shape), maker.operand(shape[-1:])
    expected, total = exact_added_norm(a, residual, weight)
    return Case(
        arguments=(a, residual, weight, 1e-6),
        out=maker.out(shape, a),
        expected=expected,
        others=[(maker.out(shape, residual), total)],
        scale=4,
    )


def fused_add_rms_norm(maker: Maker, shape: Shape = ()) -> Case:
    shape = shape or rows(maker)
    a, residual = (maker.fill(maker.memory(shape)) for _ in range(2))
    weight = maker.operand(shape[-1:])
    expected, total = exact_added_norm(a, residual, weight)
    return Case(
        arguments=(a, residual, weight, 1e-6),
        out=a,
        expected=expected,
        others=[(residual, total)],
        is_in_place=True,
        scale=4,
    )


def cached(maker: Maker, is_flash: bool) -> Case:
    """Tokens with different slots, some of which the caches do not have."""
    heads, size, block_size, blocks = (maker.size(1, 2, 3, 8) for _ in range(4))
    part = maker.size(1, 2, 8)
    is_empty = not maker.is_plain and maker.chance(0.1)
    shape = (0 if is_empty else maker.size(1, 2, 7, 20), heads, size * part)
    key, value = maker.operand(shape), maker.operand(shape)
    key_shape: Shape = (blocks, heads, size, block_size, part)
    value_shape: Shape = (blocks, heads, size * part, block_size)
    if is_flash:
        key_shape = value_shape = (blocks, block_size, *shape[1:])
    caches = [maker.fill(maker.memory(each)) for each in (key_shape, value_shape)]
    slots = maker.random.permutation(np.arange(-4, max(shape[0], blocks * block_size) + 4))
    index = np.dtype(np.int32 if maker.chance(0.5) else np.int64)
    mapping = maker.memory((maker.size(*range(min(1, shape[0]), shape[0] + 1)),), index)
    mapping[...] = slots[: len(mapping)]
    results = [decode(cache).copy() for cache in caches]
    for token, slot in enumerate(mapping.tolist()):
        block, offset = divmod(slot, block_size)
        for tokens, result in zip((key, value), results, strict=True):
            if 0 <= slot < blocks * block_size:
                place = result[block, offset] if is_flash else result[block, :, :, offset]
                place[...] = decode(tokens[token]).reshape(place.shape)
    return Case(
        arguments=(key, value, mapping, *caches),
        out=caches[0],
        expected=results[0],
        others=[(caches[1], results[1])],
        is_in_place=True,
    )


def reshape_and_cache(maker: Maker) -> Case:
    return cached(maker, is_flash=False)


def reshape_and_cache_flash(maker: Maker) -> Case:
    return cached(maker, is_flash=True)


def rotary_embedding(maker: Maker) -> Case:
    """Now and then with positions that the cache lacks, whose tokens stay as they are."""
    tokens = maker.shape(maker.size(1, 2), 20)
    pairs = maker.size(0, 1, 3, 8, 32, 65, 300)
    offset, size = maker.size(0, 0, 5), max(2 * pairs, 1) + maker.size(0, 8, 10)
    size += offset
    wide_cache = maker.dtype.itemsize == 2 and maker.chance(0.3)
    cache = maker.operand((9, 2 * pairs), np.dtype(np.float32) if wide_cache else None)
    positions = maker.memory(tokens, np.dtype(np.int32 if maker.chance(0.5) else np.int64))
    low, high = (-2, 12) if maker.chance(0.3) else (0, 9)
    positions[...] = maker.random.integers(low, high, tokens)
    heads = [
        maker.fill(maker.memory((*tokens, count * size) if is_flat else (*tokens, count, size)))
        for count, is_flat in (
            (maker.size(1, 4, 9), maker.chance(0.5)),
            (maker.size(0, 1, 2), maker.chance(0.5)),
        )
    ]
    is_neox, inverse = maker.chance(0.5), maker.chance(0.5)
    cosine, sine = np.split(decode(cache)[np.clip(positions, 0, 8)][..., np.newaxis, :], 2, -1)
    sine = -sine if inverse else sine
    is_known = ((positions >= 0) & (positions < 9))[..., np.newaxis, np.newaxis]

    def rotated(values: np.ndarray) -> np.ndarray:
        # One dimension of all heads has no head to infer their number from if it is empty.
        count = values.shape[-1] // size if values.ndim == len(tokens) + 1 else values.shape[-2]
        result = decode(values).reshape(*tokens, count, size).copy()
        part = result[..., offset : offset + 2 * pairs]
        x, y = np.split(part, 2, -1) if is_neox else (part[..., ::2], part[..., 1::2])
        turned = x * cosine - y * sine, y * cosine + x * sine
        x[...], y[...] = np.where(is_known, turned, (x, y))
        return result.reshape(values.shape)

    query, key = heads
    has_key = maker.chance(0.8)
    return Case(
        arguments=(
            positions,
            query,
            key if has_key else None,
            size,
            cache,
            is_neox,
            offset,
            inverse,
        ),
        out=query,
        expected=rotated(query),
        others=[(key, rotated(key))] if has_key else [],
        is_in_place=True,
        scale=8,
    )


def causal_softmax(maker: Maker, shape: Shape = ()) -> Case:
    keys = rows(maker)[-1]
    queries = min(keys, maker.size(0, 1, 2, 3, 7, 33, 64), 20000 // max(keys, 1) + 3)
    shape = shape or (*maker.shape(maker.size(0, 1, 2), 6), queries, keys)
    queries, keys = shape[-2:]
    a = maker.operand(shape)
    weights = np.tril(np.exp(decode(a)), keys - queries)
    expected = weights / np.sum(weights, -1, keepdims=True)
    # Long rows are of small numbers, with which float16 has few digits.
    return Case(arguments=(a,), out=maker.out(shape, a), expected=expected, scale=2**-13)


def product(maker: Maker) -> tuple[Shape, Shape, Shape]:
    """The shapes of two batches of matrices that broadcast, and of their product."""
    m, n, k = (maker.size(0, 1, 2, 3, 5, 8, 16, 17, 33) for _ in range(3))
    batch = maker.shape(maker.size(0, 1, 2, 3), 12)
    a, b = ((*maker.broadcastable(batch), *matrix) for matrix in ((m, k), (k, n)))
    return a, b, (*np.broadcast_shapes(a[:-2], b[:-2]), m, n)


def gemm(maker: Maker) -> Case:
    *shapes, shape = product(maker)
    flags = [maker.chance(0.5), maker.chance(0.5)]
    a, b = (maker.operand(swapped(s) if f else s) for s, f in zip(shapes, flags, strict=True))
    x, y = (decode(t.swapaxes(-1, -2) if f else t) for t, f in zip((a, b), flags, strict=True))
    alpha, beta = maker.random.choice([(1.0, 0.0), (-0.5, 0.0), (1.0, 0.25), (0.0, 1.0)]).tolist()
    out = maker.memory(shape)
    expected = alpha * (x @ y)
    if beta:
        expected = expected + beta * decode(maker.fill(out))
    return Case(arguments=(a, b, alpha, beta, *flags), out=out, expected=expected, scale=depth(x))


def depth(a: np.ndarray) -> float:
    """How far a sum of products of up to 4 may be from 0."""
    return 4.0 * int(a.shape[-1]) + 4


def matmul(maker: Maker) -> Case:
    a_shape, b_shape, _ = product(maker)
    a = maker.operand(a_shape[-1:] if maker.chance(0.15) else a_shape)
    b = maker.operand(b_shape[-2:-1] if maker.chance(0.15) else b_shape)
    expected = np.asarray(decode(a) @ decode(b))
    return Case(
        arguments=(a, b), out=maker.memory(expected.shape), expected=expected, scale=depth(a)
    )


def linear(maker: Maker) -> Case:
    a_shape, b_shape, _ = product(maker)
    a = maker.operand(a_shape[-1:] if maker.chance(0.15) else a_shape)
    weight = maker.operand(b_shape[-2:-1] if maker.chance(0.15) else b_shape[:-3:-1])
    bias = maker.operand(weight.shape[:-1]) if maker.chance(0.5) else None
    expected = np.asarray(decode(a) @ decode(weight).T)
    if bias is not None:
        expected = expected + decode(bias)
    return Case(
        arguments=(a, weight, bias),
        out=maker.memory(expected.shape),
        expected=expected,
        scale=depth(a),
    )


@dataclass(frozen=True)
class Operator:
    """How to make calls of an operator, for which types, and how many."""

    make: Callable[[Maker], Case]
    dtypes: tuple[np.dtype, ...] = FLOATS
    cases: int = 40


OPERATORS = (
    Operator(add, (*FLOATS, *INTEGERS)),
    Operator(add_rms_norm, SMALL_FLOATS),
    Operator(cast, ALL_TYPES),
    Operator(cat, ALL_TYPES),
    Operator(causal_softmax),
    Operator(fused_add_rms_norm, SMALL_FLOATS),
    Operator(gelu_and_mul, SMALL_FLOATS),
    Operator(gelu_tanh_and_mul, SMALL_FLOATS),
    Operator(gemm),
    Operator(linear),
    Operator(matmul),
    Operator(mul, (*FLOATS, *INTEGERS)),
    Operator(reshape_and_cache, ALL_TYPES),
    Operator(reshape_and_cache_flash, ALL_TYPES),
    Operator(rms_norm),
    Operator(silu_and_mul, SMALL_FLOATS),
    Operator(rotary_embedding, SMALL_FLOATS),
    Operator(swiglu),
)
PARAMETERS = [
    pytest.param(operator, dtype, id=f"{operator.make.__name__}-{type_name(dtype)}")
    for operator in OPERATORS
    for dtype in operator.dtypes
]


def registered() -> set[str]:
    """The operators with a CUDA kernel. Those without an entry above are tested by examples."""
    return {path.stem for path in SOURCES.glob("*.cu") if "_REGISTER(" in path.read_text()}


def test_every_entry_has_a_cuda_implementation() -> None:
    assert {operator.make.__name__ for operator in OPERATORS} < registered()


@pytest.mark.parametrize(("operator", "dtype"), PARAMETERS)
def test_values_and_the_memory_between_them(
    emulated: Emulated, operator: Operator, dtype: np.dtype
) -> None:
    for seed in range(operator.cases):
        case = operator.make(Maker(seed, dtype))
        name = operator.make.__name__
        note = f"{name} of seed {seed}: {describe(case.arguments)} -> {describe(case.out)}"
        check(emulated, name, case, note, order=seed % 3)


@pytest.mark.parametrize(("operator", "dtype"), PARAMETERS)
def test_kernels_run_on_the_device_and_stream_of_the_call(
    emulated: Emulated, operator: Operator, dtype: np.dtype
) -> None:
    makers = (Maker(seed, dtype) for seed in range(100))
    case = next(case for case in map(operator.make, makers) if case.out.size)
    name = operator.make.__name__
    launches = emulated.call(name, *case.values, device=1, stream=0x5EED)
    assert set(launches) == {Launch(device=1, stream=0x5EED)}


@pytest.mark.parametrize(("operator", "dtype"), PARAMETERS)
def test_a_call_is_one_launch_and_asks_the_runtime_nothing(
    emulated: Emulated, operator: Operator, dtype: np.dtype
) -> None:
    """Of operands without gaps, and after the first call, which can allocate a workspace."""
    makers = (Maker(seed, dtype) for seed in range(0, 300, 3))
    case = next(case for case in map(operator.make, makers) if is_usual(case))
    name = operator.make.__name__
    for _ in range(2):
        launches = emulated.call(name, *case.values)
    assert len(launches) == 1
    assert emulated.runtime_calls == []


MEASURED = {order.operator: order.slots for order in measured_orders(read_slot_times())}


@pytest.mark.parametrize("operator", [each for each in OPERATORS if each.make.__name__ in MEASURED])
def test_a_call_uses_the_fastest_slot_that_takes_it(emulated: Emulated, operator: Operator) -> None:
    name = operator.make.__name__

    def slot_of(dtype: type) -> int:
        case = operator.make(Maker(0, np.dtype(dtype)))
        try:
            emulated.call(name, *case.values, slot=None)
        except EmulatedError as error:
            return {"ran slot 9": 9}[str(error)]
        return 0

    assert slot_of(np.float32) == MEASURED[name][0]
    assert slot_of(np.float64) == 0  # the only one that takes it


def is_usual(case: Case) -> bool:
    """No empty tensor, batch of products, bias (added apart for some types) or long list."""
    first, last = case.arguments[0], case.arguments[-1]
    is_short = len(first) < 6 if isinstance(first, list) else first.ndim == 2
    is_flat = is_short and getattr(last, "ndim", 2) == 2
    has_caches = case.is_in_place and getattr(last, "ndim", 0) == 4
    return case.out.size > 1 and (is_flat or has_caches)


ROW_OPERATORS = [
    pytest.param(operator.make, dtype, id=f"{operator.make.__name__}-{type_name(dtype)}")
    for operator in OPERATORS
    if operator.make in (add_rms_norm, causal_softmax, rms_norm)
    for dtype in operator.dtypes
]


@pytest.mark.parametrize(("make", "dtype"), ROW_OPERATORS)
@pytest.mark.parametrize("columns", [520, 2056])  # for one warp per row, and for several
def test_so_many_rows_that_a_thread_keeps_several_vectors(
    emulated: Emulated, make: Callable[[Maker, Shape], Case], dtype: np.dtype, columns: int
) -> None:
    case = make(Maker(0, dtype), (2, 131, columns))
    check(emulated, make.__name__, case, f"262 rows of {columns}", order=1)


@pytest.mark.parametrize("dtype", FLOATS, ids=type_name)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_of_softmax_without_a_finite_sum_is_nan(
    emulated: Emulated, dtype: np.dtype, value: float
) -> None:
    values = np.zeros((3, 16))
    values[1, :15] = value  # all that the row sees
    out = contiguous(values.shape, dtype)
    emulated.call("causal_softmax", encode(values, dtype), out)
    result = decode(out)
    assert np.isnan(result[1, :15]).all()
    assert result[1, 15] == 0
    assert np.isfinite(result[[0, 2]]).all()


@pytest.mark.parametrize("layout", [shifted, padded])
def test_products_of_one_shape_in_several_layouts(
    emulated: Emulated, layout: Callable[[Shape, np.dtype], np.ndarray]
) -> None:
    """The algorithm chosen for one, which is kept, need not fit the next."""
    maker = Maker(0, np.dtype(np.float32))
    shapes = ((5, 8), (16, 8), (16,), (5, 16))
    for other in (None, 0, 1, 2, 3):
        layouts = (layout if i == other else contiguous for i in range(4))
        made = (make(shape, maker.dtype) for make, shape in zip(layouts, shapes, strict=True))
        a, weight, bias, out = (maker.fill(array) for array in made)
        expected = decode(a) @ decode(weight).T + decode(bias)
        case = Case(arguments=(a, weight, bias), out=out, expected=expected, scale=depth(a))
        check(emulated, "linear", case, f"operand {other} in another layout", order=0)


@pytest.mark.parametrize("columns", [64, 65])
@pytest.mark.parametrize("dtype", FLOATS, ids=type_name)
def test_a_bias_is_added_before_the_sum_is_rounded(
    emulated: Emulated, dtype: np.dtype, columns: int
) -> None:
    """It cancels all of the sum but a part that no 16 bits can hold beside the rest."""
    rest = 2.0**-12
    terms = np.tile([1.0, rest, *[0.0] * 6], (columns, 1))
    a, weight, bias = np.ones((3, 8)), terms, -np.ones(columns)
    out = contiguous((3, columns), dtype)
    emulated.call("linear", *(encode(each, dtype) for each in (a, weight, bias)), out)
    assert set(decode(out).ravel()) == {rest}


def check(emulated: Emulated, name: str, case: Case, note: str, order: int) -> None:
    """Runs it; only the elements of `out` may have changed, to the expected values."""
    memory = Buffers(case.values).owners
    before, old = [array.copy() for array in memory], [out.copy() for out, _ in case.outs]
    try:
        emulated.call(name, *case.values, order=order)
    except EmulatedError as error:
        pytest.fail(f"{note}: {error}")
    results = [decode(out.copy()) for out, _ in case.outs]
    for (out, _), values in zip(case.outs, old, strict=True):
        out[...] = values
    for array, original in zip(memory, before, strict=True):
        assert array.tobytes() == original.tobytes(), f"{note}: wrote between the elements"
    epsilon = EPSILON.get(case.out.dtype.name, 0)
    for (out, exact), result in zip(case.outs, results, strict=True):
        expected = decode(encode(exact, out.dtype))
        assert result.shape == expected.shape, note
        np.testing.assert_allclose(
            result, expected, rtol=epsilon, atol=epsilon * case.scale, err_msg=note
        )


def describe(value: Any) -> str:
    """A call's arguments in a message."""
    if isinstance(value, np.ndarray):
        strides = [stride // value.itemsize for stride in value.strides]
        return f"{type_name(value.dtype)}{list(value.shape)} of strides {strides}"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(describe, value))})"
    return str(value)
