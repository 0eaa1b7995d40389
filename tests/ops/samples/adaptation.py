"""Other calls of the same overload, for devices whose torch refuses the recorded one.

The samples were recorded on the CPU. Kernels of other devices may expect statistics in float32
beside 16-bit operands, or options that the CPU's kernel does not need. ``adapted`` proposes such
calls, and torch on the device decides which it takes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from . import Sample, load
from .values import BlankValue, CompositeValue, TensorValue, Value, decode, leaves

MAX_CANDIDATES = 12
VARIANTS_FILE = Path(__file__).parent / "variants.jsonl"

# What kernels compute statistics, scales and step sizes in, whatever their other operands are.
_STATISTICS_DTYPE = "float32"
_FLOATING = ("float16", "bfloat16", "float64")
# The modes of operators are numbered from 0.
_FIRST_MODES = (0, 1, 2)

Changes = dict[str, Value]  # the new values by argument; ``_LEFT_OUT`` for the default
_LEFT_OUT = object()


@dataclass(frozen=True)
class Adapted:
    """A sample of the same overload, and what was changed: "lr: float32 instead of float64"."""

    sample: Sample
    change: str


def adapted(sample: Sample, overload: Any, device: str) -> Iterator[Adapted]:
    """Yields at most ``MAX_CANDIDATES`` other calls of ``overload``, the most plausible first.

    They have the recorded values, in other dtypes. Only the outputs may have other shapes.
    """
    return islice(_distinct(sample, _proposals(sample, overload, device)), MAX_CANDIDATES)


def _distinct(sample: Sample, proposals: Iterator[Changes]) -> Iterator[Adapted]:
    seen = [sample.arguments]
    for changes in proposals:
        arguments = {
            name: value
            for name, value in (sample.arguments | changes).items()
            if value is not _LEFT_OUT
        }
        if arguments not in seen:
            seen.append(arguments)
            yield Adapted(replace(sample, arguments=arguments), _describe(sample, changes))


def _describe(sample: Sample, changes: Changes) -> str:
    """Returns "mean, rstd: float32 instead of float16; out: float32[4] instead of float16[4]"."""
    names: dict[str, list[str]] = {}
    for name, value in changes.items():
        was = sample.arguments.get(name, _LEFT_OUT)
        if value != was:
            names.setdefault(f"{_text(value)} instead of {_text(was)}", []).append(name)
    return "; ".join(f"{', '.join(group)}: {text}" for text, group in names.items())


def _text(value: Value) -> str:
    if value is _LEFT_OUT:
        return "the default"
    if isinstance(value, BlankValue):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list) and any(
        isinstance(each, (TensorValue, BlankValue)) for each in value
    ):
        return " and ".join(dict.fromkeys(_text(each) for each in value))
    return value.dtype if isinstance(value, TensorValue) else repr(value)


def _proposals(sample: Sample, overload: Any, device: str) -> Iterator[Changes]:
    written = {argument.name for argument in overload._schema.arguments if argument.is_out}
    converted = _statistics(sample)
    outputs = {name: value for name, value in converted.items() if name in written}
    inputs = {name: value for name, value in converted.items() if name not in written}
    variant = variant_outputs(sample, device)
    yield variant
    yield outputs
    yield inputs | variant
    yield inputs | outputs
    yield from _other_options(sample, overload)
    for names in _runs(list(inputs)):
        yield {name: inputs[name] for name in names} | variant


def _runs(names: list[str]) -> Iterator[list[str]]:
    """Yields the ends and the beginnings of a list of arguments, the longer ones first.

    Schemas put arguments of one kind beside each other: (weight, bias), (mean, rstd).
    """
    for start in range(1, len(names)):
        yield names[start:]
        yield names[:-start]


# Statistics.


def _statistics(sample: Sample) -> Changes:
    """Returns the floating-point arguments that are smaller than the main operands, converted."""
    # A call may have one element everywhere, so the other calls of the overload count as well.
    names = {*_smaller_in(sample), *_smaller_when_recorded(sample.overload)}
    return {
        name: _in_float32(value)
        for name, value in sample.arguments.items()
        if name in names and any(_is_convertible(leaf) for leaf in leaves(value))
    }


@cache
def _smaller_when_recorded(overload: str) -> frozenset[str]:
    groups = load().samples.get(overload, {}).values()
    return frozenset(name for group in groups for call in group for name in _smaller_in(call))


def _smaller_in(call: Sample) -> Iterator[str]:
    """Yields the arguments of tensors with fewer elements than the largest input has."""
    largest = max((_elements(value, TensorValue) for value in call.arguments.values()), default=0)
    for name, value in call.arguments.items():
        if -1 < _elements(value, TensorValue, BlankValue) < largest:
            yield name


def _elements(value: Value, *kinds: type[TensorValue | BlankValue]) -> int:
    """Returns the size of the largest tensor in an argument, or -1 if it has none."""
    sizes = (math.prod(leaf.shape) for leaf in leaves(value) if isinstance(leaf, kinds))
    return max(sizes, default=-1)


def _is_convertible(leaf: Value) -> bool:
    return isinstance(leaf, (TensorValue, BlankValue)) and leaf.dtype in _FLOATING


def _in_float32(value: Value) -> Value:
    if isinstance(value, list):
        return [_in_float32(item) for item in value]
    if not _is_convertible(value):
        return value
    if isinstance(value, BlankValue):
        return replace(value, dtype=_STATISTICS_DTYPE)
    return value.with_dtype(_STATISTICS_DTYPE)


# Options.


def _other_options(sample: Sample, overload: Any) -> Iterator[Changes]:
    """Yields calls with fewer options, with modes that the recorded call lacks, with all flags.

    Begins with the last argument: options come after operands and dimensions.
    """
    optional = [each for each in overload._schema.arguments[::-1] if each.has_default_value()]
    given = [each.name for each in optional if _is_option(sample.arguments.get(each.name))]
    yield from ({name: _LEFT_OUT} for name in given)
    yield dict.fromkeys(given, _LEFT_OUT)
    for argument in optional:
        if str(argument.type) == "Optional[int]" and argument.name not in given:
            yield from ({argument.name: mode} for mode in _FIRST_MODES)
    yield {each.name: True for each in optional if each.default_value is False}


def _is_option(value: Value) -> bool:
    tensors = (TensorValue, CompositeValue, BlankValue)
    return value is not None and not any(isinstance(leaf, tensors) for leaf in leaves(value))


# The variants of a family of devices.


def variant_outputs(sample: Sample, device: str) -> Changes:
    """Returns the outputs of a recorded sample that differ on a family of devices.

    The family is the type of the device: "cuda" is that of several vendors.
    """
    variants = _variants().get((device.partition(":")[0], sample.overload, sample.dtype))
    recorded = load().samples.get(sample.overload, {}).get(sample.dtype, [])
    if variants is None or sample not in recorded:
        return {}
    return variants[recorded.index(sample)]


@cache
def _variants() -> dict[tuple[str, str, str], list[Changes]]:
    lines = [json.loads(line) for line in VARIANTS_FILE.read_text().splitlines()[1:]]
    return {
        (line["family"], line["overload"], line["dtype"]): [
            {name: decode(data, []) for name, data in outputs.items()}
            for outputs in line["samples"]
        ]
        for line in lines
        if "samples" in line
    }
