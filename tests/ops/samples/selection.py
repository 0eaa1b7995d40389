"""Chooses, per overload and dtype, the few recorded calls that test the most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from harness import MismatchError, RefusedError, VacuousError, check, invoke
from reasons import SkipReason, classify

import torch

from . import Sample, UnboundArgumentError, aten_overload, without_defaults
from .dtypes import primary_dtype, with_dtype
from .recorder import SEED
from .siblings import Target
from .values import BlankValue, CompositeValue, TensorValue, Value, dtype_name, leaves

MAX_SAMPLES = 3

# Of many candidates with the same features, trying more than this finds nothing new.
_MAX_ATTEMPTS = 30

# Larger recorded tensors are used only if no smaller ones have the same features.
_LARGE_BYTES = 4096

# How often a sample must give the same result: some calls read uninitialized memory.
_ROUNDS = 4

_OUTPUT_DTYPES = ("float32", "int64", "bool", "complex64", "float64", "int32", "uint8")


def select(
    target: Target, candidates: Iterable[dict[str, Value]], dtypes: tuple[str, ...]
) -> dict[str, list[Sample]]:
    """Returns up to ``MAX_SAMPLES`` samples per dtype that execute ``target`` for real.

    A dtype outside ``dtypes`` is used only where none of them has a sample. One that no
    candidate has gets a sample of another dtype, converted, if torch takes that.
    """
    groups: dict[str, list[dict[str, Value]]] = defaultdict(list)
    for arguments in candidates:
        groups[primary_dtype(arguments) or "float32"].append(arguments)
    chosen = {dtype: list(_pick(target, dtype, groups[dtype])) for dtype in sorted(groups)}
    chosen = {dtype: samples for dtype, samples in chosen.items() if samples}
    chosen = {dtype: chosen[dtype] for dtype in dtypes if dtype in chosen} or chosen
    missing = [dtype for dtype in dtypes if dtype not in chosen]
    chosen |= {dtype: _first_converted(target, dtype, chosen) for dtype in missing}
    return {dtype: samples for dtype, samples in chosen.items() if samples}


def _first_converted(target: Target, dtype: str, chosen: dict[str, list[Sample]]) -> list[Sample]:
    """Returns the first sample that works in another dtype, if any."""
    for sample in next(iter(chosen.values()), []):
        converted = _convert(target, sample, dtype)
        if converted is not None:
            return [converted]
    return []


def _convert(target: Target, sample: Sample, dtype: str) -> Sample | None:
    """Returns the sample in another dtype, with new outputs, or None if torch refuses."""
    given = {
        name: value
        for name, value in sample.arguments.items()
        if not any(isinstance(leaf, BlankValue) for leaf in leaves(value))
    }
    source = primary_dtype(given)
    if source is None:  # a factory: its outputs alone have a dtype
        blanks = [(name, value) for name, value in sample.arguments.items() if name not in given]
        outputs = {name: BlankValue(dtype, value.shape) for name, value in blanks}
        return complete(target, dtype, given | outputs)
    if "complex" in source:
        return None
    converted = with_dtype(given, source, dtype)
    return complete(target, dtype, converted) if primary_dtype(converted) == dtype else None


def _pick(target: Target, dtype: str, group: list[dict[str, Value]]) -> Iterator[Sample]:
    """Yields working samples; each has the most features that earlier ones lack."""
    covered: set[Any] = set()
    pending = [(features(arguments), arguments) for arguments in group]
    found = 0
    for _ in range(_MAX_ATTEMPTS):
        pending = [item for item in pending if item[0] - covered]
        if not pending or found == MAX_SAMPLES:
            return
        best = min(pending, key=lambda item: _rank(item[0] - covered, item[1]))
        pending.remove(best)
        sample = complete(target, dtype, best[1])
        if sample is not None:
            covered |= best[0]
            found += 1
            yield sample


def features(arguments: dict[str, Value]) -> set[Any]:
    """Returns the features of a call: ranks, layouts, dtypes, options, absent arguments."""
    found: set[Any] = set()
    for name, value in arguments.items():
        found.add((name, isinstance(value, list) and len(value)))
        for leaf in leaves(value):
            found |= _leaf_features(name, leaf)
    return found


def _leaf_features(name: str, leaf: Value) -> set[Any]:
    if isinstance(leaf, CompositeValue):
        return {(name, leaf.kind), (name, leaf.dtype)}
    if not isinstance(leaf, TensorValue):
        return {(name, str(leaf))}
    contiguous = leaf.materialize("cpu").is_contiguous()
    rank = min(len(leaf.shape), 3)
    return {(name, leaf.dtype), (name, "rank", rank), (name, "contiguous", contiguous)}


def _rank(new: set[Any], arguments: dict[str, Value]) -> tuple[bool, int, int]:
    """Returns a sort key: empty and large calls last, then most new features, then size."""
    sizes = [
        len(leaf.data)
        for value in arguments.values()
        for leaf in leaves(value)
        if isinstance(leaf, TensorValue)
    ]
    return 0 in sizes or sum(sizes) > _LARGE_BYTES, -len(new), sum(sizes)


def for_other_devices(target: Target, calls: Iterable[dict[str, Value]]) -> dict[str, list[Sample]]:
    """Returns samples of an overload without a CPU kernel, from calls that name their outputs."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for arguments in calls:
        sample = Sample(target.name, primary_dtype(arguments) or "float32", arguments)
        try:
            check(sample, target.aten, partial(invoke, target.aten), "cpu")
        except RefusedError as error:
            if classify(error.cause) is SkipReason.NO_KERNEL:
                samples[sample.dtype].append(sample)
        except (UnboundArgumentError, VacuousError, MismatchError):
            continue  # the call runs on the CPU, or does not name its outputs
    return samples


def complete(target: Target, dtype: str, arguments: dict[str, Value]) -> Sample | None:
    """Adds the outputs that the call needs, or returns None where no call does real work."""
    for outputs in _outputs(target, dtype, arguments):
        named = without_defaults(target.aten._schema, arguments | outputs)
        sample = Sample(target.name, dtype, named)
        if _works(target, sample):
            return sample
    return None


def _works(target: Target, sample: Sample) -> bool:
    """Says whether the sample does real work, and the same work every time."""
    try:
        for number in range(_ROUNDS):
            _disturb_allocator(float(number))
            check(sample, target.aten, partial(invoke, target.aten), "cpu")
    except Exception:  # refused, vacuous, or differing from one call to the next
        return False
    return True


def _disturb_allocator(value: float) -> None:
    """Frees memory of many sizes, so that reads of uninitialized memory find other values."""
    _ = [torch.full((elements,), value) for elements in range(1, 64) for _ in range(2)]


def _outputs(target: Target, dtype: str, arguments: dict[str, Value]) -> Iterator[dict[str, Value]]:
    """Yields guesses of the outputs: the functional sibling's result, then by trial."""
    names = [argument.name for argument in target.aten._schema.arguments if argument.is_out]
    missing = [name for name in names if name not in arguments]
    if not missing:
        yield {}
        return
    known = _functional_outputs(target, arguments)
    if known is not None and len(known) >= len(names):
        blanks = dict(zip(names, known, strict=False))  # in-place results may follow
        yield {name: blanks[name] for name in missing}
        return
    for output_dtype in dict.fromkeys((dtype, *_OUTPUT_DTYPES)):
        shape = _shape_by_trial(target, arguments, missing, output_dtype)
        if shape is not None:
            yield shape


def _functional_outputs(target: Target, arguments: dict[str, Value]) -> list[Value] | None:
    if target.functional is None:
        return None
    functional = aten_overload(target.functional)
    try:
        bound = Sample(target.functional, "", arguments).bind(functional._schema, "cpu")
        torch.manual_seed(SEED)
        result = invoke(functional, bound)
        single = len(functional._schema.returns) == 1
        return [_blank(item) for item in ([result] if single else result)]
    except Exception:  # refused, or a result that is absent or sparse
        return None


def _blank(result: Any) -> Value:
    if isinstance(result, (list, tuple)):
        return [_blank(item) for item in result]
    return BlankValue(dtype_name(result.dtype), tuple(result.shape))


def _shape_by_trial(
    target: Target, arguments: dict[str, Value], missing: list[str], dtype: str
) -> dict[str, Value] | None:
    """Calls the target with empty outputs of one dtype, which ATen resizes."""
    empty = {name: BlankValue(dtype, (0,)) for name in missing}
    try:
        bound = Sample(target.name, dtype, arguments | empty).bind(target.aten._schema, "cpu")
        torch.manual_seed(SEED)
        invoke(target.aten, bound)
        return {name: _blank(bound[name]) for name in missing}
    except Exception:
        return None
