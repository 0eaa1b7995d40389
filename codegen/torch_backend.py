"""``python -m codegen torch``: from schemas and allowlist to the generated files."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.aten import Schemas, overload_of
from codegen.model import Library, Operator, Overload, Skipped, SkipReason
from codegen.names import class_name, public_name


def make_library(schemas: Schemas, names: Sequence[str]) -> Library:
    """Builds the model of all overloads of the ATen base names ``names``."""
    skipped: list[Skipped] = []
    operators = []
    for name in names:
        overloads: list[Overload] = []
        for function in schemas.by_name[name]:
            overload = overload_of(function)
            if isinstance(overload, SkipReason):
                overload_name = function.func.name.overload_name
                skipped.append(
                    Skipped(aten_name=name, overload_name=overload_name, reason=overload)
                )
            else:
                overloads.append(overload)
        if overloads:
            inplace = schemas.by_name[name][0].func.name.name.inplace
            public = public_name(name, inplace=inplace)
            operators.append(
                Operator(name=public, class_name=class_name(public), overloads=tuple(overloads))
            )
    return Library(
        torch_version=schemas.torch_version,
        operators=tuple(sorted(operators, key=lambda operator: operator.name)),
        skipped=tuple(skipped),
    )
