"""Adapted samples: calls that a kernel of another device takes, and the recorded one is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from harness import Arguments, RefusedError, check, invoke
from reasons import SkipReason
from samples import Sample, aten_overload, load
from samples.adaptation import MAX_CANDIDATES, Adapted, adapted, variant_outputs
from samples.values import BlankValue, TensorValue, Value, leaves

import torch

only_where_recorded = pytest.mark.skipif(
    load().header["torch_version"] != torch.__version__,
    reason=f"{SkipReason.NO_SAMPLE.value}: not recorded with torch {torch.__version__}",
)


def tensor(dtype: torch.dtype, *shape: int) -> TensorValue:
    return TensorValue.of(torch.arange(1, 1 + torch.Size(shape).numel()).view(shape).to(dtype))


# Operators with kernels as strict as those of CUDA.


def centre(x: torch.Tensor, mean: torch.Tensor, *, out: torch.Tensor, total: torch.Tensor) -> None:
    expect_float32(mean=mean, total=total)
    out.copy_(x - mean.to(x.dtype))
    total.copy_(x.float().sum(0))


def step(self: list[torch.Tensor], grads: list[torch.Tensor], lr: torch.Tensor) -> None:
    expect_float32(lr=lr)
    for parameter, gradient in zip(self, grads, strict=True):
        parameter.sub_((lr * gradient).to(parameter.dtype))


def reduce(
    x: torch.Tensor, dim: int = 0, mode: int | None = None, how: str = "", *, out: torch.Tensor
) -> None:
    if mode not in (1, 2) or how not in ("", "sum"):
        raise RuntimeError(f"expected mode 1 or 2 and how sum, got {mode} and {how}")
    out.copy_(x.sum(dim) * mode)


def expect_float32(**tensors: torch.Tensor) -> None:
    for name, each in tensors.items():
        if each.dtype != torch.float32:
            raise RuntimeError(f"{name}: expected scalar type Float but found {each.dtype}")


KERNELS: dict[str, Callable[..., None]] = {
    "centre.out(Tensor x, Tensor mean, *, Tensor(a!) out, Tensor(b!) total) -> ()": centre,
    "step_(Tensor(a!)[] self, Tensor[] grads, Tensor lr) -> ()": step,
    "reduce.out(Tensor x, int dim=0, int? mode=None, str how='', *, Tensor(a!) out) -> ()": reduce,
}


@pytest.fixture
def toy() -> Iterator[Any]:
    """The namespace of the operators."""
    with torch.library._scoped_library("adaptation", "FRAGMENT") as library:
        for schema, kernel in KERNELS.items():
            library.define(schema)
            library.impl(schema.partition("(")[0], kernel, "CPU")
        yield torch.ops.adaptation


class TestAdapted:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
    def test_statistics_are_converted(self, toy: Any, dtype: torch.dtype) -> None:
        name = str(dtype).removeprefix("torch.")
        outputs = {"out": BlankValue(name, (3, 4)), "total": BlankValue(name, (4,))}
        arguments = {"x": tensor(dtype, 3, 4), "mean": tensor(dtype, 4), **outputs}
        sample = Sample("centre.out", name, arguments)
        taken = first_taken(sample, toy.centre.out)
        assert taken.sample.arguments["x"] == arguments["x"]
        assert taken.change == (
            f"mean: float32 instead of {name}; total: float32[4] instead of {name}[4]"
        )

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
    def test_the_learning_rate_is_converted(self, toy: Any, dtype: torch.dtype) -> None:
        name = str(dtype).removeprefix("torch.")
        parameters = [tensor(dtype, 3), tensor(dtype, 2, 2)]
        arguments = {"self": parameters, "grads": parameters, "lr": tensor(dtype)}
        taken = first_taken(Sample("step_", name, arguments), toy.step_.default)
        assert taken.change == f"lr: float32 instead of {name}"
        assert taken.sample.arguments["lr"].materialize("cpu").item() == 1.0

    @pytest.mark.parametrize(
        ("options", "change"),
        [
            ({}, "mode: 1 instead of the default"),
            ({"mode": 2, "how": "max"}, "how: the default instead of 'max'"),
        ],
        ids=["absent", "unknown"],
    )
    def test_options_are_given_or_left_out(
        self, toy: Any, options: dict[str, Value], change: str
    ) -> None:
        arguments = {"x": tensor(torch.float32, 3, 4), "out": BlankValue("float32", (4,))}
        sample = Sample("reduce.out", "float32", arguments | options)
        assert first_taken(sample, toy.reduce.out).change == change

    def test_flags_are_set(self) -> None:
        (sample,) = load().samples["_unique.out"]["bool"]
        changes = [each.change for each in candidates(sample)]
        assert "return_inverse: True instead of the default" in changes

    def test_a_call_without_statistics_and_options_stays_alone(self) -> None:
        for dtype, samples in load().samples["abs.out"].items():
            assert [each for sample in samples for each in candidates(sample)] == [], dtype

    @only_where_recorded
    def test_candidates_are_few_different_calls_of_the_same_overload(self) -> None:
        for groups in load().samples.values():
            for sample in groups.get("bfloat16", []):
                found = [each.sample for each in candidates(sample)]
                assert len(found) <= MAX_CANDIDATES
                calls = [sample.arguments, *(each.arguments for each in found)]
                assert all(call not in calls[:at] for at, call in enumerate(calls))
                schema = aten_overload(sample.overload)._schema
                assert all(each.fits(schema) == sample.fits(schema) for each in found)


def first_taken(sample: Sample, overload: Any) -> Adapted:
    """Returns the first candidate that passes, after the sample itself is refused."""
    call: Callable[[Arguments], object] = partial(invoke, overload)
    with pytest.raises(RefusedError, match="expected"):
        check(sample, overload, call, "cpu")
    for candidate in adapted(sample, overload, "cpu"):
        try:
            check(candidate.sample, overload, call, "cpu")
        except RefusedError:
            continue
        return candidate
    raise AssertionError("no candidate is taken")


def candidates(sample: Sample, device: str = "cuda") -> list[Adapted]:
    return list(adapted(sample, aten_overload(sample.overload), device))


def dtypes_of(sample: Sample) -> dict[str, set[str]]:
    return {
        name: {leaf.dtype for leaf in leaves(value)}
        for name, value in sample.arguments.items()
        if all(isinstance(leaf, (TensorValue, BlankValue)) for leaf in leaves(value))
    }


HALVES = ("bfloat16", "float16")
ALL = (*HALVES, "float64")


@only_where_recorded
class TestKernelsOfCuda:
    """What torch 2.11 expected on an NVIDIA H200, where it refused the recorded calls."""

    @pytest.mark.parametrize(
        ("overload", "dtypes", "in_float32", "as_recorded"),
        [
            ("batch_norm_update_stats.out", HALVES, "out0 out1", "input running_mean"),
            ("native_layer_norm.out", HALVES, "out1 out2", "input weight bias out0"),
            ("native_batch_norm.out", HALVES, "save_mean save_invstd", "input weight out"),
            ("_batch_norm_with_update.out", HALVES, "save_mean save_invstd", "input weight out"),
            ("_native_batch_norm_legit.out", HALVES, "save_mean save_invstd", "input weight out"),
            ("_native_batch_norm_legit.no_stats_out", HALVES, "save_mean save_invstd", "input out"),
            ("_native_batch_norm_legit_no_training.out", HALVES, "out1 out2", "input weight out0"),
            ("native_layer_norm_backward.out", HALVES, "mean rstd", "grad_out weight out1"),
            ("native_batch_norm_backward.out", HALVES, "save_mean save_invstd", "weight out1"),
            (
                "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.out",
                ALL,
                "scale",
                "self out0",
            ),
            ("_fused_sgd.tensor_lr_out", ALL, "lr", "self grads momentum_buffer_list out"),
            ("_fused_sgd_.tensor_lr", ALL, "lr", "self grads momentum_buffer_list"),
            ("_fused_adagrad.tensor_lr_out", ALL, "lr state_steps", "self state_sums out"),
            ("_fused_adagrad_.tensor_lr", ALL, "lr state_steps", "self state_sums"),
            ("_fused_adam.tensor_lr_out", ALL, "lr state_steps", "self exp_avgs out"),
            ("_fused_adam_.tensor_lr", ALL, "lr state_steps", "self exp_avgs"),
            ("_fused_adamw.tensor_lr_out", ALL, "lr state_steps", "self exp_avgs out"),
            ("_fused_adamw_.tensor_lr", ALL, "lr state_steps", "self exp_avgs"),
        ],
    )
    def test_dtypes(
        self, overload: str, dtypes: tuple[str, ...], in_float32: str, as_recorded: str
    ) -> None:
        for dtype in dtypes:
            for sample in load().samples[overload][dtype]:
                recorded = dtypes_of(sample)
                expected: dict[str, set[str] | None]
                expected = {name: {"float32"} for name in in_float32.split()}
                expected |= {name: recorded.get(name) for name in as_recorded.split()}
                found = [dtypes_of(each.sample) for each in candidates(sample)]
                assert any(
                    expected == {name: each.get(name) for name in expected} for each in found
                ), (dtype, sample.arguments)

    @pytest.mark.parametrize(
        ("overload", "dtype", "change"),
        [
            *(
                ("_masked_softmax.out", dtype, "mask_type: 0 instead of the default")
                for dtype in (*ALL, "float32")
            ),
            ("linalg_lstsq.out", "float32", "driver: the default instead of 'gelsd'"),
            ("linalg_ldl_solve.out", "complex64", "hermitian: the default instead of True"),
            ("_unique.out", "bool", "return_inverse: True instead of the default"),
            ("_unique2.out", "bool", "return_counts, return_inverse: True instead of the default"),
            *(
                ("_stack.out", dtype, "dim: the default instead of 1")
                for dtype in ("bool", "complex64", "int64", "float32", *ALL)
            ),
        ],
    )
    def test_options(self, overload: str, dtype: str, change: str) -> None:
        samples = load().samples[overload][dtype]
        assert change in [each.change for sample in samples for each in candidates(sample)]

    def test_the_variant_of_the_family_comes_first(self) -> None:
        sample = load().samples["native_layer_norm.out"]["bfloat16"][0]
        assert variant_outputs(sample, "cuda:0").keys() == {"out1", "out2"}
        first = candidates(sample, "cuda:0")[0]
        assert first.change == "out1, out2: float32[1, 1, 1] instead of bfloat16[1, 1, 1]"

    def test_a_device_outside_of_the_families_has_no_variant(self) -> None:
        sample = load().samples["native_layer_norm.out"]["bfloat16"][0]
        assert variant_outputs(sample, "npu") == variant_outputs(sample, "cpu") == {}

    def test_a_variant_is_of_one_recorded_call(self) -> None:
        first, *_, last = load().samples["native_batch_norm.out"]["float32"]
        assert variant_outputs(first, "cuda") == {}
        assert variant_outputs(last, "cuda")["save_mean"] == BlankValue("float32", (2,))
        unknown = Sample(last.overload, last.dtype, last.arguments | {"eps": 0.25})
        assert variant_outputs(unknown, "cuda") == {}
