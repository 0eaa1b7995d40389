"""Which Python objects a parameter takes, and the errors for those that it does not take."""

from __future__ import annotations

import array
import warnings
from typing import Any

import numpy as np
import pytest
from slot_zero import SLOTS_OF_ADD

import infini.ops
import torch

X = torch.arange(6.0).reshape(2, 3)


def filled(*shape: int) -> torch.Tensor:
    return torch.full(shape, float("nan"))


class Exporter:
    """An object with DLPack's two methods only."""

    def __init__(self, source: torch.Tensor) -> None:
        self.source = source

    def __dlpack__(self, **keywords: Any) -> object:
        return self.source.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.source.__dlpack_device__()
        return device


class TestNumbersAndLists:
    @pytest.mark.parametrize(
        "dim",
        [1, np.int64(1), np.uint8(1), [1], (1,), torch.Size([1]), [np.int32(1)]],
        ids=["int", "int64", "uint8", "list", "tuple", "size", "list-of-int32"],
    )
    def test_lists_of_integers(self, dim: object) -> None:
        out = filled(2)
        infini.ops.sum(X, dim, out=out)
        assert out.tolist() == [3, 12]

    @pytest.mark.parametrize("dim", [1.0, True, "1", [1.0], [True], [None], range(1)])
    def test_what_is_no_list_of_integers(self, dim: object) -> None:
        with pytest.raises(TypeError, match=r"candidates:\n  sum\(Tensor input, int\[1\]\? dim"):
            infini.ops.sum(X, dim, out=filled(2))

    def test_one_integer_stands_for_a_list_of_fixed_size(self) -> None:
        out = filled(1, 1, 1)
        infini.ops.avg_pool2d(torch.ones(1, 4, 4), 4, out=out)
        assert out.item() == 1

    @pytest.mark.parametrize("dtype", [torch.float64, "float64", float])
    def test_data_types(self, dtype: object) -> None:
        out = torch.zeros(2, dtype=torch.float64)
        infini.ops.sum(X, 1, dtype=dtype, out=out)
        assert out.tolist() == [3, 12]

    def test_numbers_that_only_unsigned_types_hold(self) -> None:
        out = torch.zeros(2, dtype=torch.uint64)
        for number in (2**63, 2**64 - 1):
            infini.ops.full([2], number, out)
            assert out.tolist() == [number, number]
        is_equal = torch.ones(2, dtype=torch.bool)
        infini.ops.eq(torch.ones(2), 2**63, is_equal)
        assert is_equal.tolist() == [False, False]
        with pytest.raises(OverflowError, match="too big"):
            infini.ops.full([2], 2**64, out)
        with pytest.raises(RuntimeError, match="overflow"):
            infini.ops.add(torch.ones(2).int(), torch.ones(2).int(), 2**63, torch.ones(2).int())

    @pytest.mark.parametrize("probability", [0.0, 0, False])
    def test_floats_from_any_real_number(self, probability: float) -> None:
        out = filled(2)
        infini.ops.bernoulli(torch.ones(2), probability, out=out)
        assert out.tolist() == [0, 0]

    def test_a_generator_gives_the_numbers_that_torch_gets_from_it(self) -> None:
        out = filled(4)
        infini.ops.normal(torch.zeros(4), 1.0, generator=torch.Generator().manual_seed(7), out=out)
        expected = torch.normal(torch.zeros(4), 1.0, generator=torch.Generator().manual_seed(7))
        assert torch.equal(out, expected)

    def test_a_tensor_on_a_device_that_the_build_lacks(self) -> None:
        with pytest.raises(ValueError, match=r"'meta'; this build has: .*cpu"):
            infini.ops.abs(torch.ones(2, device="meta"), torch.ones(2, device="meta"))


class TestArrays:
    @pytest.mark.parametrize("slot", SLOTS_OF_ADD)
    def test_buffers(self, slot: int) -> None:
        out = array.array("f", [0, 0])
        x = memoryview(array.array("f", [1, 2]))
        infini.ops.add(x, x, memoryview(out), implementation_index=slot)
        assert out.tolist() == [2, 4]

    def test_bytes_are_text_and_a_view_of_them_is_read_only(self) -> None:
        out = bytearray(2)
        infini.ops.bitwise_not(memoryview(b"\x01\x02"), out)
        assert out == b"\xfe\xfd"
        with pytest.raises(TypeError, match="not taken:\n  memoryview: no writable array"):
            infini.ops.bitwise_not(out, memoryview(b"\x01\x02"))
        with pytest.raises(TypeError, match="bytes"):
            infini.ops.bitwise_not(b"\x01\x02", out)

    @pytest.mark.parametrize(
        ("dtype", "why"),
        [
            (">f4", "numpy.ndarray: .*byte ?order"),
            ("O", "numpy.ndarray: DLPack only supports"),
            ("M8[s]", "numpy.ndarray: DLPack only supports"),
            ("U2", "numpy.ndarray: DLPack only supports"),
            ([("a", "f4")], "numpy.ndarray: DLPack only supports"),
        ],
        ids=["big-endian", "object", "datetime", "text", "structured"],
    )
    def test_arrays_without_a_torch_type(self, dtype: Any, why: str) -> None:
        with pytest.raises(TypeError, match=rf"candidates:\n.*\nnot taken:\n  {why}"):
            infini.ops.neg(np.zeros(2, dtype), filled(2))

    def test_objects_that_export_their_memory(self) -> None:
        out = filled(2, 3)
        infini.ops.pow(Exporter(X), 2, Exporter(out))
        assert torch.equal(out, X**2)

    def test_a_capsule_gives_its_array_to_every_overload(self) -> None:
        out = filled(2, 3)
        infini.ops.pow(X.__dlpack__(), 2, out)  # the third overload of `pow`
        assert torch.equal(out, X**2)
        capsule = X.__dlpack__()
        infini.ops.neg(capsule, out)
        with pytest.raises(TypeError, match="PyCapsule: a capsule gives its array once"):
            infini.ops.neg(capsule, out)

    def test_an_export_that_fails(self) -> None:
        with pytest.raises(TypeError, match="Exporter: Can't export tensors that require grad"):
            infini.ops.neg(Exporter(torch.ones(2, requires_grad=True)), filled(2))

        class Broken(Exporter):
            def __dlpack__(self, **keywords: Any) -> object:
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            infini.ops.neg(Broken(X), filled(2))

    def test_an_object_that_calls_operators_while_it_is_converted(self) -> None:
        def call_another() -> None:
            infini.ops.neg(np.ones(3, np.float32), np.zeros(3, np.float32))

        class Array(Exporter):
            def __dlpack__(self, **keywords: Any) -> object:
                call_another()
                return super().__dlpack__(**keywords)

        class Number:
            def __index__(self) -> int:
                call_another()
                return 1

        out = np.zeros((2, 3), np.float32)
        infini.ops.cumsum(Array(X), Number(), out=out)
        assert out.tolist() == X.cumsum(1).tolist()


class TestTensorsOfTorch:
    def test_subclasses_are_tensors(self) -> None:
        class Loud(torch.Tensor):
            @classmethod
            def __torch_function__(cls, *_: object, **__: object) -> object:
                raise AssertionError("a call below Python")

        out = filled(2, 3)
        infini.ops.neg(X.as_subclass(Loud), out)
        assert torch.equal(out, -X)

    def test_outs_that_autograd_watches(self) -> None:
        parameter = torch.nn.Parameter(filled(2, 3))
        infini.ops.neg(X, parameter)
        assert parameter.requires_grad
        assert parameter.is_leaf
        assert torch.equal(parameter.detach(), -X)

    def test_inference_tensors(self) -> None:
        with torch.inference_mode():
            out = filled(2, 3)
        infini.ops.neg(X, out)
        assert torch.equal(out, -X)

    @pytest.mark.operators("internal_spdiags")
    @pytest.mark.parametrize(
        ("layout", "name"), [(torch.strided, "Strided"), (torch.sparse_bsr, "SparseBsr")], ids=str
    )
    def test_a_layout_reaches_torch(self, layout: torch.layout, name: str) -> None:
        """Few operators take one. This one names those that it does not support."""
        diagonals, offsets, out = torch.ones(2, 3), torch.tensor([0, 1]), torch.zeros(3, 3)
        with pytest.raises(RuntimeError, match=f"are supported, got {name}$"):
            infini.ops.internal_spdiags(diagonals, offsets, [3, 3], layout, out)

    def test_an_out_of_another_layout_is_refused_as_by_torch(self) -> None:
        for call in (torch.ops.aten.neg.out, infini.ops.neg):
            with pytest.raises((RuntimeError, NotImplementedError), match=r"sparse|Sparse"):
                call(X, out=torch.zeros(2, 3).to_sparse())


def test_a_warning_that_is_made_an_error_is_raised() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="was resized"):
            infini.ops.neg(X, filled(7))
