"""Argument values as data: how a sample stores them, and how they become arguments again.

A value is ``None``, a bool, number or string, a list of values, or one of the frozen
classes below. Nothing here depends on the version of torch that recorded it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from .layouts import put_together

Value = Any  # the union above; recursive, so spelled in prose


@dataclass(frozen=True)
class TensorValue:
    """A dense tensor: the bytes span from its first to its last element."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorValue:
        elements = tensor.detach().as_strided((span(tensor),), (1,))
        return cls(
            dtype_name(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), _data(elements)
        )

    def with_dtype(self, dtype: str) -> TensorValue:
        """Converts the elements, so that different ones stay different."""
        elements = self._elements()
        if elements.is_floating_point() and dtype == "bool":
            elements = elements.double() > 0
        elif elements.is_floating_point() and "int" in dtype:
            elements = (elements.double().nan_to_num(0, 9, -9) * 4).round()
        return replace(self, dtype=dtype, data=_data(elements.to(getattr(torch, dtype))))

    def materialize(self, device: str) -> torch.Tensor:
        return self._elements().to(device).as_strided(self.shape, self.stride)

    def _elements(self) -> torch.Tensor:
        dtype = getattr(torch, self.dtype)
        if not self.data:
            return torch.empty(0, dtype=dtype)
        # Copied, because MKL's last bits depend on how memory is aligned: torch
        # always aligns it to 64 bytes, a Python buffer does not.
        return torch.frombuffer(bytearray(self.data), dtype=dtype).clone()


def span(tensor: torch.Tensor) -> int:
    """Returns how many elements lie from the first to the last element in memory."""
    if tensor.numel() == 0:
        return 0
    axes = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + int(sum((size - 1) * step for size, step in axes))


def dtype_name(dtype: torch.dtype) -> str:
    """Returns what samples and test ids call a dtype: "float32"."""
    return str(dtype).removeprefix("torch.")


def _data(elements: torch.Tensor) -> bytes:
    # Not through numpy, which is optional and has no bfloat16.
    return bytes(elements.contiguous().view(torch.uint8).tolist()) if elements.numel() else b""


@dataclass(frozen=True)
class CompositeValue:
    """A sparse, quantized or opaque tensor: ``kind`` and ``parts`` are those of ``layouts``."""

    kind: str
    shape: tuple[int, ...]
    parts: tuple[TensorValue, ...]

    @property
    def dtype(self) -> str:
        """The dtype of the values; a quantized tensor has integers."""
        return self.parts[0].dtype

    def with_dtype(self, dtype: str) -> CompositeValue:
        return replace(self, parts=(self.parts[0].with_dtype(dtype), *self.parts[1:]))

    def materialize(self, device: str) -> torch.Tensor:
        parts = [part.materialize(device) for part in self.parts]
        return put_together(self.kind, self.shape, parts)


@dataclass(frozen=True)
class BlankValue:
    """An output tensor: only the facts that the caller of an ``out`` overload must know."""

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
    """A placeholder for the device that the test runs on."""


def materialize(value: Value, device: str) -> Any:
    """Builds the argument that an operator on ``device`` is called with."""
    if isinstance(value, list):
        return [materialize(item, device) for item in value]
    if isinstance(value, (TensorValue, CompositeValue, BlankValue)):
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
    if isinstance(value, CompositeValue):
        return {"composite": [value.kind, list(value.shape), [store(part) for part in value.parts]]}
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
        case "composite":
            layout, shape, parts = content
            return CompositeValue(layout, tuple(shape), tuple(tensors[part] for part in parts))
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
