"""Decides whether two spellings of a C++ type are the same for a kernel of torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from codegen.backend.cpp_source import Words, is_macro_name

_NAMESPACES = ("at", "c10", "std", "torch")
_QUALIFIERS = ("const", "volatile", "struct", "class", "typename", "enum")
_FUNDAMENTAL = frozenset({"unsigned", "signed", "long", "short", "int", "char", "double"})
# Types for which torch's headers define other names.
_ALIASES_IN_TORCH = {
    "IntArrayRef": "ArrayRef<int64_t>",
    "SymIntArrayRef": "ArrayRef<SymInt>",
    "OptionalIntArrayRef": "OptionalArrayRef<int64_t>",
    "OptionalSymIntArrayRef": "OptionalArrayRef<SymInt>",
    "TensorList": "ArrayRef<Tensor>",
    "ITensorListRef": "IListRef<Tensor>",
    "DimnameList": "ArrayRef<Dimname>",
    "DeviceIndex": "int8_t",
    "Dtype": "ScalarType",
}
_MOST_NAMES = 256  # limit of alias lookups in one type; nested pairs of aliases can need a billion


class UnclearTypeError(Exception):
    """The words are not a type, or contain a macro."""


def canonical_type(spelled: Words, aliases: Mapping[str, Words]) -> str:
    """Convert all spellings of a type to one; a parameter name after the type is ignored.

    Raises ``UnclearTypeError`` with the part that can't be parsed.
    """
    parser = _Parser(spelled, aliases, iter(range(_MOST_NAMES)))
    try:
        text = str(parser.type())
    except RecursionError:
        raise UnclearTypeError(" ".join(spelled[:1])) from None
    parser.end()
    return text


class _Type(NamedTuple):
    core: str
    suffix: str = ""
    is_const: bool = False

    def __str__(self) -> str:
        # const does not affect the signature of a parameter passed by value.
        return f"{'const ' if self.is_const and self.suffix else ''}{self.core}{self.suffix}"


class _Parser:
    def __init__(self, spelled: Words, aliases: Mapping[str, Words], names: Iterator[int]) -> None:
        self._words = spelled
        self._aliases = aliases
        self._names = names  # one element for each alias lookup that is still allowed
        self._position = 0

    def _next(self) -> str:
        return self._words[self._position] if self._position < len(self._words) else ""

    def _take(self, *texts: str) -> str:
        """Consume and return the next word if it is one of these; else return ""."""
        word = self._next()
        if word not in texts:
            return ""
        self._position += 1
        return word

    def type(self) -> _Type:
        is_const = self._qualifiers()
        named = self._base_type()
        is_const |= self._qualifiers() or named.is_const
        suffix = named.suffix
        while mark := self._take("&", "&&", "*"):
            suffix += mark
            self._qualifiers()
        return _Type(named.core, suffix, is_const)

    def end(self) -> None:
        """Accept an optional parameter name; raise ``UnclearTypeError`` for anything else."""
        if self._next().isidentifier():
            self._position += 1
        if self._next():
            raise UnclearTypeError(self._next())

    def _qualifiers(self) -> bool:
        is_const = False
        while word := self._take(*_QUALIFIERS):
            is_const |= word == "const"
        return is_const

    def _base_type(self) -> _Type:
        fundamental = []
        while word := self._take(*_FUNDAMENTAL):
            fundamental.append(word)
        if fundamental:
            return _Type(" ".join(fundamental))
        parts = self._qualified_name()
        alias = self._aliases.get(parts[0]) if len(parts) == 1 else None
        is_macro = alias is None and len(parts) == 1 and is_macro_name(parts[0])
        if next(self._names, None) is None or is_macro:
            raise UnclearTypeError(parts[0])
        if alias is not None:
            return _Parser(alias, self._aliases, self._names).type()
        while len(parts) > 1 and parts[0] in _NAMESPACES:
            del parts[0]
        name = "::".join(parts)
        return _Type(_ALIASES_IN_TORCH.get(name, name))

    def _qualified_name(self) -> list[str]:
        """Parse a qualified name, including template arguments."""
        parts = []
        self._take("::")
        while True:
            name = self._next()
            if not name.isidentifier():
                raise UnclearTypeError(name or "nothing")
            self._position += 1
            parts.append(name + (self._arguments() if self._next() == "<" else ""))
            if not self._take("::"):
                return parts

    def _arguments(self) -> str:
        arguments = []
        while self._take("<", ","):
            if self._next()[:1].isdigit():
                arguments.append(self._next().rstrip("uUlL"))
                self._position += 1
            else:
                arguments.append(str(self.type()))
        if not self._take(">"):
            raise UnclearTypeError(self._next() or "nothing")
        return f"<{','.join(arguments)}>"
