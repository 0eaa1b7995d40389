"""``python -m codegen backend-stubs``: brings a backend's generated files up to date."""

from __future__ import annotations

from pathlib import Path

from codegen.aten import Torch, native_functions
from codegen.backend.definitions import check_definitions
from codegen.backend.document import read_backend_file
from codegen.backend.emit import render_backend
from codegen.generation import Outcome
from codegen.manual import counted
from codegen.output import synchronize


def generate_backend(
    source: Path,
    folder: Path,
    torch: Torch,
    *,
    implementation: Path | None = None,
    dry_run: bool = False,
) -> Outcome:
    """Generates the files of the backend that ``source`` describes into ``folder``.

    ``implementation``, a C++ file or a folder of them, has the definitions of its kernels.
    Raises ``GenerationError`` with all that is wrong with either, and then writes nothing.
    """
    with native_functions(torch) as functions:
        file = read_backend_file(source, functions)
        notes = check_definitions(file, functions, implementation) if implementation else ()
        files = render_backend(file, functions)
        summary = (
            f"torch {functions.torch_version}: {file.backend} with "
            f"{counted(len(file.supported), 'kernel')}, {len(file.autograd)} for autograd"
        )
    changes = synchronize(files, folder, summary=summary, notes=notes, dry_run=dry_run)
    return Outcome(summary=summary, notes=notes, changes=changes)
