"""An operator of every kind matches torch bit for bit on the CPU.

Runs in the environment of the torch that is checked; ``tests/ops`` has all operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import infini.ops
import torch

SLOT = 8

# Name of the case, operator, torch's function, inputs, keywords.
Case = tuple[str, str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def cases() -> Iterator[Case]:
    aten = torch.ops.aten
    torch.manual_seed(0)
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    image, kernel = torch.randn(2, 3, 8, 8), torch.randn(5, 3, 3, 3)
    geometry = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    backward = (torch.randn(2, 5, 8, 8), image, kernel, [5], *geometry, [True, True, True])
    yield "Tensor", "abs", torch.abs, (x,), {}
    yield "bfloat16", "abs", torch.abs, (x.bfloat16(),), {}
    yield "complex", "mul", torch.mul, (torch.complex(x, y), torch.complex(y, x)), {}
    yield "bool", "logical_not", torch.logical_not, (x > 0,), {}
    yield "strides", "abs", torch.abs, (x.t()[::2],), {}
    yield "Scalar", "add", torch.add, (x, y), {"alpha": 2.5}
    yield "Scalar?", "clamp", torch.clamp, (x, None, 0.5), {}
    yield "int", "cumsum", torch.cumsum, (x, 1), {}
    yield "int[]?", "sum", torch.sum, (x, [1], True), {}
    yield "ScalarType?", "sum", torch.sum, (x, [0]), {"dtype": torch.float64}
    yield "SymInt[]", "full", torch.full, ([3, 4], 1.5), {}
    yield "float", "native_layer_norm", torch.native_layer_norm, (x, [6], None, None, 1e-5), {}
    yield "float?", "upsample_nearest2d", aten.upsample_nearest2d, (image, [16, 16], 2.0, 2.0), {}
    yield "str", "linalg_qr", torch.linalg.qr, (x, "reduced"), {}
    yield "str?", "div", torch.div, (x, y), {"rounding_mode": "floor"}
    yield "Tensor?", "convolution", torch.convolution, (image, kernel, None, *geometry), {}
    yield "Tensor[]", "cat", torch.cat, ([x, y], 1), {}
    yield "Tensor?[]", "index", aten.index, (x, [None, torch.tensor([5, 0])]), {}
    yield "bool[3]", "convolution_backward", aten.convolution_backward, backward, {}
    yield "MemoryFormat?", "clone", torch.clone, (image,), {"memory_format": torch.channels_last}
    yield "outputs", "sort", torch.sort, (x,), {"stable": True, "dim": 0}
    yield "outputs[]", "internal_foreach_add", torch._foreach_add, ([x, y], 1.5), {}
    yield "Scalar[]", "internal_foreach_mul", torch._foreach_mul, ([x, y], [2.0, 3.0]), {}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{case[1]}-{case[0]}") for case in cases()]
)
def test_value(case: Case) -> None:
    _, name, function, inputs, keywords = case
    result = function(*inputs, **keywords)
    expected = [result] if isinstance(result, torch.Tensor) else list(result)
    outs = [torch.full_like(tensor, 77) for tensor in expected]
    arguments = [outs] if "foreach" in name else outs
    getattr(infini.ops, name)(*inputs, *arguments, **keywords, implementation_index=SLOT)
    for got, wanted in zip(outs, expected, strict=True):
        assert got.stride() == wanted.stride()
        assert torch.equal(got, wanted)


def test_inplace() -> None:
    x = torch.randn(4, 6)
    expected = x.clone().clamp_(min=0.25)
    infini.ops.clamp_inplace(x, 0.25)
    assert torch.equal(x, expected)


def test_generator() -> None:
    x = torch.empty(64)
    expected = torch.empty(64).normal_(1.0, 2.0, generator=torch.Generator().manual_seed(7))
    infini.ops.normal_inplace(x, 1.0, 2.0, generator=torch.Generator().manual_seed(7))
    assert torch.equal(x, expected)


def test_numpy() -> None:
    x = numpy.linspace(-1, 1, 12, dtype=numpy.float32)
    out: Any = numpy.zeros_like(x)
    infini.ops.abs(x, out, implementation_index=SLOT)
    assert numpy.array_equal(out, abs(x))


def test_exception() -> None:
    with pytest.raises(IndexError, match="Dimension out of range"):
        infini.ops.cumsum(torch.randn(4), 7, torch.empty(4))


def test_warning() -> None:
    with pytest.warns(UserWarning, match="resized"):
        infini.ops.abs(torch.randn(4), torch.empty(3))
