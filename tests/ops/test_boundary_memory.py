"""Odd memory layouts: strides, overlaps, outputs of another shape, borrowed memory.

With any layout, a call gives the right values or a clear error. Some of torch's own kernels do not:
``src/torch/quirks.cc`` lists those that need help, and a sweep over every overload finds missing
entries. All tests run on the CPU, which every platform has.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from harness import Arguments, equal, error_of, invoke, tensors
from installed import TORCH_SLOT, Overload, all_overloads
from samples import Sample
from torch.utils._python_dispatch import TorchDispatchMode

import infini.ops
import torch

pytestmark = pytest.mark.filterwarnings("ignore")

# Their results depend on the strides by definition; "empty" returns uninitialized memory.
_ABOUT_STRIDES = {"_reshape_alias_copy", "as_strided", "empty", "resize", "resize_as"}
# Singular, so that the sign is rounding noise.
_IMPRECISE = {"slogdet.out", "_linalg_slogdet.sign"}
# With an out of another shape, torch fills a part of it, or writes past its end.
_TRUST_OUTS = {
    "binary_cross_entropy",
    "binary_cross_entropy_backward",
    "huber_loss",
    "log_sigmoid_forward",
    "rrelu_with_noise",
    "soft_margin_loss",
}


def numbers(*shape: int) -> np.ndarray:
    return np.arange(1.0, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def filled(*shape: int) -> torch.Tensor:
    return torch.full(shape, float("nan"))


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """Returns an equal tensor whose elements lie apart and in reverse order of dimensions."""
    if tensor.dim() == 0:
        return tensor.clone()
    shape = [2 * size for size in reversed(tensor.shape)]
    every_other = (slice(None, None, 2),) * tensor.dim()
    order = range(tensor.dim() - 1, -1, -1)
    view = torch.zeros(shape, dtype=tensor.dtype)[every_other].permute(*order)
    return view.copy_(tensor)


def expanded(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)


def _swept() -> Iterator[Overload]:
    for overload in all_overloads():
        aten = overload.aten()
        about_strides = any(name in overload.aten_name for name in _ABOUT_STRIDES)
        if aten is None or about_strides or overload.qualified_name in _IMPRECISE:
            continue
        if torch.Tag.nondeterministic_seeded not in aten.tags and _samples_of(overload):
            yield overload


def _samples_of(overload: Overload) -> list[Sample]:
    return [sample for sample in overload.samples() if _has_dimensions(sample)][:2]


def _has_dimensions(sample: Sample) -> bool:
    return any(len(getattr(value, "shape", ())) > 1 for value in sample.arguments.values())


@pytest.mark.parametrize("overload", list(_swept()), ids=lambda overload: overload.qualified_name)
def test_tensors_of_any_strides(overload: Overload) -> None:
    aten = overload.aten()
    for sample in _samples_of(overload):
        expected = sample.bind(aten._schema, "cpu")
        if error_of(partial(invoke, aten), expected):
            continue  # a call that torch refuses anyway proves nothing here
        for name, layout in _layouts(aten._schema, expected):
            actual = sample.bind(aten._schema, "cpu")
            actual[name] = layout(_like_expected(aten, name, actual[name], expected[name]))
            strided_out = actual[name]
            _check_right_or_refused(overload, actual, expected)
            _check_between(strided_out)


def _check_between(tensor: torch.Tensor) -> None:
    """The call must not change the memory between the elements, where ``strided`` puts zeros."""
    base = tensor._base
    if base is not None and base.numel() == tensor.numel() << tensor.dim():
        assert _comparable(base).bool().sum() == _comparable(tensor).bool().sum()


def _layouts(
    schema: Any, values: Arguments
) -> Iterator[tuple[str, Callable[[torch.Tensor], torch.Tensor]]]:
    for argument in schema.arguments:
        value = values[argument.name]
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            continue
        yield argument.name, strided
        if argument.is_out:
            yield argument.name, expanded


def _like_expected(
    aten: Any, name: str, given: torch.Tensor, expected: torch.Tensor
) -> torch.Tensor:
    is_out = any(argument.name == name and argument.is_out for argument in aten._schema.arguments)
    return torch.zeros_like(expected) if is_out else given


def _check_right_or_refused(overload: Overload, actual: Arguments, expected: Arguments) -> None:
    if error_of(overload.call(TORCH_SLOT, by_keyword=True), actual):
        return
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(
                _comparable(actual[name]),
                _comparable(value),
                rtol=1e-4,
                atol=1e-5,
                equal_nan=True,
                check_stride=False,
                msg=lambda text, name=name: f"{name}: {text}",
            )


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype.is_floating_point else tensor


def _can_be_resized(overload: Overload) -> bool:
    aten = overload.aten()
    if not overload.is_selected or aten is None or overload.aten_name in _TRUST_OUTS | {"empty"}:
        return False
    return any(argument.is_out for argument in aten._schema.arguments)


def _ends_alike(overload: Overload, shape: tuple[int, ...]) -> bool:
    """Report whether torch and the library do the same with outs of this shape."""
    aten = overload.aten()
    for sample in overload.samples()[:1]:
        expected, actual = (_with_outs(sample, aten._schema, shape) for _ in range(2))
        error = error_of(partial(invoke, aten), expected)
        found = error_of(overload.call(TORCH_SLOT, by_keyword=False), actual)
        if type(found) is not type(error):
            return False
        if error is None and not _same_outcome(expected, actual):
            return False
    return True


def _with_outs(sample: Sample, schema: Any, shape: tuple[int, ...]) -> Arguments:
    arguments = sample.bind(schema, "cpu")
    for name in [argument.name for argument in schema.arguments if argument.is_out]:
        given = arguments[name]
        many = given if isinstance(given, list) else [given]
        outs = [torch.ones(shape, dtype=out.dtype) for out in many]
        arguments[name] = outs if isinstance(given, list) else outs[0]
    return arguments


def _same_outcome(expected: Arguments, actual: Arguments) -> bool:
    pairs = zip(tensors(expected), tensors(actual), strict=True)
    return all(
        (wanted.dtype, wanted.shape) == (got.dtype, got.shape) and equal(wanted, got)
        for (_, wanted), (_, got) in pairs
    )


class TestTorchReadsStridedTensorsWrongly:
    """For these, "as ATen" means what ATen's overload gives for contiguous tensors."""

    @staticmethod
    def check(overload: Any, call: Callable[..., object], inputs: Arguments, outs: int) -> None:
        right, of_torch, ours = ([filled() for _ in range(outs)] for _ in range(3))
        apart = {name: strided(value) for name, value in inputs.items()}
        overload(**inputs, **{f"out{i}": out for i, out in enumerate(right)})
        overload(**apart, **{f"out{i}": out for i, out in enumerate(of_torch)})
        call(**apart, **{f"out{i}": out for i, out in enumerate(ours)}, implementation_index=8)
        assert all(map(equal, ours, right))
        assert not all(map(equal, of_torch, right)), "torch is right: change docs/the-library.md"

    @pytest.mark.operators("internal_weight_norm_interface")
    def test_weight_norm(self) -> None:
        weight, scale = torch.from_numpy(numbers(4, 3)), torch.ones(4, 1)
        self.check(
            torch.ops.aten._weight_norm_interface.out,
            infini.ops.internal_weight_norm_interface,
            {"v": weight, "g": scale},
            outs=2,
        )

    @pytest.mark.operators("native_group_norm_backward")
    def test_the_gradient_of_group_norm(self) -> None:
        x, gradient = torch.from_numpy(numbers(2, 4, 6)), torch.from_numpy(numbers(2, 4, 6)).sin()
        sizes = {"N": 2, "C": 4, "HxW": 6, "group": 2, "output_mask": [True] * 3}
        saved = {"mean": torch.ones(2, 2), "rstd": torch.ones(2, 2), "weight": torch.ones(4)}
        overload = torch.ops.aten.native_group_norm_backward.out
        self.check(
            partial(overload, **saved, **sizes),
            partial(infini.ops.native_group_norm_backward, **saved, **sizes),
            {"grad_out": gradient, "input": x},
            outs=3,
        )


class TestOverlap:
    """NumPy's rule: a call with overlapping operands gives the result without an overlap."""

    @pytest.mark.parametrize("slot", [TORCH_SLOT, None])
    def test_an_input_that_the_out_overlaps_in_part(self, slot: int | None) -> None:
        base = numbers(6)
        infini.ops.neg(base[:-1], base[1:], implementation_index=slot)
        assert base.tolist() == [1, -1, -2, -3, -4, -5]

    def test_an_input_that_is_the_out(self) -> None:
        matrix = numbers(3, 3)
        expected = matrix @ matrix
        infini.ops.mm(matrix, matrix, matrix)
        assert matrix.tolist() == expected.tolist()
        flipped = numbers(4)
        infini.ops.flip(flipped, [0], flipped)
        assert flipped.tolist() == [4, 3, 2, 1]

    def test_an_in_place_operator_and_its_other_input(self) -> None:
        base = numbers(4)
        infini.ops.add_inplace(base[1:], base[:-1])
        assert base.tolist() == [1, 3, 5, 7]

    def test_an_element_of_a_list(self) -> None:
        base = numbers(4)
        infini.ops.cat([base[2:], base[:2]], 0, base)
        assert base.tolist() == [3, 4, 1, 2]

    def test_a_torch_tensor_around_the_same_memory(self) -> None:
        base = numbers(6)
        infini.ops.neg(torch.from_numpy(base)[:-1], base[1:])
        assert base.tolist() == [1, -1, -2, -3, -4, -5]
        infini.ops.neg(base[:-1], torch.from_numpy(base)[1:])
        assert base.tolist() == [1, -1, 1, 2, 3, 4]

    def test_a_torch_tensor_that_begins_within_its_storage(self) -> None:
        base = numbers(8)
        infini.ops.neg(torch.from_numpy(base)[3:6], base[4:7])
        assert base.tolist() == [1, 2, 3, 4, -4, -5, -6, 8]
        base = np.zeros(6, np.float32)
        second = torch.from_numpy(base)[3:].view(torch.int32)
        with pytest.raises(ValueError, match="two outs share memory"):
            infini.ops.frexp(torch.ones(3), base[2:5], second)
        infini.ops.frexp(torch.ones(3), base[:3], second)
        assert base[:3].tolist() == [0.5] * 3
        assert second.tolist() == [1] * 3

    def test_outs_that_share_memory(self) -> None:
        base, x = np.zeros(6, np.float32), torch.ones(3)
        with pytest.raises(ValueError, match="two outs share memory"):
            infini.ops.frexp(x, base[:3], base[1:4].view(np.int32))
        with pytest.raises(ValueError, match="two outs share memory"):
            infini.ops.unbind_copy(torch.ones(2, 3), 0, [base[:3], base[:3]])

    def test_outs_that_alternate_in_memory(self) -> None:
        base = np.zeros((3, 2), np.float32)
        infini.ops.aminmax(numbers(3, 4), dim=1, min=base[:, 0], max=base[:, 1])
        assert base.tolist() == [[1, 4], [5, 8], [9, 12]]


class TestOutsOfAnotherShape:
    @pytest.mark.parametrize("reduction", [0, 1, 2], ids=["none", "mean", "sum"])
    @pytest.mark.parametrize(
        "loss",
        ["binary_cross_entropy", "mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"],
    )
    def test_losses(self, loss: str, reduction: int) -> None:
        """Losses compute in ``out`` before they reduce it."""
        x, y = torch.tensor([0.25, 0.5, 0.75]), torch.tensor([1.0, 0.0, 1.0])
        name = ("none", "mean", "sum")[reduction]
        expected = getattr(torch.nn.functional, loss)(x, y, reduction=name)
        for shape in ((), (0,), (3,), (7,)):
            out = filled(*shape)
            getattr(infini.ops, loss)(x, y, reduction=reduction, out=out)
            torch.testing.assert_close(out, expected)
        array = np.zeros(expected.shape, np.float32)
        getattr(infini.ops, loss)(x.numpy(), y.numpy(), reduction=reduction, out=array)
        torch.testing.assert_close(torch.from_numpy(array), expected)

    @pytest.mark.parametrize("loss", ["huber_loss", "soft_margin_loss"])
    def test_a_loss_of_many_elements_leaves_the_others_unchanged(self, loss: str) -> None:
        x, y = torch.tensor([0.25, 0.5, 0.75]), torch.tensor([1.0, -1.0, 1.0])
        losses = torch.zeros(4)
        getattr(infini.ops, loss)(x, y, out=losses[1])
        expected = getattr(torch.nn.functional, loss)(x, y).item()
        assert losses.tolist() == [0, expected, 0, 0]

    @pytest.mark.parametrize("shape", [(), (0,), (7,)])
    def test_the_gradient_of_a_loss(self, shape: tuple[int, ...]) -> None:
        x, y, gradient = torch.full((4,), 0.5), torch.ones(4), filled(*shape)
        infini.ops.binary_cross_entropy_backward(torch.tensor(1.0), x, y, grad_input=gradient)
        assert gradient.tolist() == [-0.5] * 4

    @pytest.mark.parametrize("shape", [(), (0,), (7,)])
    def test_kernels_that_write_as_much_as_they_read(self, shape: tuple[int, ...]) -> None:
        x = torch.linspace(-1, 1, 64)
        out, buffer = filled(*shape), filled(*shape)
        infini.ops.log_sigmoid_forward(x, out, buffer)
        torch.testing.assert_close(out, torch.nn.functional.logsigmoid(x))
        out = filled(*shape)
        infini.ops.rrelu_with_noise(x, torch.zeros(64), 0.5, 0.5, True, out=out)
        torch.testing.assert_close(out, torch.where(x < 0, x / 2, x))

    @pytest.mark.operators("binary_cross_entropy_backward", "rrelu_with_noise")
    def test_torch_itself_does_not_resize_these(self) -> None:
        """The docs name them as exceptions to "resized as in torch"."""
        x = torch.full((4,), 0.5)
        operands = (torch.tensor(1.0), x, torch.ones(4))
        theirs, ours = filled(7), filled(7)
        torch.ops.aten.binary_cross_entropy_backward.grad_input(*operands, grad_input=theirs)
        infini.ops.binary_cross_entropy_backward(*operands, grad_input=ours)
        assert (theirs.shape, ours.shape) == ((7,), (4,))
        theirs, ours = filled(7), filled(7)
        options = (torch.zeros(4), 0.5, 0.5, True)
        torch.ops.aten.rrelu_with_noise.out(x, *options, out=theirs)
        infini.ops.rrelu_with_noise(x, *options, out=ours)
        assert (theirs.shape, ours.shape) == ((7,), (4,))

    @pytest.mark.parametrize("shape", [(), (0,), (7,)], ids=["scalar", "empty", "seven"])
    def test_all_other_operators_treat_them_as_torch_does(self, shape: tuple[int, ...]) -> None:
        compared = [each for each in all_overloads() if _can_be_resized(each)]
        different = [each.qualified_name for each in compared if not _ends_alike(each, shape)]
        assert different == []

    def test_torch_says_that_it_resizes(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            infini.ops.abs(torch.ones(3), filled(5))
        assert [warning.category for warning in caught] == [UserWarning]
        assert "was resized" in str(caught[0].message)
        assert caught[0].filename == __file__

    def test_an_out_that_torch_replaces_by_another_tensor(self) -> None:
        """Torch's ``_add_relu`` binds ``out`` to a tensor of the common type."""
        out = torch.zeros(2, dtype=torch.float16)
        address = out.data_ptr()
        infini.ops.internal_add_relu(torch.tensor([1.0, -3.0]), torch.ones(2), out=out)
        assert (out.dtype, out.data_ptr()) == (torch.float16, address)
        assert out.tolist() == [2, 0]


@pytest.mark.operators("internal_logcumsumexp")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64], ids=str)
def test_an_out_dtype_that_torch_trusts_is_refused(dtype: torch.dtype) -> None:
    """Torch writes float32 into an out of any dtype, and past the end of smaller elements."""
    x, out = torch.ones(4, 4), torch.zeros(4, 4, dtype=dtype)
    with pytest.raises(RuntimeError, match=r"out: got dtype .*, expected Float"):
        infini.ops.internal_logcumsumexp(x, 0, out)
    assert not out.any()
    infini.ops.internal_logcumsumexp(x, 0, right := filled(4, 4))
    torch.testing.assert_close(right, x.logcumsumexp(0))


class TestBorrowedMemory:
    @pytest.mark.parametrize(
        ("operator", "arguments"),
        [
            ("t_inplace", ()),
            ("transpose_inplace", (0, 1)),
            ("unsqueeze_inplace", (0,)),
            ("resize_inplace", ([4, 4],)),
            ("resize_inplace", ([2, 2],)),
            ("as_strided_inplace", ([2], [1])),
            ("set_inplace", ()),
            ("set_inplace", (torch.ones(3, 3),)),
            ("requires_grad_inplace", ()),
        ],
    )
    def test_operators_that_change_more_than_values(
        self, operator: str, arguments: tuple[object, ...]
    ) -> None:
        array = numbers(3, 3)
        with pytest.raises(
            ValueError, match=r"an output of shape|which is not a torch tensor|is only borrowed"
        ):
            getattr(infini.ops, operator)(array, *arguments)
        assert array.tolist() == numbers(3, 3).tolist()

    def test_an_operator_that_moves_nothing_within_its_memory(self) -> None:
        array = numbers(0)
        strides = [stride // array.itemsize for stride in array.strides]
        infini.ops.as_strided_inplace(array, [0], strides, 0)
        with pytest.raises(ValueError, match="changes more than the values"):
            infini.ops.as_strided_inplace(array, [0], strides, 1)

    def test_a_torch_tensor_cannot_keep_it(self) -> None:
        tensor = filled(2)
        with pytest.raises(ValueError, match="keeps a reference to"):
            infini.ops.set_inplace(tensor, numbers(3))
        assert tensor.tolist() == [1, 2, 3]  # a copy

    def test_an_array_cannot_take_that_of_a_torch_tensor(self) -> None:
        tensor = torch.tensor([1.0, 2.0])
        address = tensor.data_ptr()
        with pytest.raises(ValueError, match="keeps a reference to"):
            infini.ops.set_inplace(numbers(2), tensor)
        assert tensor.data_ptr() == address

    @pytest.mark.full_suite  # modes import TorchDynamo
    @pytest.mark.parametrize("fails", [False, True])
    def test_a_dispatch_mode_keeps_copies(self, fails: bool) -> None:
        """A mode sees the tensors around the arrays, and may keep them even if the call fails."""

        class Keeper(TorchDispatchMode):
            kept: ClassVar[list[torch.Tensor]] = []

            def __torch_dispatch__(
                self, function: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                self.kept.extend([*args, kwargs["out"]])
                if fails:
                    raise KeyError("mine")
                return function(*args, **kwargs)

        x, out = numbers(3), np.zeros(3, np.float32)
        expected = pytest.raises(KeyError, match="mine") if fails else contextlib.nullcontext()
        with Keeper(), expected:
            infini.ops.neg(x, out)
        assert out.tolist() == ([0, 0, 0] if fails else [-1, -2, -3])
        kept = [tensor.tolist() for tensor in Keeper.kept]
        x[:], out[:] = 7, 7
        assert [tensor.tolist() for tensor in Keeper.kept] == kept

    @pytest.mark.full_suite  # as above
    def test_inference_mode_ends_with_the_call(self) -> None:
        """Its tensors can't be written outside of it, but those around arrays are reused."""

        class Spy(TorchDispatchMode):
            modes: ClassVar[list[bool]] = []

            def __torch_dispatch__(
                self, function: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                self.modes.append(args[0].is_inference())
                return function(*args, **kwargs)

        x, out = numbers(3), np.zeros(3, np.float32)
        with torch.inference_mode(), Spy():
            infini.ops.neg(x, out)
        with Spy():
            infini.ops.neg(x, out)
        with torch.inference_mode(), Spy():
            infini.ops.neg(x, out)
        assert Spy.modes == [True, False, True]

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
    def test_nothing_to_write(self, shape: tuple[int, ...]) -> None:
        infini.ops.neg(np.zeros(shape, np.float32), np.zeros(shape, np.float32))
        infini.ops.neg(torch.zeros(shape), np.zeros(shape, np.float32))
        infini.ops.neg(np.zeros(shape, np.float32), torch.zeros(shape))

    def test_fortran_order(self) -> None:
        out = np.zeros((2, 3), np.float32, order="F")
        infini.ops.neg(np.asfortranarray(numbers(2, 3)), out)
        assert out.tolist() == [[-1, -2, -3], [-4, -5, -6]]


@pytest.mark.cpu_kernels
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_integers_wrap_around(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    values = torch.tensor([info.min, -1, 1, info.max], dtype=dtype)
    for alpha in (1, info.min, info.max):
        native, torchs = torch.zeros_like(values), torch.zeros_like(values)
        infini.ops.add(values, values, alpha, native, implementation_index=0)
        infini.ops.add(values, values, alpha, torchs, implementation_index=TORCH_SLOT)
        assert native.tolist() == torchs.tolist()


@pytest.mark.cpu_kernels
def test_memory_that_is_not_aligned() -> None:
    """Torch accepts it; the native code reads whole elements."""
    data = np.zeros(4 * 4 + 1, np.uint8)[1:].view(np.float32)
    assert not data.flags.aligned
    with pytest.raises(ValueError, match="takes aligned"):
        infini.ops.add(data, 1 + data, data, implementation_index=0)
    infini.ops.add(data, np.ones(4, np.float32), data)
    assert data.tolist() == [1, 1, 1, 1]
