"""Runs one sample twice, as torch would and as the library does, and compares the outcomes.

The outputs handed to the library are poisoned: they differ from the expected value in
every element, so a call that writes nothing cannot pass. Values are compared bit by bit,
except that any NaN equals any other and -0.0 equals +0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from samples import Sample
from samples.values import BlankValue, Value, leaves

import torch

Arguments = dict[str, Any]  # every argument of the schema by ATen name, in schema order
Call = Callable[[Arguments], object]

SEED = 20_260_101


# torch has no addition for these, but for the signed type of the same width.
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


class MismatchError(AssertionError):
    """The library's outcome is not torch's."""


class RefusedError(Exception):
    """Torch itself refuses the sample; ``cause`` is its error."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class VacuousError(Exception):
    """The call, left out, would have the same outcome: the sample proves nothing."""


def invoke(overload: Any, arguments: Arguments) -> Any:
    """Calls an ATen overload through torch's own dispatcher."""
    keyword_only = {argument.name for argument in overload._schema.arguments if argument.kwarg_only}
    positional = [value for name, value in arguments.items() if name not in keyword_only]
    keywords = {name: value for name, value in arguments.items() if name in keyword_only}
    return overload(*positional, **keywords)


def check(sample: Sample, overload: Any, call: Call, device: str) -> None:
    """Passes if ``call`` does to its arguments exactly what the ATen overload does to its own.

    Every tensor among the arguments is compared, inputs too: value, dtype and shape. A
    tensor's memory may move only where torch moves it, and what torch declares as written, that
    alone, counts as changed where autograd looks.

    Raises:
        RefusedError: torch raises for this sample, and so does ``call``.
        VacuousError: the sample would pass without the call.
        UnboundArgumentError: the sample does not fit this torch.
        MismatchError: the outcomes differ.
    """
    expected = sample.bind(overload._schema, device)
    expected_addresses = _addresses(expected)
    try:
        seeded(partial(invoke, overload), expected)
    except Exception as error:
        _check_refusal(sample, overload, call, device, error)
        raise RefusedError(error) from error
    expected_moves = _addresses(expected) != expected_addresses

    actual = _with_poisoned_outputs(sample, expected, sample.bind(overload._schema, device))
    if _first_difference(expected, actual) is None:
        raise VacuousError(f"{sample.overload} changes nothing in this sample")
    actual_addresses, versions = _addresses(actual), _versions(actual)
    seeded(call, actual)
    difference = _first_difference(expected, actual)
    if difference is not None:
        raise MismatchError(difference)
    if _addresses(actual) != actual_addresses and not expected_moves:
        raise MismatchError("a tensor's memory moved")
    _check_versions(overload, actual, versions)


def _check_versions(overload: Any, actual: Arguments, before: list[int]) -> None:
    written = {
        argument.name
        for argument in overload._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    for (name, _), version, earlier in zip(
        _tensors(actual), _versions(actual), before, strict=True
    ):
        if (version > earlier) != (name in written):
            raise MismatchError(f"{name}: its version went from {earlier} to {version}")


def _check_refusal(
    sample: Sample, overload: Any, call: Call, device: str, error: Exception
) -> None:
    try:
        seeded(call, sample.bind(overload._schema, device))
    except Exception:
        return
    raise MismatchError(f"torch refuses this call, the library did not; torch says: {error}")


def seeded(call: Call, arguments: Arguments) -> None:
    torch.manual_seed(SEED)
    call(arguments)


def error_of(call: Call, arguments: Arguments) -> Exception | None:
    """Returns what a seeded call raises, or None."""
    try:
        seeded(call, arguments)
    except Exception as error:
        return error
    return None


def _tensors(arguments: Arguments) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in arguments.items():
        for leaf in leaves(value):
            if isinstance(leaf, torch.Tensor):
                yield name, leaf


def _addresses(arguments: Arguments) -> list[int]:
    return [tensor.data_ptr() for _, tensor in _tensors(arguments)]


def _versions(arguments: Arguments) -> list[int]:
    return [tensor._version for _, tensor in _tensors(arguments)]


def _with_poisoned_outputs(sample: Sample, expected: Arguments, fresh: Arguments) -> Arguments:
    return {
        name: _poisoned(sample.arguments.get(name), expected[name], value)
        for name, value in fresh.items()
    }


def _poisoned(recorded: Value, expected: Any, fresh: Any) -> Any:
    if isinstance(recorded, list):
        return [_poisoned(*items) for items in zip(recorded, expected, fresh, strict=True)]
    if isinstance(recorded, BlankValue):
        return poison(expected)
    return fresh


def poison(expected: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of the same dtype and shape that differs in every element."""
    values = expected.detach().cpu().contiguous()
    if values.dtype == torch.bool:
        poisoned = ~values
    elif values.dtype.is_floating_point or values.dtype.is_complex:
        poisoned = torch.full_like(values, float("nan"))
        poisoned[values.isnan()] = 0
    else:
        signed = values.view(_SIGNED.get(values.dtype, values.dtype))
        poisoned = (signed + 1).view(values.dtype)
    return poisoned.to(expected.device)


def _first_difference(expected: Arguments, actual: Arguments) -> str | None:
    pairs = zip(_tensors(expected), _tensors(actual), strict=True)
    for (name, wanted), (_, got) in pairs:
        if wanted.dtype != got.dtype:
            return f"{name}: expected {wanted.dtype}, got {got.dtype}"
        if wanted.shape != got.shape:
            return f"{name}: expected shape {tuple(wanted.shape)}, got {tuple(got.shape)}"
        if not equal(wanted, got):
            return f"{name}: expected {wanted}, got {got}"
    return None


def equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Says whether two tensors of one dtype and shape hold the same bits, or the same values."""
    left, right = left.detach().cpu().contiguous(), right.detach().cpu().contiguous()
    if torch.equal(_bytes(left), _bytes(right)):
        return True
    if not (left.dtype.is_floating_point or left.dtype.is_complex):
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)
