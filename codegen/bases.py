"""Reads the hand-written bases, ``src/base/*.h``: operators that need not be ATen's.

Strictly, by their form, which clang-format holds: what is written in another way is an error
and not a guess. The standard library suffices, as builds without torch read them too.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from codegen.errors import GenerationError, nearest
from codegen.model import Argument, Declaration, Default, Kind, Overload, Parameter, Schema, Type
from codegen.names import class_name, parameter_name

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CLASS = re.compile(r"^class (?P<name>\w+) : public OperatorBase<(?P<self>\w+)> \{$", re.MULTILINE)
_NAME = re.compile(r'static constexpr char kName\[\] = "(?P<value>\w+)";')
_OVERLOAD_NAME = re.compile(r'static constexpr char kOverloadName\[\] = "(?P<value>\w*)";')
_PARAMETERS = re.compile(
    r"static constexpr Parameter kParameters\[\] = \{(?P<value>.*?)\n  \};", re.S
)
_ROW = re.compile(
    r"""
    \{Parameter::Type::k(?P<plain_kind>\w+),\s+"(?P<plain_name>\w+)"\},
    | Parameter\(Parameter::Type::k(?P<kind>\w+),\s+"(?P<name>\w+)"\)
      (?P<calls>(?:\s*\.\w+\([^()]*(?:\(\))?\))*),
    """,
    re.VERBOSE,
)
_CALL = re.compile(r"\.(?P<name>\w+)\((?P<value>.*?)\)(?=\s*\.|\s*$)", re.S)
# What may stand behind a row, and what each takes.
_CALLS = {"List": r"\d*", "Default": ".+", "Optional": "", "OptionalElements": "", "Out": ""}
_ROW_FORM = (
    'expected {Parameter::Type::k<Kind>, "name"}, or Parameter(Parameter::Type::k<Kind>, "name") '
    "with .List(), .Optional(), .OptionalElements(), .Default(...) or .Out() behind it"
)

# The spelling of a kind in ATen's schemas, where it is not the kind's own in lower case.
_ATEN_TYPES = {
    Kind.TENSOR: "Tensor",
    Kind.SCALAR: "Scalar",
    Kind.DATA_TYPE: "ScalarType",
    Kind.LAYOUT: "Layout",
    Kind.MEMORY_FORMAT: "MemoryFormat",
    Kind.DEVICE: "Device",
    Kind.GENERATOR: "Generator",
    Kind.STRING: "str",
}
_CONSTANTS = {"std::nullopt": "None", "true": "True", "false": "False"}
_DEFAULT_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.SCALAR: (bool, int, float),
    Kind.INT: (int,),
    Kind.FLOAT: (int, float),
    Kind.BOOL: (bool,),
}


@dataclass(frozen=True, kw_only=True)
class Base:
    """A hand-written base: its class, and the one overload that implementations register for."""

    path: Path
    line: int
    class_name: str
    overload: Overload

    @property
    def name(self) -> str:
        """The public name of the operator."""
        return self.overload.schema.aten_name

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"


def read_bases(folder: Path) -> dict[str, Base]:
    """All bases of a folder by public name; raises ``GenerationError`` with every finding."""
    bases: dict[str, Base] = {}
    findings: list[str] = []
    for path in sorted(folder.glob("*.h")):
        reader = _Reader(path)
        try:
            base = reader.base()
            bases[base.name] = base
        except _UnreadableError as finding:
            findings.append(str(finding))
    if findings:
        raise GenerationError("\n".join(findings))
    return bases


def without_comments(text: str) -> str:
    """C++ source with blanks for its comments, so that lines and columns stay."""
    return _COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment[0]), text)


def line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


class _UnreadableError(Exception):
    """What is wrong with a base, as a finding with file and line."""


class _Reader:
    """Reads one header; raises ``_UnreadableError`` at the first thing that is not as expected."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = without_comments(path.read_text(encoding="utf-8", errors="replace"))

    def base(self) -> Base:
        found = self._find(_CLASS, "class <Name> : public OperatorBase<Name> {")
        name = self._find(_NAME, 'static constexpr char kName[] = "<name>";')
        self._expect(name, "kName", name["value"], self._path.stem, "the name of the file")
        expected = class_name(name["value"])
        self._expect(found, "class", found["name"], expected, f"'{name['value']}' in Pascal case")
        self._expect(found, "base", found["self"], expected, "the class itself")
        overload_name = self._find(_OVERLOAD_NAME, 'static constexpr char kOverloadName[] = "...";')
        line = line_at(self._text, found.start())
        return Base(
            path=self._path,
            line=line,
            class_name=expected,
            overload=self._overload(name["value"], overload_name["value"], line),
        )

    def _overload(self, name: str, overload_name: str, line: int) -> Overload:
        parameters = tuple(self._parameters())
        schema = Schema(
            aten_name=name,
            overload_name=overload_name,
            arguments=tuple(parameter.argument for parameter in parameters),
            returns=(),
        )
        declaration = Declaration(schema=schema, header="", is_inplace=False, tags=(), line=line)
        return Overload(declaration=declaration, parameters=parameters)

    def _parameters(self) -> Iterator[Parameter]:
        rows = self._find(_PARAMETERS, "static constexpr Parameter kParameters[] = { ... };")
        names: set[str] = set()
        outs = 0
        for offset, row in self._rows(rows.start("value"), rows.end("value")):
            parameter = self._parameter(offset, row, outs)
            if parameter.name in names:
                self._fail(offset, f"parameter '{parameter.name}' stands twice")
            if outs and not parameter.is_out:
                self._fail(
                    offset, f"input '{parameter.name}' stands behind an out; expected before"
                )
            names.add(parameter.name)
            outs += parameter.is_out
            yield parameter
        if not outs:
            self._fail(rows.start(), "kParameters has no out; expected .Out() on what is written")

    def _rows(self, start: int, end: int) -> Iterator[tuple[int, re.Match[str]]]:
        while blank := re.compile(r"\s*").match(self._text, start, end):
            offset = blank.end()
            if offset == end:
                return
            row = _ROW.match(self._text, offset, end)
            if not row:
                got = self._text[offset:end].splitlines()[0].strip()
                self._fail(offset, f"'{got}' is no row of kParameters; {_ROW_FORM}")
            yield offset, row
            start = row.end()

    def _parameter(self, offset: int, row: re.Match[str], outs: int) -> Parameter:
        name = row["name"] or row["plain_name"]
        kind = self._kind(offset, row["kind"] or row["plain_kind"])
        if parameter_name(name) != name:
            self._fail(offset, f"'{name}' is no name for a parameter; use '{parameter_name(name)}'")
        calls = self._calls(offset, row["calls"] or "")
        is_out = "Out" in calls
        type_ = Type(
            base=_ATEN_TYPES.get(kind, kind.value.lower()),
            list_size=int(calls["List"] or 0) if "List" in calls else None,
            is_optional="Optional" in calls,
            has_optional_elements="OptionalElements" in calls,
        )
        text = calls.get("Default")
        default = None if text is None else _CONSTANTS.get(text, text)
        argument = Argument(
            name=name,
            type=type_,
            annotation=f"{string.ascii_lowercase[outs]}!" if is_out else None,
            default=default,
            keyword_only=is_out,
        )
        value = None if default is None else self._default(offset, default, kind, type_)
        return Parameter(argument=argument, kind=kind, default=value)

    def _kind(self, offset: int, text: str) -> Kind:
        try:
            return Kind(text)
        except ValueError:
            known = [kind.value for kind in Kind]
            self._fail(offset, f"unknown type 'k{text}'{nearest(text, known)}")

    def _calls(self, offset: int, text: str) -> dict[str, str]:
        calls: dict[str, str] = {}
        for call in _CALL.finditer(text):
            name, value = call["name"], call["value"]
            if name in calls or name not in _CALLS or not re.fullmatch(_CALLS[name], value):
                self._fail(offset, f"can't read '.{name}({value})'; {_ROW_FORM}")
            calls[name] = value
        if "OptionalElements" in calls and "List" not in calls:
            self._fail(offset, ".OptionalElements() without .List()")
        return calls

    def _default(self, offset: int, text: str, kind: Kind, type_: Type) -> Default:
        try:
            value: Default = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            value = ""
        if type_.is_optional and value is None:
            return None
        is_known = type_.list_size is None and type(value) in _DEFAULT_TYPES.get(kind, ())
        if not is_known:
            self._fail(
                offset,
                f"can't read the default of a k{kind.value}; expected a number, true or false as "
                "the type has it, or std::nullopt for what is .Optional()",
            )
        return value

    def _find(self, pattern: re.Pattern[str], form: str) -> re.Match[str]:
        found = list(pattern.finditer(self._text))
        if len(found) != 1:
            offset = found[1].start() if found else 0
            self._fail(offset, f"expected one '{form}', got {len(found)}")
        return found[0]

    def _expect(
        self, at: re.Match[str], what: str, got: str, expected: str, explanation: str
    ) -> None:
        if got != expected:
            self._fail(at.start(), f"{what} is '{got}', expected '{expected}', {explanation}")

    def _fail(self, offset: int, text: str) -> NoReturn:
        raise _UnreadableError(f"{self._path}:{line_at(self._text, offset)}: {text}")
