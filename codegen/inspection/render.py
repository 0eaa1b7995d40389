"""Writes what was found: JSON for programs, text for a terminal."""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from codegen.aten import Function
from codegen.devices import platforms
from codegen.errors import counted
from codegen.inspection.explanation import composite_calls, explain_function
from codegen.inspection.lookup import Inspection
from codegen.inspection.surroundings import Place, TestOutcome
from codegen.model import Argument, Declaration, Omission, SkipReason, class_name, parameter_name
from codegen.translate import kind_of

SCHEMA_VERSION = 1


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
                **_whereabouts_json(inspection, name, overloads),
            }
            for name, overloads in inspection.operators
        ],
        "functions": [_function_json(function) for function in inspection.functions],
        "hand_written": [
            {
                "name": name,
                "class_name": class_name(name),
                "schema": str(base.overload.schema),
                "arguments": [_argument_json(each) for each in base.overload.schema.arguments],
                **_whereabouts_json(inspection, name, ()),
            }
            for name, base in inspection.hand_written
        ],
        "removed": None
        if inspection.removed is None
        else {
            "name": inspection.removed[0],
            "successor": inspection.removed[1].successor,
            "source": inspection.removed[1].source,
        },
    }
    return json.dumps(fields, indent=1) + "\n"


_Overloads = Sequence[tuple[Declaration, Omission | None]]


def _whereabouts(
    inspection: Inspection, name: str, overloads: _Overloads
) -> tuple[Sequence[Place] | None, Sequence[TestOutcome] | None]:
    is_generated = any(omission is None for _, omission in overloads)
    full_names = {declaration.schema.full_name for declaration, _ in overloads}
    return (
        inspection.places(name, is_generated=is_generated),
        inspection.tests(name, full_names),
    )


def _whereabouts_json(
    inspection: Inspection, name: str, overloads: _Overloads
) -> dict[str, object]:
    places, tests = _whereabouts(inspection, name, overloads)
    return {
        "slots": None if places is None else [asdict(place) for place in places],
        "tests": None if tests is None else [asdict(test) for test in tests],
    }


def _function_json(function: Function) -> dict[str, object]:
    reason, explanation = explain_function(function)
    return {
        "name": function.schema.full_name,
        "schema": str(function.schema),
        "line": function.line,
        "tags": list(function.tags),
        "kind": function.kind,
        "is_view": function.is_view,
        "is_composite": function.is_composite,
        "kernels": dict(function.kernels),
        "calls": composite_calls(function),
        "see": list(function.twins),
        "reason": reason,
        "explanation": explanation,
    }


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
    if inspection.removed:
        name, removal = inspection.removed
        lines += [f"{name}  [removed from torch; use {removal.successor}: {removal.source}]", ""]
    for name, base in inspection.hand_written:
        lines.append(f"{name}  [hand-written: src/base/{Path(base.where).name}]")
        lines += _wrapped(str(base.overload.schema), width)
        lines += [*_whereabouts_lines(inspection, name, (), width), ""]
    for name, overloads in inspection.operators:
        aten_name = overloads[0][0].schema.aten_name
        lines.append(name if name == aten_name else f"{name}, ATen's {aten_name}")
        for overload in overloads:
            lines += _overload_lines(*overload, width)
        lines += [*_whereabouts_lines(inspection, name, overloads, width), ""]
    for function in inspection.functions:
        lines += [*_function_lines(function, width), ""]
    return "\n".join([*lines, _summary_line(inspection)]) + "\n"


def _wrapped(text: str, width: int | None, indent: str = "    ") -> list[str]:
    return textwrap.wrap(
        text,
        width or sys.maxsize,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _function_lines(function: Function, width: int | None) -> Iterator[str]:
    reason, explanation = explain_function(function)
    kind = reason if reason in ("view", "composite") else function.kind
    if function.is_composite and kind == "functional":
        kind = "functional, composite"
    title = f"{function.schema.full_name}  [{kind}; not generated: {explanation}]"
    yield from _wrapped(title, width, "")
    yield from _wrapped(str(function.schema), width)
    for key, kernel in function.kernels.items():
        if key in ("CPU", "CUDA") or key.startswith("Composite"):
            yield f"      {key}  {kernel}"


def _whereabouts_lines(
    inspection: Inspection, name: str, overloads: _Overloads, width: int | None
) -> Iterator[str]:
    """Slots and test outcomes; platforms of one outcome share a line."""
    if inspection.surroundings is None:
        return
    places, tests = _whereabouts(inspection, name, overloads)
    every = tuple(each.name for each in platforms())
    for place in places or ():
        devices = "every platform" if place.devices == every else ", ".join(place.devices)
        yield from _wrapped(
            f"slot {place.slot}: {devices} ({place.source or 'generated'})", width, "  "
        )
    grouped: dict[str, list[str]] = {}
    for each in tests or ():
        outcome = "; ".join(f"{key}: {' '.join(dtypes)}" for key, dtypes in each.outcomes.items())
        simulated = " (simulated)" if each.simulated else ""
        title = f"tests of {each.overload}, slot {each.slot}, on "
        grouped.setdefault(f"{title}\n: {outcome}", []).append(f"{each.platform}{simulated}")
    for text, names in grouped.items():
        yield from _wrapped(text.replace("\n", ", ".join(names)), width, "  ")
    if places is None or tests is None:
        yield "  slots, tests: not known outside of a checkout of the repository"


def _overload_lines(
    declaration: Declaration, omission: Omission | None, width: int | None
) -> Iterator[str]:
    schema = declaration.schema
    outcome = f"not generated: {omission.explanation}" if omission else "generated"
    yield f"  {schema.full_name}  [{outcome}]"
    yield from _wrapped(str(schema), width)
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
        + "".join(
            f"; {counted(len(others), noun)}"
            for others, noun in (
                (inspection.functions, "other function"),
                (inspection.hand_written, "hand-written operator"),
            )
            if others
        )
    )
