"""Quantization of NumPy arrays, and products of them.

NumPy has no 8-bit floats: a wrapper exports their bytes by DLPack, with their type.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from test_dlpack import Managed

import infini.ops

Array: TypeAlias = np.ndarray
FLOAT8_CODE = 10  # kDLFloat8_e4m3fn
LARGEST = 448
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype = ctypes.c_void_p
pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Float8Array:
    """The bytes of float8_e4m3fn."""

    def __init__(self, codes: Array) -> None:
        self.codes = codes

    def __dlpack__(self, **_: object) -> object:
        capsule = self.codes.__dlpack__()
        Managed.from_address(pointer_of(capsule, b"dltensor")).tensor.code = FLOAT8_CODE
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def numbers(self) -> Array:
        return NUMBERS[self.codes]


def _numbers() -> Array:
    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, (codes & 7) / 8
    size = np.where(exponent == 0, fraction * 2.0**-6, (1 + fraction) * 2.0 ** (exponent - 7))
    size[codes & 127 == 127] = np.nan
    return np.where(codes & 128, -size, size)


NUMBERS = _numbers()


def nearest(values: Array) -> Array:
    """The distance of each value to the nearest 8-bit float."""
    return np.abs(values[..., np.newaxis] - NUMBERS[NUMBERS == NUMBERS]).min(-1)


def scales(*shape: int) -> Array:
    return np.full(shape, 77, "float32")


Call = Callable[[Array, Any], Array]


def static_float8(x: Array, out: Float8Array) -> Array:
    scale = np.array([0.03], "float32")
    infini.ops.static_scaled_fp8_quant(x, scale, out)
    return scale


def dynamic_float8(x: Array, out: Float8Array) -> Array:
    scale = scales(1)
    infini.ops.dynamic_scaled_fp8_quant(x, out, scale)
    assert scale == np.abs(x).max().astype("float32") / np.float32(LARGEST)
    return scale


def tokens_float8(x: Array, out: Float8Array) -> Array:
    scale = scales(5, 1)
    infini.ops.dynamic_per_token_scaled_fp8_quant(x, result=out, scale=scale)
    return scale


def groups_float8(x: Array, out: Float8Array) -> Array:
    scale = scales(5, 4)
    infini.ops.per_token_group_fp8_quant(
        *(x, 8, 1e-10, -LARGEST, LARGEST, False), output_q=out, output_s=scale
    )
    return scale.repeat(8, -1)


def static_int8(x: Array, out: Array) -> Array:
    scale = np.array([0.05], "float32")
    infini.ops.static_scaled_int8_quant(x, scale, result=out)
    return scale


def dynamic_int8(x: Array, out: Array) -> Array:
    scale = scales(5, 1)
    infini.ops.dynamic_scaled_int8_quant(x, out, scale)
    return scale


def groups_int8(x: Array, out: Array) -> Array:
    scale = scales(5, 4)
    infini.ops.per_token_group_quant_int8(x, 8, 1e-10, -128, 127, output_q=out, output_s=scale)
    return scale.repeat(8, -1)


FLOAT8: dict[str, Call] = {
    "static_scaled_fp8_quant": static_float8,
    "dynamic_scaled_fp8_quant": dynamic_float8,
    "dynamic_per_token_scaled_fp8_quant": tokens_float8,
    "per_token_group_fp8_quant": groups_float8,
}
INT8: dict[str, Call] = {
    "static_scaled_int8_quant": static_int8,
    "dynamic_scaled_int8_quant": dynamic_int8,
    "per_token_group_quant_int8": groups_int8,
}
NAMES = {*FLOAT8, *INT8, "scaled_mm"}


@pytest.fixture(params=["float32", "float16"])
def x(request: pytest.FixtureRequest) -> Array:
    return np.random.default_rng(0).uniform(-4, 4, (5, 32)).astype(request.param)


@pytest.mark.parametrize("call", FLOAT8.values(), ids=FLOAT8)
def test_float8(call: Call, x: Array) -> None:
    out = Float8Array(np.full((5, 32), 77, "uint8"))
    exact = x.astype("float64") / call(x, out)
    distance = np.abs(out.numbers() - exact)
    assert (distance <= nearest(exact) + 1e-6 * np.abs(exact)).all()


@pytest.mark.parametrize("call", INT8.values(), ids=INT8)
def test_int8(call: Call, x: Array) -> None:
    out = np.full((5, 32), 77, "int8")
    exact = x.astype("float64") / call(x, out)
    assert (np.abs(out - exact) <= 0.5 + 1e-4).all()


@pytest.mark.parametrize("is_float8", [False, True])
def test_scaled_mm(is_float8: bool) -> None:
    random = np.random.default_rng(0)
    a, b = (random.integers(0, 126, shape).astype("int8") for shape in ((5, 40), (40, 9)))
    row_scales, column_scales = random.random((5, 1)), random.random((1, 9))
    operands: tuple[Any, Any] = (a, b)
    exact = a.astype("float64") @ b
    if is_float8:
        operands = Float8Array(a.view("uint8")), Float8Array(b.view("uint8"))
        exact = NUMBERS[a] @ NUMBERS[b]
    out = np.full((5, 9), 77, "float32")
    given = row_scales.astype("float32"), column_scales.astype("float32")
    infini.ops.scaled_mm(*operands, *given, out=out)
    np.testing.assert_allclose(out, row_scales * column_scales * exact, rtol=1e-5)
