"""The memory of the device: not accessible to the host, reused, and limited."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from simulated_device import runtime

import torch
from tests.simulated import trespass
from tests.simulated.conftest import NAME

MIB = 1 << 20


@pytest.fixture(scope="module")
def endings() -> dict[str, int]:
    """The signal that each way of accessing the device's memory ended with."""
    program = [sys.executable, "-W", "ignore", trespass.__file__]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    return {way: int(ending) for way, ending in map(str.split, done.stdout.splitlines())}


@pytest.mark.parametrize("way", [way.__name__ for way in trespass.WAYS[1:]])
def test_the_host_crashes_where_it_touches_the_device(endings: dict[str, int], way: str) -> None:
    assert endings[way] == signal.SIGSEGV


def test_the_host_may_touch_its_own_memory(endings: dict[str, int]) -> None:
    assert endings["of_the_host"] == 0


def test_memory_comes_in_blocks_and_goes_back() -> None:
    before = runtime.memory_allocated()
    tensor = torch.empty(1000, dtype=torch.uint8, device=NAME)
    assert runtime.memory_allocated() - before == 1024
    del tensor
    assert runtime.memory_allocated() == before


def test_an_empty_tensor_has_no_address() -> None:
    before = runtime.memory_allocated()
    tensor = torch.empty(0, device=NAME)
    assert tensor.data_ptr() == 0
    assert runtime.memory_allocated() == before
    assert tensor.cpu().shape == (0,)


def test_a_device_has_memory_of_its_own() -> None:
    before = runtime.memory_allocated()
    tensor = torch.ones(4, device=f"{NAME}:1")
    assert tensor.device.index == 1
    assert runtime.memory_allocated() == before


def test_a_block_that_was_freed_is_used_again() -> None:
    first, second = torch.ones(4, device=NAME), torch.ones(4, device=NAME)
    address = first.data_ptr()
    del first
    assert torch.ones(4, device=NAME).data_ptr() == address
    assert second.tolist() == [1, 1, 1, 1]


def test_neighbours_that_were_freed_are_one_block_again() -> None:
    free, total = runtime.mem_get_info(1)
    assert free == total
    parts = [torch.empty(total // 4, dtype=torch.uint8, device=f"{NAME}:1") for _ in range(4)]
    for index in (1, 3, 2, 0):
        parts[index].resize_(0)
        parts[index].untyped_storage().resize_(0)
    assert torch.empty(total, dtype=torch.uint8, device=f"{NAME}:1").nbytes == total


def test_a_too_large_tensor_is_an_out_of_memory_error() -> None:
    _, total = runtime.mem_get_info()
    message = rf"{NAME} out of memory. Tried to allocate {2 * total} bytes on device 0, which is "
    with pytest.raises(torch.OutOfMemoryError, match=message + rf"simulated and has {total} bytes"):
        torch.empty(2 * total, dtype=torch.uint8, device=NAME)
    assert torch.ones(4, device=NAME).sum().item() == 4


def test_freed_memory_is_not_what_it_was() -> None:
    """Large blocks return their pages, so that a program's peak is its own."""
    tensor = torch.ones(4 * MIB, dtype=torch.uint8, device=NAME)
    address = tensor.data_ptr()
    del tensor
    again = torch.empty(4 * MIB, dtype=torch.uint8, device=NAME)
    assert again.data_ptr() == address
    assert again.sum().item() == 0


def test_blocks_do_not_overlap() -> None:
    tensors: dict[int, torch.Tensor] = {}
    for step in range(500):
        if step % 5 > 2:
            # Freed in another order than allocated, so that there are holes.
            number = step * 7 % len(tensors)
            value = list(tensors)[number]
            assert (tensors.pop(value) == value).all()
        size = (1, 127, 128, 129, 1000)[step * 3 % 7 % 5]
        tensors[step] = torch.full((size,), step, dtype=torch.int32, device=NAME)
    for number, tensor in tensors.items():
        assert (tensor == number).all()


def test_a_tensor_that_grows_keeps_its_elements() -> None:
    tensor = torch.arange(4, device=NAME)
    assert tensor.resize_(2, 1024)[0, :4].tolist() == [0, 1, 2, 3]
    tensor.untyped_storage().resize_(16)
    assert tensor.resize_(2).tolist() == [0, 1]
