"""Compares the kernels that a backend declares with the kernels that its C++ files define."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from codegen.aten import NativeFunctions
from codegen.backend.cpp_source import ClassSource, Definition, Invocation, Words, scan, words
from codegen.backend.cpp_types import UnclearTypeError, canonical_type
from codegen.backend.model import MOST_HINTS, BackendFile, Entry
from codegen.backend.registrations import member_name
from codegen.errors import GenerationError, counted, suggestion

if TYPE_CHECKING:
    from torchgen.model import NativeFunction

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
    comparison = _Comparison(file, functions, implementation, sources)
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
    return [
        _kernel(file, functions.by_name[entry.name], entry)
        for entry in (*file.supported, *file.autograd)
    ]


def _kernel(file: BackendFile, function: NativeFunction, entry: Entry) -> Kernel:
    from torchgen.api.types import DispatcherSignature
    from torchgen.context import native_function_manager

    name = entry.kernel or member_name(file, function)
    with native_function_manager(function):
        signature = DispatcherSignature.from_schema(function.func, symint=entry.name in file.symint)
        return Kernel(
            entry=entry,
            name=name,
            returns=signature.returns_type().cpp_type(),
            parameters=tuple(argument.type for argument in signature.arguments()),
            declaration=signature.decl(name=f"{file.class_name}::{name}"),
        )


class _Unlisted:
    """The operators that the file does not list, by the names that their kernels would have."""

    def __init__(self, file: BackendFile, functions: NativeFunctions) -> None:
        listed = {entry.name for entry in (*file.supported, *file.autograd)}
        others = [each for each in functions.functions if str(each.func.name) not in listed]
        symint = frozenset(str(each.func.name) for each in others if each.func.has_symint())
        with_symint = replace(file, symint=symint)
        self._functions: dict[str, list[tuple[BackendFile, NativeFunction]]] = {}
        for function in others:
            takes_symint = str(function.func.name) in symint
            for variant in (file, with_symint) if takes_symint else (file,):
                name = member_name(variant, function)
                self._functions.setdefault(name, []).append((variant, function))
        self._kernels: dict[str, list[Kernel]] = {}  # made when needed: all of them take a second

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def operators(self, name: str, signature: tuple[str, ...] | None) -> list[str]:
        """The operators whose kernel has this name and signature; ``None``: any signature."""
        if name not in self._kernels:
            self._kernels[name] = [
                _kernel(file, function, Entry(name=str(function.func.name), line=0))
                for file, function in self._functions.get(name, ())
            ]
        kernels = self._kernels[name]
        return [each.entry.name for each in kernels if signature in (None, each.signature())]


class _Comparison:
    def __init__(
        self,
        file: BackendFile,
        functions: NativeFunctions,
        implementation: Path,
        sources: Sequence[ClassSource],
    ) -> None:
        self.errors: list[tuple[str, int, str]] = []  # path, line and text
        self.notes: list[tuple[str, int, str]] = []
        self._file = file
        self._unlisted = _Unlisted(file, functions)
        self._implementation = implementation
        self._hints_left = MOST_HINTS
        self._kernels: dict[str, list[Kernel]] = {}
        for kernel in declared_kernels(file, functions):
            self._kernels.setdefault(kernel.name, []).append(kernel)
        self._aliases: dict[str, Words] = {}
        self._defined: dict[str, list[Definition]] = {}
        self._foreign: dict[str, list[Definition]] = {}  # definitions in another namespace
        macros: dict[str, Words] = {}
        for source in sources:
            self._aliases |= source.aliases
            for definition in source.definitions:
                if self._is_ours(definition):
                    self._defined.setdefault(definition.name, []).append(definition)
                else:
                    self._foreign.setdefault(definition.name, []).append(definition)
            for macro, body in source.macros.items():
                macros[macro] = macros.get(macro, ()) + body
        # Invocations of macros that name the class, or whose definition was not found.
        self._invocations: dict[str, Invocation] = {}  # by argument
        self._pasting: list[Invocation] = []  # of macros that build names with ##
        self._defining: list[Invocation] = []  # of macros that certainly name the class
        for invocation in (each for source in sources for each in source.invocations):
            text = macros.get(invocation.macro, (file.class_name,))
            if file.class_name in text:
                for argument in invocation.arguments:
                    self._invocations.setdefault(argument, invocation)
                if "#" in text:
                    self._pasting.append(invocation)
                elif invocation.macro in macros:
                    self._defining.append(invocation)

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
        self._report_undeclared({kernel.name for kernel in missing})

    def _report_undeclared(self, missing: Collection[str]) -> None:
        """Report the definitions of kernels that no entry of the file declares."""
        for name, definitions in self._defined.items():
            for definition in definitions if name not in self._kernels else ():
                self._note_undeclared(definition, missing)
        for name, definitions in self._foreign.items():
            is_unlisted = name not in self._kernels and name in self._unlisted
            for definition in definitions if is_unlisted else ():
                self._note_undeclared(definition, ())
        for invocation in self._defining:
            names = sorted(filter(self._unlisted.__contains__, invocation.arguments))
            if names and self._kernels.keys().isdisjoint(invocation.arguments):
                operators = [
                    each for name in names for each in self._unlisted.operators(name, None)
                ]
                self._note(
                    invocation,
                    f"the macro {invocation.macro} may define {self._file.class_name}::{names[0]}, "
                    f"which is declared by no entry of {self._file.path}; {_list(operators)}",
                )

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
            elif not definition.is_conditional or self._unlisted_operators(definition):
                # A conditional one of no operator may be for another version of torch.
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
        if kernel.name in self._foreign:
            foreign = self._foreign[kernel.name][0]
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
        """Note a definition without a declaration; ``missing`` are names that it may misspell."""
        operators = self._unlisted_operators(definition)
        operators = operators or self._unlisted.operators(definition.name, None)
        self._hints_left -= not operators
        known = missing if not operators and self._hints_left >= 0 else ()
        remedy = f"; {_list(operators)}" if operators else suggestion(definition.name, known)
        ours = self._is_ours(definition)
        namespace = "" if ours else "".join(f"{each}::" for each in definition.namespace)
        parameters = ", ".join(map(_format_type, definition.parameters))
        self._note(
            definition,
            f"{namespace}{self._name(definition)}({parameters}) is declared by no entry of "
            f"{self._file.path}{remedy or '; correct its name and types, or remove it'}",
        )

    def _unlisted_operators(self, definition: Definition) -> list[str]:
        """The operators outside of the file that the definition is exactly the kernel of."""
        try:
            return self._unlisted.operators(definition.name, self._signature(definition))
        except UnclearTypeError:
            return []

    def _name(self, definition: Definition) -> str:
        return f"{self._file.class_name}::{definition.name}"


def _list(operators: Sequence[str]) -> str:
    """The remedy for a kernel that the file does not list."""
    *others, last = (f"'{name}'" for name in operators)
    one = f"{', '.join(others)} or {last}" if others else last
    return f"list {one} under supported, or remove it"


@functools.cache
def _canonical_torch_type(spelled: str) -> str:
    return canonical_type(words(spelled), {})


def _format_type(spelled: Words) -> str:
    """Format a C++ type on one line."""
    text = " ".join(spelled)
    text = re.sub(r" ?(::|<|\[|\() ?", r"\1", text)
    return re.sub(r" (>|,|\]|\))", r"\1", text)
