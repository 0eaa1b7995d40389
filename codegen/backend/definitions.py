"""Compares the kernels that a backend declares with the kernels that its C++ files define."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from codegen.aten import NativeFunctions
from codegen.backend.cpp_source import ClassSource, Definition, Invocation, Words, scan, words
from codegen.backend.cpp_types import UnclearTypeError, canonical_type
from codegen.backend.model import MOST_HINTS, BackendFile, Entry
from codegen.backend.registrations import member_name
from codegen.errors import GenerationError, counted, suggestion

_SUFFIXES = frozenset(
    {
        *(".cc", ".cpp", ".cxx", ".c++", ".cu", ".hip", ".mm", ".sycl", ".mu", ".mlu"),
        *(".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl", ".ipp"),
    }
)
_EXPECTED = "expected a C++ file or a folder of C++ files that define the kernels"


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel that the generated header declares."""

    entry: Entry
    name: str  # name of the member function
    returns: str
    parameters: tuple[str, ...]  # their types
    declaration: str  # complete, including the class

    def signature(self) -> tuple[str, ...]:
        return tuple(_canonical_torch_type(each) for each in (self.returns, *self.parameters))


def check_definitions(
    file: BackendFile, functions: NativeFunctions, implementation: Path
) -> tuple[str, ...]:
    """Look for the definitions of all kernels in a C++ file or in a folder of C++ files.

    Returns notes about definitions that could not be checked and definitions without a declaration.
    Raises ``GenerationError`` with all kernels that are missing or have another signature.
    """
    paths = _source_files(implementation)
    sources = [scan(path, _text(path), file.class_name) for path in paths]
    comparison = _Comparison(file, declared_kernels(file, functions), implementation, sources)
    comparison.compare()
    errors, notes = (
        [f"{path}:{line}: {text}" for path, line, text in sorted(found, key=lambda each: each[:2])]
        for found in (comparison.errors, comparison.notes)
    )
    if errors:
        raise GenerationError("\n".join([*errors, *(f"note: {note}" for note in notes)]))
    return tuple(notes)


def _source_files(implementation: Path) -> list[Path]:
    if not implementation.is_dir():
        return [implementation]
    paths = sorted(
        Path(folder) / name
        for folder, _, names in os.walk(implementation)
        for name in names
        if Path(name).suffix.lower() in _SUFFIXES
    )
    if not paths:
        raise GenerationError(f"{implementation}: got a folder without C++ files; {_EXPECTED}")
    return paths


def _text(path: Path) -> str:
    try:
        # Comments can be in any encoding.
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise GenerationError(f"{path}: {error.strerror}; {_EXPECTED}") from None


def declared_kernels(file: BackendFile, functions: NativeFunctions) -> list[Kernel]:
    """The kernels that `<Backend>NativeFunctions.h` declares, in file order."""
    from torchgen.api.types import DispatcherSignature
    from torchgen.context import native_function_manager

    kernels = []
    for entry in (*file.supported, *file.autograd):
        function = functions.by_name[entry.name]
        name = member_name(file, function)
        with native_function_manager(function):
            signature = DispatcherSignature.from_schema(
                function.func, symint=entry.name in file.symint
            )
            kernels.append(
                Kernel(
                    entry=entry,
                    name=name,
                    returns=signature.returns_type().cpp_type(),
                    parameters=tuple(argument.type for argument in signature.arguments()),
                    declaration=signature.decl(name=f"{file.class_name}::{name}"),
                )
            )
    return kernels


class _Comparison:
    def __init__(
        self,
        file: BackendFile,
        kernels: Sequence[Kernel],
        implementation: Path,
        sources: Sequence[ClassSource],
    ) -> None:
        self.errors: list[tuple[str, int, str]] = []  # path, line and text
        self.notes: list[tuple[str, int, str]] = []
        self._file = file
        self._implementation = implementation
        self._hints_left = MOST_HINTS
        self._kernels: dict[str, list[Kernel]] = {}
        for kernel in kernels:
            self._kernels.setdefault(kernel.name, []).append(kernel)
        self._aliases: dict[str, Words] = {}
        self._defined: dict[str, list[Definition]] = {}
        self._foreign: dict[str, Definition] = {}  # definitions in another namespace
        macros: dict[str, Words] = {}
        for source in sources:
            self._aliases |= source.aliases
            for definition in source.definitions:
                if self._is_ours(definition):
                    self._defined.setdefault(definition.name, []).append(definition)
                else:
                    self._foreign.setdefault(definition.name, definition)
            for macro, body in source.macros.items():
                macros[macro] = macros.get(macro, ()) + body
        # Invocations of macros that name the class, or whose definition was not found.
        self._invocations: dict[str, Invocation] = {}  # by argument
        self._pasting: list[Invocation] = []  # of macros that build names with ##
        for invocation in (each for source in sources for each in source.invocations):
            text = macros.get(invocation.macro, (file.class_name,))
            if file.class_name in text:
                for argument in invocation.arguments:
                    self._invocations.setdefault(argument, invocation)
                if "#" in text:
                    self._pasting.append(invocation)

    def _is_ours(self, definition: Definition) -> bool:
        """True if the definition can be in our namespace; using-directives make this ambiguous."""
        ours = tuple(self._file.cpp_namespace.split("::"))
        theirs = definition.namespace
        if theirs[-len(ours) :] == ours:  # also ns::Class inside ns
            theirs = theirs[: -len(ours)]
        return theirs in (ours[: len(theirs)], ours[len(ours) - len(theirs) :])

    def compare(self) -> None:
        missing: list[Kernel] = []
        for name, kernels in self._kernels.items():
            settled = self._compare(kernels, self._defined.get(name, []))
            missing += [kernel for kernel in kernels if kernel.entry.name not in settled]
        for kernel in missing:
            self._report_missing(kernel)
        missing_names = {kernel.name for kernel in missing}
        for name, definitions in self._defined.items():
            for definition in definitions if name not in self._kernels else ():
                self._note_undeclared(definition, missing_names)

    def _note(self, place: Definition | Invocation, text: str) -> None:
        self.notes.append((str(place.path), place.line, text))

    def _compare(self, kernels: Sequence[Kernel], definitions: Sequence[Definition]) -> set[str]:
        """Compare the kernels of one name with their definitions; return the settled operators."""
        by_signature = {kernel.signature(): kernel for kernel in kernels}
        settled: set[str] = set()  # operators
        others: list[Definition] = []
        is_clear = True
        for definition in definitions:
            try:
                kernel = by_signature.get(self._signature(definition))
            except UnclearTypeError as error:
                is_clear = False
                self._note(
                    definition,
                    f"{self._name(definition)} is written with '{error}', which can't be parsed; "
                    "its signature is not checked",
                )
                continue
            if kernel is None:
                others.append(definition)
            else:
                settled.add(kernel.entry.name)
        for definition in others:
            unsettled = [kernel for kernel in kernels if kernel.entry.name not in settled]
            if unsettled:
                kernel = min(unsettled, key=lambda each: self._distance(definition, each))
                settled.add(kernel.entry.name)
                differences = ", ".join(self._differences(definition, kernel))
                text = (
                    f"{self._name(definition)} is not the kernel of '{kernel.entry.name}' "
                    f"({self._file.path}:{kernel.entry.line}): {differences}; expected "
                    f"{kernel.declaration}"
                )
                self.errors.append((str(definition.path), definition.line, text))
            elif not definition.is_conditional:  # it may be for another version of torch
                self._note_undeclared(definition, ())
        return settled if is_clear else {kernel.entry.name for kernel in kernels}

    def _signature(self, definition: Definition) -> tuple[str, ...]:
        if not definition.is_clear:
            raise UnclearTypeError("#if")
        spelled = (definition.returns, *definition.parameters)
        return tuple(canonical_type(each, self._aliases) for each in spelled)

    def _distance(self, definition: Definition, kernel: Kernel) -> tuple[int, int]:
        count = abs(len(definition.parameters) - len(kernel.parameters))
        return count, len(self._differences(definition, kernel))

    def _differences(self, definition: Definition, kernel: Kernel) -> list[str]:
        returns, *got = self._signature(definition)
        expected_returns, *expected = kernel.signature()
        differences = []
        if returns != expected_returns:
            differences.append(
                f"it returns '{_format_type(definition.returns)}', expected '{kernel.returns}'"
            )
        if len(got) != len(expected):
            count = counted(len(got), "parameter")
            return [*differences, f"it has {count}, expected {len(expected)}"]
        for index, (one, other) in enumerate(zip(got, expected, strict=True)):
            if one != other:
                differences.append(
                    f"parameter {index + 1} is '{_format_type(definition.parameters[index])}', "
                    f"expected '{kernel.parameters[index]}'"
                )
        return differences

    def _report_missing(self, kernel: Kernel) -> None:
        pasting = (
            each
            for each in self._pasting
            if any(argument in kernel.name for argument in each.arguments)
        )
        operator = kernel.entry.name
        if invocation := self._invocations.get(kernel.name) or next(pasting, None):
            self._note(
                invocation,
                f"the macro {invocation.macro} may define {self._file.class_name}::{kernel.name} "
                f"of '{operator}'; not checked",
            )
        else:
            similar = self._describe_similar(kernel)
            text = (
                f"'{operator}' has no kernel in {self._implementation}{similar}; "
                f"expected {kernel.declaration}"
            )
            self.errors.append((str(self._file.path), kernel.entry.line, text))

    def _describe_similar(self, kernel: Kernel) -> str:
        """Describe a similar definition, for the message about a missing one."""
        if foreign := self._foreign.get(kernel.name):
            return (
                f"; got one in namespace {'::'.join(foreign.namespace)} at "
                f"{foreign.path}:{foreign.line}, expected it in {self._file.cpp_namespace}"
            )
        plain = kernel.name.removesuffix("_symint")
        other = f"{plain}_symint" if plain == kernel.name else plain
        if other in self._defined and other not in self._kernels:
            definition = self._defined[other][0]
            verb = "list" if plain == kernel.name else "do not list"
            return (
                f"; got {other} at {definition.path}:{definition.line}: {verb} "
                f"'{kernel.entry.name}' under symint, or rename it"
            )
        return ""

    def _note_undeclared(self, definition: Definition, missing: Collection[str]) -> None:
        self._hints_left -= 1
        known = missing if self._hints_left >= 0 else ()
        parameters = ", ".join(map(_format_type, definition.parameters))
        self._note(
            definition,
            f"{self._name(definition)}({parameters}) is declared by no entry of "
            f"{self._file.path}{suggestion(definition.name, known)}",
        )

    def _name(self, definition: Definition) -> str:
        return f"{self._file.class_name}::{definition.name}"


@functools.cache
def _canonical_torch_type(spelled: str) -> str:
    return canonical_type(words(spelled), {})


def _format_type(spelled: Words) -> str:
    """Format a C++ type on one line."""
    text = " ".join(spelled)
    text = re.sub(r" ?(::|<|\[|\() ?", r"\1", text)
    return re.sub(r" (>|,|\]|\))", r"\1", text)
