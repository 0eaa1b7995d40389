"""What a call keeps: nothing. No reference to an argument, and no memory, in any form of a call.

A call that leaks works. So these tests make many calls of each form, successful and failing ones,
and then count references, Python's blocks of memory and the bytes of the C library.
"""

from __future__ import annotations

import array
import ctypes
import gc
import operator
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from installed import TORCH_SLOT
from test_boundary_objects import Exporter
from torch.multiprocessing.reductions import StorageWeakRef

import infini.ops as ops
import torch

# The fast forms take 1 us. A leak that only each hundredth call has is found, too.
MANY, SOME = 100_000, 10_000
# Of Python's blocks and of the C library's bytes, for what others allocate meanwhile. One block, or
# 16 bytes, per call is a leak.
ALLOWED_PER_CALL = 0.25

Call = Callable[[], object]


class Index:
    """An integer of another type, whose number is a new object each time."""

    def __init__(self, number: int) -> None:
        self.number = str(number)

    def __index__(self) -> int:
        return int(self.number)


class FailingIndex:
    def __index__(self) -> int:
        raise KeyError("mine")


class FailingExport(Exporter):
    def __dlpack__(self, **keywords: Any) -> object:
        raise KeyError("mine")


class Spent(Exporter):
    """An object that exports the same capsule each time, which gives its array only once."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __dlpack__(self, **keywords: Any) -> object:
        return self.capsule


def failing(error: type[Exception], call: Call) -> Call:
    """A call that must raise this error."""

    def run() -> None:
        try:
            call()
        except error:
            return
        raise AssertionError(f"the call did not raise {error.__name__}")

    return run


class Operands:
    """The objects that the calls below get, all of them, so that all can be counted."""

    def __init__(self) -> None:
        self.x, self.y, self.out = torch.ones(4), torch.ones(4), torch.zeros(4)
        self.long = torch.zeros(8)
        self.array, self.out_array = np.ones(4, np.float32), np.zeros(4, np.float32)
        self.buffer = array.array("f", [1, 2, 3, 4])
        self.exporter = Exporter(self.x)
        self.failing_export = FailingExport(self.x)
        self.capsule = self.x.__dlpack__()
        torch.from_dlpack(self.capsule)
        self.spent = Spent(self.capsule)
        self.list, self.mixed = [self.x, self.y], (self.x, self.array)
        self.alpha, self.numpy_alpha = 1234.5, np.float32(2.5)
        # Numbers that Python does not share with others.
        self.large, self.slot = 10**15, int(str(10**6))
        self.too_large = 10**30
        self.index, self.stream_index = Index(TORCH_SLOT), Index(10**15)
        self.failing_index = FailingIndex()
        self.dtype, self.text = np.dtype(">f4"), "".join(["tex", "t"])
        self.swapped = np.ones(4, ">f4")
        self.generator = torch.Generator()

    def counts(self) -> dict[str, int]:
        return {name: sys.getrefcount(value) for name, value in vars(self).items()}


def quick_forms(of: Operands) -> Iterator[tuple[str, Call]]:
    """The forms of a call with torch tensors. No operator is looked up before the call."""
    yield "positional", lambda: ops.add(of.x, of.y, of.out)
    yield "a number", lambda: ops.add(of.x, of.y, of.alpha, of.out)
    yield "out by keyword", lambda: ops.add(of.x, of.y, out=of.out)
    yield "all by keyword", lambda: ops.add(input=of.x, other=of.y, alpha=of.alpha, out=of.out)
    yield "the slot", lambda: ops.add(of.x, of.y, of.out, implementation_index=TORCH_SLOT)
    yield "any slot", lambda: ops.add(of.x, of.y, of.out, implementation_index=None)
    yield "a stream", lambda: ops.add(of.x, of.y, of.out, stream=of.large)
    yield "no stream", lambda: ops.add(of.x, of.y, of.out, stream=None)
    yield (
        "both",
        lambda: ops.add(of.x, of.y, of.out, implementation_index=of.index, stream=of.large),
    )
    keywords = {"stream": of.stream_index, "implementation_index": of.index, "out": of.out}
    yield "unpacked", lambda: ops.add(*of.list, **keywords)


def other_forms(of: Operands) -> Iterator[tuple[str, Call]]:
    """Calls with other objects, errors, and functions that are not operators."""
    yield "arrays", lambda: ops.add(of.array, of.array, of.out_array)
    options = {"implementation_index": of.index, "stream": of.large}
    yield "an array and options", lambda: ops.add(of.array, of.x, out=of.out_array, **options)
    yield "buffers", lambda: ops.neg(memoryview(of.buffer), of.buffer)
    yield "exported", lambda: ops.neg(of.exporter, of.exporter)
    yield "a capsule", lambda: ops.neg(of.x.__dlpack__(), of.out)
    yield "a capsule for the third overload", lambda: ops.pow(of.x.__dlpack__(), 2, of.out)
    yield "a list", lambda: ops.cat(of.list, 0, of.long)
    yield "a tuple with an array", lambda: ops.cat(of.mixed, 0, of.long)
    yield "a list and options", lambda: ops.cat(of.list, out=of.long, **options)
    yield "a list of outs", lambda: ops.unbind_copy(of.long.view(2, 4), 0, of.list)
    yield "new operands", lambda: ops.add(torch.ones(4), np.ones(4, np.float32), torch.zeros(4))
    yield "a number of NumPy", lambda: ops.add(of.x, of.y, of.numpy_alpha, of.out)
    yield "a list of integers", lambda: ops.sum(of.long.view(2, 4), [0], out=of.out)
    yield "a data type", lambda: ops.sum(of.x, 0, dtype=torch.float32, out=of.out[0])

    unknown: dict[str, object] = {of.text: of.x}
    wrong: list[tuple[str, type[Exception], Call]] = [
        ("an unknown keyword", TypeError, lambda: ops.add(of.x, of.y, of.out, **unknown)),
        ("too many", TypeError, lambda: ops.add(of.x, of.y, of.alpha, of.out, of.long)),
        ("no tensor", TypeError, lambda: ops.add(of.x, of.text, of.out)),
        ("an array of another order", TypeError, lambda: ops.neg(of.swapped, of.out)),
        ("a failing export", KeyError, lambda: ops.neg(of.failing_export, of.out)),
        ("a spent export", TypeError, lambda: ops.neg(of.spent, of.out)),
        ("a large dimension", IndexError, lambda: ops.sum(of.x, [of.large], out=of.out)),
        ("a list with text", TypeError, lambda: ops.cat([of.x, of.text], 0, of.long)),
        ("a large number", OverflowError, lambda: ops.full([4], of.too_large, of.out)),
        (
            "a float slot",
            TypeError,
            lambda: ops.add(of.x, of.y, of.out, implementation_index=of.alpha),
        ),
        ("a text as stream", TypeError, lambda: ops.add(of.x, of.y, of.out, stream=of.text)),
        ("no slot", ValueError, lambda: ops.add(of.x, of.y, of.out, implementation_index=of.slot)),
        (
            "a large slot",
            OverflowError,
            lambda: ops.add(of.x, of.y, of.out, implementation_index=of.too_large),
        ),
        ("a large stream", OverflowError, lambda: ops.add(of.x, of.y, of.out, stream=of.too_large)),
        (
            "a failing slot",
            KeyError,
            lambda: ops.add(of.x, of.y, of.out, implementation_index=of.failing_index),
        ),
        (
            "a failing stream",
            KeyError,
            lambda: ops.add(of.x, of.y, of.out, stream=of.failing_index),
        ),
        (
            "outs that share memory",
            ValueError,
            lambda: ops.unbind_copy(of.long.view(2, 4), 0, [of.out_array, of.out_array]),
        ),
        ("an error of torch", RuntimeError, lambda: ops.mm(of.x, of.y, of.out)),
        ("no device", ValueError, lambda: ops.Add.active_implementation_indices(of.text)),
    ]
    for name, error, call in wrong:
        yield name, failing(error, call)

    yield "last_call", ops.last_call
    yield "platforms", ops.platforms
    yield "slots", lambda: ops.Add.active_implementation_indices("cpu")
    yield "clear_cache", lambda: ops.Add.clear_cache()
    yield "parameters", lambda: ops._core.parameters(ops.cat.__name__)
    yield "a function", lambda: ops._core.operator_function(ops.add.__name__)
    yield "help", lambda: (repr(ops.add), ops.add.__name__, ops.add.__doc__, ops.add.__reduce__())


FORMS = [(name, MANY) for name, _ in quick_forms(Operands())]
FORMS += [(name, SOME) for name, _ in other_forms(Operands())]


def allocated_bytes() -> int:
    """The bytes that the C library has given out, in large blocks as well; 0 if it does not say."""

    class Statistics(ctypes.Structure):
        _fields_ = tuple((f"field{i}", ctypes.c_size_t) for i in range(10))

    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):  # glibc before 2.33, musl
        return 0
    library.mallinfo2.restype = Statistics
    found = library.mallinfo2()
    return int(found.field7 + found.field4)  # uordblks and hblkhd


@pytest.mark.parametrize(("name", "count"), FORMS, ids=[name for name, _ in FORMS])
def test_a_call_keeps_nothing(name: str, count: int) -> None:
    of = Operands()
    call = {**dict(quick_forms(of)), **dict(other_forms(of))}[name]

    def repeat(times: int) -> None:
        for _ in range(times):
            call()
        gc.collect()

    repeat(200)
    references, none = of.counts(), sys.getrefcount(None)
    blocks, size = sys.getallocatedblocks(), allocated_bytes()
    repeat(count)
    grown = {
        "blocks of Python": sys.getallocatedblocks() - blocks,
        "bytes of the C library / 16": (allocated_bytes() - size) // 16,
        "references to None": abs(sys.getrefcount(None) - none),
    }
    assert of.counts() == references
    for what, growth in grown.items():
        assert growth < ALLOWED_PER_CALL * count, f"{growth} {what} more after {count} calls"


def test_operands_are_freed_after_the_calls() -> None:
    of = Operands()
    for _, call in (*quick_forms(of), *other_forms(of)):
        call()
    tensors = [value for value in vars(of).values() if isinstance(value, torch.Tensor)]
    alive = [weakref.ref(tensor) for tensor in tensors]
    storages = [StorageWeakRef(tensor.untyped_storage()) for tensor in tensors]
    arrays = [weakref.ref(of.array), weakref.ref(of.out_array)]
    del of, call, tensors
    gc.collect()
    assert [each() for each in (*alive, *arrays)] == [None] * (len(alive) + len(arrays))
    assert all(map(operator.methodcaller("expired"), storages))
