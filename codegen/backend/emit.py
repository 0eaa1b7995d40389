"""``python -m codegen backend-stubs``: generates a backend's files from its YAML file."""

from __future__ import annotations

from pathlib import Path

from codegen import emit
from codegen.aten import NativeFunctions, Torch, native_functions
from codegen.backend.coverage import REQUIRED, make_coverage, render_json
from codegen.backend.definitions import check_definitions
from codegen.backend.document import read_backend_file
from codegen.backend.model import BackendFile
from codegen.backend.registrations import (
    Kernels,
    Registration,
    make_kernels,
    make_registrations,
    notes_on_composites,
)
from codegen.errors import counted
from codegen.output import SyncResult, synchronize


def generate_backend(
    source: Path,
    folder: Path,
    torch: Torch,
    *,
    implementation: Path | None = None,
    dry_run: bool = False,
) -> SyncResult:
    """Generate the files of the backend that ``source`` describes into ``folder``.

    ``implementation`` is a C++ file or a folder of C++ files that define its kernels. Raises
    ``GenerationError`` with all errors of both, and then writes nothing.
    """
    with native_functions(torch) as functions:
        file = read_backend_file(source, functions)
        notes = [*notes_on_composites(file, functions)]
        if implementation:
            notes += check_definitions(file, functions, implementation)
        files = render_backend(file, functions)
        summary = (
            f"torch {functions.torch_version}: {file.backend} with "
            f"{counted(len(file.supported), 'kernel')}, {len(file.autograd)} for autograd"
        )
    return synchronize(files, folder, summary=summary, notes=tuple(notes), dry_run=dry_run)


def render_backend(file: BackendFile, parsed: NativeFunctions) -> dict[str, str]:
    """Render all files, by name; call this inside ``native_functions``."""
    groups = [make_kernels(file, file.supported, parsed, is_autograd=False)]
    if file.autograd:  # most device keys have no autograd key
        groups.append(make_kernels(file, file.autograd, parsed, is_autograd=True))
    registrations = {each.key: tuple(make_registrations(each, parsed)) for each in groups}
    declarations = sorted({each for kernels in groups for each in _declarations(kernels, parsed)})
    coverage = make_coverage(parsed, file.backend, registrations)
    return {
        f"{file.backend}NativeFunctions.h": _render(
            "native_functions.h", file, parsed, declarations=declarations
        ),
        **{
            f"Register{kernels.key}.cpp": _register(kernels, registrations[kernels.key], parsed)
            for kernels in groups
        },
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


def _declarations(kernels: Kernels, parsed: NativeFunctions) -> list[str]:
    from torchgen.dest import compute_native_function_declaration

    return [
        declaration
        for function in parsed.functions
        if kernels.has(function)
        for declaration in compute_native_function_declaration(function, kernels.index)
    ]


def _register(
    kernels: Kernels, registrations: tuple[Registration, ...], parsed: NativeFunctions
) -> str:
    has_copies = any(each.operator == "_copy_from" for each in registrations)
    headers = {"empty_like", "empty_strided", *(each.header for each in registrations)} - {""}
    if has_copies:
        headers.add("_copy_from")
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
        headers=sorted(headers),
        resolves_copies=has_copies and not kernels.is_autograd,
    )


def _render(name: str, file: BackendFile, parsed: NativeFunctions, **values: object) -> str:
    template = emit.make_environment().get_template(f"backend/{name}.j2")
    return template.render(file=file, torch_version=parsed.torch_version, **values)
