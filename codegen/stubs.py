"""Spells the model as Python signatures, for type checkers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from codegen.model import Operator, Overload, Parameter, ParameterKind


def annotation(parameter: Parameter) -> str:
    """The type that a call from Python takes: ``_Int | _Ints | None`` for ``int[2]?``."""
    # An alias of templates/__init__.pyi.j2. Not the built-in name: an operator may have that, as
    # `complex` does, which stands for itself from then on.
    name = f"_{parameter.kind.value}"
    alternatives = [name]
    if parameter.is_list:
        alternatives = ["_OptionalTensors" if parameter.has_optional_elements else f"{name}s"]
        if parameter.kind is ParameterKind.INT and parameter.list_size:
            # One value for a list of fixed size stands for all of them.
            alternatives.insert(0, name)
    return " | ".join(alternatives + ["None"] * parameter.is_optional)


def default_value(parameter: Parameter) -> str:
    """The schema's default in Python; "..." for an enumerator, which has no literal."""
    if parameter.kind is ParameterKind.MEMORY_FORMAT and parameter.default is not None:
        return "..."
    return repr(parameter.default)


@dataclass(frozen=True, kw_only=True)
class Signature:
    """One way to call an overload; ``optional`` names those that may be left out."""

    positional: tuple[Parameter, ...]
    keyword_only: tuple[Parameter, ...]
    optional: frozenset[str]

    def __str__(self) -> str:
        positional = map(self._declaration, self.positional)
        keyword_only = map(self._declaration, self.keyword_only)
        options = ("implementation_index: _Int | None = None", "stream: _Int | None = 0")
        return ", ".join((*positional, "*", *keyword_only, *options))

    def _declaration(self, parameter: Parameter) -> str:
        text = f"{parameter.name}: {annotation(parameter)}"
        return f"{text} = {default_value(parameter)}" if parameter.name in self.optional else text

    def covers(self, other: Signature) -> bool:
        """True when every call that ``other`` takes is one that this takes."""
        places = [parameter.name for parameter in self.positional[: len(other.positional)]]
        if places != [parameter.name for parameter in other.positional]:
            return False
        mine, theirs = self._annotations(), other._annotations()
        required = mine.keys() - self.optional
        return theirs.items() <= mine.items() and required <= theirs.keys() - other.optional

    def _annotations(self) -> dict[str, str]:
        return {p.name: annotation(p) for p in self.positional + self.keyword_only}


def signatures(operator: Operator) -> list[Signature]:
    """All ways to call an operator, in the order in which a call tries its overloads.

    One that earlier ones leave no call for is left out: type checkers complain about it.
    """
    kept: list[Signature] = []
    for signature in chain.from_iterable(map(_signatures_of, operator.overloads)):
        if not any(earlier.covers(signature) for earlier in kept):
            kept.append(signature)
    return kept


def _signatures_of(overload: Overload) -> list[Signature]:
    """Every number of inputs with defaults that can stand before the outs, fewest first.

    The other ones go by keyword. Without outs after them, defaults are Python's own.
    """
    inputs, outs = overload.inputs, overload.outs
    required = len(inputs) - overload.default_count
    if not outs:
        names = frozenset(each.name for each in inputs[required:])
        return [Signature(positional=inputs, keyword_only=(), optional=names)]
    return [
        Signature(
            positional=inputs[:given] + outs,
            keyword_only=inputs[given:],
            optional=frozenset(each.name for each in inputs[given:]),
        )
        for given in range(required, len(inputs) + 1)
    ]
