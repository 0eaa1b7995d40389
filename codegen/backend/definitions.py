"""Compares the kernels that a backend declares with the kernels that its C++ files define."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from codegen.aten import NativeFunctions
from codegen.backend.compiler import Compiled, Compiler, Header, Problem, compile_sources
from codegen.backend.cpp_source import ClassSource, Definition, Invocation, Words, scan, words
from codegen.backend.kernels import (
    WRONG,
    Kernel,
    Unlisted,
    declared_kernels,
    differences_of,
    distance,
    format_type,
    unclear_word,
)
from codegen.backend.model import MOST_HINTS, BackendFile
from codegen.errors import GenerationError, suggestion

if TYPE_CHECKING:
    pass

_COMPILED = frozenset({".cc", ".cpp", ".cxx", ".c++"})
_HEADERS = frozenset({".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl", ".ipp"})
_SUFFIXES = _COMPILED | _HEADERS | {".cu", ".hip", ".mm", ".sycl", ".mu", ".mlu"}
# What the compiler reports of a definition in a macro, at a place where no definition is found.
_OF_A_DEFINITION = re.compile(r"no declaration matches|redefinition of|out-of-line definition of")
_EXPECTED = "expected a C++ file or a folder of C++ files that define the kernels"


def check_definitions(
    file: BackendFile,
    functions: NativeFunctions,
    implementation: Path,
    compiler: Compiler | str,
    *,
    header: str = "",
    cache: dict[str, object] | None = None,
) -> tuple[str, ...]:
    """Look for the definitions of all kernels in a C++ file or in a folder of C++ files.

    The compiler judges them, with the text of the generated ``header``. Text alone judges what it
    can't compile, or everything if ``compiler`` is the reason why there is none. ``cache`` has
    earlier results, and gets those of the files that changed.

    Returns notes about definitions that could not be checked and definitions without a declaration.
    Raises ``GenerationError`` with all kernels that are missing or have another signature.
    """
    class_name = file.class_name.rpartition("::")[2]
    sources = [scan(path, _text(path), class_name) for path in _source_files(implementation)]
    comparison = _Comparison(file, functions, implementation, sources)
    if isinstance(compiler, str):
        comparison.note_uncompared(implementation, 1, compiler)
    else:
        comparison.compile(compiler, header, {} if cache is None else cache)
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
        self._class = file.class_name.rpartition("::")[2]
        self._unlisted = Unlisted(file, functions)
        self._implementation = implementation
        self._sources = sources
        self._hints_left = MOST_HINTS
        self._kernels: dict[str, list[Kernel]] = {}
        for kernel in declared_kernels(file, functions):
            self._kernels.setdefault(kernel.name, []).append(kernel)
        self._settled: set[str] = set()  # declarations of kernels
        self._namespaces = {name for source in sources for name in source.namespaces}
        self._defined: dict[str, list[Definition]] = {}
        self._foreign: dict[str, list[Definition]] = {}  # definitions in another namespace
        for definition in (each for source in sources for each in source.definitions):
            found = self._defined if self._is_ours(definition) else self._foreign
            found.setdefault(definition.name, []).append(definition)
        self._paths = {str(source.path.resolve()): source.path for source in sources}
        self._by_path: dict[str, list[Definition]] = {
            str(source.path.resolve()): source.definitions for source in sources
        }
        self._macros: dict[str, Words] = {}
        for macro, body in (each for source in sources for each in source.macros.items()):
            self._macros[macro] = self._macros.get(macro, ()) + body
        self._names = {
            each.declaration: each.name for same in self._kernels.values() for each in same
        }
        self._judged: set[Definition] = set()  # by the compiler
        self._refused: set[Definition] = set()  # of these, the ones with an error
        self._uncompared = {source.path for source in sources}  # where text alone decides

    def _is_ours(self, definition: Definition) -> bool:
        """True if the definition can be in our namespace; using-directives make this ambiguous."""
        ours = tuple(self._file.cpp_namespace.split("::"))
        theirs = definition.namespace
        if theirs[-len(ours) :] == ours:  # also ns::Class inside ns
            theirs = theirs[: -len(ours)]
        is_inside = theirs in (ours[: len(theirs)], ours[len(ours) - len(theirs) :])
        return is_inside or not self._namespaces.isdisjoint(theirs)

    def _note(self, place: Definition | Invocation, text: str) -> None:
        self.notes.append((str(place.path), place.line, text))

    def _error(self, place: Definition, text: str) -> None:
        self.errors.append((str(place.path), place.line, text))

    def note_uncompared(self, path: Path | str, line: int, reason: str) -> None:
        self.notes.append((str(path), line, f"not compared by the compiler: {reason}"))

    # What the compiler reports

    def compile(self, compiler: Compiler, text: str, cache: dict[str, object]) -> None:
        """Compile the files that can define kernels, and settle what the compiler has seen."""
        declared = {each.declaration: each for same in self._kernels.values() for each in same}
        header = Header(
            name=f"{self._file.backend}NativeFunctions.h",
            text=text,
            namespace=self._file.cpp_namespace,
            declarations=tuple(declared),
        )
        units = [each for each in self._sources if self._is_compiled(each.path)]
        named = [each for each in units if each.definitions or self._class in each.text]
        compiled = compile_sources(compiler, header, [each.path for each in named], cache)
        seen = {each for result in compiled.values() for each in result.defined}
        if absent := {each.name for each in declared.values() if each.declaration not in seen}:
            # Macros and aliases of a header can define kernels where the class is not named.
            others = [
                each.path
                for each in units
                if each.path not in compiled
                and (each.invocations or not absent.isdisjoint(words(each.text)))
            ]
            compiled |= compile_sources(compiler, header, others, cache)
        self._uncompared = {
            each.path
            for each in self._sources
            if each.path.suffix.lower() not in _HEADERS and not self._is_compiled(each.path)
        }
        self._accept(compiled, declared)
        self._refuse(compiled)
        if self._uncompared:  # they can include any header
            headers = (each.path for each in self._sources if each.path not in compiled)
            self._uncompared |= {path for path in headers if path.suffix.lower() in _HEADERS}

    def _is_compiled(self, path: Path) -> bool:
        return path == self._implementation or path.suffix.lower() in _COMPILED

    def _accept(self, compiled: Mapping[Path, Compiled], declared: Mapping[str, Kernel]) -> None:
        """Settle the kernels that are defined; each must be in one file, and not inline."""
        found: dict[str, dict[Path, tuple[str, int]]] = {}  # places by declaration and unit
        for unit, result in compiled.items():
            for declaration, place in result.defined.items():
                found.setdefault(declaration, {})[unit] = place
        for declaration, places in found.items():
            kernel = declared[declaration]
            self._settled.add(declaration)
            *others, (path, line) = sorted(places.values())
            definition = self._definition_at(path, line)
            at_all = (self._definition_at(*place) for place in places.values())
            self._judged |= {each for each in at_all if each}
            wrong = [WRONG[word] for word in WRONG if definition and word in definition.head]
            if others and not wrong:
                units = ", ".join(map(str, places))
                wrong.append(f"it is defined in several files: {units}; remove all but one")
            if wrong and definition:
                self._refused.add(definition)
            for text in wrong[:1]:
                self.errors.append((self._shown(path), line, f"{self._of(kernel)}: {text}"))

    def _refuse(self, compiled: Mapping[Path, Compiled]) -> None:
        """Translate the errors in definitions; others leave their file to the text."""
        for unit, result in compiled.items():
            places = {self._names[each]: place for each, place in result.defined.items()}
            outside = [each for each in result.problems if not self._translate(each, places)]
            for problem in outside[:1]:
                self._uncompared.add(unit)
                reason = f"{problem.text}. CPPFLAGS and CXXFLAGS can add options for the compiler"
                self.note_uncompared(self._shown(problem.path), problem.line, reason)

    def _translate(self, problem: Problem, places: Mapping[str, tuple[str, int]]) -> bool:
        """Report a problem in a definition; False if it is somewhere else."""
        definition = self._definition_at(problem.path, problem.line, problem.column)
        if definition is None:
            name = re.search(rf"\b{self._class}::(\w+)|of '(\w+)'", problem.text)
            if not _OF_A_DEFINITION.match(problem.text) or not name:
                return False
            text = f"{self._class}::{name[1] or name[2]}: the compiler reports: {problem.text}"
            error = (self._shown(problem.path), problem.line, text)
            self.errors += [] if error in self.errors else [error]  # of a header in two units
            return True
        is_new = definition not in self._refused
        self._judged.add(definition)
        self._refused.add(definition)
        if not is_new or not self._is_ours(definition):
            return True
        kernels = self._kernels.get(definition.name, [])
        if not kernels:
            self._error(definition, self._undeclared(definition, ()))
        elif "redefinition" in problem.text:
            path, line = places.get(definition.name, (problem.path, problem.line))
            other = f"; the other definition is at {self._shown(path)}:{line}"
            self._error(definition, f"{self._name(definition)} is defined twice{other}")
        else:
            unsettled = [each for each in kernels if each.declaration not in self._settled]
            kernel = min(unsettled or kernels, key=lambda each: distance(definition, each))
            self._settled.add(kernel.declaration)
            differences = differences_of(definition, kernel)
            self._error_of(
                definition, kernel, differences or [f"the compiler reports: {problem.text}"]
            )
        return True

    def _definition_at(self, path: str, line: int, column: int = 0) -> Definition | None:
        """The definition before whose body this place is."""
        for each in self._by_path.get(path, ()):
            if each.start <= (line, column or each.body[1]) <= each.body:
                return each
            if not column and each.line == line:
                return each
        return None

    def _shown(self, path: str) -> str:
        """The path as the user wrote it."""
        return str(self._paths.get(path, path))

    # What the text shows

    def compare(self) -> None:
        missing: list[Kernel] = []
        for name, kernels in self._kernels.items():
            self._compare(kernels, self._defined.get(name, []))
            missing += [each for each in kernels if each.declaration not in self._settled]
        for kernel in missing:
            self._report_missing(kernel)
        names = {kernel.name for kernel in missing}
        for name, definitions in self._defined.items():
            for definition in definitions if name not in self._kernels else ():
                if definition not in self._judged:
                    self._note(definition, self._undeclared(definition, names))
        for name, definitions in self._foreign.items():
            is_unlisted = name not in self._kernels and name in self._unlisted
            for definition in definitions if is_unlisted else ():
                self._note(definition, self._undeclared(definition, ()))

    def _compare(self, kernels: Sequence[Kernel], definitions: Sequence[Definition]) -> None:
        """Compare the kernels of one name with their definitions."""
        others: list[Definition] = []
        is_clear = True
        first: dict[str, Definition] = {}
        for definition in definitions:
            nearest = min(kernels, key=lambda each: distance(definition, each))
            if definition in self._judged:
                continue
            if definition.path not in self._uncompared or differences_of(definition, nearest):
                unclear = definition.path in self._uncompared and unclear_word(definition, nearest)
                if unclear:
                    is_clear = False
                    reason = f"{self._name(definition)} is written with '{unclear}'"
                    self.note_uncompared(definition.path, definition.line, reason)
                else:
                    others.append(definition)
                continue
            self._settled.add(nearest.declaration)
            other = first.setdefault(nearest.declaration, definition)
            if other is not definition and not (other.is_conditional or definition.is_conditional):
                place = f"{other.path}:{other.line}"
                text = f"is defined twice; the other definition is at {place}"
                self._error(definition, f"{self._name(definition)} {text}")
        for definition in others:
            unsettled = [each for each in kernels if each.declaration not in self._settled]
            if unsettled and definition.path in self._uncompared:
                kernel = min(unsettled, key=lambda each: distance(definition, each))
                self._settled.add(kernel.declaration)
                self._error_of(definition, kernel, differences_of(definition, kernel))
            elif not unsettled and (
                not definition.is_conditional or self._unlisted.is_exactly(definition)
            ):
                # A conditional one of no operator may be for another version of torch.
                self._note(definition, self._undeclared(definition, ()))
        if not is_clear:
            self._settled |= {each.declaration for each in kernels}

    def _error_of(self, definition: Definition, kernel: Kernel, differences: list[str]) -> None:
        text = f"{self._name(definition)} is not the kernel of '{kernel.entry.name}' "
        text += f"({self._file.path}:{kernel.entry.line}): {', '.join(differences)}; expected "
        self._error(definition, text + kernel.declaration)

    def _report_missing(self, kernel: Kernel) -> None:
        operator = kernel.entry.name
        for source in self._sources if self._uncompared else ():
            for each in source.invocations if source.path in self._uncompared else ():
                body = self._macros.get(each.macro, (self._class,))
                pastes = "#" in body and any(word in kernel.name for word in each.arguments)
                if self._class in body and (pastes or kernel.name in each.arguments):
                    text = f"the macro {each.macro} may define {self._of(kernel)}"
                    self.note_uncompared(each.path, each.line, text)
                    return
        text = (
            f"'{operator}' has no kernel in {self._implementation}"
            f"{self._describe_similar(kernel)}; expected {kernel.declaration}"
        )
        self.errors.append((str(self._file.path), kernel.entry.line, text))

    def _describe_similar(self, kernel: Kernel) -> str:
        """Describe a similar definition, for the message about a missing one."""
        for definition in self._defined.get(kernel.name, ()):
            if definition not in self._judged and not differences_of(definition, kernel):
                place = f"{definition.path}:{definition.line}"
                return f"; the compiler does not see the definition at {place}"
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

    def _undeclared(self, definition: Definition, missing: Collection[str]) -> str:
        """Describe a definition without a declaration; its name may be one of ``missing``."""
        operators = self._unlisted.operators(definition)
        self._hints_left -= not operators
        known = missing if not operators and self._hints_left >= 0 else ()
        remedy = f"; {_list(operators)}" if operators else suggestion(definition.name, known)
        ours = self._is_ours(definition)
        namespace = "" if ours else "".join(f"{each}::" for each in definition.namespace)
        parameters = ", ".join(map(format_type, definition.parameters))
        return (
            f"{namespace}{self._name(definition)}({parameters}) is declared by no entry of "
            f"{self._file.path}{remedy or '; correct its name and types, or remove it'}"
        )

    def _name(self, each: Definition | Kernel) -> str:
        return each.name if "::" in each.name else f"{self._file.class_name}::{each.name}"

    def _of(self, kernel: Kernel) -> str:
        return f"{self._name(kernel)} of '{kernel.entry.name}'"


def _list(operators: Sequence[str]) -> str:
    """The remedy for a kernel that the file does not list."""
    *others, last = (f"'{name}'" for name in operators)
    one = f"{', '.join(others)} or {last}" if others else last
    return f"list {one} under supported, or remove it"
