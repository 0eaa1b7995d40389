"""The device's own kernels and its fallback to the CPU, compared with the CPU."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import simulated_device
from torch.nn import functional

import torch
from tests.simulated.conftest import NAME

Function = Callable[..., torch.Tensor]

COMPOSITE = (
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "CompositeImplicitAutograd",
)


def randoms(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def check(function: Function, inputs: Sequence[torch.Tensor]) -> None:
    """Check that a function and its gradients are the same on the device and the CPU."""
    here = [tensor.clone().requires_grad_() for tensor in inputs]
    there = [tensor.to(NAME).requires_grad_() for tensor in inputs]
    expected, actual = function(*here), function(*there)
    assert actual.device.type == NAME
    torch.testing.assert_close(actual.cpu(), expected)
    (gradient,) = randoms(tuple(expected.shape))
    expected.backward(gradient)
    actual.backward(gradient.to(NAME))
    for tensor, other in zip(there, here, strict=True):
        torch.testing.assert_close(tensor.grad.cpu(), other.grad)


ATTENTION = [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)]
DIFFERENTIABLE: dict[str, tuple[Function, Sequence[tuple[int, ...]]]] = {
    "add": (torch.add, [(2, 3), (3,)]),
    "add, scaled": (partial(torch.add, alpha=3), [(2, 3), (2, 3)]),
    "mul": (torch.mul, [(2, 3), (2, 1)]),
    "mm": (torch.mm, [(2, 3), (3, 4)]),
    "relu": (torch.relu, [(2, 3)]),
    "sum": (torch.sum, [(2, 3)]),
    "sum of rows": (partial(torch.sum, dim=1), [(2, 3)]),
    "convolution": (
        partial(functional.conv2d, padding=1, stride=2),
        [(2, 3, 8, 8), (4, 3, 3, 3), (4,)],
    ),
    "convolution, dilated, without bias": (
        partial(functional.conv1d, dilation=2),
        [(2, 4, 9), (6, 4, 3)],
    ),
    "convolution, grouped": (
        partial(functional.conv2d, groups=2),
        [(2, 4, 8, 8), (6, 2, 3, 3), (6,)],
    ),
    "convolution, transposed": (
        partial(functional.conv_transpose2d, groups=2, stride=2, output_padding=1),
        [(2, 4, 5, 5), (4, 3, 3, 3), (6,)],
    ),
    "attention": (functional.scaled_dot_product_attention, ATTENTION),
    "attention, causal": (
        partial(functional.scaled_dot_product_attention, is_causal=True),
        ATTENTION,
    ),
    "attention, scaled": (partial(functional.scaled_dot_product_attention, scale=0.5), ATTENTION),
    "attention with a mask": (functional.scaled_dot_product_attention, [*ATTENTION, (5, 7)]),
    "attention, queries share keys": (
        partial(functional.scaled_dot_product_attention, enable_gqa=True),
        [(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6)],
    ),
    "pooling": (
        partial(functional.max_pool2d, kernel_size=2, padding=1, ceil_mode=True),
        [(2, 3, 7, 7)],
    ),
    "by the fallback": (torch.atan2, [(2, 3), (2, 3)]),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_it_agrees_with_the_cpu_and_so_do_its_gradients(name: str) -> None:
    function, shapes = DIFFERENTIABLE[name]
    check(function, randoms(*shapes))


def test_a_small_network_learns() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(36, 2),
    ).to(NAME)
    images, labels = randoms((8, 1, 8, 8))[0].to(NAME), torch.arange(8, device=NAME) % 2
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


class TestVariants:
    """The variants that are derived from a hand-written kernel."""

    @pytest.mark.parametrize("operator", ["add", "mul"])
    def test_of_a_binary_operator(self, operator: str) -> None:
        left, right = randoms((2, 3), (2, 3))
        expected = getattr(torch, operator)(left, right)
        there, other = left.to(NAME), right.to(NAME)
        out = torch.empty(0, device=NAME)
        assert getattr(torch, operator)(there, other, out=out) is out
        assert torch.equal(out.cpu(), expected)
        assert torch.equal(getattr(torch, operator)(there, other).cpu(), expected)
        assert getattr(there, f"{operator}_")(other) is there
        assert torch.equal(there.cpu(), expected)

    def test_out_keeps_its_data_type(self) -> None:
        out = torch.empty(2, dtype=torch.int64, device=NAME)
        for operator in (torch.add, torch.mul):
            with pytest.raises(RuntimeError, match=r"result type Float can't be cast to .* Long"):
                operator(torch.ones(2, device=NAME), 2.5, out=out)

    def test_sum_into_another_type(self) -> None:
        out = torch.empty((), dtype=torch.float64, device=NAME)
        torch.sum(torch.tensor([True, True], device=NAME), dim=0, out=out)
        assert out.item() == 2

    def test_relu_in_place(self) -> None:
        tensor = torch.tensor([-1.0, 2.0], device=NAME)
        torch.relu_(tensor)
        assert tensor.tolist() == [0, 2]

    @pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded tensors is deprecated")
    def test_masked_fill_of_elements_that_share_memory(self) -> None:
        tensor = torch.ones(1, device=NAME)
        tensor.expand(3).masked_fill_(torch.ones(3, dtype=torch.bool, device=NAME), 5)
        assert tensor.item() == 5


class TestMisuse:
    @pytest.mark.parametrize("operator", [torch.add, torch.mul, torch.mm])
    def test_tensors_of_two_devices(self, operator: Function) -> None:
        here = torch.ones(2, 2, device=NAME)
        for other in (torch.ones(2, 2, device=f"{NAME}:1"), torch.ones(2, 2)):
            message = f"Expected all tensors to be on the same device, but .*{other.device}"
            with pytest.raises(RuntimeError, match=message):
                operator(here, other)

    @pytest.mark.parametrize("out_device", ["cpu", f"{NAME}:1"])
    def test_an_out_on_another_device(self, out_device: str) -> None:
        tensor, out = torch.ones(2, 2, device=NAME), torch.empty(2, 2, device=out_device)
        for call in (
            partial(torch.add, tensor, tensor),
            partial(torch.mm, tensor, tensor),
            partial(torch.sum, tensor, dim=0, keepdim=True),
        ):
            with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
                call(out=out)

    @pytest.mark.parametrize("out_device", ["cpu", f"{NAME}:1"])
    def test_an_out_on_another_device_of_a_derived_operator(self, out_device: str) -> None:
        tensor, out = torch.ones(2, device=NAME), torch.empty(2, device=out_device)
        with pytest.raises(
            RuntimeError, match=f"on {NAME}:0 and can't be written into .* on {out_device}"
        ):
            torch.mul(tensor, tensor, out=out)

    def test_a_number_on_the_cpu_is_no_other_device(self) -> None:
        assert (torch.ones(2, device=NAME) + torch.tensor(1)).tolist() == [2, 2]
        assert (torch.tensor(3) * torch.ones(2, device=NAME)).tolist() == [3, 3]

    def test_a_tensor_that_the_host_reads(self) -> None:
        with pytest.raises(TypeError, match=f"can't convert {NAME}:0 device type tensor to numpy"):
            torch.ones(2, device=NAME).numpy()

    def test_sizes_that_do_not_fit(self) -> None:
        with pytest.raises(RuntimeError, match="must match the size of tensor"):
            torch.ones(2, device=NAME) + torch.ones(3, device=NAME)


def has_kernel(overload: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{overload}", key))


def test_each_operator_runs_where_the_file_says() -> None:
    for overload in ("add.out", "mul.Tensor", "mul.out", "mul_.Tensor", "empty.memory_format"):
        assert has_kernel(overload, "PrivateUse1")
    assert not has_kernel("atan2.out", "PrivateUse1")
    assert torch._C._dispatch_has_backend_fallback(torch._C.DispatchKey.PrivateUse1)
    assert has_kernel("max_pool2d", "AutogradPrivateUse1")


def test_the_gradient_of_pooling_is_the_devices() -> None:
    pooled = functional.max_pool2d(torch.ones(1, 1, 4, 4, device=NAME, requires_grad=True), 2)
    assert pooled.grad_fn is not None
    assert "MaxPool2d" in pooled.grad_fn.name()
    assert "simulated" in pooled.grad_fn.name()


@pytest.mark.parametrize(
    "make",
    [
        partial(torch.range, 0, 5),
        partial(torch.kaiser_window, 6),
        lambda device: torch.ones(2, 2, device=device).mode(0).values,
        lambda device: torch.stack([torch.ones(2, device=device)] * 2, -1),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_operators_that_torch_runs_only_on_the_cpu_run_there(make: Function) -> None:
    assert torch.equal(make(device=NAME).cpu(), make(device="cpu"))


def test_the_coverage_report_is_what_the_dispatcher_has() -> None:
    report = json.loads(simulated_device.library().with_name("coverage.json").read_text())
    assert report["required_missing"] == []
    assert report["torch_version"] == torch.__version__
    of_status: dict[str, list[str]] = defaultdict(list)
    for overload in report["overloads"]:
        of_status[overload["status"]].append(overload["name"])
    for overload in of_status["supported"] + of_status["derived"]:
        assert has_kernel(overload, "PrivateUse1") or has_kernel(overload, "AutogradPrivateUse1")
    for overload in of_status["composite"]:
        assert any(has_kernel(overload, key) for key in COMPOSITE), overload
    for overload in of_status["fallback"]:
        assert any(has_kernel(overload, key) for key in ("CPU", *COMPOSITE)), overload
