"""``python -m codegen inspect``: shows how the generator handles torch's operators, and why."""

from __future__ import annotations

import fnmatch
import functools
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from codegen.aten import Function, NativeFunctions, describe_functions
from codegen.devices import platforms
from codegen.errors import GenerationError, counted, suggestion
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
from codegen.native import Implementation
from codegen.questions import Question, Removal, find_removal, parse_question, spellings
from codegen.selection import unknown_operator
from codegen.slots import Slot
from codegen.translate import kind_of, make_library

SCHEMA_VERSION = 1
CUDA_PLATFORMS = ("nvidia", "iluvatar", "metax", "moore")  # those of src/cmake/Cuda.cmake
# What composite functions called when the samples of OpInfo ran on the CPU, in
# `python -m tools.composites`.
COMPOSITES = Path(__file__).with_name("composites.json")


@dataclass(frozen=True, kw_only=True)
class TestOutcome:
    """The recorded outcomes of the tests of one overload, or of one hand-written operator."""

    platform: str
    simulated: bool
    slot: int
    overload: str  # ATen's full name, or the public name of a hand-written operator
    outcomes: Mapping[str, tuple[str, ...]]  # dtypes by outcome: passed, or a skip reason


@dataclass(frozen=True, kw_only=True)
class Place:
    """Implementations of an operator in one slot; ``source`` is None for generated ones."""

    slot: int
    devices: tuple[str, ...]  # platforms
    source: str | None


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What is known of operators beside their schemas. None: unknown outside of a checkout."""

    functions: NativeFunctions
    implementations: Sequence[Implementation] | None = None
    contracts: Sequence[TestOutcome] | None = None


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The operators that match a pattern, and for each overload why it is not generated, if so."""

    torch_version: str
    pattern: str
    # A name can occur twice, if a fork has two ATen names for it.
    operators: Sequence[tuple[str, Sequence[tuple[Declaration, Omission | None]]]]
    functions: Sequence[Function] = ()  # those that are not out= and not in-place
    hand_written: Sequence[tuple[str, Base]] = ()  # operators that torch has not
    removed: tuple[str, Removal] | None = None
    surroundings: Surroundings | None = None

    def places(self, name: str, *, is_generated: bool) -> Sequence[Place] | None:
        """The slots of an operator, in order; None if they are not known."""
        if self.surroundings is None or self.surroundings.implementations is None:
            return None
        devices: dict[tuple[int, str | None], list[str]] = {}
        for each in self.surroundings.implementations:
            if each.name == name:
                place = devices.setdefault((each.slot, each.source.as_posix()), [])
                place += CUDA_PLATFORMS if each.source.suffix == ".cu" else [each.device]
        if is_generated:
            devices[Slot.TORCH, None] = [each.name for each in platforms()]
        return [
            Place(slot=slot, devices=tuple(names), source=source)
            for (slot, source), names in sorted(devices.items(), key=lambda place: place[0][0])
        ]

    @functools.cached_property
    def _tests_by_overload(self) -> Mapping[str, Sequence[TestOutcome]]:
        found: dict[str, list[TestOutcome]] = {}
        for each in (self.surroundings and self.surroundings.contracts) or ():
            found.setdefault(each.overload, []).append(each)
        return found

    def tests(self, name: str, overloads: Collection[str]) -> Sequence[TestOutcome] | None:
        """The recorded outcomes of an operator; None if they are not known."""
        if self.surroundings is None or self.surroundings.contracts is None:
            return None
        return [
            each
            for overload in sorted({name, *overloads})
            for each in self._tests_by_overload.get(overload, ())
            if each.overload in (overloads if each.slot == Slot.TORCH else (name,))
        ]


def read_contracts(folders: Iterable[Path]) -> list[TestOutcome]:
    """Read the outcomes of operators in all contracts; of one platform's, in the first folder."""
    contracts: dict[str, dict[str, Any]] = {}
    for path in [path for folder in folders for path in sorted(folder.glob("*.yaml"))]:
        contract = _read_contract(path)
        contracts.setdefault(contract["platform"], contract)
    return [
        TestOutcome(
            platform=platform,
            simulated=contract.get("simulated", False),
            slot=int(slot.removeprefix("slot ")),
            overload=overload,
            outcomes={
                outcome: tuple(dtype for dtype, each in dtypes.items() if each == outcome)
                for outcome in dict.fromkeys(dtypes.values())
            },
        )
        for platform, contract in contracts.items()
        for slots in contract["operators"].values()
        for slot, overloads in slots.items()
        for overload, dtypes in overloads.items()
    ]


def _read_contract(path: Path) -> dict[str, Any]:
    """Read a contract on top of its base: an outcome for each function, slot, overload, dtype."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    contract: dict[str, Any] = yaml.load(path.read_bytes(), Loader=loader)  # noqa: S506
    classes = contract.get("dtypes") or {}
    base = contract.get("base")
    merged = _read_contract(path.parent / base)["operators"] if base else {}
    for function, slots in contract["operators"].items():
        if slots is None:
            merged.pop(function, None)
        for slot, overloads in (slots or {}).items():
            known = merged.setdefault(function, {}).setdefault(slot, {})
            if overloads is None:
                known.clear()
            for overload, outcomes in (overloads or {}).items():
                if outcomes is None:
                    known.pop(overload, None)
                    continue
                by_outcome = {"passed": outcomes} if isinstance(outcomes, str) else outcomes
                known[overload] = known.get(overload, {}) | {
                    dtype: outcome
                    for outcome, words in by_outcome.items()
                    for word in words.split()
                    for dtype in classes.get(word, word).split()
                }
    return {**contract, "operators": merged}


def inspect(
    schemas: Schemas,
    choice: Choice,
    pattern: str,
    bases: Mapping[str, Base] | None = None,
    surroundings: Surroundings | None = None,
) -> Inspection:
    """Look up ``pattern``; raise ``GenerationError`` if nothing matches.

    Without ``surroundings``, only out= and in-place functions are looked up.
    """
    omissions = {
        (skip.aten_name, skip.overload_name): choice.omitted.get(skip.aten_name)
        or Omission(reason=skip.reason, explanation=skip.reason.value)
        for skip in make_library(schemas, choice, bases).skipped
    }
    public = schemas.public_names
    found = _find(schemas, pattern, bases or {}, surroundings)
    operators = [
        (
            name,
            [
                (declaration, omissions.get((aten_name, declaration.schema.overload_name)))
                for declaration in schemas.by_name[aten_name]
                if declaration.schema.full_name in found.declarations
            ],
        )
        for aten_name, name in sorted(public.items(), key=lambda names: names[1])
        if any(each.schema.full_name in found.declarations for each in schemas.by_name[aten_name])
    ]
    return Inspection(
        torch_version=schemas.torch_version,
        pattern=pattern,
        operators=operators,
        functions=found.functions,
        hand_written=found.hand_written,
        removed=found.removed,
        surroundings=surroundings,
    )


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What a pattern or a question names."""

    declarations: Collection[str]  # full names
    functions: Sequence[Function] = ()
    hand_written: Sequence[tuple[str, Base]] = ()
    removed: tuple[str, Removal] | None = None


def _find(
    schemas: Schemas, pattern: str, bases: Mapping[str, Base], surroundings: Surroundings | None
) -> _Found:
    public = schemas.public_names
    matching = {
        each.schema.full_name
        for aten_name, name in public.items()
        if fnmatch.fnmatchcase(aten_name, pattern) or fnmatch.fnmatchcase(name, pattern)
        for each in schemas.by_name[aten_name]
    }
    if surroundings is None:
        if not matching:
            known = {*public, *public.values()}
            raise GenerationError(unknown_operator("that matches", pattern, schemas, known))
        return _Found(declarations=matching)
    every = surroundings.functions.functions
    atens = {str(each.func.name.name) for each in every}
    own = {name: base for name, base in bases.items() if name not in public.values()}
    if not set(pattern).isdisjoint("*?["):
        names = set(fnmatch.filter(atens - public.keys(), pattern))
        others = describe_functions(
            surroundings.functions, lambda f: str(f.func.name.name) in names
        )
        native = [(name, own[name]) for name in fnmatch.filter(own, pattern)]
        if not (matching or others or native):
            raise GenerationError(unknown_operator("that matches", pattern, schemas, atens))
        return _Found(declarations=matching, functions=others, hand_written=native)

    question = parse_question(pattern)
    removed = None
    wanted = question
    full_names = _full_names(question, schemas, surroundings.functions)
    if not full_names and (
        removed := find_removal(question.full_name, surroundings.functions.by_name)
    ):
        wanted = parse_question(removed.successor)
        full_names = _full_names(wanted, schemas, surroundings.functions)
    described = describe_functions(
        surroundings.functions, lambda function: str(function.func.name) in full_names
    )
    declarations = {each.schema.full_name for each in described if each.writes}
    if question.overload is not None:
        declarations |= {twin for each in described if not each.writes for twin in each.twins}
    native = [(name, base) for name, base in own.items() if wanted.name in (name, class_name(name))]
    if not (described or native):
        known = atens | public.keys() | set(public.values()) | bases.keys()
        raise GenerationError(
            f"torch {schemas.torch_version} and src/base have no operator '{pattern}'"
            f"{suggestion(question.name, known)}"
        )
    return _Found(
        declarations=declarations,
        functions=[each for each in described if not each.writes],
        hand_written=native,
        removed=(question.full_name, removed) if removed else None,
    )


def _full_names(question: Question, schemas: Schemas, functions: NativeFunctions) -> set[str]:
    """The functions of torch that the question names; the first way that names any counts."""
    by_base: dict[str, list[str]] = {}
    for full_name in functions.by_name:
        by_base.setdefault(full_name.partition(".")[0], []).append(full_name)
    public = {name: aten_name for aten_name, name in schemas.public_names.items()}
    classes = {class_name(name): name for name in public}
    if question.overload is not None:
        names = [question.full_name]
        names += [f"{public[question.name]}.{question.overload}"] if question.name in public else []
        return set(names) & functions.by_name.keys()
    for spelling in (*spellings(question.name, by_base), classes.get(question.name, "")):
        names = [*by_base.get(spelling, ()), *by_base.get(public.get(spelling, ""), ())]
        if names:
            return set(names)
    # In C++: `at::_ops::add_out`, or a kernel of `at::native`.
    in_cpp = {full_name for full_name in functions.by_name if _cpp(full_name) == question.name}
    return in_cpp or {
        str(name)
        for index in functions.backend_indices.values()
        for name, metadata in index.index.items()
        if metadata.kernel == question.name
    }


def _cpp(full_name: str) -> str:
    return full_name.replace(".", "_")


def explain_function(function: Function) -> tuple[str, str]:
    """Why a function that is neither out= nor in-place is not generated: a word and a sentence."""
    outs = ", ".join(function.twins)
    if function.is_view:
        hint = f"; these write a copy: {outs}" if outs else ""
        return "view", f"its result is a view of its input, not written into an out{hint}"
    if outs:
        return "functional", f"infini.ops writes into its outs: see {outs}"
    if function.kind in ("mutable", "scratch"):
        return "mutable", "it writes into arguments, but has no out= overload"
    if not any(each.type.base == "Tensor" for each in function.schema.returns):
        return "no tensor", "it returns no tensor that infini.ops could write"
    if not function.is_composite:
        return "no out", "torch has no out= overload of it"
    calls = composite_calls(function)
    if calls is None:
        hint = "native_functions.yaml does not say which: `python -m codegen trace` records them"
        return "composite", f"it has no out= overload and calls other operators; {hint}"
    return "composite", f"it has no out= overload and calls other operators: {', '.join(calls)}"


def composite_calls(function: Function) -> list[str] | None:
    """The operators that a composite function calls, as recorded on the CPU; None if unknown."""
    if not function.is_composite:
        return None
    calls: dict[str, list[str]] = _composites()["calls"]
    return calls.get(function.schema.aten_name)


@functools.cache
def _composites() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(COMPOSITES.read_text(encoding="utf-8"))
    return recorded


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
