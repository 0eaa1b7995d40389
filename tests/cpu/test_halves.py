"""The CPU's conversions of 16-bit floats: all of their bits, on every path that this machine runs.

The library uses the widest vectors of a processor, so that its own tests reach the code for single
numbers and for narrower vectors only in part. This program is compiled from the same headers.
Expected bits come from NumPy, and for bfloat16 from integer arithmetic.
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
    return np.frombuffer(finished.stdout, np.uint32 if operation == "widen" else np.uint16)


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
