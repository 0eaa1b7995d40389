"""Arrays of other libraries: DLPack with and without versions, and buffers."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import numpy as np
import pytest

import infini.ops

CPU, CUDA = 1, 2
FLOAT = 2
READ_ONLY = 1
VERSIONED, PLAIN = b"dltensor_versioned", b"dltensor"

Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
name_of = ctypes.pythonapi.PyCapsule_GetName
name_of.restype = ctypes.c_char_p
name_of.argtypes = [ctypes.py_object]


class Tensor(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("tensor", Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", Deleter),
    ]


class ManagedVersioned(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


class Producer:
    """A library whose capsules are of one kind, with the numbers 1, 2, 3 and 4 in float32."""

    def __init__(self, kind: bytes, *, major: int = 1, flags: int = 0, **fields: int) -> None:
        self.values = (ctypes.c_float * 4)(1, 2, 3, 4)
        self.shape = (ctypes.c_int64 * 1)(2)
        self.deleted = 0
        given = {"device_type": CPU, "code": FLOAT, "bits": 32, "lanes": 1, **fields}
        tensor = Tensor(data=ctypes.addressof(self.values), dimensions=1, shape=self.shape, **given)
        deleter = Deleter(self._delete)
        self.managed: Managed | ManagedVersioned
        if kind == VERSIONED:
            self.managed = ManagedVersioned(
                major=major, deleter=deleter, flags=flags, tensor=tensor
            )
        else:
            self.managed = Managed(tensor=tensor, deleter=deleter)
        self.capsule = new_capsule(ctypes.addressof(self.managed), kind, None)

    def _delete(self, _: object) -> None:
        self.deleted += 1


class OldArray:
    """An array of a library that knows no versions."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, stream: object = None) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.array.__dlpack_device__()
        return device


@pytest.fixture(params=[VERSIONED, PLAIN], ids=["versioned", "plain"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def double(x: object, out: object) -> None:
    infini.ops.add(x, x, out, implementation_index=0)


def test_a_capsule_is_taken_once_and_its_memory_released_after_the_call(kind: bytes) -> None:
    producer = Producer(kind)
    out = np.zeros(2, np.float32)
    double(producer.capsule, out)
    assert out.tolist() == [2, 4]
    assert producer.deleted == 1
    assert name_of(producer.capsule) == b"used_" + kind
    with pytest.raises(TypeError, match="PyCapsule: a capsule gives its array once"):
        double(producer.capsule, out)
    assert producer.deleted == 1


def test_the_memory_begins_at_an_offset(kind: bytes) -> None:
    out = np.zeros(2, np.float32)
    double(Producer(kind, byte_offset=8).capsule, out)
    assert out.tolist() == [6, 8]


def test_a_capsule_is_an_out(kind: bytes) -> None:
    producer = Producer(kind)
    double(np.ones(2, np.float32), producer.capsule)
    assert producer.values[:] == [2, 2, 3, 4]


@pytest.mark.parametrize(
    "fields",
    [{"device_type": CUDA}, {"lanes": 4}, {"code": 3}, {"bits": 24}],
    ids=["device", "lanes", "handle", "bits"],
)
def test_a_refused_capsule_keeps_its_array(kind: bytes, fields: dict[str, int]) -> None:
    producer = Producer(kind, **fields)
    with pytest.raises(TypeError, match="PyCapsule: a capsule gives its array once, in host"):
        double(producer.capsule, np.zeros(2, np.float32))
    assert producer.deleted == 0
    assert name_of(producer.capsule) == kind


def test_a_capsule_of_another_major_version_is_refused() -> None:
    with pytest.raises(TypeError, match="not taken:\n  PyCapsule"):
        double(Producer(VERSIONED, major=2).capsule, np.zeros(2, np.float32))


def test_a_read_only_capsule_is_an_input_and_no_out() -> None:
    out = np.zeros(2, np.float32)
    double(Producer(VERSIONED, flags=READ_ONLY).capsule, out)
    assert out.tolist() == [2, 4]
    producer = Producer(VERSIONED, flags=READ_ONLY)
    with pytest.raises(TypeError, match="not taken:\n  PyCapsule"):
        double(out, producer.capsule)
    assert producer.values[:] == [1, 2, 3, 4]


def test_an_object_that_knows_no_versions() -> None:
    out = np.zeros((2, 3), np.float32)
    double(OldArray(np.ones((3, 2), np.float32).T), OldArray(out))
    assert out.tolist() == [[2, 2, 2], [2, 2, 2]]


def test_a_read_only_array_is_an_input() -> None:
    x = np.ones(2, np.float32)
    x.flags.writeable = False
    out = np.zeros(2, np.float32)
    double(x, out)
    assert out.tolist() == [2, 2]


def test_arrays_of_ctypes_have_no_strides() -> None:
    row = ctypes.c_int16 * 2
    out = (row * 2)()
    double((row * 2)(row(1, 2), row(3, 4)), out)
    assert [list(row) for row in out] == [[2, 4], [6, 8]]


def test_buffers_of_every_stride() -> None:
    out = np.zeros(6, np.float64)
    double(memoryview(np.arange(6.0))[::-2], memoryview(out)[1::2])
    assert out.tolist() == [0, 10, 0, 6, 0, 2]


def test_a_buffer_with_strides_of_parts_of_elements_is_refused() -> None:
    fields = np.zeros(2, [("a", "i1"), ("b", "<i2")])
    with pytest.raises(TypeError, match="not taken:\n  memoryview"):
        double(memoryview(fields["b"]), np.zeros(2, np.int16))
