"""Lists the hand-written implementations of a build and their slots. It reads the sources of the
build: INFINI_OPS_REGISTER(<Op>, Device::Type::k<Platform> or cuda::kDevice, <slot>). CMake runs it
at configure time. #if is not evaluated.

Reports all errors at once, by line, with exit code 2: two implementations of one (operator, device,
slot); a slot that the source may not use (0 to 7, and 9 below src/triton); an operator without a
declaration in src/base.

Writes native_ops_metadata.json, schema_version 1, which is installed beside the module
(infini.ops.native_metadata_path()):

  schema_version
  not_selected: a list of name, device and slot: implementations that INFINI_OPS_TORCH_OPS left out,
    or WITH_CPU_KERNELS=OFF
  ops: a list of
    name            public name: infini.ops.<name>
    overload_name   ATen's name of this overload, if torch has the operator too
    params          as in torch_ops_metadata.json: name, type, is_tensor, is_out, default
    implementations: a list of
      device        platform: cpu, nvidia
      slot          implementation index
      source        file, relative to the repository

Also writes native_signatures.cc, which is compiled into the library: the signatures of these
operators, for messages and documentation.
"""

# Without this check, two implementations at one slot end the process when the library is loaded. It
# reads the sources before any of them is compiled. It uses only the standard library, because
# builds without torch need it too.

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from codegen import cpp
from codegen.devices import platforms
from codegen.errors import GenerationError, suggestion
from codegen.model import (
    Argument,
    Base,
    Declaration,
    Overload,
    Parameter,
    ParameterKind,
    Schema,
    SkipReason,
    Type,
    class_name,
    parameter_name,
)
from codegen.slots import Slot
from codegen.translate import KINDS, parse_default

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

_CLASS = re.compile(r"^class (?P<name>\w+) : public OperatorBase<(?P<self>\w+)> \{$", re.MULTILINE)
_NAME = re.compile(r'static constexpr char kName\[\] = "(?P<value>\w+)";')
_OVERLOAD_NAME = re.compile(r'static constexpr char kOverloadName\[\] = "(?P<value>\w*)";')
_PARAMETERS = re.compile(
    r"static constexpr Parameter kParameters\[\] = \{(?P<value>.*?)\n  \};", re.S
)
_ROW = re.compile(
    r"""
    (?P<brace>\{)?(?(brace)|Parameter\()Parameter::Type::k(?P<kind>\w+),\s+"(?P<name>\w+)"
      (?(brace)\}|\)(?P<calls>(?:\s*\.\w+\([^()]*(?:\(\))?\))*)),
    | (?P<other>\S[^\n]*)
    """,
    re.VERBOSE,
)
_CALL = re.compile(r"\.(?P<name>\w+)\((?P<value>.*?)\)(?=\s*\.|\s*$)", re.S)
# Methods that may follow a row, and the pattern of their argument.
_CALLS = {
    "List": r"\d*",
    "Default": ".+",
    "Optional": "",
    "OptionalElements": "",
    "InPlace": "",
    "Out": "",
}
_ROW_FORM = (
    'expected {Parameter::Type::k<Kind>, "name"}, or Parameter(Parameter::Type::k<Kind>, "name") '
    "followed by .List(), .Optional(), .OptionalElements(), .Default(...), .InPlace() or "
    ".Out()"
)
# The first name of a kind in ATen's schemas: int, not SymInt.
_ATEN_TYPES = {kind: text for text, kind in reversed(KINDS.items())}
_CONSTANTS = {"std::nullopt": "None", "true": "True", "false": "False"}

METADATA_NAME = "native_ops_metadata.json"
SIGNATURES_NAME = "native_signatures.cc"
METADATA_SCHEMA_VERSION = 1

_SIGNATURES = """\
// Generated from src/base. Do not edit.
#include <iterator>

#include "core/generated.h"

namespace infini::ops::generated {{

{table}const Span<NativeSignature> kNativeSignatures{span};

}}  // namespace infini::ops::generated
"""

# The slots of hand-written code, by the folder of the source. Sources elsewhere use NATIVE.
TRITON_FOLDER = Path("src", "triton")
NATIVE = range(Slot.NATIVE_FIRST, Slot.NATIVE_LAST + 1)
TRITON = range(Slot.TRITON, Slot.TRITON + 1)

_REGISTRATION = re.compile(
    r"\bINFINI_OPS_REGISTER\b"
    r"(?P<form>\s*\(\s*(?P<op>\w+)\s*,\s*(?P<device>[\w:]+)\s*,\s*(?P<slot>\d+)\s*\))?"
)
_REGISTRATION_FORM = (
    "expected INFINI_OPS_REGISTER(<Op>, Device::Type::k<Platform> or cuda::kDevice, <number>), "
    "written out: this check does not expand macros"
)
_DEVICE = "Device::Type::"
_ACCELERATOR = "cuda::kDevice"  # of src/cuda/runtime.h: the accelerator of the build


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _without_comments(text: str) -> str:
    """Replace the comments of C++ source by blanks, so that lines and columns stay the same."""
    return _COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment[0]), text)


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


# Bases, ``src/base/*.h``: operators that ATen may not have. The parser is strict and relies on the
# format that clang-format produces. Any other form is an error, never a guess.


def read_bases(folder: Path) -> dict[str, Base]:
    """Read all bases of a folder, by public name; raise ``GenerationError`` with every finding."""
    bases: dict[str, Base] = {}
    findings: list[str] = []
    for path in sorted(folder.glob("*.h")):
        try:
            bases[path.stem] = _Header(path).base()
        except GenerationError as finding:
            findings.append(str(finding))
    if findings:
        raise GenerationError("\n".join(findings))
    return bases


class _Header:
    """Reads one base; raises ``GenerationError`` at the first deviation from the expected form."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = _without_comments(_read(path))

    def base(self) -> Base:
        found = self._find(_CLASS, "class <Name> : public OperatorBase<Name> {")
        name = self._find(_NAME, 'static constexpr char kName[] = "<name>";')
        expected = class_name(name["value"])
        for at, what, got, wanted, explanation in (
            (name, "kName", name["value"], self._path.stem, "the name of the file"),
            (found, "class", found["name"], expected, f"'{name['value']}' in Pascal case"),
            (found, "base", found["self"], expected, "the class itself"),
        ):
            if got != wanted:
                self._fail(at.start(), f"{what} is '{got}', expected '{wanted}', {explanation}")
        overload_name = self._find(_OVERLOAD_NAME, 'static constexpr char kOverloadName[] = "...";')
        parameters = tuple(self._parameters())
        schema = Schema(
            aten_name=name["value"],
            overload_name=overload_name["value"],
            arguments=tuple(parameter.argument for parameter in parameters),
            returns=(),
        )
        line = _line(self._text, found.start())
        declaration = Declaration(schema=schema, cpp_call="", is_inplace=False, tags=(), line=line)
        return Base(
            where=f"{self._path}:{line}",
            overload=Overload(declaration=declaration, parameters=parameters),
        )

    def _parameters(self) -> Iterator[Parameter]:
        rows = self._find(_PARAMETERS, "static constexpr Parameter kParameters[] = { ... };")
        names: set[str] = set()
        outs = written = 0
        for row in _ROW.finditer(self._text, *rows.span("value")):
            offset = row.start()
            if row["other"]:
                self._fail(offset, f"'{row[0].strip()}' is not a row of kParameters; {_ROW_FORM}")
            parameter = self._parameter(row, written)
            if parameter.name in names:
                self._fail(offset, f"duplicate parameter '{parameter.name}'")
            is_only_written = parameter.is_out and parameter.argument.keyword_only
            if outs and not is_only_written:
                self._fail(
                    offset, f"input '{parameter.name}' follows an out; move it before the outs"
                )
            names.add(parameter.name)
            outs += is_only_written
            written += parameter.is_out
            yield parameter
        if not written:
            self._fail(
                rows.start(),
                "kParameters has no out; add .Out() to the parameters that it writes, or "
                ".InPlace() if it also reads them",
            )

    def _parameter(self, row: re.Match[str], written: int) -> Parameter:
        offset, name = row.start(), row["name"]
        if row["kind"] not in (known := [kind.value for kind in ParameterKind]):
            self._fail(offset, f"unknown type 'k{row['kind']}'{suggestion(row['kind'], known)}")
        if parameter_name(name) != name:
            self._fail(offset, f"invalid parameter name '{name}'; use '{parameter_name(name)}'")
        kind = ParameterKind(row["kind"])
        calls = self._calls(row)
        text = calls.get("Default")
        argument = Argument(
            name=name,
            type=Type(
                base=_ATEN_TYPES[kind],
                list_size=int(calls["List"] or 0) if "List" in calls else None,
                is_optional="Optional" in calls,
                has_optional_elements="OptionalElements" in calls,
            ),
            annotation=f"{string.ascii_lowercase[written]}!"
            if calls.keys() & {"InPlace", "Out"}
            else None,
            default=None if text is None else _CONSTANTS.get(text, text),
            keyword_only="Out" in calls,
        )
        if text is None:
            return Parameter(argument=argument, kind=kind, default=None)
        value = parse_default(argument, kind)
        # C++ spells ATen's constants, strings and lists differently.
        is_spelled_alike = text in _CONSTANTS or (
            text[0] in "+-.0123456789" and "List" not in calls
        )
        if isinstance(value, SkipReason) or not is_spelled_alike:
            self._fail(
                offset,
                f"can't read the default of a k{kind.value}; expected a number, true or false "
                "according to the type, or std::nullopt for an .Optional() parameter",
            )
        return Parameter(argument=argument, kind=kind, default=value)

    def _calls(self, row: re.Match[str]) -> dict[str, str]:
        calls: dict[str, str] = {}
        for call in _CALL.finditer(row["calls"] or ""):
            name, value = call["name"], call["value"]
            if name in calls or name not in _CALLS or not re.fullmatch(_CALLS[name], value):
                self._fail(row.start(), f"can't read '.{name}({value})'; {_ROW_FORM}")
            calls[name] = value
        if "OptionalElements" in calls and "List" not in calls:
            self._fail(row.start(), ".OptionalElements() without .List(); add .List()")
        return calls

    def _find(self, pattern: re.Pattern[str], form: str) -> re.Match[str]:
        found = list(pattern.finditer(self._text))
        if len(found) != 1:
            offset = found[1].start() if found else 0
            self._fail(offset, f"expected one '{form}', got {len(found)}")
        return found[0]

    def _fail(self, offset: int, text: str) -> NoReturn:
        raise GenerationError(f"{self._path}:{_line(self._text, offset)}: {text}")


# The registry: the implementations of a build.


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One registration: operator, device, slot, and its location in the sources."""

    name: str
    device: str  # the platform
    slot: int
    source: Path
    where: str

    @property
    def place(self) -> tuple[str, str, int]:
        return self.name, self.device, self.slot


@dataclass(frozen=True, kw_only=True)
class Registry:
    """The hand-written operators of a build and their implementations."""

    implementations: tuple[Implementation, ...]  # sorted by place
    bases: Mapping[str, Base]
    unselected: tuple[Implementation, ...] = ()
    """Implementations left out because this build was narrowed to other operators."""

    @property
    def operators(self) -> list[str]:
        return sorted({each.name for each in self.implementations})

    def render(self) -> str:
        """Render ``native_ops_metadata.json``, one operator per line."""
        head = {
            "schema_version": METADATA_SCHEMA_VERSION,
            "not_selected": [
                {"name": each.name, "device": each.device, "slot": each.slot}
                for each in self.unselected
            ],
        }
        lines = ",\n".join(json.dumps(self._operator(name)) for name in self.operators)
        return f'{json.dumps(head)[:-1]},\n"ops": [\n{lines}\n]}}\n'

    def render_signatures(self) -> str:
        """Render ``native_signatures.cc``, for operators that torch does not have."""
        rows = ""
        for name in self.operators:
            overload = self.bases[name].overload
            names = f'"{name}", "{overload.schema.overload_name}"'
            rows += f'    {{{names}, "{cpp.signature(overload)}"}},\n'
        table = f"constexpr NativeSignature kSignatures[] = {{\n{rows}}};\n\n" if rows else ""
        return _SIGNATURES.format(
            table=table, span="{kSignatures, std::size(kSignatures)}" if rows else "{}"
        )

    def _operator(self, name: str) -> dict[str, object]:
        overload = self.bases[name].overload
        return {
            "name": name,
            "overload_name": overload.schema.overload_name,
            "params": [parameter.metadata() for parameter in overload.parameters],
            "implementations": [
                {"device": each.device, "slot": each.slot, "source": each.source.as_posix()}
                for each in self.implementations
                if each.name == name
            ],
        }


def read_registry(
    sources: Iterable[Path], bases: Mapping[str, Base], accelerator: str | None, root: Path
) -> Registry:
    """Read ``sources``, relative to ``root``; ``accelerator`` is the enumerator, ``kNvidia``.

    Raises ``GenerationError`` with every registration that can't be read or is not allowed.
    """
    names = {class_name(name): name for name in bases}
    devices = {f"{_DEVICE}{each.enumerator}": each.name for each in platforms()}
    if accelerator:
        devices[_ACCELERATOR] = devices[f"{_DEVICE}{accelerator}"]
    found: dict[tuple[str, str, int], Implementation] = {}
    findings: list[str] = []
    for source, where, row in _registrations(sources, root):
        if wrong := list(_registration_errors(row, source, names, devices)):
            findings += (f"{where}: {each}" for each in wrong)
            continue
        added = Implementation(
            name=names[row["op"]],
            device=devices[row["device"]],
            slot=int(row["slot"]),
            source=source,
            where=where,
        )
        if (first := found.setdefault(added.place, added)) is not added:
            free = [n for n in NATIVE if (added.name, added.device, n) not in found]
            hint = f" ({free[0]} is free)" if free and added.slot in NATIVE else ""
            findings.append(
                f"{where}: {added.name} already has an implementation for {added.device} at slot "
                f"{added.slot}, in {first.where}; give one of them another slot{hint}, or remove "
                "it from the build"
            )
    if findings:
        raise GenerationError("\n".join(findings))
    # Like the library, leave out implementations for devices that the build lacks.
    built = {each.name for each in platforms() if each.enumerator in ("kCpu", accelerator)}
    implementations = tuple(found[each] for each in sorted(found) if found[each].device in built)
    return Registry(implementations=implementations, bases=bases)


def _registrations(
    sources: Iterable[Path], root: Path
) -> Iterator[tuple[Path, str, re.Match[str]]]:
    """Every registration with its source file and its location."""
    for source in sources:
        text = _read(root / source)
        if _REGISTRATION.search(text):  # a cheap test first: most sources have no registration
            text = _without_comments(text)
            for row in _REGISTRATION.finditer(text):
                yield source, f"{source}:{_line(text, row.start())}", row


def _registration_errors(
    row: re.Match[str], source: Path, names: Mapping[str, str], devices: Mapping[str, str]
) -> Iterator[str]:
    if not row["form"]:
        yield f"can't read '{row.string[row.start() :].splitlines()[0]}'; {_REGISTRATION_FORM}"
        return
    if row["op"] not in names:
        hint = suggestion(row["op"], names)
        yield f"{row['op']} has no base; declare it in src/base/<op>.h{hint}"
    device = row["device"]
    if device not in devices and device == _ACCELERATOR:
        yield f"{device} in a build without an accelerator; remove the source from this build"
    elif device not in devices:
        known = ", ".join(sorted(devices.keys() - {_ACCELERATOR}))
        yield (
            f"unknown device '{device}'; expected {_ACCELERATOR} or one of {known}"
            f"{suggestion(device, devices)}"
        )
    if int(row["slot"]) not in (TRITON if source.is_relative_to(TRITON_FOLDER) else NATIVE):
        yield (
            f"slot {int(row['slot'])} is not allowed in this source: native code uses {NATIVE[0]} "
            f"to {NATIVE[-1]}, the generated PyTorch backend {Slot.TORCH:d}, {TRITON_FOLDER} "
            f"{Slot.TRITON:d}"
        )
