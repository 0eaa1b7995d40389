"""Calls whose shapes, strides and dtypes hypothesis draws, for the operators of any rank.

The expected results are those of the examples in native_examples.py and its neighbors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from attention_examples import attention_example
from hypothesis import strategies as st
from native_examples import (
    ANY,
    Function,
    added_norm,
    cast_example,
    cat_example,
    causal_softmax_example,
    elementwise_example,
    gelu,
    gelu_tanh,
    halves_example,
    linear_example,
    matmul_example,
    product_example,
    rms_norm_example,
    silu,
    swiglu,
)
from native_operands import UNSIGNED, Example, Maker, wide
from sampling_examples import scaled_softmax_example

import torch

T = TypeVar("T")
Shape = tuple[int, ...]

MOST_RANK = 5
MOST_ELEMENTS = 1 << 14
# Around the widths of vectors, which kernels treat apart from what remains.
SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 65, 130)


class Draw(Maker):
    """Draws operands: the order and the gaps of their elements, and where they begin."""

    def __init__(self, draw: Callable[..., Any], dtype: torch.dtype, limit: float = 4.0) -> None:
        super().__init__(dtype, -limit, limit)
        self._draw = draw

    def of_dtype(self, dtype: torch.dtype) -> Draw:
        return Draw(self._draw, dtype)

    def one_of(self, *values: T) -> T:
        value: T = self._draw(st.sampled_from(values))
        return value

    def size(self, below: int = MOST_ELEMENTS) -> int:
        return self.one_of(*(size for size in SIZES if size < max(below, 2)))

    def shape(self, least_rank: int = 1, room: int = MOST_ELEMENTS) -> Shape:
        """Sizes whose product is below ``room``; zeros count as ones."""
        sizes: list[int] = []
        for _ in range(self._draw(st.integers(least_rank, MOST_RANK))):
            sizes.append(self.size(room))
            room //= max(sizes[-1], 1)
        return tuple(sizes)

    def __call__(self, *shape: int) -> torch.Tensor:
        """An operand, no element of which is another one."""
        order = self._draw(st.permutations(range(len(shape))))
        steps = [self.one_of(1, 1, 1, 2, 3) for _ in shape]
        offset = self.one_of(0, 0, 1, 2, 3)
        sizes = [shape[i] * steps[i] for i in order]
        memory = super().__call__(offset + math.prod(sizes))[offset:].view(sizes)
        spread = memory[tuple(slice(None, None, steps[i]) for i in order)]
        return spread.permute([order.index(i) for i in range(len(shape))])

    def input(self, *shape: int) -> torch.Tensor:
        """An operand, of which dimensions may have a stride of 0."""
        return self(*(self.one_of(size, size, 1) for size in shape)).expand(shape)

    def broadcast(self, *shape: int) -> torch.Tensor:
        """An operand that broadcasts to the shape."""
        first = self.one_of(0, 0, *range(len(shape) + 1))
        return self.input(*(self.one_of(size, size, 1) for size in shape[first:]))


def draw_elementwise(make: Draw, names: tuple[str, str], reference: Any, **options: Any) -> Example:
    shape = make.shape()
    x, y = make.broadcast(*shape), make.broadcast(*shape)
    out = make(*torch.broadcast_shapes(x.shape, y.shape))
    return elementwise_example(names, reference, f"{shape}", x, y, out, **options)


def draw_cast(make: Draw) -> Example:
    shape = make.shape()
    x = make.broadcast(*shape)
    target = make.one_of(*ANY)
    if target in UNSIGNED and x.is_floating_point():
        x = x.abs()  # C++ does not define the conversion of a negative float
    return cast_example(f"{shape}", x, make.of_dtype(target)(*shape))


def draw_cat(make: Draw) -> Example:
    shape = make.shape()
    dim = make.one_of(*range(-len(shape), len(shape)))
    sizes = [make.one_of(0, 1, 2, 7, 16) for _ in range(make.one_of(1, 2, 3, 9))]

    def along(size: int) -> Shape:
        at = dim % len(shape)
        return (*shape[:at], size, *shape[at + 1 :])

    tensors = [make.input(*along(size)) for size in sizes]
    return cat_example(f"{shape}", dim, *tensors, make(*along(sum(sizes))))


def draw_rms_norm(make: Draw) -> Example:
    shape = make.shape()
    return rms_norm_example(f"{shape}", make.input(*shape), make.input(shape[-1]), make(*shape))


def draw_added_norm(make: Draw, *, is_fused: bool) -> Example:
    shape = make.shape()
    operand = make if is_fused else make.input
    weight = make.input(shape[-1])
    outs = [] if is_fused else [make(*shape), make(*shape)]
    case = added_norm(f"{shape}", operand(*shape), operand(*shape), weight, *outs)
    return case.fused_example() if is_fused else case.example()


def draw_halves(make: Draw, activation: Function) -> Example:
    *batch, size = make.shape()
    return halves_example(
        activation, f"{(*batch, size)}", make.input(*batch, 2 * size), make(*batch, size)
    )


def draw_scaled_softmax(make: Draw) -> Example:
    shape = make.shape()
    scale = make.one_of(0.7, -0.4, 3.0)
    return scaled_softmax_example(f"{shape}", make.input(*shape), make(*shape), scale)


def draw_causal_softmax(make: Draw) -> Example:
    *batch, rows, more = make.shape(2, MOST_ELEMENTS // 8)
    shape = *batch, rows, rows + more
    return causal_softmax_example(f"{shape}", make.input(*shape), make(*shape))


def draw_matmul(make: Draw) -> Example:
    *batch, rows, columns = make.shape(2)
    steps = make.size(200)
    x = make.input(*drop_leading(make, batch), rows, steps)
    y = make.input(*batch, steps, columns)
    return matmul_example(f"{x.shape} @ {y.shape}", x, y, make(*batch, rows, columns))


def draw_gemm(make: Draw) -> Example:
    *batch, rows, columns = make.shape(2)
    steps = make.size(200)
    a = make.input(*batch, rows, steps)
    b = make.input(*drop_leading(make, batch), steps, columns)
    out = make(*batch, rows, columns)
    alpha, beta = make.one_of((1, 0), (1, 0), (2, 0), (1, 1), (3, 2))
    exact = alpha * (wide(a) @ wide(b)) + beta * wide(out)
    arguments = {"a": a, "b": b, "alpha": alpha, "beta": beta}
    title = f"{a.shape} @ {b.shape}"
    return product_example(title, arguments, out, exact, keeps_out=beta != 0)


def drop_leading(make: Draw, batch: list[int]) -> list[int]:
    """What broadcasts to a batch: its last dimensions, or all with a size of 1."""
    return make.one_of(batch, batch[make.one_of(*range(len(batch) + 1)) :], [1] * len(batch))


def draw_linear(make: Draw) -> Example:
    *batch, features = make.shape(1, MOST_ELEMENTS // 8)
    columns = make.size(200)
    bias = [make.input(columns)] if make.one_of(True, False) else []
    x, weight = make.input(*batch, features), make.input(columns, features)
    return linear_example(f"{x.shape}, {columns}", x, weight, *bias, make(*batch, columns))


def draw_attention(make: Draw) -> Example:
    *batch, queries, size = make.shape(2, MOST_ELEMENTS // 8)
    keys, value_size = make.size(40), make.size(40)
    shapes = (queries, size), (keys, size), (keys, value_size)
    operands = [make.input(*batch, *shape) for shape in shapes]
    out = make(*batch, queries, value_size)
    title = f"{operands[0].shape}, {keys} keys"
    return attention_example(title, *operands, out, is_causal=make.one_of(True, False))


DRAWN: dict[str, Callable[[Draw], Example]] = {
    "add": partial(draw_elementwise, names=("input", "other"), reference=torch.add, size=300),
    "add_rms_norm": partial(draw_added_norm, is_fused=False),
    "cast": draw_cast,
    "cat": draw_cat,
    "causal_softmax": draw_causal_softmax,
    "fused_add_rms_norm": partial(draw_added_norm, is_fused=True),
    "gelu_and_mul": partial(draw_halves, activation=gelu),
    "gelu_tanh_and_mul": partial(draw_halves, activation=gelu_tanh),
    "gemm": draw_gemm,
    "linear": draw_linear,
    "matmul": draw_matmul,
    "mul": partial(draw_elementwise, names=("input", "other"), reference=torch.mul),
    "rms_norm": draw_rms_norm,
    "scaled_dot_product_attention": draw_attention,
    "scaled_softmax": draw_scaled_softmax,
    "silu_and_mul": partial(draw_halves, activation=silu),
    "swiglu": partial(draw_elementwise, names=("input", "gate"), reference=swiglu, ulps=64),
}
