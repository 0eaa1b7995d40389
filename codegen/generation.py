"""``python -m codegen torch``: brings an output folder up to date with its inputs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from codegen.aten import load_schemas
from codegen.errors import GenerationError
from codegen.inputs import SELECTION_VARIABLE, Inputs
from codegen.manual import counted
from codegen.model import Library
from codegen.output import Changes, read_manifest, synchronize


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a generation did and has to say."""

    summary: str
    notes: tuple[str, ...]
    changes: Changes


def generate(inputs: Inputs, folder: Path, *, dry_run: bool = False) -> Outcome:
    """Generates the PyTorch backend into ``folder``, unless it is there already."""
    digest = inputs.digest()
    manifest = read_manifest(folder)
    if manifest.is_up_to_date(folder, digest):
        changes = Changes(written=(), unchanged=tuple(manifest.files), removed=())
        return Outcome(summary=manifest.summary, notes=manifest.notes, changes=changes)
    # Here, because importing them takes longer than all of the above.
    from codegen.emit import render_torch
    from codegen.selection import choose_for
    from codegen.translate import make_library

    schemas = load_schemas(inputs.torch)
    choice = choose_for(inputs, schemas)
    library = make_library(schemas, choice)
    if not library.operators:
        raise GenerationError("\n".join([*choice.notes, _nothing_left(inputs, library)]))
    summary = (
        f"torch {library.torch_version}: {counted(len(library.operators), 'operator')}, "
        f"{counted(len(library.overloads), 'overload')}, {len(library.skipped)} skipped"
    )
    changes = synchronize(
        render_torch(library, inputs.hand_written_bases()),
        folder,
        inputs=digest,
        summary=summary,
        notes=choice.notes,
        dry_run=dry_run,
    )
    return Outcome(summary=summary, notes=choice.notes, changes=changes)


def _nothing_left(inputs: Inputs, library: Library) -> str:
    reasons = Counter(skip.reason.value for skip in library.skipped)
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return (
        f"{inputs.selection} and {SELECTION_VARIABLE} leave no operator to generate: {counts}; "
        "expected at least one"
    )
