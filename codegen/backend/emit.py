"""``python -m codegen backend-stubs``: generates a backend's files from its YAML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from codegen import emit
from codegen.aten import NativeFunctions, Torch, native_functions
from codegen.backend.compiler import find_compiler, read_cache
from codegen.backend.coverage import REQUIRED, make_coverage, render_json
from codegen.backend.definitions import check_definitions
from codegen.backend.document import read_backend_file
from codegen.backend.model import BackendFile, CustomOperator
from codegen.backend.registrations import (
    Kernels,
    Registration,
    kernel_registration,
    make_kernels,
    make_registrations,
    notes_on_composites,
)
from codegen.backend.structured import declare_class
from codegen.errors import counted
from codegen.output import SyncResult, synchronize

if TYPE_CHECKING:
    from torchgen.model import NativeFunction

_CACHE = ".impl-path.json"  # what the compiler found in the files that --impl-path names


def generate_backend(
    source: Path,
    folder: Path,
    torch: Torch,
    *,
    implementation: Path | None = None,
    dialect: str = "auto",
    dry_run: bool = False,
) -> SyncResult:
    """Generate the files of the backend that ``source`` describes into ``folder``.

    ``implementation`` is a C++ file or a folder of C++ files that define its kernels. Raises
    ``GenerationError`` with all errors of both, and then writes nothing.
    """
    with native_functions(torch) as functions:
        file = read_backend_file(source, functions, dialect)
        notes = [*notes_on_composites(file, functions), *file.notes]
        files = render_backend(file, functions)
        cache = folder / _CACHE
        compiled = read_cache(cache)
        if implementation:
            header = files[f"{file.backend}NativeFunctions.h"]
            compiler = find_compiler(torch, implementation)
            notes += check_definitions(
                file, functions, implementation, compiler, header=header, cache=compiled
            )
        summary = (
            f"torch {functions.torch_version}: {file.backend} with "
            f"{counted(len(file.supported), 'kernel')}, {len(file.autograd)} for autograd"
        )
    outcome = synchronize(files, folder, summary=summary, notes=tuple(notes), dry_run=dry_run)
    if compiled and not dry_run:
        cache.write_text(json.dumps(compiled))
    return outcome


def render_backend(file: BackendFile, parsed: NativeFunctions) -> dict[str, str]:
    """Render all files, by name; call this inside ``native_functions``."""
    lists = {file.backend: file.supported}
    if file.autograd:  # most device keys have no autograd key
        lists[f"Autograd{file.backend}"] = file.autograd
    own = [make_kernels(file, key, lists[key], parsed.by_name) for key in lists]
    groups = [
        *own,
        *(make_kernels(file, key, file.others[key], parsed.by_name) for key in file.others),
    ]
    registrations = {each.key: tuple(make_registrations(each, parsed)) for each in groups}
    custom = _custom_kernels(file)
    classes: dict[str, set[str]] = {file.class_name: set()}
    for kernels, functions in (*((each, parsed.functions) for each in groups), *custom):
        declared = classes.setdefault(file.class_of(kernels.key), set())
        declared.update(_declarations(kernels, functions))
    structured = [
        (entry, parsed.groups[entry.name])
        for entry in file.supported
        if entry.is_structured and not entry.is_in_torch
    ]
    coverage = make_coverage(
        parsed, file.backend, {each.key: registrations[each.key] for each in own}
    )
    return {
        f"{file.backend}NativeFunctions.h": _render(
            "native_functions.h",
            file,
            parsed,
            classes={name: sorted(declared) for name, declared in classes.items()},
            structured=[declare_class(entry, group) for entry, group in structured],
            headers=sorted({f"{group.out.root_name}_meta" for _, group in structured}),
        ),
        **{
            f"Register{kernels.key}.cpp": _register(kernels, registrations[kernels.key], parsed)
            for kernels in groups
        },
        **_custom_files(file, custom, parsed),
        **_device_files(file, parsed),
        f"Register{file.backend}Fallback.cpp": _render(
            "fallback.cpp",
            file,
            parsed,
            coverage=coverage,
            defaults=coverage.defaults(),
            headers=sorted({each.header for each in coverage.defaults().values()} - {""}),
            autocast=_autocast_key(file.backend),
        ),
        "coverage.json": render_json(coverage),
        "coverage.md": _render("coverage.md", file, parsed, coverage=coverage, required=REQUIRED),
    }


def _autocast_key(backend: str) -> str:
    """The key of autocast on the backend; "" where torch itself has a policy, or no key."""
    return "AutocastPrivateUse1" if backend == "PrivateUse1" else ""


_Custom = tuple[Kernels, "tuple[NativeFunction, ...]"]


def _custom_kernels(file: BackendFile) -> list[_Custom]:
    """The kernels of the file's own operators, by namespace and dispatch key."""
    groups: dict[tuple[str, str], list[CustomOperator]] = {}
    for operator in file.custom:
        for key in operator.entries:
            groups.setdefault((operator.namespace, key), []).append(operator)
    return [
        (
            make_kernels(
                file,
                key,
                [each.entries[key] for each in operators],
                {str(each.function.func.name): each.function for each in operators},
                namespace=namespace,
            ),
            tuple(each.function for each in operators),
        )
        for (namespace, key), operators in groups.items()
    ]


def _custom_files(
    file: BackendFile, custom: list[_Custom], parsed: NativeFunctions
) -> dict[str, str]:
    if not custom:
        return {}
    defined: dict[str, list[CustomOperator]] = {}
    for operator in file.custom:
        if operator.is_defined:
            defined.setdefault(operator.namespace, []).append(operator)
    registrations = [
        (kernels, [kernel_registration(kernels, function) for function in functions])
        for kernels, functions in custom
    ]
    text = _render("custom.cpp", file, parsed, defined=defined, registrations=registrations)
    return {f"Register{file.backend}Custom.cpp": text}


def _device_files(file: BackendFile, parsed: NativeFunctions) -> dict[str, str]:
    """The Python package of the device, and the operators that it calls."""
    if not file.device:
        return {}
    modules = (f"python/{name}.py" for name in ("__init__", "compile", "runtime"))
    return {
        f"Register{file.backend}Runtime.cpp": _render("runtime.cpp", file, parsed),
        **{name: _render(name, file, parsed) for name in modules},
    }


def _declarations(kernels: Kernels, functions: tuple[NativeFunction, ...]) -> list[str]:
    """Declare the member functions of the class for one key."""
    from torchgen.dest import compute_native_function_declaration

    return [
        declaration
        for function in functions
        if kernels.has(function)
        and not (kernels.is_structured(function) or kernels.is_in_torch(function))
        for declaration in compute_native_function_declaration(function, kernels.index)
    ]


def _register(
    kernels: Kernels, registrations: tuple[Registration, ...], parsed: NativeFunctions
) -> str:
    headers = {"empty_like_ops", "empty_strided_ops", *(each.header for each in registrations)}
    return _render(
        "register.cpp",
        kernels.file,
        parsed,
        key=kernels.key,
        is_autograd=kernels.is_autograd,
        registrations=registrations,
        # Kernels come first, because derived functions call them.
        definitions=[
            each.definition
            for each in sorted(registrations, key=lambda each: bool(each.source))
            if each.definition
        ],
        headers=sorted(headers - {""}),
        has_structured=any(each.is_structured for each in kernels.entries.values()),
        resolves_copies=any(each.operator == "_copy_from" for each in registrations)
        and not kernels.is_autograd,
    )


def _render(name: str, file: BackendFile, parsed: NativeFunctions, **values: object) -> str:
    template = emit.make_environment().get_template(f"backend/{name}.j2")
    return template.render(file=file, torch_version=parsed.torch_version, **values)
