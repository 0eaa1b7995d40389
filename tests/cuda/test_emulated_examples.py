"""The CUDA implementations on host memory, with the examples of the operator suite.

They are run for operators that tests/cuda/test_emulated_operators.py has no random calls of. The
memory beside the elements of an out must not change.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torch
from codegen.native import read_bases
from tests.cuda import test_emulated_operators as random_calls
from tests.cuda.emulated import Emulated, EmulatedError, Launch, Value

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "ops"))
from native_examples import OPERATORS  # noqa: E402
from native_operands import Example, outside  # noqa: E402

# `assert_close` would import torch.distributed.tensor, as in tests/ops/conftest.py.
torch.testing._comparison._HAS_DTENSOR = False

RANDOM = {operator.make.__name__ for operator in random_calls.OPERATORS}
NAMES = sorted(random_calls.registered() - RANDOM)
CASES = [
    pytest.param(name, dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")
    for name in NAMES
    for dtype in OPERATORS[name].dtypes
]
PARAMETERS = {
    name: base.overload.parameters for name, base in read_bases(ROOT / "src" / "base").items()
}
LAUNCHES = {"dynamic_scaled_fp8_quant": 4}
"""Of operators that need more than one: the scale of all elements is known before the first."""


def ordered(name: str, example: Example) -> list[Value]:
    """All arguments of the call, as views of the memory of its tensors."""
    given = {**example.arguments, **example.outs}
    blocks: dict[int, np.ndarray] = {}
    return [
        _view(given[each.name], blocks) if each.name in given else each.default
        for each in PARAMETERS[name]
    ]


def _view(value: Any, blocks: dict[int, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_view(each, blocks) for each in value]
    if not isinstance(value, torch.Tensor):
        return value
    storage = value.untyped_storage()
    bytes_of = torch.empty(0, dtype=torch.uint8).set_(storage)
    block = blocks.setdefault(storage.data_ptr(), bytes_of.numpy())
    size = value.element_size()
    name = str(value.dtype).removeprefix("torch.")
    # numpy has not every type: emulated.py reads its name here.
    dtype = np.dtype(f"V{size}", metadata={"name": name})
    strides = [size * stride for stride in value.stride()]
    offset = size * value.storage_offset() if value.numel() else 0
    return np.ndarray(tuple(value.shape), dtype, block, offset, strides)


def call(
    emulated: Emulated, name: str, dtype: torch.dtype, example: Example, **options: int
) -> Sequence[Launch] | None:
    """None if the implementation refuses the call, as it may."""
    try:
        return emulated.call(name, *ordered(name, example), **options)
    except EmulatedError as error:
        may_refuse = example.is_optional or dtype not in OPERATORS[name].required
        if may_refuse and f"{name}: slot 0 takes " in str(error):
            return None
        pytest.fail(f"{name}, {example.title}: {error}")


def check(emulated: Emulated, name: str, dtype: torch.dtype, example: Example, order: int) -> bool:
    """Return whether the implementation took the call."""
    outs = example.outs
    if not example.keeps_out:
        for out in outs.values():
            out.fill_(77)
    before = outside(*outs.values())
    if call(emulated, name, dtype, example, order=order) is None:
        return False
    note = f"{name}, {example.title}"
    for written, expected in example.results.items():
        torch.testing.assert_close(
            outs[written],
            expected,
            rtol=example.tolerance.rtol,
            atol=example.tolerance.atol,
            equal_nan=True,
            msg=partial("{}, {}: {}".format, note, written),
        )
    assert torch.equal(outside(*outs.values()), before), f"{note}: memory beside an out"
    return True


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_examples(emulated: Emulated, name: str, dtype: torch.dtype) -> None:
    """Layouts, special values, and sizes near those of vectors, warps and blocks."""
    # What is large for several threads of a CPU takes most of the emulator's time.
    examples = [it for it in OPERATORS[name].examples(dtype) if it.title != "large"]
    taken = [check(emulated, name, dtype, it, number % 3) for number, it in enumerate(examples)]
    needed = [not it.is_optional for it in examples]
    assert sum(taken) >= sum(needed)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_kernels_run_on_the_device_and_stream_of_the_call(
    emulated: Emulated, name: str, dtype: torch.dtype
) -> None:
    """All of them, after the first call also without asking the runtime for anything."""
    example = next(iter(OPERATORS[name].examples(dtype)))
    for _ in range(2):
        launches = call(emulated, name, dtype, example, device=1, stream=0x5EED)
    assert launches == [Launch(device=1, stream=0x5EED)] * LAUNCHES.get(name, 1)
    assert set(emulated.runtime_calls) <= {"cudaSetDevice"}
