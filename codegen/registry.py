"""``python -m codegen registry``: which implementation is at which slot, from the sources.

The library finds out when it is loaded, where two implementations for one place end the process;
here the sources of a build are read before any is compiled. `#if` is not evaluated. The standard
library suffices, as builds without torch need this too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from codegen.bases import Base, line_at, without_comments
from codegen.devices import PLATFORMS
from codegen.errors import GenerationError, nearest
from codegen.slots import Slot

METADATA_NAME = "native_ops_metadata.json"
METADATA_SCHEMA_VERSION = 1

# The slots of what is written by hand, by the folder of the source; any other is NATIVE.
TRITON_FOLDER = Path("src", "triton")
NATIVE = range(Slot.NATIVE_FIRST, Slot.NATIVE_LAST + 1)
TRITON = range(Slot.TRITON, Slot.TRITON + 1)

_MACRO = re.compile(r"\bINFINI_OPS_REGISTER\b")
_ARGUMENTS = re.compile(r"\s*\(\s*(?P<op>\w+)\s*,\s*(?P<device>[\w:]+)\s*,\s*(?P<slot>\d+)\s*\)")
_FORM = (
    "expected INFINI_OPS_REGISTER(<Op>, Device::Type::k<Platform> or cuda::kDevice, <number>), as "
    "no preprocessor reads it here"
)
_DEVICE = "Device::Type::"
_ACCELERATOR = "cuda::kDevice"  # of src/cuda/runtime.h: whatever the build has beside the CPU


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One registration: what is at a slot of an operator for a device, and where it says so."""

    name: str
    device: str  # the platform
    slot: int
    source: Path
    line: int

    @property
    def place(self) -> tuple[str, str, int]:
        return self.name, self.device, self.slot

    @property
    def where(self) -> str:
        return f"{self.source}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Registry:
    """The hand-written operators that a build has, and what implements each."""

    implementations: tuple[Implementation, ...]
    bases: Mapping[str, Base]
    unselected: tuple[Implementation, ...] = ()
    """What it has not, because this build was narrowed to other operators."""

    @property
    def operators(self) -> list[str]:
        return sorted({each.name for each in self.implementations})

    def of(self, name: str) -> list[Implementation]:
        """The implementations of one operator by device and slot."""
        found = [each for each in self.implementations if each.name == name]
        return sorted(found, key=lambda each: each.place)

    def render(self) -> str:
        """``native_ops_metadata.json``, one operator a line."""
        lines = ",\n".join(json.dumps(self._operator(name)) for name in self.operators)
        head = json.dumps(
            {
                "schema_version": METADATA_SCHEMA_VERSION,
                "not_selected": [
                    {"name": each.name, "device": each.device, "slot": each.slot}
                    for each in sorted(self.unselected, key=lambda each: each.place)
                ],
            }
        )
        return f'{head[:-1]},\n"ops": [\n{lines}\n]}}\n'

    def _operator(self, name: str) -> dict[str, object]:
        overload = self.bases[name].overload
        return {
            "name": name,
            "overload_name": overload.schema.overload_name,
            "params": [parameter.metadata() for parameter in overload.parameters],
            "implementations": [
                {"device": each.device, "slot": each.slot, "source": each.source.as_posix()}
                for each in self.of(name)
            ],
        }


def read_registry(
    sources: Iterable[Path], bases: Mapping[str, Base], accelerator: str | None, root: Path
) -> Registry:
    """Reads ``sources``, relative to ``root``; ``accelerator`` is the enumerator, ``kNvidia``.

    Raises ``GenerationError`` with every registration that can't be read or can't be so.
    """
    reader = _Reader(bases, accelerator)
    for source in sources:
        reader.read(source, (root / source).read_text(encoding="utf-8", errors="replace"))
    if reader.findings:
        raise GenerationError("\n".join(reader.findings))
    # As the library, which leaves out what is for a device that the build lacks.
    devices = {each.name for each in PLATFORMS if each.enumerator in ("kCpu", accelerator)}
    found = tuple(each for each in reader.found.values() if each.device in devices)
    return Registry(implementations=found, bases=bases)


class _Reader:
    """Collects the registrations of all sources, and all that is wrong with them."""

    def __init__(self, bases: Mapping[str, Base], accelerator: str | None) -> None:
        self._names = {base.class_name: name for name, base in bases.items()}
        self._devices = {f"{_DEVICE}{each.enumerator}": each.name for each in PLATFORMS}
        if accelerator:
            self._devices[_ACCELERATOR] = self._devices[f"{_DEVICE}{accelerator}"]
        self.found: dict[tuple[str, str, int], Implementation] = {}
        self.findings: list[str] = []

    def read(self, source: Path, text: str) -> None:
        if not _MACRO.search(text):
            return
        text = without_comments(text)
        for macro in _MACRO.finditer(text):
            line = line_at(text, macro.start())
            arguments = _ARGUMENTS.match(text, macro.end())
            if not arguments:
                got = text[macro.start() :].splitlines()[0]
                self.findings.append(f"{source}:{line}: can't read '{got}'; {_FORM}")
                continue
            wrong = list(self._wrong(arguments, source))
            self.findings += (f"{source}:{line}: {each}" for each in wrong)
            if not wrong:
                self._add(arguments, source, line)

    def _wrong(self, arguments: re.Match[str], source: Path) -> Iterator[str]:
        class_name, device, slot = arguments["op"], arguments["device"], int(arguments["slot"])
        if class_name not in self._names:
            hint = nearest(class_name, self._names)
            yield f"{class_name} has no base; expected src/base/<op>.h to declare it{hint}"
        if device not in self._devices:
            yield self._unknown(device)
        is_triton = source.is_relative_to(TRITON_FOLDER)
        if slot not in (TRITON if is_triton else NATIVE):
            yield self._wrong_slot(slot)

    def _unknown(self, device: str) -> str:
        if device == _ACCELERATOR:
            return f"{device} in a build without accelerator; take the source out of this build"
        return (
            f"unknown device '{device}'; expected {_ACCELERATOR} or one of "
            f"{', '.join(sorted(self._devices.keys() - {_ACCELERATOR}))}"
            f"{nearest(device, self._devices)}"
        )

    def _wrong_slot(self, slot: int) -> str:
        return (
            f"slot {slot} is not this source's: native code has {NATIVE[0]} to {NATIVE[-1]}, the "
            f"generated PyTorch backend {Slot.TORCH:d}, {TRITON_FOLDER} {Slot.TRITON:d}"
        )

    def _add(self, arguments: re.Match[str], source: Path, line: int) -> None:
        added = Implementation(
            name=self._names[arguments["op"]],
            device=self._devices[arguments["device"]],
            slot=int(arguments["slot"]),
            source=source,
            line=line,
        )
        first = self.found.setdefault(added.place, added)
        if first is not added:
            self.findings.append(
                f"{added.where}: {added.name} has an implementation for {added.device} at slot "
                f"{added.slot} already, in {first.where}; give one of them another slot"
                f"{self._free(added)}, or take it out of the build"
            )

    def _free(self, added: Implementation) -> str:
        free = [n for n in NATIVE if (added.name, added.device, n) not in self.found]
        return f" ({free[0]} is free)" if free and added.slot in NATIVE else ""
