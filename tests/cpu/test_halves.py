"""The CPU's conversions of 16-bit and 8-bit floats: all bits, on every path that this machine runs.

The library uses the widest vectors of a processor, so that its own tests reach the code for single
numbers and for narrower vectors only in part. This program is compiled from the same headers.
Expected bits come from NumPy, for bfloat16 from integer arithmetic, and for float8_e4m3fn from its
definition: a table of the 256 numbers, of which the nearest is found.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
# "scalar", or an instruction set; a processor without it runs the widest one that it has.
PATHS = ("scalar", "baseline", "avx2", "avx512")
TYPES = ("float16", "bfloat16")
EVERY = np.arange(2**16, dtype=np.uint16)
FLOAT8 = "float8_e4m3fn"
EVERY_FLOAT8 = np.arange(2**8, dtype=np.uint8)

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler is installed")

Bits: TypeAlias = "np.ndarray[Any, Any]"
Convert = Callable[..., Bits]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("halves") / "program"
    here = Path(__file__).parent
    sources = [here / "halves_program.cc", ROOT / "src/cpu/isa.cc"]
    paths = [f"-I{ROOT / 'src'}", f"-I{ROOT / 'src/include'}", f"-I{here}"]
    options = ["-std=c++17", "-O2", "-Wno-psabi", *paths, "-o", str(program)]
    flags = shlex.split(os.environ.get("CXXFLAGS", ""))
    subprocess.run(["c++", *flags, *options, *sources], check=True)
    return program


@pytest.fixture(params=PATHS)
def convert(program: Path, request: pytest.FixtureRequest) -> Convert:
    """Converts bits on one path: ``convert(operation, type, bits)``."""
    return partial(_convert, program, request.param)


def _convert(
    program: Path, path: str, operation: str, dtype: str, values: Bits, *, most: int = 0
) -> Bits:
    kind = "scalar" if path == "scalar" else "vector"
    finished = subprocess.run(
        [program, kind, operation, dtype, str(most)],
        input=values.tobytes(),
        capture_output=True,
        check=True,
        env={**os.environ, "INFINI_OPS_CPU_ISA": path},
    )
    narrow = np.uint8 if dtype == FLOAT8 else np.uint16
    return np.frombuffer(finished.stdout, np.uint32 if operation == "widen" else narrow)


def widened(halves: Bits, dtype: str) -> Bits:
    """The bits of float32 that these 16-bit floats are."""
    if dtype == "bfloat16":
        return halves.astype(np.uint32) << 16
    with np.errstate(invalid="ignore"):  # of signaling NaN
        return halves.view(np.float16).astype(np.float32).view(np.uint32)


def narrowed(floats: Bits, dtype: str) -> Bits:
    """The bits of the nearest 16-bit floats; of two, of the even one."""
    if dtype == "bfloat16":
        lower = floats & 0xFFFF
        upper = floats >> 16
        is_up = (lower > 0x8000) | ((lower == 0x8000) & (upper & 1 == 1))
        return np.where(is_nan(floats), 0x7FC0, upper + is_up).astype(np.uint16)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return floats.view(np.float32).astype(np.float16).view(np.uint16)


def is_nan(floats: Bits) -> Bits:
    return (floats & 0x7FFFFFFF) > 0x7F800000


def neighborhood(dtype: str) -> Bits:
    """Every 16-bit float, the middles between two of them, and the float32 next to both."""
    exact = widened(EVERY, dtype)
    # Of normal float16, 13 bits are lost. What is subnormal has its middles elsewhere.
    lost = 16 if dtype == "bfloat16" else 13
    middles = [exact + (1 << (lost - 1))]
    if dtype == "float16":
        subnormal = np.arange(2 * 2**10 + 1, dtype=np.float32) * np.float32(2.0**-25)
        middles += [subnormal.view(np.uint32), (-subnormal).view(np.uint32)]
    ends = np.array([0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7FFFFFFF], np.uint32)
    centers = np.concatenate([exact, *middles, ends, ends | 0x80000000])
    steps = np.array([[-1], [0], [1]])
    return (centers.astype(np.int64) + steps).ravel().astype(np.uint32)


def check(got: Bits, expected: Bits, given: Bits, dtype: str) -> None:
    """Compares bits. A NaN may be any NaN, of which a processor keeps a part."""
    wide = got if got.itemsize == 4 else widened(got, dtype)
    wanted = expected if expected.itemsize == 4 else widened(expected, dtype)
    wrong = np.flatnonzero((wide != wanted) & ~(is_nan(wide) & is_nan(wanted)))
    shown = [f"{given[i]:#x}: {got[i]:#x}, expected {expected[i]:#x}" for i in wrong[:5]]
    assert not shown, f"{len(wrong)} wrong: {shown}"


@pytest.mark.parametrize("dtype", TYPES)
def test_every_16_bit_float_is_widened(convert: Convert, dtype: str) -> None:
    check(convert("widen", dtype, EVERY), widened(EVERY, dtype), EVERY, dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_near_every_16_bit_float_is_narrowed(convert: Convert, dtype: str) -> None:
    floats = neighborhood(dtype)
    check(convert("narrow", dtype, floats), narrowed(floats, dtype), floats, dtype)


@pytest.mark.parametrize("most", range(1, 16))
def test_parts_of_vectors(program: Path, most: int) -> None:
    """As many elements at a time are a part of a vector, in all vectors that are wider."""
    for path in PATHS[1:]:
        for dtype in TYPES:
            floats = widened(EVERY, dtype)
            # One more than the multiple of each number of lanes, so that the last part differs.
            for begin in (0, 1):
                halves = EVERY[begin:]
                wide = _convert(program, path, "widen", dtype, halves, most=most)
                check(wide, floats[begin:], halves, dtype)
                narrow = _convert(program, path, "narrow", dtype, floats[begin:], most=most)
                check(narrow, halves, floats[begin:], dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("other", [0.0, 2.0**-24, 1.0, -1.5, 1000.0])
def test_sums_with_every_16_bit_float(convert: Convert, dtype: str, other: float) -> None:
    """Pairs of vectors, whose lanes of bfloat16 have another order, and an odd rest."""
    others = narrowed(np.full(1, other, np.float32).view(np.uint32), dtype)
    for halves in (EVERY, EVERY[:-1], EVERY[5:-6]):
        second = np.broadcast_to(others, halves.shape)
        wide, wide_others = (widened(each, dtype).view(np.float32) for each in (halves, second))
        with np.errstate(invalid="ignore", over="ignore"):
            expected = narrowed((wide + wide_others).view(np.uint32), dtype)
        got = convert("add", dtype, np.concatenate([halves, second]))
        check(got, expected, halves, dtype)


def widened_float8(bits: Bits) -> Bits:
    """The bits of float32: a sign, 4 bits of exponent with a bias of 7, and 3 of the fraction."""
    exponent, fraction = (bits >> 3 & 15).astype(int), bits & 7
    normal = np.ldexp(1 + fraction / 8, exponent - 7)
    size = np.where(exponent == 0, np.ldexp(fraction / 8, -6), normal)
    size = np.where(bits & 0x7F == 0x7F, np.nan, size)
    return np.where(bits & 0x80, -size, size).astype(np.float32).view(np.uint32)


def narrowed_float8(floats: Bits) -> Bits:
    """The bits of the nearest number of at most 448; of two, of the even one."""
    positive = widened_float8(EVERY_FLOAT8[:0x7F]).view(np.float32).astype(np.float64)
    with np.errstate(invalid="ignore"):  # of signaling NaN
        size = np.abs(floats.view(np.float32).astype(np.float64))
    upper = np.searchsorted(positive, size).clip(1, 0x7E)
    lower = upper - 1
    below, above = size - positive[lower], positive[upper] - size
    is_up = (below > above) | ((below == above) & (upper % 2 == 0))
    nearest = np.where(np.isnan(size), 0x7F, np.where(is_up, upper, lower))
    return (nearest | (floats >> 31 << 7)).astype(np.uint8)


def near_float8() -> Bits:
    """Every number, the middles between two of them, and the float32 next to both."""
    numbers = widened_float8(EVERY_FLOAT8[:0x7F]).view(np.float32)
    centers = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2]).view(np.uint32)
    near = (centers.astype(np.int64) + np.array([[-1], [0], [1]])).ravel().astype(np.uint32)
    near = near[near.view(np.float32) <= 448]
    ends = np.array([1, 0x7FFFFF, 0x800000, 0x7F800001, 0x7FFFFFFF], np.uint32)
    positive = np.concatenate([near, ends])
    return np.concatenate([positive, positive | 0x80000000])


class TestFloat8:
    def test_every_one_is_widened(self, convert: Convert) -> None:
        got, expected = convert("widen", FLOAT8, EVERY_FLOAT8), widened_float8(EVERY_FLOAT8)
        assert np.array_equal(is_nan(got), is_nan(expected))
        assert np.array_equal(got[~is_nan(got)], expected[~is_nan(got)])

    @pytest.mark.parametrize("path", PATHS[1:])
    @pytest.mark.parametrize("most", [0, 3, 7, 15])
    def test_what_is_near_every_one_is_narrowed(self, program: Path, path: str, most: int) -> None:
        """Also every 16-bit float of at most 448, and NaN, in whole vectors and in parts."""
        halves = [widened(EVERY, dtype) for dtype in TYPES]
        floats = np.concatenate([near_float8(), *halves])
        floats = floats[~(np.abs(floats.view(np.float32)) > 448)]
        got = _convert(program, path, "narrow", FLOAT8, floats, most=most)
        expected = narrowed_float8(floats)
        wrong = np.flatnonzero(got != expected)
        shown = [f"{floats[i]:#x}: {got[i]:#x}, expected {expected[i]:#x}" for i in wrong[:5]]
        assert not shown, f"{len(wrong)} wrong: {shown}"
