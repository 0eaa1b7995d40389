"""``python -m codegen inspect``: shows how the generator handles torch's operators, and why."""

from __future__ import annotations

import fnmatch
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from codegen.errors import GenerationError, counted
from codegen.model import (
    Argument,
    Base,
    Choice,
    Declaration,
    Omission,
    Schemas,
    SkipReason,
    class_name,
    parameter_name,
)
from codegen.selection import unknown_operator
from codegen.translate import kind_of, make_library

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The operators that match a pattern, and for each overload why it is not generated, if so."""

    torch_version: str
    pattern: str
    # A name can occur twice, if a fork has two ATen names for it.
    operators: Sequence[tuple[str, Sequence[tuple[Declaration, Omission | None]]]]


def inspect(
    schemas: Schemas, choice: Choice, pattern: str, bases: Mapping[str, Base] | None = None
) -> Inspection:
    """Look up ``pattern``; raise ``GenerationError`` if nothing matches."""
    omissions = {
        (skip.aten_name, skip.overload_name): choice.omitted.get(skip.aten_name)
        or Omission(reason=skip.reason, explanation=skip.reason.value)
        for skip in make_library(schemas, choice, bases).skipped
    }
    public = schemas.public_names
    operators = [
        (
            name,
            [
                (declaration, omissions.get((aten_name, declaration.schema.overload_name)))
                for declaration in schemas.by_name[aten_name]
            ],
        )
        for aten_name, name in sorted(public.items(), key=lambda names: names[1])
        if fnmatch.fnmatchcase(aten_name, pattern) or fnmatch.fnmatchcase(name, pattern)
    ]
    if not operators:
        known = {*public, *public.values()}
        raise GenerationError(unknown_operator("that matches", pattern, schemas, known))
    return Inspection(torch_version=schemas.torch_version, pattern=pattern, operators=operators)


def render_json(inspection: Inspection) -> str:
    """Render the JSON that ``inspect --help`` describes."""
    fields = {
        "schema_version": SCHEMA_VERSION,
        "torch_version": inspection.torch_version,
        "pattern": inspection.pattern,
        "operators": [
            {
                "name": name,
                "class_name": class_name(name),
                "aten_name": overloads[0][0].schema.aten_name,
                "overloads": [_overload_json(*overload) for overload in overloads],
            }
            for name, overloads in inspection.operators
        ],
    }
    return json.dumps(fields, indent=1) + "\n"


def _overload_json(declaration: Declaration, omission: Omission | None) -> dict[str, object]:
    return {
        "overload_name": declaration.schema.overload_name,
        "schema": str(declaration.schema),
        "line": declaration.line,
        "tags": list(declaration.tags),
        "generated": omission is None,
        "reason": omission and omission.reason.value,
        "explanation": omission and omission.explanation,
        "arguments": [_argument_json(argument) for argument in declaration.schema.arguments],
    }


def _argument_json(argument: Argument) -> dict[str, object]:
    kind = kind_of(argument.type)
    return {
        "name": parameter_name(argument.name),
        "aten_name": argument.name,
        "type": str(argument.type),
        "kind": None if isinstance(kind, SkipReason) else kind.value,
        "list_size": argument.type.list_size,
        "is_optional": argument.type.is_optional,
        "has_optional_elements": argument.type.has_optional_elements,
        "is_out": argument.is_written,
        "keyword_only": argument.keyword_only,
        "default": argument.default,
    }


def render_text(inspection: Inspection, width: int | None = None) -> str:
    """Render text for a terminal; long schemas are wrapped to ``width`` columns."""
    lines: list[str] = []
    for name, overloads in inspection.operators:
        aten_name = overloads[0][0].schema.aten_name
        lines.append(name if name == aten_name else f"{name}, ATen's {aten_name}")
        for overload in overloads:
            lines += _overload_lines(*overload, width)
        lines.append("")
    return "\n".join([*lines, _summary_line(inspection)]) + "\n"


def _overload_lines(
    declaration: Declaration, omission: Omission | None, width: int | None
) -> Iterator[str]:
    schema = declaration.schema
    outcome = f"not generated: {omission.explanation}" if omission else "generated"
    yield f"  {schema.full_name}  [{outcome}]"
    yield from textwrap.wrap(
        str(schema),
        width or sys.maxsize,
        initial_indent="    ",
        subsequent_indent="        ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    rows = [_argument_row(argument) for argument in schema.arguments]
    rows.append(("tags", " ".join(declaration.tags) or "none", "", ""))
    first, second = (max(len(row[column]) for row in rows[:-1]) for column in (0, 1))
    for name, kind, default, role in rows:
        detail = "  ".join(filter(None, (default, role)))
        yield f"      {name:{first}}  {kind:{second}}  {detail}".rstrip()


def _argument_row(argument: Argument) -> tuple[str, str, str, str]:
    """Name, kind, default and role. The kind uses the notation of schemas: ``Int[2]?``."""
    kind = kind_of(argument.type)
    shown = (
        f"{argument.type} ({kind.value})"
        if isinstance(kind, SkipReason)
        else str(argument.type).replace(argument.type.base, kind.value, 1)
    )
    default = "" if argument.default is None else f"= {argument.default}"
    return parameter_name(argument.name), shown, default, "out" if argument.is_written else ""


def _summary_line(inspection: Inspection) -> str:
    outcomes = Counter(
        omission.reason.value if omission else ""
        for _, overloads in inspection.operators
        for _, omission in overloads
    )
    total = sum(outcomes.values())
    generated = outcomes.pop("", 0)
    skips = "".join(f"; {count}: {reason}" for reason, count in outcomes.most_common())
    return (
        f"torch {inspection.torch_version}: {counted(len(inspection.operators), 'operator')}, "
        f"{counted(total, 'overload')}, {generated} generated{skips}"
    )
