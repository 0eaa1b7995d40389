"""Finds the operators that a person names."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from codegen.aten import Function, NativeFunctions, describe_functions
from codegen.devices import platforms
from codegen.errors import GenerationError, suggestion
from codegen.inspection.surroundings import Place, Surroundings, TestOutcome
from codegen.model import Base, Choice, Declaration, Omission, Schemas, class_name
from codegen.questions import Question, Removal, find_removal, parse_question, spellings
from codegen.selection import unknown_operator
from codegen.slots import Slot
from codegen.translate import make_library


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
                is_cuda = each.source.suffix == ".cu"
                place += self.surroundings.cuda_platforms if is_cuda else [each.device]
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
    atens = surroundings.functions.overloads.keys()
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
    public = {name: aten_name for aten_name, name in schemas.public_names.items()}
    classes = {class_name(name): name for name in public}
    if question.overload is not None:
        names = [question.full_name]
        names += [f"{public[question.name]}.{question.overload}"] if question.name in public else []
        return set(names) & functions.by_name.keys()
    for spelling in (
        *spellings(question.name, functions.overloads),
        classes.get(question.name, ""),
    ):
        atens = (spelling, public.get(spelling, ""))
        if names := [name for each in atens for name in functions.overloads.get(each, ())]:
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
