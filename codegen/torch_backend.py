"""The model of the PyTorch backend: from schemas and what was chosen of them to a library."""

from __future__ import annotations

import keyword
from collections.abc import Mapping

from codegen.aten import Schemas
from codegen.model import Declaration, Library, Operator, Overload, Skipped, SkipReason
from codegen.names import (
    RESERVED_CLASS_NAMES,
    RESERVED_NAMES,
    class_name,
    is_identifier,
    public_name,
)
from codegen.selection import Choice
from codegen.translate import overload_of


def public_names(schemas: Schemas) -> Mapping[str, str]:
    """The public name of each ATen base name."""
    return {
        name: public_name(name, inplace=declarations[0].is_inplace)
        for name, declarations in schemas.by_name.items()
    }


def make_library(schemas: Schemas, choice: Choice | None = None) -> Library:
    """Builds the model of what is chosen, all by default; the rest is in ``skipped``."""
    choice = choice or Choice()
    public = public_names(schemas)
    taken = set(RESERVED_NAMES | RESERVED_CLASS_NAMES)
    operators = []
    skipped = [
        Skipped(aten_name=name, overload_name="", reason=SkipReason.NOT_IN_TORCH)
        for name in choice.missing
    ]
    # In the order of native_functions.yaml: what a fork adds at its end replaces no name.
    for aten_name, declarations in schemas.by_name.items():
        name = public[aten_name]
        reason = choice.reasons.get(aten_name)
        overloads = []
        for declaration in declarations:
            overload = reason or _overload_named(name, declaration, taken)
            if isinstance(overload, SkipReason):
                skipped.append(_skip(declaration, overload))
            else:
                overloads.append(overload)
        if overloads:
            taken |= {name, class_name(name)}
            operators.append(
                Operator(name=name, class_name=class_name(name), overloads=tuple(overloads))
            )
    return Library(
        torch_version=schemas.torch_version,
        operators=tuple(sorted(operators, key=lambda operator: operator.name)),
        skipped=tuple(sorted(skipped, key=lambda skip: skip.aten_name)),
    )


def _overload_named(name: str, declaration: Declaration, taken: set[str]) -> Overload | SkipReason:
    if not is_identifier(name) or keyword.iskeyword(name):
        return SkipReason.BAD_NAME
    if name in taken or class_name(name) in taken:
        return SkipReason.NAME_TAKEN
    return overload_of(declaration)


def _skip(declaration: Declaration, reason: SkipReason) -> Skipped:
    schema = declaration.schema
    return Skipped(aten_name=schema.aten_name, overload_name=schema.overload_name, reason=reason)
