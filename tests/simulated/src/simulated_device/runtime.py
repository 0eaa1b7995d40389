"""``torch.npu`` and its peers: the functions that the plug-ins of vendors have there."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

# Marks the device as simulated, so that every report about it can say so.
is_simulated = True

Stream = torch.Stream
Event = torch.Event


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    count: int = torch.ops.simulated_device.device_count()
    return count


def current_device() -> int:
    index: int = torch.accelerator.current_device_index()
    return index


def set_device(device: torch.device | str | int) -> None:
    torch.accelerator.set_device_index(device)


def device(device: torch.device | str | int) -> AbstractContextManager[Any]:
    """Makes a device current inside a ``with`` statement."""
    manager: AbstractContextManager[Any] = torch.accelerator.device_index(_index(device))
    return manager


def get_device_name(device: torch.device | str | int | None = None) -> str:
    _index(device)
    return f"Simulated {torch._C._get_privateuse1_backend_name().upper()}"


def synchronize(device: torch.device | str | int | None = None) -> None:
    torch.accelerator.synchronize(_index(device))


def current_stream(device: torch.device | str | int | None = None) -> torch.Stream:
    return torch.accelerator.current_stream(_index(device))


def set_stream(stream: torch.Stream) -> None:
    torch.accelerator.set_stream(stream)


def default_generator(device: torch.device | str | int | None = None) -> torch.Generator:
    return torch.ops.simulated_device.default_generator(_index(device))


def manual_seed(seed: int) -> None:
    """Seeds the current device."""
    default_generator().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds all devices; ``torch.manual_seed`` calls it."""
    for index in range(device_count()):
        default_generator(index).manual_seed(seed)


def get_rng_state(device: torch.device | str | int | None = None) -> torch.Tensor:
    return default_generator(device).get_state()


def set_rng_state(state: torch.Tensor, device: torch.device | str | int | None = None) -> None:
    default_generator(device).set_state(state)


def memory_allocated(device: torch.device | str | int | None = None) -> int:
    """Returns the bytes that tensors on a device occupy, in whole blocks."""
    allocated: int = torch.accelerator.memory_allocated(_index(device))
    return allocated


def max_memory_allocated(device: torch.device | str | int | None = None) -> int:
    peak: int = torch.accelerator.max_memory_allocated(_index(device))
    return peak


def mem_get_info(device: torch.device | str | int | None = None) -> tuple[int, int]:
    """Returns the free bytes and all bytes."""
    free_and_total: tuple[int, int] = torch.accelerator.get_memory_info(_index(device))
    return free_and_total


def empty_cache() -> None:
    """Does nothing: the device keeps no unused memory."""


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]


def _index(device: torch.device | str | int | None) -> int:
    """Returns the index of a device; without one, the index of the current device."""
    if device is None:
        return current_device()
    index = device if isinstance(device, int) else torch.device(device).index
    index = current_device() if index is None else index
    if not 0 <= index < device_count():
        raise ValueError(f"there is no device {device}; there are {device_count()}")
    return index
