"""Finds recorded calls that fit an ``out`` or in-place overload without calls of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torchgen
from torchgen.gen import parse_native_yaml
from torchgen.model import NativeFunction, SchemaKind

import torch

from . import aten_overload
from .recorder import Recorded
from .values import TensorValue, Value

_NATIVE = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"


@dataclass(frozen=True)
class Target:
    """An overload to find samples for.

    ``functional`` has the same arguments and returns what the target writes.
    ``family`` are the other overloads of the same base name.
    """

    name: str
    functional: str | None
    family: tuple[str, ...]

    @property
    def aten(self) -> Any:
        return aten_overload(self.name)


def targets() -> list[Target]:
    """Returns every ``out`` and in-place overload of the installed torch."""
    functions = parse_native_yaml(
        str(_NATIVE / "native_functions.yaml"), str(_NATIVE / "tags.yaml")
    ).native_functions
    functional = {
        function.func.signature(): str(function.func.name)
        for function in functions
        if function.func.kind() is SchemaKind.functional
    }
    families: dict[str, list[str]] = defaultdict(list)
    for function in functions:
        families[_family(function)].append(str(function.func.name))
    return [
        Target(
            name=str(function.func.name),
            functional=functional.get(function.func.signature()),
            family=tuple(families[_family(function)]),
        )
        for function in functions
        if function.func.kind() in (SchemaKind.out, SchemaKind.inplace)
    ]


def _family(function: NativeFunction) -> str:
    return str(function.func.name.name.base).strip("_").removesuffix("_copy")


def direct_candidates(target: Target, recorded: Recorded) -> Iterator[dict[str, Value]]:
    """Yields the calls recorded of the target itself and of its functional sibling."""
    yield from _adapted(target, (target.name, target.functional), recorded)


def family_candidates(target: Target, recorded: Recorded) -> Iterator[dict[str, Value]]:
    """Yields the calls recorded of the base name's other overloads, converted."""
    yield from _adapted(target, target.family, recorded)


def _adapted(
    target: Target, names: tuple[str | None, ...], recorded: Recorded
) -> Iterator[dict[str, Value]]:
    schema = aten_overload(target.name)._schema
    for name in names:
        for calls in recorded.get(name or "", {}).values():
            for call in calls:
                arguments = _adapt(call, schema)
                if arguments is not None:
                    yield arguments


def _adapt(call: dict[str, Value], schema: Any) -> dict[str, Value] | None:
    """Takes a sibling's arguments by name, converted to the target's types."""
    adapted: dict[str, Value] = {}
    for argument in schema.arguments:
        if argument.is_out:
            continue
        if argument.name in call:
            try:
                adapted[argument.name] = _convert(call[argument.name], str(argument.type))
            except ValueError:
                return None
        elif not argument.has_default_value():
            return None
    return adapted


def _convert(value: Value, wanted: str) -> Value:
    wanted = wanted.removeprefix("Optional[").removesuffix("]") if "List" not in wanted else wanted
    if wanted == "Tensor" and isinstance(value, (bool, int, float, complex)):
        return TensorValue.of(torch.tensor(value))
    if wanted in ("number", "int", "float", "bool") and isinstance(value, TensorValue):
        return _item(value, wanted)
    if wanted == "List[int]" and isinstance(value, int):
        return [value]
    if wanted == "int" and isinstance(value, list) and len(value) == 1:
        return value[0]
    if wanted == "float" and isinstance(value, int):
        return float(value)
    return value


def _item(value: TensorValue, wanted: str) -> Value:
    if not value.data:
        raise ValueError("an empty tensor has no item")
    item = value.materialize("cpu").flatten()[0].item()
    return {"int": int, "float": float, "bool": bool}.get(wanted, lambda number: number)(item)
