"""The kernels that a backend declares, and how a definition differs from one of them."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from codegen.aten import NativeFunctions
from codegen.backend import structured
from codegen.backend.cpp_source import Definition, Words, words
from codegen.backend.cpp_types import Type, normalize, parameter_type, return_type
from codegen.backend.model import BackendFile, Entry
from codegen.backend.registrations import member_name
from codegen.errors import counted

if TYPE_CHECKING:
    from torchgen.model import NativeFunction

# Specifiers of a definition with which it is not the declared kernel, or not to be linked.
WRONG = {
    "template": "it is a template",
    "static": "it is static",
    "inline": "it is inline: other files don't find it",
    "constexpr": "it is constexpr: other files don't find it",
}


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel that the generated header declares."""

    entry: Entry
    name: str  # name of the member function; of a structured kernel, with its class
    returns: str
    parameters: tuple[str, ...]  # their types
    declaration: str  # complete, including the class


def declared_kernels(file: BackendFile, functions: NativeFunctions) -> list[Kernel]:
    """The kernels that `<Backend>NativeFunctions.h` declares, in file order."""
    return [
        kernel
        for entry in (*file.supported, *file.autograd)
        if not entry.is_in_torch
        for kernel in (
            _structured_kernels(functions, entry)
            if entry.is_structured
            else (_kernel(file, functions.by_name[entry.name], entry),)
        )
    ]


def _structured_kernels(functions: NativeFunctions, entry: Entry) -> Iterator[Kernel]:
    name = structured.class_name(entry)
    for method in structured.methods(entry, functions.groups[entry.name]):
        yield Kernel(
            entry=entry,
            name=f"{name}::{method.name}",
            returns=method.returns,
            parameters=tuple(argument.type for argument in method.arguments),
            declaration=method.declare(name),
        )


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


class Unlisted:
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

    def operators(self, definition: Definition) -> list[str]:
        """The operators whose kernel this is; of the name alone if the types are of none."""
        name = definition.name
        if name not in self._kernels:
            self._kernels[name] = [
                _kernel(file, function, Entry(name=str(function.func.name), line=0))
                for file, function in self._functions.get(name, ())
            ]
        kernels = self._kernels[name]
        exact = [each for each in kernels if not differences_of(definition, each)]
        return [each.entry.name for each in exact or kernels]

    def is_exactly(self, definition: Definition) -> bool:
        self.operators(definition)
        return any(not differences_of(definition, each) for each in self._kernels[definition.name])


def _types(definition: Definition, kernel: Kernel) -> tuple[Type, list[Type]]:
    head, arrow, tail = definition.head, "->", definition.tail
    if arrow in tail:
        head = tail[tail.index(arrow) + 1 :]
    returns, specifiers = return_type(head, _torch_return(kernel.returns))
    is_const = "const" in specifiers
    got = returns._replace(is_const=returns.is_const or is_const)
    return got, [parameter_type(each) for each in definition.parameters]


def differences_of(definition: Definition, kernel: Kernel) -> list[str]:
    returns, got = _types(definition, kernel)
    differences = [WRONG[word] for word in WRONG if word in definition.head]
    if "const" in itertools.takewhile(lambda word: word != "->", definition.tail):
        differences.append("it is a const member function")
    if returns != _torch_return(kernel.returns):
        tail = definition.tail
        spelled = tail[tail.index("->") + 1 :] if "->" in tail else definition.head
        differences.append(f"it returns '{format_type(spelled)}', expected '{kernel.returns}'")
    if len(got) != len(kernel.parameters):
        count = counted(len(got), "parameter")
        return [*differences, f"it has {count}, expected {len(kernel.parameters)}"]
    for index, (one, other) in enumerate(zip(got, kernel.parameters, strict=True)):
        if one != _torch_parameter(other):
            differences.append(
                f"parameter {index + 1} is '{format_type(definition.parameters[index])}', "
                f"expected '{other}'"
            )
    return differences


def distance(definition: Definition, kernel: Kernel) -> tuple[int, int]:
    count = abs(len(definition.parameters) - len(kernel.parameters))
    return count, len(differences_of(definition, kernel))


def unclear_word(definition: Definition, kernel: Kernel) -> str:
    """A word in the types that only a compiler understands: a macro, an alias or `#if`."""
    returns, got = _types(definition, kernel)
    types = got if returns == _torch_return(kernel.returns) else [returns, *got]
    return next(filter(None, (each.unclear() for each in types)), "")


@functools.cache
def _torch_parameter(spelled: str) -> Type:
    return parameter_type(words(spelled))


@functools.cache
def _torch_return(spelled: str) -> Type:
    return Type(*normalize(words(spelled)))


def format_type(spelled: Words) -> str:
    """Format a C++ type on one line."""
    text = " ".join(spelled)
    text = re.sub(r" ?(::|<|\[|\() ?", r"\1", text)
    return re.sub(r" (>|,|\]|\))", r"\1", text)
