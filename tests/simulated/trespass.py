"""A program whose host code accesses memory of the device, in every forbidden way.

Each way is a process of its own, forked from this one. Prints how each ended: the number of the
signal, or 0.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable

import simulated_device

import torch


def read(address: int) -> None:
    ctypes.string_at(address, 1)


def of_the_host() -> None:
    """Read allowed memory, to show that reading itself does not crash."""
    read(torch.ones(4).data_ptr())


def read_first_element() -> None:
    read(torch.ones(4, device="npu").data_ptr())


def read_second_device() -> None:
    read(torch.ones(4, device="npu:1").data_ptr())


def read_through_view() -> None:
    read(torch.ones(4, 4, device="npu").t()[1:].data_ptr())


def read_after_copy_to_host() -> None:
    tensor = torch.ones(4, device="npu")
    tensor.cpu()
    read(tensor.data_ptr())


def read_freed() -> None:
    address = torch.ones(4, device="npu").data_ptr()
    read(address)


def read_reused() -> None:
    address = torch.ones(4, device="npu").data_ptr()
    tensor = torch.ones(4, device="npu")
    assert tensor.data_ptr() == address
    read(address)


def read_resized() -> None:
    tensor = torch.ones(4, device="npu").resize_(4096)
    read(tensor.data_ptr())


def write() -> None:
    ctypes.memset(torch.ones(4, device="npu").data_ptr(), 0, 1)


def read_while_another_thread_is_in_kernels() -> None:
    tensor = torch.ones(4, device="npu")
    is_running = threading.Event()

    def run_kernels() -> None:
        while True:
            tensor.fill_(1)
            is_running.set()

    threading.Thread(target=run_kernels, daemon=True).start()
    is_running.wait()
    read(tensor.data_ptr())


WAYS = (
    of_the_host,
    read_first_element,
    read_second_device,
    read_through_view,
    read_after_copy_to_host,
    read_freed,
    read_reused,
    read_resized,
    write,
    read_while_another_thread_is_in_kernels,
)


def signal_of(way: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        way()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WTERMSIG(status)


if __name__ == "__main__":
    simulated_device.load("npu")
    torch.set_num_threads(1)
    for way in WAYS:
        print(way.__name__, signal_of(way))
