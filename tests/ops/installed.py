"""The installed library as its metadata describes it, and how the tests call it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness import Arguments, Call
from platforms import PLATFORMS
from samples import Sample, load, without_defaults

import infini.ops
import torch

METADATA_FILE = Path(infini.ops.__file__).with_name("torch_ops_metadata.json")
NATIVE_METADATA_FILE = METADATA_FILE.with_name("native_ops_metadata.json")
TORCH_SLOT = 8
NATIVE_SLOTS = range(8)
TRITON_SLOT = 9
HAND_WRITTEN_SLOTS = (*NATIVE_SLOTS, TRITON_SLOT)


class WrongImplementationError(AssertionError):
    """The library ran another implementation than the requested one."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of the Python function, in its order: inputs, then outputs."""

    name: str
    type: str
    is_tensor: bool
    is_out: bool
    default: str | None

    def aten_name(self, arguments: Arguments) -> str:
        """Undoes the renaming: ``self`` is ``input``, and a Python keyword ends in "_"."""
        if self.name in arguments:
            return self.name
        return "self" if self.name == "input" else self.name.rstrip("_")


@dataclass(frozen=True)
class Overload:
    """One generated ATen overload of a public operator."""

    name: str
    aten_name: str
    overload_name: str
    parameters: tuple[Parameter, ...]
    is_selected: bool = True
    """Whether this build has it. Names and samples are known either way."""

    @property
    def qualified_name(self) -> str:
        """The key of the samples and of the test id: "add.out" or "abs_"."""
        return f"{self.aten_name}.{self.overload_name}".rstrip(".")

    @property
    def function(self) -> Any:
        return getattr(infini.ops, self.name)

    @property
    def operator_class(self) -> Any:
        return getattr(infini.ops, class_name(self.name))

    def aten(self) -> Any:
        """Returns torch's own overload, or None where this torch lacks it."""
        packet = getattr(torch.ops.aten, self.aten_name, None)
        return getattr(packet, self.overload_name or "default", None)

    def samples(self) -> list[Sample]:
        """Returns recorded calls of one dtype, float32 if possible, that fit this torch.

        Only calls with strided tensors: the memory of sparse and quantized ones has no variants.
        """
        aten = self.aten()
        groups = load().samples.get(self.qualified_name, {})
        group = groups.get("float32") or next(iter(groups.values()), [])
        strided = [sample for sample in group if sample.is_strided()]
        return [sample for sample in strided if aten and sample.fits(aten._schema)]

    def active_slots(self, device: str) -> list[int]:
        return list(self.operator_class.active_implementation_indices(device))

    def call(self, slot: int, *, by_keyword: bool) -> Call:
        """Returns a call of the library that takes the arguments under their ATen names.

        The call raises WrongImplementationError if the library reports that it ran another slot.
        """
        style = self._by_keyword if by_keyword else self._by_position

        def call(arguments: Arguments) -> None:
            positional, keywords = style(arguments)
            self.function(*positional, **keywords, implementation_index=slot)
            check_slot(self.name, slot)

        return call

    def _by_keyword(self, arguments: Arguments) -> tuple[list[Any], dict[str, Any]]:
        """Leaves out arguments at their default, which the library must fill in."""
        names = {parameter.aten_name(arguments): parameter.name for parameter in self.parameters}
        given = without_defaults(self.aten()._schema, arguments)
        return [], {names[aten_name]: value for aten_name, value in given.items()}

    def _by_position(self, arguments: Arguments) -> tuple[list[Any], dict[str, Any]]:
        """Passes inputs that ATen takes by keyword only by keyword, all else by position.

        ``random_(x, 50, None)`` could mean ``from=50, to=None`` or ``to=50, generator=None``.
        """
        keyword_only = {
            argument.name
            for argument in self.aten()._schema.arguments
            if argument.kwarg_only and not argument.is_out
        }
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for parameter in self.parameters:
            aten_name = parameter.aten_name(arguments)
            if aten_name in keyword_only:
                keywords[parameter.name] = arguments[aten_name]
            else:
                positional.append(arguments[aten_name])
        return positional, keywords


@dataclass(frozen=True)
class NativeOperator:
    """The hand-written overload of a public operator, and where it is implemented."""

    name: str
    overload_name: str
    parameters: tuple[Parameter, ...]
    slots: tuple[tuple[str, int], ...]  # of each implementation: platform and slot
    sources: tuple[str, ...]


def check_slot(name: str, slot: int) -> None:
    """Raises WrongImplementationError if this thread's last call was not of that slot."""
    ran = infini.ops.last_call()
    if ran is None or (ran.operator, ran.slot) != (name, slot):
        raise WrongImplementationError(
            f"{name}: expected a call of slot {slot}, the library ran {ran}"
        )


def check_device(device: str) -> None:
    """Raises WrongImplementationError if this thread's last call was for another device type."""
    ran = infini.ops.last_call()
    if ran is None or PLATFORMS[ran.device].torch_device != device:
        raise WrongImplementationError(f"operands are on {device}, the library ran {ran}")


def class_name(public_name: str) -> str:
    """Pascal case of a public name: "abs_inplace" is ``AbsInplace``."""
    return "".join(part[:1].upper() + part[1:] for part in public_name.split("_"))


def is_recording_torch() -> bool:
    """Report whether this is the version of torch that the samples were recorded with."""
    recorded = str(load().header["torch_version"])
    installed = str(torch.__version__)
    return installed.partition("+")[0] == recorded.partition("+")[0]


def operator_names() -> list[str]:
    """The public names of all generated operators."""
    return sorted({overload.name for overload in overloads()})


@cache
def native_operators() -> tuple[NativeOperator, ...]:
    """Every hand-written operator of the build, by its metadata."""
    return tuple(
        NativeOperator(
            name=entry["name"],
            overload_name=entry["overload_name"],
            parameters=tuple(Parameter(**parameter) for parameter in entry["params"]),
            slots=tuple((each["device"], each["slot"]) for each in entry["implementations"]),
            sources=tuple(each["source"] for each in entry["implementations"]),
        )
        for entry in native_metadata()["ops"]
    )


def hand_written_slots(name: str, device: str) -> list[int]:
    """The active hand-written slots of a public operator; none if this build lacks it."""
    operator_class = getattr(infini.ops, class_name(name), None)
    active = operator_class.active_implementation_indices(device) if operator_class else []
    return [slot for slot in active if slot in HAND_WRITTEN_SLOTS]


@cache
def native_metadata() -> dict[str, Any]:
    """The metadata file of hand-written operators, as it is."""
    content: dict[str, Any] = json.loads(NATIVE_METADATA_FILE.read_text())
    return content


@cache
def metadata() -> dict[str, Any]:
    """The metadata file, as it is."""
    content: dict[str, Any] = json.loads(METADATA_FILE.read_text())
    return content


@cache
def overloads() -> tuple[Overload, ...]:
    """Every overload in the metadata."""
    return tuple(
        Overload(
            name=entry["name"],
            aten_name=entry["aten_name"],
            overload_name=entry["overload_name"],
            parameters=tuple(Parameter(**parameter) for parameter in entry["params"]),
        )
        for entry in metadata()["ops"]
    )


def operators() -> tuple[Overload | NativeOperator, ...]:
    """Every generated overload, and every hand-written operator."""
    return (*overloads(), *native_operators())


def selection() -> dict[str, Any] | None:
    """The operators selected for the build, from its metadata; None: it has all of them."""
    if not METADATA_FILE.exists():  # built without torch
        return None
    found: dict[str, Any] | None = metadata().get("selection")
    return found


@cache
def all_overloads() -> tuple[Overload, ...]:
    """Every overload in the metadata, and those that were not selected."""
    unselected = (
        Overload(
            name=entry["aten_name"],
            aten_name=entry["aten_name"],
            overload_name=entry["overload_name"],
            parameters=(),
            is_selected=False,
        )
        for entry in metadata()["skipped"]
        if entry["reason"] == "not selected"
    )
    return (*overloads(), *unselected)
