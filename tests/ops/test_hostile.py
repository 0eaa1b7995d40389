"""Arguments that a boundary gets wrong: odd memory, odd objects, odd numbers.

Each of these once crashed the process or silently gave a wrong result. They run on the
CPU, which every platform has.
"""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import warnings
from functools import partial
from unittest import mock

import numpy as np
import pytest
from installed import TORCH_SLOT

import infini.ops
import torch


def filled(*shape: int) -> torch.Tensor:
    return torch.full(shape, float("nan"))


class TestMemory:
    @pytest.mark.cpu_kernels
    @pytest.mark.parametrize("shape", [(3,), (0, 2)])
    def test_an_input_of_more_dimensions_than_the_out(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(
            ValueError, match=r"an out of the shape that they broadcast to; .* out float32\[\]"
        ):
            infini.ops.add(torch.ones(shape), torch.ones(1), filled(), implementation_index=0)

    def test_a_lazily_negated_tensor(self) -> None:
        negated = torch.tensor([1 + 2j, 3 + 4j]).conj().imag
        assert negated.is_neg()
        out = filled(2)
        infini.ops.add(negated, torch.zeros(2), out)
        assert out.tolist() == [-2, -4]

    def test_a_tensor_without_memory(self) -> None:
        out = filled(3)
        infini.ops.add(torch._efficientzerotensor(3), torch.ones(3), out)
        assert out.tolist() == [1, 1, 1]

    def test_a_sparse_tensor(self) -> None:
        dense, out = torch.tensor([0.0, 2.0]), filled(2)
        infini.ops.add(dense, dense.to_sparse(), out)
        assert out.tolist() == [0, 4]

    @pytest.mark.cpu_kernels
    def test_an_out_that_overlaps_an_input(self) -> None:
        base = torch.arange(6.0)
        with pytest.raises(RuntimeError, match="single memory location"):
            infini.ops.add(base[:-1], base[:-1], base[1:])
        with pytest.raises(
            ValueError, match=r"an out .*; out must not overlap itself, or an input"
        ):
            infini.ops.add(base[:-1], base[:-1], base[1:], implementation_index=0)
        infini.ops.add(base, base, base)  # the same view is fine
        assert base.tolist() == [0, 2, 4, 6, 8, 10]

    @pytest.mark.cpu_kernels
    def test_an_out_that_overlaps_itself(self) -> None:
        with pytest.raises(
            ValueError, match=r"an out .*; out must not overlap itself, or an input"
        ):
            infini.ops.add(
                torch.ones(3), torch.ones(3), torch.zeros(1).expand(3), implementation_index=0
            )

    @pytest.mark.cpu_kernels
    def test_an_array_with_negative_strides(self) -> None:
        backwards = np.arange(3, dtype=np.float32)[::-1]
        with pytest.raises(ValueError, match="no array with negative strides"):
            infini.ops.neg(backwards, filled(3))
        out = filled(3)
        infini.ops.add(backwards, torch.zeros(3), out)  # the native slot can
        assert out.tolist() == [2, 1, 0]

    def test_borrowed_outs_of_another_shape(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(ValueError, match=r"given as float32\[5\], which can't be resized"):
                infini.ops.abs(torch.ones(3), np.zeros(5, np.float32))
            outs = [np.zeros(7, np.float32), np.zeros(2, np.float32)]
            with pytest.raises(ValueError, match=r"given as float32\[7\], which can't be resized"):
                infini.ops.unbind_copy(torch.ones(2, 2), 0, outs)

    def test_a_warning_before_an_error(self) -> None:
        shown: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_: shown.append(str(message))
            for _ in range(2):  # an error pending while the warning is shown broke the second
                with pytest.raises(ValueError, match="can't be resized"):
                    infini.ops.abs(torch.ones(3), np.zeros(5, np.float32))
        assert all("was resized" in message for message in shown)


class TestObjects:
    def test_a_ctypes_array(self) -> None:
        out = filled(3)
        infini.ops.neg((ctypes.c_float * 3)(1, 2, 3), out)
        assert out.tolist() == [-1, -2, -3]

    @pytest.mark.parametrize(
        "impostor",
        [np.datetime64(5, "s"), mock.Mock(spec=torch.Tensor), b"1234", "1234", [1.0], object()],
        ids=["datetime", "mock", "bytes", "str", "list", "object"],
    )
    def test_what_is_no_tensor(self, impostor: object) -> None:
        with pytest.raises(TypeError, match="no overload takes"):
            infini.ops.abs(impostor, filled(2))

    def test_a_keyword_that_is_no_text(self) -> None:
        with pytest.raises(TypeError, match=r"\\ud800=int"):
            infini.ops.abs(torch.ones(1), filled(1), **{"\ud800": 1})

    def test_a_list_that_changes_while_it_is_read(self) -> None:
        class Saboteur:
            def __index__(self) -> int:
                dimensions.clear()
                gc.collect()
                return 0

        dimensions: list[object] = [Saboteur(), 1]
        out = filled()
        infini.ops.sum(torch.ones(2, 2), dimensions, False, out)
        assert out.item() == 4

    def test_an_error_of_the_argument_itself(self) -> None:
        class Broken:
            def __index__(self) -> int:
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            infini.ops.cumsum(torch.ones(2), Broken(), filled(2))


class TestNumbers:
    @pytest.mark.parametrize("slot", [2**70, 2**32, -(2**70)])
    def test_a_slot_out_of_range(self, slot: int) -> None:
        with pytest.raises(OverflowError, match="too large"):
            infini.ops.abs(torch.ones(1), filled(1), implementation_index=slot)

    @pytest.mark.parametrize("keyword", ["implementation_index", "stream"])
    def test_an_option_that_is_no_number(self, keyword: str) -> None:
        with pytest.raises(TypeError, match=f"{keyword}: expected an int"):
            infini.ops.abs(torch.ones(1), filled(1), **{keyword: True})

    def test_an_integer_out_of_range(self) -> None:
        for call in (torch.cumsum, partial(infini.ops.cumsum, out=filled(2))):
            with pytest.raises(ValueError, match=r"Overflow when unpacking|fit into 64 bits"):
                call(torch.ones(2), 2**70)

    @pytest.mark.parametrize(
        ("number", "dtype"),
        [
            (np.float32(2), torch.float32),
            (np.int64(2), torch.int64),
            (np.bool_(True), torch.bool),
            (np.complex64(1 + 2j), torch.complex64),
        ],
        ids=["float32", "int64", "bool", "complex64"],
    )
    def test_numbers_of_numpy_keep_their_kind(self, number: object, dtype: torch.dtype) -> None:
        out = torch.zeros(2, dtype=dtype)
        infini.ops.mul(torch.ones(2, dtype=dtype), number, out)
        assert out.tolist() == [number, number]

    @pytest.mark.cpu_kernels
    @pytest.mark.parametrize(
        ("dtype", "alpha"),
        [(torch.int8, 300), (torch.int32, 2**40), (torch.float16, 1e6), (torch.float32, True)],
        ids=["int8", "int32", "float16", "bool"],
    )
    def test_an_alpha_that_the_type_cannot_hold(self, dtype: torch.dtype, alpha: object) -> None:
        x = torch.ones(2, dtype=dtype)
        with pytest.raises(ValueError, match="an alpha that the type can hold"):
            infini.ops.add(x, x, alpha, x.clone(), implementation_index=0)
        with pytest.raises(RuntimeError, match=r"overflow|Boolean"):
            infini.ops.add(x, x, alpha, x.clone(), implementation_index=TORCH_SLOT)


class TestListsOfAFixedSize:
    """Some of torch's kernels read the schema's number of integers, even if fewer are passed."""

    @pytest.mark.parametrize("size", [[2, 2], [], [2, 2, 2, 2]])
    def test_another_size(self, size: list[int]) -> None:
        x, indices = torch.ones(1, 1, 2, 2, 2), torch.zeros(1, 1, 2, 2, 2, dtype=torch.long)
        with pytest.raises(TypeError, match=rf"output_size: expected 3 integers, got {len(size)}"):
            infini.ops.fractional_max_pool3d_backward(x, x, [1, 1, 1], size, indices, filled(1))

    @pytest.mark.parametrize("size", [2, [2], [2, 2]])
    def test_one_integer_stands_for_all(self, size: object) -> None:
        out = filled(1, 2, 2)
        infini.ops.avg_pool2d(torch.ones(1, 4, 4), size, [], out=out)
        assert out.tolist() == [[[1, 1], [1, 1]]]

    def test_a_list_of_one_names_any_number(self) -> None:
        out = filled()
        infini.ops.sum(torch.ones(2, 2), [0, 1], False, out)
        assert out.item() == 4


# Torch rounds 16-bit floats in the same way, so every bit pattern can be checked against it.
@pytest.mark.cpu_kernels
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("other", [0.0, 1.0, -1e-3, 3e4])
def test_every_16_bit_float(dtype: torch.dtype, other: float) -> None:
    values = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    addend = torch.full_like(values, other)
    native, torchs = torch.zeros_like(values), torch.zeros_like(values)
    infini.ops.add(values, addend, native, implementation_index=0)
    infini.ops.add(values, addend, torchs, implementation_index=TORCH_SLOT)
    torch.testing.assert_close(native, torchs, rtol=0, atol=0, equal_nan=True)


def printed(program: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return finished.stdout


@pytest.mark.full_suite
@pytest.mark.operators("abs")
def test_an_operator_can_be_the_first_thing_that_is_imported() -> None:
    program = "from infini.ops import abs, Abs; print(Abs.active_implementation_indices('cpu'))"
    assert printed(program) == "[8]\n"


@pytest.mark.full_suite
@pytest.mark.parametrize("device", ["meta", "xpu"])
def test_a_default_device_without_memory(device: str) -> None:
    """Importing makes tensors, on the CPU: a default device may have no memory, or be missing."""
    program = f"import torch; torch.set_default_device({device!r}); import infini.ops; print('ok')"
    assert printed(program) == "ok\n"


@pytest.mark.parametrize("device", ["cpu:128", "cpu:-1", "cpu:", "cpu:1x"])
def test_none_is_not_a_device(device: str) -> None:
    with pytest.raises(TypeError, match="no overload takes"):
        infini.ops.internal_pin_memory(filled(2), device, filled(2))
