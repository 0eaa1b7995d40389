"""Tests that need a device other than the CPU: names, indices, streams, copies and autograd.

Runs where ``--device`` is a simulated one, whose memory ends the process that reads it on the host.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import TORCH_SLOT
from platforms import PLATFORMS, SIMULATOR, default_platform
from target import on_simulated_devices
from test_cpp import COMPILER, LINK
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import infini.ops
import torch

PROGRAM = Path(__file__).with_name("device_program.cc")
TORCH = Path(torch.__file__).parent


pytest_generate_tests = on_simulated_devices


@pytest.fixture(autouse=True)
def _check_current_device_and_streams(device: str) -> Iterator[None]:  # noqa: ARG001 - torch's accelerator
    before = current()
    yield
    assert current() == before


def current() -> list[object]:
    """Returns the index of the current device of this thread, and the stream of each."""
    indices = range(torch.accelerator.device_count())
    return [
        torch.accelerator.current_device_index(),
        *map(torch.accelerator.current_stream, indices),
    ]


def in_a_new_process(program: str, *arguments: str) -> list[str]:
    """Runs a Python program; returns the lines that it prints."""
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def message(call: Callable[..., object], *arguments: object, **keywords: object) -> str:
    """Returns the type and the text of the error that a call raises."""
    try:
        call(*arguments, **keywords)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    pytest.fail("no error")


class TestNames:
    def test_the_platform_and_torchs_device_are_one(self, device: str) -> None:
        platform = default_platform(device)
        assert infini.ops.devices() == ["cpu", platform]
        for name in (platform, device, f"{device}:1", torch.device(device, 1)):
            assert infini.ops.Abs.active_implementation_indices(name) == [TORCH_SLOT]

    def test_a_call_has_run_on_the_platform(self, device: str) -> None:
        x = torch.tensor([-1.0, 2.0], device=device)
        out = torch.zeros(2, device=device)
        infini.ops.abs(x, out)
        assert out.tolist() == [1.0, 2.0]
        ran = infini.ops.last_call()
        assert ran == infini.ops.Call("abs", "out", default_platform(device), TORCH_SLOT)

    def test_a_parameter_takes_either_name(self, device: str) -> None:
        platform = default_platform(device)
        for name in (platform, f"{platform}:0", device, f"{device}:0", torch.device(device)):
            out = torch.zeros(0)
            infini.ops.internal_pin_memory(torch.ones(2), device=name, out=out)
            assert out.tolist() == [1.0, 1.0]

    def test_other_platforms_are_unknown(self, device: str) -> None:
        own = default_platform(device)
        for name in PLATFORMS.keys() - {"cpu", own}:
            assert infini.ops.Abs.active_implementation_indices(name) == []
            with pytest.raises(
                ValueError, match=f"^unknown device '{name}'; this build has: cpu, {own}$"
            ):
                infini.ops.internal_pin_memory(torch.ones(2), name, torch.zeros(0))

    def test_no_native_slot(self, device: str) -> None:
        x = torch.ones(2, device=device)
        platform = default_platform(device)
        expected = f"implementation_index 0 is not active for 'add.out' on {platform}; active: 8"
        with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
            infini.ops.add(x, x, x, implementation_index=0)


BEFORE_THE_PLUG_IN = """
import sys
import infini.ops, torch

def show(function, *arguments, **keywords):
    try:
        print(function(*arguments, **keywords))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")

name, platform, simulated = sys.argv[1:]
x, out = torch.ones(2), torch.zeros(2)
meta = torch.ones(2, device="meta")
unnamed = torch._C._acc.create_empty_tensor((2,), torch.float32)
show(infini.ops.Abs.active_implementation_indices, platform)
show(infini.ops.internal_pin_memory, x, platform, out)
show(infini.ops.abs, meta, meta)
show(infini.ops.abs, unnamed, unnamed)
show(infini.ops.abs, -x, out)
__import__(simulated).load(name)
x = x.to(name)
infini.ops.neg(x, out=x)
print(x.tolist())
"""


@pytest.mark.operators("abs", "internal_pin_memory", "neg")
def test_the_library_may_be_used_before_the_plug_in_is_imported(device: str) -> None:
    platform = default_platform(device)
    plugin = PLATFORMS[platform].torch_plugin
    assert in_a_new_process(BEFORE_THE_PLUG_IN, device, platform, SIMULATOR) == [
        "[8]",
        f"ValueError: torch does not know the device '{device}' ({platform}) until its plug-in is "
        f"loaded: run `import {plugin}` first",
        f"ValueError: unknown device 'meta'; this build has: cpu, {platform}",
        f"ValueError: unknown device 'privateuseone'; this build has: cpu, {platform}",
        "None",
        "[-1.0, -1.0]",
    ]


class TestIndices:
    """Tensors on the second device while the first one is current."""

    def test_memory_comes_from_the_device_of_the_tensors(self, device: str) -> None:
        module = getattr(torch, device)
        x = torch.ones(1000, device=f"{device}:1")
        out = torch.empty(0, device=f"{device}:1")
        before = [module.memory_allocated(index) for index in range(2)]
        infini.ops.mul(x, x, out)
        after = [module.memory_allocated(index) for index in range(2)]
        assert out.device == x.device
        assert out.cpu().equal(torch.ones(1000))
        assert after[0] == before[0]
        assert after[1] >= before[1] + out.nbytes

    def test_copies_by_the_library_use_the_device_of_the_tensors(self, device: str) -> None:
        """``linear`` assumes a contiguous out, so the library gives it one."""
        module = getattr(torch, device)
        x, weight = torch.rand(2, 3), torch.rand(4, 3)
        on_second = [tensor.to(f"{device}:1") for tensor in (x, weight, torch.zeros(4, 2).t())]
        peak = module.max_memory_allocated(0)
        before = module.memory_allocated(0)
        infini.ops.linear(on_second[0], on_second[1], out=on_second[2].t().t())
        assert on_second[2].stride() == (1, 2)
        torch.testing.assert_close(on_second[2].cpu(), functional.linear(x, weight))
        assert module.memory_allocated(0) == before
        assert module.max_memory_allocated(0) == peak

    def test_torch_refuses_tensors_on_both_devices(self, device: str) -> None:
        first, second = (torch.ones(2, device=f"{device}:{index}") for index in range(2))
        ours = message(infini.ops.add, first, second, torch.empty_like(first))
        assert ours == message(torch.add, first, second, out=torch.empty_like(first))
        assert "on the same device" in ours


class Streams(TorchDispatchMode):
    """Records the current streams of both devices for every operator that torch runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> object:
        first, second = (torch.accelerator.current_stream(index).stream_id for index in range(2))
        self.seen.append((first, second))
        return function(*arguments, **(keywords or {}))


class TestStreams:
    HANDLE = 1234

    def seen(self, *arguments: object, **keywords: object) -> list[tuple[int, int]]:
        with Streams() as streams:
            infini.ops.add(*arguments, **keywords)
        seen: list[tuple[int, int]] = streams.seen
        return seen

    def test_the_handle_is_the_stream_of_the_device_of_the_tensors(self, device: str) -> None:
        for index, expected in enumerate(((self.HANDLE, 0), (0, self.HANDLE))):
            x = torch.ones(2, device=f"{device}:{index}")
            assert self.seen(x, x, x, stream=self.HANDLE) == [expected]

    def test_without_a_handle_the_stream_is_the_callers(self, device: str) -> None:
        x = torch.ones(2, device=device)
        with torch.Stream(device=device) as stream:
            inside = current()
            for handle in (0, None):
                assert self.seen(x, x, x, stream=handle) == [(stream.stream_id, 0)]
            assert self.seen(x, x, x, stream=self.HANDLE) == [(self.HANDLE, 0)]
            assert current() == inside

    def test_a_number_on_the_cpu_does_not_hide_the_device(self, device: str) -> None:
        x, number = torch.ones(2, device=device), torch.tensor(2.0)
        for operands in ((number, x), (x, number)):
            out = torch.zeros(2, device=device)
            assert self.seen(*operands, out, stream=self.HANDLE) == [(self.HANDLE, 0)]
            assert out.tolist() == [3.0, 3.0]
            assert infini.ops.last_call().device == default_platform(device)

    def test_it_ends_with_a_call_that_fails(self, device: str) -> None:
        x, other = (torch.ones(size, device=device) for size in (2, 3))
        with Streams() as streams, pytest.raises(RuntimeError, match="must match the size"):
            infini.ops.add(x, other, x, stream=self.HANDLE)
        assert streams.seen == [(self.HANDLE, 0)]

    def test_tensors_on_the_cpu_have_none(self, device: str) -> None:  # noqa: ARG002
        x = torch.ones(2)
        assert self.seen(x, x, x, stream=self.HANDLE, implementation_index=8) == [(0, 0)]


class TestMemory:
    def test_what_torch_refuses_is_refused_with_its_words(self, device: str) -> None:
        x, on_cpu = torch.ones(2, device=device), torch.ones(2)
        repeated = torch.ones(1, device=device).expand(2)
        for left, right, out in (
            (x, on_cpu, x),
            (on_cpu, x, x),
            (on_cpu, on_cpu, x),
            (x, x, on_cpu),
            (x, x, repeated),
            (x, torch.ones(3, device=device), x),
        ):
            ours = message(infini.ops.add, left, right, out)
            assert ours == message(torch.add, left, right, out=out)

    def test_arrays_are_on_the_cpu(self, device: str) -> None:
        x, array = torch.ones(2, device=device), np.ones(2, np.float32)
        ours = message(infini.ops.add, x, array, x)
        assert ours == message(torch.add, x, torch.ones(2), out=x)
        infini.ops.add(array, array, array)  # by the native slot that the CPU has in any build
        assert array.tolist() == [2.0, 2.0]
        infini.ops.add(x, np.float32(2), x)
        infini.ops.add(x, np.array(2, np.float32), x)
        assert x.tolist() == [5.0, 5.0]

    def test_tensors_without_elements(self, device: str) -> None:
        out = torch.ones(3, 2, device=device)
        infini.ops.mm(torch.ones(3, 0, device=device), torch.ones(0, 2, device=device), out)
        assert out.tolist() == [[0.0, 0.0]] * 3
        nothing = torch.ones(0, device=device)
        infini.ops.abs(nothing, out[:0, 0])
        infini.ops.sum(nothing, [0], out=out[0, 0])
        assert out[0].tolist() == [0.0, 0.0]

    def test_an_out_of_another_shape_is_resized(self, device: str) -> None:
        out = torch.empty(0, device=device)
        infini.ops.mm(torch.ones(2, 3, device=device), torch.ones(3, 4, device=device), out)
        assert out.cpu().equal(torch.full((2, 4), 3.0))

    def test_copies_for_kernels_that_ignore_strides(self, device: str) -> None:
        """``src/torch/quirks.cc`` lists the kernels and arguments that get contiguous copies."""
        for name, inputs, shape in (
            ("reflection_pad2d", (torch.rand(2, 4, 3), [1, 1, 1, 1]), (2, 6, 5)),
            ("internal_log_softmax", (torch.rand(4, 3), 1, False), (4, 3)),
            ("linear", (torch.rand(2, 3), torch.rand(4, 3)), (2, 4)),
            ("huber_loss", (torch.rand(3, 4), torch.rand(3, 4), 1), ()),
        ):
            expected = torch.zeros(shape)
            getattr(infini.ops, name)(*inputs, out=expected)
            out = transposed(torch.zeros(shape)).to(device)
            strides = out.stride()
            on_device = [
                transposed(value).to(device) if isinstance(value, torch.Tensor) else value
                for value in inputs
            ]
            getattr(infini.ops, name)(*on_device, out=out)
            torch.testing.assert_close(out.cpu(), expected, msg=name)
            assert out.stride() == strides

    def test_a_range_without_a_step(self, device: str) -> None:
        """Torch's overload for it runs on the CPU, whatever the device of the out."""
        out = torch.zeros(3, device=device)
        infini.ops.range(1, 3, out)
        assert out.tolist() == [1.0, 2.0, 3.0]

    def test_an_expanded_out(self, device: str) -> None:
        matrix, vector = torch.ones(3, 3, device=device), torch.ones(3, device=device)
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            infini.ops.mv(matrix, vector, torch.zeros(1, device=device).expand(3))

    def test_lists_of_tensors(self, device: str) -> None:
        tensors = [torch.full((2,), float(value), device=device) for value in range(3)]
        out = torch.empty(0, device=device)
        infini.ops.cat(tensors, 0, out)
        assert out.tolist() == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
        infini.ops.index(out, [torch.tensor([5, 0], device=device)], tensors[0])
        assert tensors[0].tolist() == [2.0, 0.0]


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """Returns an equal tensor whose first dimension is the innermost one."""
    order = list(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


class TestAutograd:
    """The library is for inference, but other code may train the same torch tensors."""

    def test_calls_are_no_part_of_the_graph(self, device: str) -> None:
        x = torch.ones(2, 2, device=device, requires_grad=True)
        out = torch.zeros(2, 2, device=device)
        infini.ops.linear(x, x, out=out)
        assert not out.requires_grad
        assert out.tolist() == [[2.0, 2.0]] * 2

    def test_writes_count(self, device: str) -> None:
        x = torch.ones(2, device=device)
        weight = torch.ones(2, device=device, requires_grad=True)
        product = (x * weight).sum()
        version = x._version
        infini.ops.neg(x, out=x)
        assert x._version == version + 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()

    def test_torch_trains_through_the_autograd_key_of_the_device(self, device: str) -> None:
        """The device has a gradient of its own for ``max_pool2d``."""

        def run(on: str) -> tuple[torch.Tensor, torch.Tensor]:
            x = torch.linspace(-9, 9, 2 * 3 * 6 * 6).sin().reshape(2, 3, 6, 6).to(on)
            out = functional.max_pool2d(x.requires_grad_(), 2)
            assert out.grad_fn.name().startswith("torch::autograd::CppNode<") is (on == device)
            out.square().sum().backward()
            return out.detach(), x.grad

        for got, expected in zip(run(device), run("cpu"), strict=True):
            torch.testing.assert_close(got.cpu(), expected)


class TestNetworks:
    def test_convolution(self, device: str) -> None:
        def run(on: str) -> list[torch.Tensor]:
            x = torch.linspace(-1, 1, 2 * 3 * 5 * 5).reshape(2, 3, 5, 5).to(on).requires_grad_()
            weight = torch.linspace(-1, 1, 4 * 3 * 3 * 3).reshape(4, 3, 3, 3).to(on)
            bias = torch.linspace(0, 1, 4).to(on)
            options = ([2, 2], [1, 1], [1, 1], False, [0, 0], 1)
            by_torch = functional.conv2d(x, weight, bias, stride=2, padding=1)
            ours = torch.empty(0, device=on)
            infini.ops.convolution(x, weight, bias, *options, ours)
            by_torch.square().sum().backward()
            return [by_torch.detach(), ours, x.grad]

        by_torch, ours, gradient = (tensor.cpu() for tensor in run(device))
        expected, _, expected_gradient = run("cpu")
        torch.testing.assert_close(by_torch, expected)
        torch.testing.assert_close(ours, expected)
        torch.testing.assert_close(gradient, expected_gradient)

    def test_attention(self, device: str) -> None:
        """Torch passes attention to the device as a whole; the library has no such operator."""

        def run(on: str, *, is_causal: bool) -> list[torch.Tensor]:
            query, key, value = (
                torch.linspace(-1, 1, 2 * 4 * 8).add(shift).sin().reshape(1, 2, 4, 8).to(on)
                for shift in range(3)
            )
            query.requires_grad_()
            out = functional.scaled_dot_product_attention(query, key, value, is_causal=is_causal)
            out.square().sum().backward()
            return [out.detach(), query.grad]

        for is_causal in (False, True):
            results = (run(on, is_causal=is_causal) for on in (device, "cpu"))
            for got, expected in zip(*results, strict=True):
                torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.operators(
    *("abs", "add", "aminmax", "copy_inplace", "fill_inplace", "linear", "neg", "set_inplace")
)
def test_a_program_without_python_calls_with_views_of_memory_on_devices(
    device: str, tmp_path: Path
) -> None:
    simulated = importlib.import_module(SIMULATOR).library()
    program = tmp_path / "program"
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    libraries = ["-Wl,--no-as-needed", simulated, TORCH / "lib" / "libc10.so"]
    paths = [f"-Wl,-rpath,{folder}" for folder in (simulated.parent, TORCH / "lib")]
    command = [*COMPILER, abi, "-isystem", TORCH / "include", PROGRAM, *LINK, *libraries, *paths]
    subprocess.run([*command, "-o", program], check=True)
    platform = default_platform(device)
    finished = subprocess.run(
        [program, platform, device], capture_output=True, text=True, check=True
    )
    if hasattr(torch.Stream, "native_handle"):
        of_the_current_stream = ["native: device 1, stream 77", "current: no error"]
    else:
        of_the_current_stream = [
            f"current: this torch does not provide the current stream of {device}:1 for a "
            "native kernel: pass its handle as `stream`, call on the default stream, or pass "
            "implementation_index=8"
        ]
    assert re.sub("0x[0-9a-f]+", "ADDRESS", finished.stdout).splitlines() == [
        f"before it has its name: torch does not know the device '{device}' ({platform}) until its "
        f"plug-in is loaded: run `import {PLATFORMS[platform].torch_plugin}` first",
        "native: device 0, stream 0",
        "abs: 1 2 3 4",
        "into an input: 15 12 17 10",
        "with a number on the CPU: 11 8 13 6",
        f"ran on {platform} at slot 8",
        "nothing: 11 8 13 6",
        "first: 1 -2",
        "second: 3 -4",
        "on the CPU: 1 2",
        "both: Expected all tensors to be on the same device, but found at least two devices, "
        f"{device}:0 and {device}:1!",
        "shifted: 1 2 4 6 8",
        "two outs: two outs share memory, so that they overwrite each other; pass separate tensors",
        "short out: an output of shape [5] was given as float32[2], which can't be resized",
        "kept: the operator keeps a reference to float32[2], whose memory is only borrowed; "
        "pass a torch tensor",
        "after the errors: -1 -2 -4 -6 -8",
        "strided: 1 3 3 7",
        "with a stream: 5 -6",
        "with a stream: an output of shape [2] was given as float32[1], which can't be resized",
        "current: device 0, streams 0 0",
        f"slot 0: implementation_index 0 is not active for 'add.out' on {platform}; active: 8",
        f"memory of device 1: the memory of a tensor on {device}:0 is on {device}:1",
        "memory of the host: ADDRESS is not memory of a simulated device",
        "device 9: invalid device ordinal 9; there are 2 simulated devices",
        "native: device 1, stream 0",
        *of_the_current_stream,
        "native: device 1, stream 1234",
    ]
