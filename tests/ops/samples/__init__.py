"""Recorded arguments that make ATen's ``out`` and in-place overloads do real work.

``samples.zip`` is a plain zip archive: ``header.json`` says where it comes from,
``tensors.json`` lists dtype, shape, stride and place of every distinct tensor in
``tensors.bin``, and ``samples.jsonl`` has one line per overload and dtype. It was written by
``record.py``; reading it needs nothing but torch.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from .values import CompositeValue, TensorValue, Value, decode, encode, leaves, materialize

FORMAT_VERSION = 1
SAMPLES_FILE = Path(__file__).parent / "samples.zip"

# Zip archives carry a date per member; a fixed one keeps equal recordings byte-equal.
_EPOCH = (1980, 1, 1, 0, 0, 0)


# Tensors that torch expects on the CPU, for any device of the others; by operator and argument.
_ON_THE_CPU = {
    ("_foreach_addcdiv", "scalars"),
    ("_foreach_addcmul", "scalars"),
    ("_pack_padded_sequence", "lengths"),
    ("_pack_padded_sequence", "out1"),
    ("randint_like", "high"),
}


def aten_overload(name: str) -> Any:
    """Resolves "add.out" or "abs_" in the running torch."""
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


class UnboundArgumentError(Exception):
    """A sample does not fit the schema of the torch that runs."""


@dataclass(frozen=True)
class Sample:
    """One call of one overload: arguments by ATen name, those at their default left out."""

    overload: str
    dtype: str
    arguments: dict[str, Value]

    def is_strided(self) -> bool:
        """Says whether every tensor is strided: none is sparse, quantized or opaque."""
        found = (leaf for value in self.arguments.values() for leaf in leaves(value))
        return not any(isinstance(leaf, CompositeValue) for leaf in found)

    def fits(self, schema: Any) -> bool:
        """Says whether ``bind`` works: another torch may have other arguments."""
        needed = {each.name for each in schema.arguments if not each.has_default_value()}
        return needed <= self.arguments.keys() and not self._unknown(schema)

    def bind(self, schema: Any, device: str) -> dict[str, Any]:
        """Returns the value of every argument of ``schema``, in its order, on ``device``."""
        unknown = self._unknown(schema)
        if unknown:
            raise UnboundArgumentError(f"{schema.name} has no argument {', '.join(unknown)}")
        return {
            argument.name: self._value(argument, schema.name, device)
            for argument in schema.arguments
        }

    def _unknown(self, schema: Any) -> list[str]:
        """Returns the arguments, other than None, that ``schema`` lacks."""
        names = {argument.name for argument in schema.arguments}
        given = {name for name, value in self.arguments.items() if value is not None}
        return sorted(given - names)

    def _value(self, argument: Any, operator: str, device: str) -> Any:
        if argument.name in self.arguments:
            place = "cpu" if is_on_the_cpu(operator, argument.name) else device
            return materialize(self.arguments[argument.name], place)
        if argument.has_default_value():
            return argument.default_value
        raise UnboundArgumentError(f"{operator} needs {argument.name}, which was not recorded")


def is_on_the_cpu(operator: str, argument: str) -> bool:
    """Says whether a tensor lies on the CPU wherever the operator ("aten::add") runs."""
    return (operator.removeprefix("aten::").rstrip("_"), argument) in _ON_THE_CPU


def without_defaults(schema: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Drops the arguments that every torch with this default passes anyway."""
    defaults = {
        argument.name: argument.default_value
        for argument in schema.arguments
        if argument.has_default_value()
    }
    return {
        name: value
        for name, value in arguments.items()
        if name not in defaults or not _is_default(value, defaults[name])
    }


def _is_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


@dataclass(frozen=True)
class SampleSet:
    """The samples of a file, by overload ("add.out") and then by dtype."""

    header: dict[str, Any]
    samples: dict[str, dict[str, list[Sample]]]


@cache
def load(path: Path = SAMPLES_FILE) -> SampleSet:
    """Reads a file of samples."""
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read("header.json"))
        if header["format_version"] != FORMAT_VERSION:
            raise ValueError(
                f"{path} has format {header['format_version']}, expected {FORMAT_VERSION}; "
                "record it again: nox -s samples"
            )
        tensors = _read_tensors(archive)
        lines = archive.read("samples.jsonl").decode().splitlines()
    samples: dict[str, dict[str, list[Sample]]] = {}
    for line in lines:
        group = list(_read_group(json.loads(line), tensors))
        samples.setdefault(group[0].overload, {})[group[0].dtype] = group
    return SampleSet(header, samples)


def _read_tensors(archive: zipfile.ZipFile) -> list[TensorValue]:
    blob = archive.read("tensors.bin")
    return [
        TensorValue(dtype, tuple(shape), tuple(stride), blob[start : start + length])
        for dtype, shape, stride, start, length in json.loads(archive.read("tensors.json"))
    ]


def _read_group(record: dict[str, Any], tensors: list[TensorValue]) -> Iterator[Sample]:
    for arguments in record["samples"]:
        values = {name: decode(data, tensors) for name, data in arguments.items()}
        yield Sample(record["overload"], record["dtype"], values)


def save(sample_set: SampleSet, path: Path = SAMPLES_FILE) -> None:
    """Writes a file of samples; equal tensors, and equal bytes, are stored once."""
    tensors = _TensorTable()
    lines = [
        json.dumps(
            {
                "overload": overload,
                "dtype": dtype,
                "samples": [
                    {name: encode(value, tensors.add) for name, value in sample.arguments.items()}
                    for sample in group
                ],
            },
            separators=(",", ":"),
        )
        for overload, groups in sorted(sample_set.samples.items())
        for dtype, group in sorted(groups.items())
    ]
    members = {
        "header.json": json.dumps(sample_set.header, indent=2).encode(),
        "tensors.json": json.dumps(tensors.rows, separators=(",", ":")).encode(),
        "samples.jsonl": "\n".join(lines).encode(),
        "tensors.bin": bytes(tensors.blob),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)


class _TensorTable:
    """Numbers distinct tensors and lays their distinct bytes out one after the other."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.blob = bytearray()
        self._numbers: dict[TensorValue, int] = {}
        self._starts: dict[bytes, int] = {}

    def add(self, tensor: TensorValue) -> int:
        if tensor in self._numbers:
            return self._numbers[tensor]
        if tensor.data not in self._starts:
            self._starts[tensor.data] = len(self.blob)
            self.blob += tensor.data
        start, length = self._starts[tensor.data], len(tensor.data)
        self.rows.append([tensor.dtype, list(tensor.shape), list(tensor.stride), start, length])
        number = self._numbers[tensor] = len(self._numbers)
        return number
