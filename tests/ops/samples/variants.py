"""Records how the outputs of the samples differ on a family of devices: variants.jsonl.

``FakeTensorMode`` knows the dtypes and shapes that torch computes on CUDA, without a GPU.
``nox -s samples`` records them after the samples. To record the variants alone, which takes half a
minute, run ``python -m samples.variants`` in ``tests/ops``.

A line has the outputs that differ from the recorded ones, per sample of an overload and dtype, or
why ``FakeTensorMode`` does not know the outputs of some sample of an overload. Overloads without a
line have the same outputs on the family as on the CPU.
"""

from __future__ import annotations

import argparse
import json
import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from dispatcher import functional_sibling
from harness import invoke
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import torch

from . import Sample, SampleSet, aten_overload, is_on_the_cpu, load
from .adaptation import VARIANTS_FILE
from .values import BlankValue, CompositeValue, TensorValue, Value, dtype_name, encode, materialize

FAMILIES = ("cuda",)
"""Torch device types that several vendors use, and for which torch has fake kernels."""

COMMAND = "nox -s samples"


# In what oneDNN says of this machine: the file is the same wherever it is recorded.
OF_PROCESSOR = "needs the cpu support"


class UnknownOutputsError(Exception):
    """``FakeTensorMode`` does not know the outputs of a call."""


def record(sample_set: SampleSet, overloads: Iterable[str]) -> list[dict[str, Any]]:
    """Returns the lines of variants.jsonl for some of the overloads, except for its header."""
    with fake_tensors() as mode:
        return [
            line
            for family in FAMILIES
            for overload in overloads
            for line in _record(family, overload, sample_set.samples[overload], mode)
        ]


def _record(
    family: str, name: str, groups: dict[str, list[Sample]], mode: FakeTensorMode
) -> Iterator[dict[str, Any]]:
    overload = aten_overload(name)
    if not any(argument.is_out for argument in overload._schema.arguments):
        return
    unknown: dict[str, None] = {}
    for dtype, samples in groups.items():
        found: list[dict[str, Any]] = []
        for sample in samples:
            try:
                changed = _changed_outputs(sample, overload, family, mode)
            except UnknownOutputsError as error:
                if OF_PROCESSOR not in str(error):
                    unknown[str(error)] = None
                changed = {}
            found.append({output: encode(value, _refuse) for output, value in changed.items()})
        if any(found):
            yield {"family": family, "overload": name, "dtype": dtype, "samples": found}
    if unknown:
        yield {"family": family, "overload": name, "unknown": list(unknown)}


def _refuse(value: TensorValue) -> int:
    raise TypeError(f"an output has no recorded elements, got {value}")


def _changed_outputs(
    sample: Sample, overload: Any, family: str, mode: FakeTensorMode
) -> dict[str, Value]:
    """Returns the outputs whose dtype or shape is another one than on the CPU."""
    recorded = {
        argument.name: sample.arguments[argument.name]
        for argument in overload._schema.arguments
        if argument.is_out
    }
    there = _outputs(sample, overload, family, mode)
    if there == list(recorded.values()):
        return {}
    here = _outputs(sample, overload, "cpu", mode)
    return {
        name: value
        for name, value, on_the_cpu in zip(recorded, there, here, strict=True)
        if value != on_the_cpu
    }


def _outputs(sample: Sample, overload: Any, device: str, mode: FakeTensorMode) -> list[Value]:
    """Returns the outputs that the functional sibling makes, as many as the overload has."""
    functional = functional_sibling(overload)
    if functional is None:
        raise UnknownOutputsError("no functional overload")
    try:
        result = call(functional, sample, overload, device, mode)
    except UnknownOutputsError:
        raise
    except Exception as error:  # torch's fake kernels raise errors of every kind
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UnknownOutputsError(reason) from error
    results = [result] if len(functional._schema.returns) == 1 else list(result)
    count = sum(argument.is_out for argument in overload._schema.arguments)
    return [_blank(each) for each in results[:count]]  # in-place results may follow


def call(callee: Any, sample: Sample, overload: Any, device: str, mode: FakeTensorMode) -> Any:
    """Calls the overload of a sample, or its functional sibling, with tensors without elements."""
    defaults = {
        argument.name: argument.default_value
        for schema in (callee._schema, overload._schema)
        for argument in schema.arguments
        if argument.has_default_value()
    }
    arguments = defaults | sample.arguments
    with mode:
        return invoke(
            callee,
            {
                name: _fake(
                    arguments[name],
                    "cpu" if is_on_the_cpu(overload._schema.name, name) else device,
                )
                for name in (argument.name for argument in callee._schema.arguments)
            },
        )


def _fake(value: Value, device: str) -> Any:
    if isinstance(value, list):
        return [_fake(item, device) for item in value]
    if isinstance(value, CompositeValue):
        raise UnknownOutputsError("sparse, quantized or opaque operand")
    if isinstance(value, TensorValue):
        dtype = getattr(torch, value.dtype)
        return torch.empty_strided(value.shape, value.stride, dtype=dtype, device=device)
    return materialize(value, device)


def _blank(result: Any) -> Value:
    if isinstance(result, (list, tuple)):
        return [_blank(each) for each in result]
    if not isinstance(result, torch.Tensor):
        raise UnknownOutputsError(f"an output is {type(result).__name__}")
    return BlankValue(dtype_name(result.dtype), tuple(result.shape))


@contextmanager
def fake_tensors() -> Iterator[FakeTensorMode]:
    """Yields a mode that computes no elements, and also works in a torch without CUDA."""

    def copy_(self: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
        return torch.ops.aten.copy_.default(self, source, non_blocking)

    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # the errors are in the file
    try:
        # The method needs the device guard of CUDA, the operator does not.
        with mock.patch.object(FakeTensor, "copy_", copy_, create=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield FakeTensorMode(allow_fallback_kernels=False)
    finally:
        logger.setLevel(level)


def main() -> None:
    """Parses the command line, and writes a line per overload and dtype that differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overloads", nargs="*", help="such as abs.out; default: all with samples")
    parser.add_argument("--output", type=Path, default=VARIANTS_FILE)
    options = parser.parse_args()
    torch.set_num_threads(1)
    save(load(), options.output, options.overloads)


def save(sample_set: SampleSet, path: Path, overloads: Iterable[str] = ()) -> None:
    """Records the variants of the samples of some overloads, or of all."""
    lines = [
        {"torch_version": torch.__version__, "command": COMMAND},
        *record(sample_set, sorted(overloads or sample_set.samples)),
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    differing = {line["overload"] for line in lines if "samples" in line}
    unknown = {line["overload"] for line in lines if "unknown" in line}
    print(f"{path}: {len(differing)} overloads have variants, {len(unknown)} unknown outputs")


if __name__ == "__main__":
    main()
