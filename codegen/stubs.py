"""Formats the model as Python signatures, for type checkers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from codegen.model import Operator, Overload, Parameter, ParameterKind


def annotation(parameter: Parameter) -> str:
    """The Python type of a parameter: ``_Int | _Ints | None`` for ``int[2]?``."""
    # An alias defined in templates/__init__.pyi.j2. The built-in name could be hidden by an
    # operator of the same name, such as `complex`.
    name = f"_{parameter.kind.value}"
    alternatives = [name]
    if parameter.is_list:
        alternatives = ["_OptionalTensors" if parameter.has_optional_elements else f"{name}s"]
        if parameter.kind is ParameterKind.INT and parameter.list_size:
            # A single value for a list of fixed size applies to all elements.
            alternatives.insert(0, name)
    return " | ".join(alternatives + ["None"] * parameter.is_optional)


def default_value(parameter: Parameter) -> str:
    """The schema's default in Python. An enumerator has no literal and becomes "..."."""
    if parameter.kind is ParameterKind.MEMORY_FORMAT and parameter.default is not None:
        return "..."
    return repr(parameter.default)


@dataclass(frozen=True, kw_only=True)
class Signature:
    """One way to call an overload; ``optional`` lists the parameters that a call may omit."""

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
        """True if this signature accepts every call that ``other`` accepts."""
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

    A signature that earlier ones cover completely is left out, because type checkers reject it.
    """
    kept: list[Signature] = []
    for signature in chain.from_iterable(map(_signatures_of, operator.overloads)):
        if not any(earlier.covers(signature) for earlier in kept):
            kept.append(signature)
    return kept


def _signatures_of(overload: Overload) -> list[Signature]:
    """One signature for each number of defaulted inputs before the outs, fewest first.

    The remaining inputs are keyword-only, and so are outs with a default. If there are no others,
    Python's own defaults are used.
    """
    inputs = overload.inputs
    outs = tuple(each for each in overload.outs if each.aten_default is None)
    by_name = tuple(each for each in overload.outs if each.aten_default is not None)
    required = len(inputs) - overload.default_count
    most = len(overload.positional_inputs)
    fewest = min(required, most) if outs else most
    return [
        Signature(
            positional=inputs[:given] + outs,
            keyword_only=inputs[given:] + by_name,
            optional=frozenset(
                each.name
                for each in (*inputs[max(given, required) if outs else required :], *by_name)
            ),
        )
        for given in range(fewest, most + 1)
    ]
