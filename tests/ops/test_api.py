"""The contract of the installed module: names, classes, arguments, errors and metadata.

The module is the same on every platform, so these tests use the CPU, which all have.
"""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from harness import equal
from installed import (
    METADATA_FILE,
    NATIVE_METADATA_FILE,
    TORCH_SLOT,
    class_name,
    metadata,
    native_metadata,
    native_operators,
    operator_names,
    operators,
    overloads,
)
from slot_zero import SLOTS_OF_ADD

import infini.ops
import torch


def filled(*shape: int) -> torch.Tensor:
    """Returns an output that no result equals."""
    return torch.full(shape, float("nan"))


class TestMetadata:
    def test_it_has_the_keys_of_the_contract(self) -> None:
        keys = {"schema_version", "torch_version", "selection", "ops", "skipped"}
        assert infini.ops.metadata_path() == METADATA_FILE
        assert metadata().keys() == keys
        assert metadata()["schema_version"] == 1

    def test_it_was_generated_from_the_torch_that_runs(self) -> None:
        installed = torch.__version__.partition("+")[0]
        assert metadata()["torch_version"].partition("+")[0] == installed

    def test_every_operator_is_a_function_and_a_class(self) -> None:
        for overload in operators():
            assert callable(getattr(infini.ops, overload.name)), overload
            assert isinstance(getattr(infini.ops, class_name(overload.name)), type), overload

    def test_names_follow_the_aten_names(self) -> None:
        for overload in overloads():
            core = overload.aten_name.strip("_")
            internal = overload.aten_name.startswith("_")
            assert overload.name.startswith("internal_") == internal
            assert core in overload.name

    def test_every_overload_writes_a_tensor(self) -> None:
        for overload in overloads():
            outs = [parameter for parameter in overload.parameters if parameter.is_out]
            assert outs, overload
            assert all(parameter.is_tensor for parameter in outs), overload

    def test_nothing_is_both_generated_and_skipped(self) -> None:
        generated = {(overload.aten_name, overload.overload_name) for overload in overloads()}
        skipped = {(row["aten_name"], row["overload_name"]) for row in metadata()["skipped"]}
        assert not generated & skipped
        assert all(row["reason"] for row in metadata()["skipped"])

    def test_it_is_one_of_two_files_that_have_all_operators(self) -> None:
        classes = {"Call", "Operator", "Platform"}
        found = {
            name
            for name in set(infini.ops.__all__) - classes
            if isinstance(getattr(infini.ops, class_name(name), None), type)
        }
        assert found == {each.name for each in operators()}


class TestNativeMetadata:
    """The library has what the generator read from the sources."""

    def test_it_has_the_keys_of_the_contract(self) -> None:
        assert infini.ops.native_metadata_path() == NATIVE_METADATA_FILE
        assert native_metadata().keys() == {"schema_version", "not_selected", "ops"}
        assert native_metadata()["schema_version"] == 1
        keys = {"name", "overload_name", "params", "implementations"}
        assert all(row.keys() == keys for row in native_metadata()["ops"])

    def test_its_slots_are_active_and_no_others_but_torchs(self) -> None:
        native = {each.name: each.slots for each in native_operators()}
        for name in {*native, *operator_names()}:
            operator_class = getattr(infini.ops, class_name(name))
            for platform in infini.ops.devices():
                active = set(operator_class.active_implementation_indices(platform))
                slots = {slot for device, slot in native.get(name, ()) if device == platform}
                assert active - {TORCH_SLOT} == slots, name

    @pytest.mark.cpu_kernels
    @pytest.mark.operators("add")
    def test_it_says_where_an_implementation_is(self) -> None:
        (add,) = (each for each in native_operators() if each.name == "add")
        assert dict(zip(add.slots, add.sources, strict=True))["cpu", 0] == "src/cpu/add.cc"


class TestOperatorClasses:
    @pytest.mark.cpu_kernels
    def test_add_has_the_native_and_the_torch_slot(self) -> None:
        assert infini.ops.Add.active_implementation_indices("cpu") == [0, TORCH_SLOT]

    def test_abs_has_the_torch_slot(self) -> None:
        assert infini.ops.Abs.active_implementation_indices("cpu") == [TORCH_SLOT]

    def test_every_operator_has_the_torch_slot(self) -> None:
        for overload in overloads():
            assert TORCH_SLOT in overload.active_slots("cpu"), overload.name

    def test_a_platform_that_is_not_in_the_build_has_no_slots(self) -> None:
        platforms = infini.ops.platforms()
        own = [each for each in platforms if each.name in infini.ops.devices()]
        known = {name for each in platforms for name in (each.name, each.torch_device)}
        absent = known - {name for each in own for name in (each.name, each.torch_device)}
        assert absent
        for name in (*absent, *(f"{name}:1" for name in absent)):
            assert infini.ops.Abs.active_implementation_indices(name) == []
            assert infini.ops.Operator.active_implementation_indices(name) == []

    def test_an_unknown_device_names_those_of_the_build(self) -> None:
        known = ", ".join(platform.name for platform in infini.ops.platforms())
        enabled = ", ".join(infini.ops.devices())
        for operator in (infini.ops.Abs, infini.ops.Operator):
            for device in ("toaster", "", "meta", torch.device("meta")):
                with pytest.raises(ValueError, match=f"^unknown device '{device}'; ") as raised:
                    operator.active_implementation_indices(device)
                assert str(raised.value).endswith(
                    f"; expected one of {known}, or torch's name of its device; this build has: "
                    f"{enabled}"
                )

    @pytest.mark.operators
    def test_the_base_class_has_the_slots_of_all_operators(self) -> None:
        native = {
            slot for each in native_operators() for device, slot in each.slots if device == "cpu"
        }
        slots = infini.ops.Operator.active_implementation_indices("cpu")
        assert slots == sorted({*native, TORCH_SLOT})

    def test_clear_cache_leaves_the_operator_usable(self) -> None:
        infini.ops.Add.clear_cache()
        infini.ops.Operator.clear_cache()  # of all of them
        out = filled(2)
        infini.ops.add(torch.ones(2), torch.ones(2), out)
        assert out.tolist() == [2, 2]

    def test_class_names_are_pascal_case(self) -> None:
        assert class_name("internal_log_softmax") == "InternalLogSoftmax"
        assert TORCH_SLOT in infini.ops.AddInplace.active_implementation_indices("cpu")


class TestCalls:
    def test_a_call_returns_nothing(self) -> None:
        assert infini.ops.abs(torch.ones(2), filled(2)) is None

    def test_outs_are_taken_by_position_and_by_keyword(self) -> None:
        x = torch.tensor([-1.5, 2.0])
        by_position, by_keyword, all_by_keyword = filled(2), filled(2), filled(2)
        infini.ops.abs(x, by_position)
        infini.ops.abs(x, out=by_keyword)
        infini.ops.abs(input=x, out=all_by_keyword)
        for out in (by_position, by_keyword, all_by_keyword):
            assert out.tolist() == [1.5, 2.0]

    def test_trailing_inputs_with_defaults_may_be_left_out(self) -> None:
        x, y = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])
        default, given, named = filled(2), filled(2), filled(2)
        infini.ops.add(x, y, default, implementation_index=TORCH_SLOT)
        infini.ops.add(x, y, 2, given, implementation_index=TORCH_SLOT)
        infini.ops.add(x, y, named, alpha=3, implementation_index=TORCH_SLOT)
        assert default.tolist() == [11, 22]
        assert given.tolist() == [21, 42]
        assert named.tolist() == [31, 62]

    def test_several_outs_are_all_written(self) -> None:
        values, indices = filled(2), torch.full((2,), -1)
        infini.ops.max(torch.tensor([[1.0, 5.0], [7.0, 2.0]]), 1, False, values, indices)
        assert values.tolist() == [5, 7]
        assert indices.tolist() == [1, 0]

    def test_overloads_are_told_apart_by_the_types_of_the_arguments(self) -> None:
        base = torch.tensor([2.0, 3.0])
        by_tensor, by_number, from_number = filled(2), filled(2), filled(2)
        infini.ops.pow(base, torch.tensor([3.0, 2.0]), by_tensor)
        infini.ops.pow(base, 2, by_number)
        infini.ops.pow(2, base, from_number)
        assert by_tensor.tolist() == [8, 9]
        assert by_number.tolist() == [4, 9]
        assert from_number.tolist() == [4, 8]

    @pytest.mark.operators("linalg_pinv", "linalg_matrix_rank")
    def test_what_torch_takes_by_name_is_not_bound_by_position(self) -> None:
        matrix, out = torch.diag(torch.tensor([10, 3, 0.5])), filled(3, 3)
        infini.ops.linalg_pinv(matrix, 0.2, out)
        assert equal(out, torch.linalg.pinv(matrix, 0.2))
        infini.ops.linalg_pinv(matrix, 0.2, True, out)
        assert equal(out, torch.linalg.pinv(matrix, 0.2, True))
        rank = torch.tensor(-1)
        infini.ops.linalg_matrix_rank(torch.diag(torch.tensor([1, 1e-9, 0])), 0.0, rank)
        assert rank.item() == 2
        with pytest.raises(TypeError, match=r"Tensor input, \*, float\? atol=None"):
            infini.ops.linalg_pinv(matrix, 0.2, 0.3, out)

    def test_an_in_place_operator_writes_its_input(self) -> None:
        x = torch.tensor([-1.0, 2.0])
        infini.ops.add_inplace(x, torch.tensor([3.0, 4.0]))
        assert x.tolist() == [2, 6]

    @pytest.mark.cpu_kernels
    def test_both_slots_of_add_agree(self) -> None:
        x, y = torch.randn(3, 1, 5), torch.randn(4, 5)
        native, generated, chosen = filled(3, 4, 5), filled(3, 4, 5), filled(3, 4, 5)
        infini.ops.add(x, y, native, implementation_index=0)
        infini.ops.add(x, y, generated, implementation_index=TORCH_SLOT)
        infini.ops.add(x, y, chosen)
        assert equal(native, generated)
        assert equal(chosen, native)

    def test_views_are_read_and_written_through(self) -> None:
        base, x = torch.zeros(4, 6), torch.arange(12.0).reshape(3, 4)
        infini.ops.neg(x.t(), base[:, ::2])
        assert equal(base[:, ::2], -x.t())
        assert not base[:, 1::2].any()

    @pytest.mark.parametrize("slot", SLOTS_OF_ADD)
    def test_numpy_arrays_are_taken_on_the_cpu(self, slot: int) -> None:
        x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3,), dtype=np.float32)
        for _ in range(2):  # the second call uses the wrappers of the first one again
            out = np.zeros((3, 2), dtype=np.float32).T
            infini.ops.add(x, y, out, implementation_index=slot)
            assert out.tolist() == [[1, 2, 3], [4, 5, 6]]

    def test_a_read_only_array_is_an_input_but_no_output(self) -> None:
        x, out = np.ones(2, dtype=np.float32), np.zeros(2, dtype=np.float32)
        x.flags.writeable = False
        infini.ops.add(x, x, out)
        assert out.tolist() == [2, 2]
        with pytest.raises(TypeError, match="no overload takes"):
            infini.ops.add(out, out, x)

    def test_a_memory_format_says_how_an_output_is_laid_out(self) -> None:
        for memory_format in (torch.channels_last, torch.contiguous_format):
            x = torch.empty(0)
            infini.ops.resize_inplace(x, [2, 3, 4, 5], memory_format=memory_format)
            assert x.is_contiguous(memory_format=memory_format)

    def test_a_write_is_counted_where_autograd_looks(self) -> None:
        weight, kept = torch.ones(2, requires_grad=True), torch.ones(2)
        loss = (weight * kept).sum()
        infini.ops.mul_inplace(kept, 2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    @pytest.mark.parametrize("slot", SLOTS_OF_ADD)
    def test_every_slot_counts_its_writes(self, slot: int) -> None:
        x, out = torch.ones(2), filled(2)
        infini.ops.add(x, x, out, implementation_index=slot)
        assert (x._version, out._version) == (0, 1)
        lists = [filled(2), filled(2)]
        infini.ops.internal_foreach_abs_inplace(lists)
        assert [each._version for each in lists] == [1, 1]

    def test_tensors_of_inference_mode_have_no_version_to_count(self) -> None:
        with torch.inference_mode():
            out = filled(2)
        infini.ops.abs(torch.ones(2), out)
        assert out.tolist() == [1, 1]

    def test_operators_are_copied_and_pickled_by_name(self) -> None:
        assert copy.deepcopy(infini.ops.abs) is infini.ops.abs
        again = pickle.loads(pickle.dumps(infini.ops.abs))  # noqa: S301 - our own bytes
        assert again is infini.ops.abs

    def test_autograd_is_not_recorded(self) -> None:
        x, out = torch.ones(2, requires_grad=True), filled(2)
        infini.ops.exp(x, out)
        assert not out.requires_grad
        assert equal(out, x.detach().exp())

    @pytest.mark.parametrize("name", ["matmul", "linalg_matmul", "linear"])
    def test_parameters_are_inputs_like_others(self, name: str) -> None:
        """torch's own call refuses parameters that require gradients beside an out."""
        x, parameter, out = torch.ones(2, 2), torch.nn.Parameter(torch.ones(2, 2)), filled(2, 2)
        getattr(infini.ops, name)(x, parameter, out=out)
        assert not out.requires_grad
        assert equal(out, torch.full((2, 2), 2.0))

    @pytest.mark.parametrize("name", ["matrix_power", "linalg_matrix_power"])
    def test_a_parameter_can_be_raised_to_a_power(self, name: str) -> None:
        out = filled(2, 2)
        getattr(infini.ops, name)(torch.nn.Parameter(torch.ones(2, 2)), 2, out=out)
        assert equal(out, torch.full((2, 2), 2.0))


class TestErrors:
    @pytest.mark.cpu_kernels
    def test_an_inactive_slot_names_the_active_ones(self) -> None:
        with pytest.raises(ValueError, match=r"implementation_index 5.*active: 0, 8"):
            infini.ops.add(torch.ones(2), torch.ones(2), filled(2), implementation_index=5)

    @pytest.mark.parametrize(
        ("arguments", "keywords"),
        [
            ((), {}),
            ((torch.ones(2),), {}),
            ((torch.ones(2), filled(2), filled(2)), {}),
            ((torch.ones(2), "text"), {}),
            ((torch.ones(2), filled(2)), {"colour": 1}),
            ((torch.ones(2), filled(2)), {"input": torch.ones(2)}),
        ],
        ids=["nothing", "too-few", "too-many", "wrong-type", "unknown-keyword", "given-twice"],
    )
    def test_a_call_that_fits_no_overload_lists_the_candidates(
        self, arguments: tuple[object, ...], keywords: dict[str, object]
    ) -> None:
        with pytest.raises(TypeError, match=r"abs\(Tensor input, Tensor out\)"):
            infini.ops.abs(*arguments, **keywords)

    @pytest.mark.parametrize("slot", SLOTS_OF_ADD)
    def test_shapes_that_do_not_broadcast_raise(self, slot: int) -> None:
        with pytest.raises((RuntimeError, ValueError), match=r"broadcast|must match"):
            infini.ops.add(torch.ones(2), torch.ones(3), filled(3), implementation_index=slot)

    def test_errors_of_torch_become_exceptions_and_leave_the_module_usable(self) -> None:
        with pytest.raises(RuntimeError, match="singular"):
            infini.ops.linalg_inv(torch.zeros(2, 2), filled(2, 2))
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            infini.ops.mm(torch.ones(2, 3), torch.ones(2, 3), filled(2, 3))
        out = filled(2)
        infini.ops.neg(torch.ones(2), out)
        assert out.tolist() == [-1, -1]

    def test_an_unknown_operator_is_an_attribute_error(self) -> None:
        # Operators are globals of the module, and some have the name of a builtin.
        assert all(getattr(infini.ops, name) for name in infini.ops.__all__)
        with pytest.raises(AttributeError, match="no_such_operator"):
            infini.ops.no_such_operator  # noqa: B018


def test_threads_do_not_disturb_one_another() -> None:
    inputs = [torch.full((64, 64), float(number)) for number in range(8)]

    def double_often(x: torch.Tensor) -> torch.Tensor:
        out = filled(64, 64)
        for _ in range(200):
            infini.ops.add(x, x, out)
        return out

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(double_often, inputs))
    for x, result in zip(inputs, results, strict=True):
        assert equal(result, 2 * x)
