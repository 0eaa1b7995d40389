"""Argument values as data: what a sample holds, how it is written and brought to life.

A value is ``None``, a bool, number or string, a list of values, or one of the frozen
classes below. Nothing here depends on the version of torch that recorded it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

Value = Any  # the union above; recursive, so spelled in prose


@dataclass(frozen=True)
class TensorValue:
    """A dense tensor: the bytes span from its first to its last element."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    data: bytes

    def materialize(self, device: str) -> torch.Tensor:
        dtype = getattr(torch, self.dtype)
        if self.data:
            # Copied, because MKL's last bits depend on how memory is aligned: torch's own
            # always is to 64 bytes, a Python buffer is not.
            storage = torch.frombuffer(bytearray(self.data), dtype=dtype).clone().to(device)
        else:
            storage = torch.empty(0, dtype=dtype, device=device)
        return storage.as_strided(self.shape, self.stride)


@dataclass(frozen=True)
class BlankValue:
    """An output tensor: only what the caller of an ``out`` overload must know of it."""

    dtype: str
    shape: tuple[int, ...]

    def materialize(self, device: str) -> torch.Tensor:
        return torch.zeros(self.shape, dtype=getattr(torch, self.dtype), device=device)


@dataclass(frozen=True)
class NamedValue:
    """A ``torch.<name>`` object: dtype, layout or memory format."""

    name: str


@dataclass(frozen=True)
class DeviceValue:
    """Stands for whatever device the test runs on."""


def materialize(value: Value, device: str) -> Any:
    """Builds the argument that an operator on ``device`` is called with."""
    if isinstance(value, list):
        return [materialize(item, device) for item in value]
    if isinstance(value, (TensorValue, BlankValue)):
        return value.materialize(device)
    if isinstance(value, NamedValue):
        return getattr(torch, value.name)
    if isinstance(value, DeviceValue):
        return torch.device(device)
    return value


def leaves(value: Value) -> Iterator[Value]:
    """Yields the values inside nested lists, in order."""
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def encode(value: Value, store: Callable[[TensorValue], int]) -> Any:
    """Turns a value into JSON; tensors are handed to ``store``, which numbers them."""
    if isinstance(value, list):
        return [encode(item, store) for item in value]
    if isinstance(value, TensorValue):
        return {"tensor": store(value)}
    if isinstance(value, BlankValue):
        return {"blank": [value.dtype, list(value.shape)]}
    if isinstance(value, NamedValue):
        return {"torch": value.name}
    if isinstance(value, DeviceValue):
        return {"device": None}
    if isinstance(value, complex):
        return {"complex": [encode(value.real, store), encode(value.imag, store)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def decode(data: Any, tensors: list[TensorValue]) -> Value:
    """Reads what ``encode`` wrote."""
    if isinstance(data, list):
        return [decode(item, tensors) for item in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "blank":
            return BlankValue(content[0], tuple(content[1]))
        case "torch":
            return NamedValue(content)
        case "device":
            return DeviceValue()
        case "complex":
            return complex(*(decode(part, tensors) for part in content))
        case "float":
            return float(content)
    raise ValueError(f"a sample has a value of unknown kind '{kind}'")
