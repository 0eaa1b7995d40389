"""torch's interface to the device: its name, guards, streams, generators and copies."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import simulated_device
from simulated_device import runtime

import torch
from codegen.devices import platforms
from tests.simulated.conftest import NAME


def in_another_thread(function: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


class TestName:
    @pytest.mark.parametrize(
        "name", [each.torch_device for each in platforms() if each.torch_plugin]
    )
    def test_torch_has_the_device(self, name: str) -> None:
        program = (
            "import simulated_device, torch\n"
            f"simulated_device.load('{name}')\n"
            f"module = torch.{name}\n"
            f"tensor = torch.ones(2, device='{name}')\n"
            f"print(tensor.{name}(1).device, tensor.is_{name}, module.get_device_name(),\n"
            "      module.is_simulated, torch.accelerator.current_accelerator())"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        expected = f"{name}:1 True Simulated {name.upper()} True {name}\n"
        assert (done.stdout, done.stderr) == (expected, "")

    def test_a_second_time_does_nothing(self) -> None:
        simulated_device.load(NAME)
        assert getattr(torch, NAME) is runtime

    def test_a_second_name_is_refused(self) -> None:
        expected = f"can't be called 'npu': torch has one device .* it is called '{NAME}' already"
        with pytest.raises(RuntimeError, match=expected):
            simulated_device.load("npu")

    def test_a_device_of_someone_else_is_in_the_way(self) -> None:
        program = (
            "import simulated_device, torch\n"
            "torch.utils.rename_privateuse1_backend('npu')\n"
            "simulated_device.load('npu')"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert "can't be called 'npu': torch has one device of this kind per process" in done.stderr

    def test_a_name_of_torch_itself_is_refused(self) -> None:
        program = "import simulated_device\nsimulated_device.load('cuda')"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert "RuntimeError: Cannot register privateuse1 backend" in done.stderr

    def test_the_library_is_there_for_programs(self) -> None:
        assert simulated_device.library().is_file()


class TestGuard:
    def test_there_are_two_devices(self) -> None:
        assert runtime.device_count() == torch.accelerator.device_count() == 2
        with pytest.raises(RuntimeError, match="invalid device ordinal 2; there are 2 simulated"):
            torch.empty(1, device=f"{NAME}:2")
        with pytest.raises(ValueError, match="there is no device 2; there are 2"):
            runtime.get_device_name(2)

    def test_the_current_device_is_where_tensors_are_made(self) -> None:
        runtime.set_device(1)
        assert runtime.current_device() == torch.empty(1, device=NAME).device.index == 1
        with runtime.device(0):
            assert runtime.current_device() == 0
        assert runtime.current_device() == 1

    def test_the_current_device_is_of_a_thread(self) -> None:
        runtime.set_device(1)
        assert in_another_thread(runtime.current_device) == 0
        assert runtime.current_device() == 1

    def test_kernels_leave_the_current_device_alone(self) -> None:
        tensor = torch.ones(2, device=f"{NAME}:1") + 1
        assert tensor.device.index == 1
        assert runtime.current_device() == 0


class TestStreams:
    def test_the_current_stream_is_of_a_device_and_a_thread(self) -> None:
        default = runtime.current_stream()
        with torch.Stream(device=f"{NAME}:0") as stream:
            assert runtime.current_stream() == stream != default
            assert runtime.current_stream(1).stream_id == default.stream_id
            assert in_another_thread(runtime.current_stream) == default
        assert runtime.current_stream() == default

    def test_events_tell_the_time_between_them(self) -> None:
        first, second = (torch.Event(NAME, enable_timing=True) for _ in range(2))
        first.record()
        torch.ones(64, 64, device=NAME).mm(torch.ones(64, 64, device=NAME))
        second.record()
        second.synchronize()
        assert second.query()
        assert first.elapsed_time(second) > 0

    def test_everything_is_done_already(self) -> None:
        stream = torch.Stream(device=NAME)
        event = stream.record_event()
        torch.Stream(device=NAME).wait_event(event)
        stream.synchronize()
        runtime.synchronize()
        torch.ones(2, device=NAME).record_stream(stream)
        assert stream.query()


RANDOM: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "uniform_": torch.Tensor.uniform_,
    "normal_": torch.Tensor.normal_,
    "bernoulli_": torch.Tensor.bernoulli_,
    "random_": torch.Tensor.random_,
    "random_ to": lambda tensor: tensor.random_(100),
    "random_ from": lambda tensor: tensor.random_(-100, 100),
    "exponential_": torch.Tensor.exponential_,  # by the fallback
    "dropout": lambda tensor: torch.nn.functional.dropout(tensor.fill_(1)),
    "randperm": lambda tensor: torch.randperm(100, device=tensor.device),
}


class TestRandomNumbers:
    @pytest.mark.parametrize("kind", RANDOM)
    def test_a_seed_repeats_them(self, kind: str) -> None:
        tensor = torch.empty(100, device=NAME)

        def draw() -> list[float]:
            torch.manual_seed(7)
            return [RANDOM[kind](tensor).tolist() for _ in range(2)]

        first, second = draw(), draw()
        assert first == second
        assert first[0] != first[1]

    def test_each_device_has_a_generator(self) -> None:
        runtime.manual_seed_all(3)
        here, there = (torch.rand(4, device=f"{NAME}:{index}").tolist() for index in range(2))
        assert here == there
        assert torch.rand(4, device=NAME).tolist() != here
        assert torch.rand(4, device=f"{NAME}:1").tolist() != there

    def test_a_generator_is_of_the_device(self) -> None:
        generator = torch.Generator(NAME).manual_seed(5)
        assert generator.device == torch.device(NAME, 0)
        state = generator.get_state()
        first = torch.rand(4, device=NAME, generator=generator).tolist()
        generator.set_state(state)
        assert torch.rand(4, device=NAME, generator=generator).tolist() == first
        copy = generator.clone_state()
        assert (
            torch.rand(4, device=NAME, generator=copy).tolist()
            == torch.rand(4, device=NAME, generator=generator).tolist()
        )

    def test_a_generator_of_the_cpu_is_refused(self) -> None:
        with pytest.raises(RuntimeError, match=f"Expected a '{NAME}' device type for generator"):
            torch.empty(4, device=NAME).normal_(generator=torch.Generator())

    def test_its_state_is_the_devices(self) -> None:
        state = runtime.get_rng_state(1)
        first = torch.rand(4, device=f"{NAME}:1").tolist()
        runtime.set_rng_state(state, 1)
        assert torch.rand(4, device=f"{NAME}:1").tolist() == first


class TestCopies:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.bool, torch.complex64])
    def test_to_the_device_and_back(self, dtype: torch.dtype) -> None:
        tensor = torch.arange(6).reshape(2, 3).t()
        assert torch.equal(tensor.to(NAME, dtype).cpu(), tensor.to(dtype))
        assert torch.equal(tensor.to(NAME).to(dtype).cpu(), tensor.to(dtype))

    def test_between_devices(self) -> None:
        tensor = torch.arange(6, device=NAME)[::2]
        there = tensor.to(f"{NAME}:1", non_blocking=True)
        assert there.device.index == 1
        assert there.tolist() == [0, 2, 4]
        assert tensor.copy_(there + 1).tolist() == [1, 3, 5]

    def test_of_lazily_conjugated_and_negated_tensors(self) -> None:
        tensor = torch.tensor([1 + 2j, 3 - 4j])
        assert torch.equal(tensor.to(NAME).conj().cpu(), tensor.conj().resolve_conj())
        assert torch.equal(tensor.to(NAME).conj().imag.cpu(), torch.tensor([-2.0, 4.0]))

    def test_of_booleans_keeps_their_bytes(self) -> None:
        odd = torch.tensor([0, 1, 0xA5], dtype=torch.uint8).view(torch.bool)
        assert odd.to(NAME).cpu().view(torch.uint8).tolist() == [0, 1, 0xA5]

    def test_pinned_memory_is_known(self) -> None:
        pinned = torch.arange(4).pin_memory()
        assert pinned.is_pinned()
        assert pinned[1:].is_pinned()
        assert not torch.arange(4).is_pinned()
        assert pinned.to(NAME, non_blocking=True).tolist() == [0, 1, 2, 3]

    def test_a_file_brings_them_back(self) -> None:
        tensor = torch.arange(4.0, device=f"{NAME}:1").requires_grad_()
        file = io.BytesIO()
        torch.save(tensor, file)
        file.seek(0)
        loaded = torch.load(file)
        assert loaded.device == tensor.device
        assert loaded.tolist() == tensor.tolist()
