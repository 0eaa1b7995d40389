"""Runs one sample twice, with torch and with the library, and compares the outcomes.

The library's outputs are pre-filled with garbage that differs from the expected value in every
element, so a call that writes nothing cannot pass. They lie between guard elements, so a call
that writes too much cannot pass either. Values are compared bit by bit, except that any
NaN equals any other and -0.0 equals +0.0. Where they differ, torch is called again: what it gives
differently itself (``spread``) is not asked of the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from evidence import watch_fallbacks
from samples import Sample, UnboundArgumentError, is_on_the_cpu
from samples.adaptation import Adapted, adapted
from samples.layouts import dense_parts
from samples.values import BlankValue, Value, leaves
from spread import Spread

import torch

Arguments = dict[str, Any]  # every argument of the schema by ATen name, in schema order
Call = Callable[[Arguments], object]

SEED = 20_260_101
# How often torch is called again to see its spread. A kernel with atomic additions may give the
# same bits many times before it gives others.
REPEATS = 32
# Elements on either side of an output; a multiple of 64 bytes in every dtype, as torch aligns
# memory, since MKL's last bits depend on it.
GUARD = 64
GUARD_BYTE = 0xA5


# torch cannot add these types, but can add the signed type of the same width.
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


class MismatchError(AssertionError):
    """The library's outcome is not torch's."""


class RefusedError(Exception):
    """Torch itself refuses the sample; ``cause`` is its error."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class VacuousError(Exception):
    """The sample proves nothing: the outcome would be the same without the call."""


class FallbackError(Exception):
    """The library's result is right, but it ran on the CPU: the device has no kernel for it."""


class UnsteadyError(Exception):
    """The sample proves nothing: torch leaves every element of its outputs uninitialized."""


@dataclass(frozen=True)
class CallOutcome:
    """The outcome of a call that passed: all arguments, and the device of the outputs."""

    arguments: Arguments
    ran_device: str
    spreads: tuple[str, ...] = ()
    """The outputs that torch gives differently each time, and how many of their elements."""


@dataclass(frozen=True)
class MemoryLayout:
    """The memory of a tensor, which a call may change only if torch does."""

    address: int
    storage_bytes: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> MemoryLayout:
        return cls(tensor.data_ptr(), tensor.untyped_storage().nbytes(), tensor.stride())


def invoke(overload: Any, arguments: Arguments) -> Any:
    """Calls an ATen overload through torch's own dispatcher."""
    keyword_only = {argument.name for argument in overload._schema.arguments if argument.kwarg_only}
    positional = [value for name, value in arguments.items() if name not in keyword_only]
    keywords = {name: value for name, value in arguments.items() if name in keyword_only}
    return overload(*positional, **keywords)


def check(sample: Sample, overload: Any, call: Call, device: str) -> CallOutcome:
    """Checks that ``call`` changes its arguments exactly as the ATen overload does.

    Every tensor among the arguments is compared, inputs too: value, dtype and shape. The address,
    size and strides of a tensor's memory may change only if torch changes them too. The version
    that autograd checks must change for the arguments that torch declares as written. Not all of
    torch's own kernels keep to this: what they count, the library may count.

    Raises:
        RefusedError: torch raises for this sample, and so does ``call``.
        VacuousError: the sample would pass without the call.
        UnboundArgumentError: the sample does not fit this torch.
        MismatchError: the outcomes differ.
        UnsteadyError: the outcomes differ, but so do those of torch, in every element.
        FallbackError: the outcomes agree, but ``call`` ran on the CPU instead of ``device``.
    """
    try:
        expected = sample.bind(overload._schema, device)  # not every device has every layout
        layouts, old_versions = _memory_layouts(expected), _versions(expected)
        seeded(partial(invoke, overload), expected)
    except UnboundArgumentError:
        raise
    except Exception as error:
        _check_refusal(sample, overload, call, device, error)
        raise RefusedError(error) from error
    may_move = [
        before != after for before, after in zip(layouts, _memory_layouts(expected), strict=True)
    ]

    counted = _counted(expected, old_versions)

    poisoned = _Poisoned()
    actual = poisoned.arguments(sample, overload, device, expected)
    if _same_values(expected, actual):
        raise VacuousError(f"{sample.overload} changes nothing in this sample")
    layouts, old_versions = _memory_layouts(actual), _versions(actual)
    with watch_fallbacks(overload, device) as fallbacks:
        seeded(call, actual)
    outcomes = [expected]
    difference = _first_difference(outcomes, actual)
    if difference is not None:
        outcomes += _outcomes_of_torch(sample, overload, device, expected, actual)
        difference = _first_difference(outcomes, actual)
    difference = (
        difference
        or _first_move(actual, layouts, may_move)
        or poisoned.first_overrun()
        or _first_wrong_version(overload, actual, old_versions, counted)
    )
    if difference is not None:
        raise MismatchError(difference)
    if fallbacks:
        raise FallbackError(fallbacks[0])
    spreads = _spreads(outcomes, overload) if len(outcomes) > 1 else ()
    return CallOutcome(actual, _device_of(overload, actual), spreads)


def _outcomes_of_torch(
    sample: Sample, overload: Any, device: str, expected: Arguments, actual: Arguments
) -> list[Arguments]:
    """Calls torch again until one of its outcomes, or their spread, explains the library's."""
    found: list[Arguments] = []
    kinds = _kinds(expected)
    for number in range(REPEATS):
        # By turns over other memory than in the first call, and over the same.
        again = (
            sample.bind(overload._schema, device)
            if number % 2
            else _Poisoned().arguments(sample, overload, device, expected)
        )
        if error_of(partial(invoke, overload), again) is not None or _kinds(again) != kinds:
            break
        found.append(again)
        if number % 2 and _first_difference([expected, *found], actual) is None:
            break
    return found


def _spreads(outcomes: list[Arguments], overload: Any) -> tuple[str, ...]:
    """Describes each tensor that torch's outcomes do not agree on.

    Raises:
        UnsteadyError: torch leaves every element of every output uninitialized.
    """
    written, found, is_free = written_names(overload), [], True
    for parts in zip(*map(_dense_tensors, outcomes), strict=True):
        name, spread = parts[0][0], Spread([tensor for _, tensor in parts])
        is_free &= spread.is_free or name not in written
        if not spread.is_steady:
            found.append(f"{name}: {spread}")
    if is_free:
        raise UnsteadyError(f"torch leaves {', '.join(sorted(written))} uninitialized")
    return tuple(found)


def _counted(arguments: Arguments, before: list[int]) -> list[bool]:
    """Returns whose version a call has changed."""
    return [old != new for old, new in zip(before, _versions(arguments), strict=True)]


def _first_wrong_version(
    overload: Any, actual: Arguments, before: list[int], by_torch: list[bool]
) -> str | None:
    written = written_names(overload)
    counted = _counted(actual, before)
    for (name, tensor), is_counted, by_its_kernel in zip(
        tensors(actual), counted, by_torch, strict=True
    ):
        if is_counted not in (name in written, by_its_kernel):
            what = "written" if name in written else "not written"
            return f"{name}: {what}, but its autograd version is {tensor._version} after the call"
    return None


def _check_refusal(
    sample: Sample, overload: Any, call: Call, device: str, expected: Exception
) -> None:
    error = error_of(lambda _: call(sample.bind(overload._schema, device)), {})
    if error is None:
        raise MismatchError(
            f"torch refuses this call, but the library runs it. torch's error: {expected}"
        )
    if type(error) is not type(expected):
        raise MismatchError(
            f"torch refuses this call with {type(expected).__name__}, the library with "
            f"{type(error).__name__}: {error}"
        ) from error


def _device_of(overload: Any, arguments: Arguments) -> str:
    """Returns the device type of the outputs; "cpu" if one of them lies on the CPU."""
    written = {
        name for name in written_names(overload) if not is_on_the_cpu(overload._schema.name, name)
    }
    devices = {tensor.device.type for name, tensor in tensors(arguments) if name in written}
    return "cpu" if "cpu" in devices else devices.pop()


def written_names(overload: Any) -> set[str]:
    """Returns the arguments that a schema lets the operator write into."""
    return {
        argument.name
        for argument in overload._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    }


def seeded(call: Call, arguments: Arguments) -> None:
    # Not through torch.manual_seed: where CUDA is not in use it formats a traceback per call, which
    # took half of the time on a simulated device.
    torch.default_generator.manual_seed(SEED)
    for device in {tensor.device.type for _, tensor in tensors(arguments)} - {"cpu"}:
        getattr(torch, device).manual_seed_all(SEED)
    call(arguments)


def refusal(sample: Sample, overload: Any, device: str) -> Exception | None:
    """Calls torch alone; returns what it raises for the sample, or None."""
    return error_of(lambda _: invoke(overload, sample.bind(overload._schema, device)), {})


def taken_instead(sample: Sample, overload: Any, device: str) -> Adapted | None:
    """Returns the first other call of the overload that torch alone takes, if it takes any."""
    candidates = adapted(sample, overload, device)
    return next((each for each in candidates if not refusal(each.sample, overload, device)), None)


def error_of(call: Call, arguments: Arguments) -> Exception | None:
    """Returns what a seeded call raises, or None."""
    try:
        seeded(call, arguments)
    except Exception as error:
        return error
    return None


def tensors(arguments: Arguments) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in arguments.items():
        for leaf in leaves(value):
            if isinstance(leaf, torch.Tensor):
                yield name, leaf


def _memory_layouts(arguments: Arguments) -> list[MemoryLayout | None]:
    """Returns the memory of the strided tensors, and None for the others."""
    return [
        MemoryLayout.of(tensor) if tensor.layout == torch.strided else None
        for _, tensor in tensors(arguments)
    ]


def _dense_tensors(arguments: Arguments) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in tensors(arguments):
        for part in dense_parts(tensor):
            yield name, part


def _kinds(arguments: Arguments) -> list[tuple[torch.dtype, torch.Size]]:
    """Returns the dtypes and shapes, which torch may decide by uninitialized values."""
    return [(tensor.dtype, tensor.shape) for _, tensor in _dense_tensors(arguments)]


def _versions(arguments: Arguments) -> list[int]:
    return [tensor._version for _, tensor in tensors(arguments)]


def _first_move(
    arguments: Arguments, before: list[MemoryLayout | None], may_move: list[bool]
) -> str | None:
    names = [name for name, _ in tensors(arguments)]
    after = _memory_layouts(arguments)
    for name, old, new, allowed in zip(names, before, after, may_move, strict=True):
        if old != new and not allowed:
            return f"{name}: its memory moved or its layout changed: expected {old}, got {new}"
    return None


class _Poisoned:
    """The pre-filled outputs of a call, each between guard elements that no call may change."""

    def __init__(self) -> None:
        self._guarded: list[tuple[str, torch.Tensor, int]] = []

    def arguments(
        self, sample: Sample, overload: Any, device: str, expected: Arguments
    ) -> Arguments:
        """Returns the arguments of a call whose blank outputs differ from those expected."""
        return {
            name: self.in_place_of(sample.arguments.get(name), expected[name], value)
            for name, value in sample.bind(overload._schema, device).items()
        }

    def in_place_of(self, recorded: Value, expected: Any, fresh: Any) -> Any:
        """Returns ``fresh`` with garbage in every output that was recorded as blank."""
        if isinstance(recorded, list):
            return [self.in_place_of(*each) for each in zip(recorded, expected, fresh, strict=True)]
        if isinstance(recorded, BlankValue):
            return self._guard(poison(expected))
        return fresh

    def _guard(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout != torch.strided or tensor.is_quantized:
            return tensor
        beside = torch.full((GUARD * tensor.element_size(),), GUARD_BYTE, dtype=torch.uint8)
        # Copied as bytes: a copy of a bool that is neither 0 nor 1 may be 1.
        memory = torch.cat([beside, _bytes(tensor.cpu()), beside]).to(tensor.device)
        self._guarded.append((str(tuple(tensor.shape)), memory, len(beside)))
        return memory.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), GUARD)

    def first_overrun(self) -> str | None:
        for shape, memory, width in self._guarded:
            whole = memory.cpu()
            for side in (whole[:width], whole[-width:]):
                if not (side == GUARD_BYTE).all():
                    return f"an output of shape {shape}: memory beside it was written"
        return None


def poison(expected: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of the same dtype and shape that differs in every element."""
    values = expected.detach().cpu().contiguous()
    if values.dtype == torch.bool:
        poisoned = ~values
    elif values.dtype.is_floating_point or values.dtype.is_complex:
        # Torch has no masked functions for 8-bit floats.
        poisoned = torch.where(values.isnan(), 0.0, float("nan")).to(values.dtype)
    else:
        signed = values.view(_SIGNED.get(values.dtype, values.dtype))
        poisoned = (signed + 1).view(values.dtype)
    return poisoned.to(expected.device)


def _same_values(expected: Arguments, actual: Arguments) -> bool:
    """Like ``_first_difference``, but without the text, which takes half of a sample's time."""
    pairs = zip(_dense_tensors(expected), _dense_tensors(actual), strict=True)
    return all(
        wanted.dtype == got.dtype and wanted.shape == got.shape and equal(wanted, got)
        for (_, wanted), (_, got) in pairs
    )


def _first_difference(outcomes: list[Arguments], actual: Arguments) -> str | None:
    """Compares an outcome with those of torch, of which one as a rule is all."""
    expected = zip(*map(_dense_tensors, outcomes), strict=True)
    for parts, (name, got) in zip(expected, _dense_tensors(actual), strict=True):
        values = [tensor for _, tensor in parts]
        wanted = values[0]
        if wanted.dtype != got.dtype:
            return f"{name}: expected {wanted.dtype}, got {got.dtype}"
        if wanted.shape != got.shape:
            return f"{name}: expected shape {tuple(wanted.shape)}, got {tuple(got.shape)}"
        if not equal(wanted, got):
            if not Spread(values).has(got):
                return f"{name}: expected {wanted}, got {got}"
        elif _has_gaps(wanted, got) and not equal(_memory(wanted), _memory(got)):
            return f"{name}: memory between its elements was written"
    return None


def _has_gaps(*tensors: torch.Tensor) -> bool:
    """Report whether tensors of one dtype lie in memory of one size that they do not fill."""
    if any(tensor.layout != torch.strided for tensor in tensors):
        return False
    sizes = {tensor.untyped_storage().nbytes() for tensor in tensors}
    return len(sizes) == 1 and sizes.pop() > tensors[0].numel() * tensors[0].element_size()


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """Returns all of the memory that a tensor lies in."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((size,), (1,), 0)


def equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Report whether two tensors of one dtype and shape hold the same bits, or the same values."""
    left, right = left.detach().cpu().contiguous(), right.detach().cpu().contiguous()
    if torch.equal(_bytes(left), _bytes(right)):
        return True
    if not (left.dtype.is_floating_point or left.dtype.is_complex):
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)
