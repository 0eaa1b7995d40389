"""``python -m codegen torch``: generates the PyTorch backend, unless it is up to date."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from codegen.aten import load_schemas
from codegen.errors import GenerationError, counted
from codegen.inputs import SELECTION_VARIABLE, Inputs
from codegen.model import Base, Library, Narrowing, Schemas, SkipReason
from codegen.native import read_bases
from codegen.output import SyncResult, check_up_to_date, synchronize
from codegen.translate import make_library


def generate(inputs: Inputs, folder: Path, *, dry_run: bool = False) -> SyncResult:
    """Generate the PyTorch backend into ``folder``, unless the folder is up to date."""
    digest = inputs.digest()
    if outcome := check_up_to_date(folder, digest):
        return outcome
    # Imported here because these imports take longer than everything above.
    from codegen.emit import render_torch
    from codegen.selection import choose_operators

    schemas = load_schemas(inputs.torch)
    choice = choose_operators(inputs, schemas)
    bases = read_bases(inputs.base_dir)
    library = make_library(schemas, choice, bases, inputs.native_operators())
    narrowing = _narrowing(inputs, schemas, bases)
    has_hand_written = narrowing and inputs.hand_written_bases().intersection(narrowing.operators)
    if not library.operators and not has_hand_written:
        reasons = Counter(skip.reason.value for skip in library.skipped)
        counts = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        nothing_left = (
            f"{inputs.selection} and {SELECTION_VARIABLE} select no operator: {counts}; "
            "expected at least one"
        )
        raise GenerationError("\n".join([*choice.notes, nothing_left]))
    library = replace(library, narrowing=narrowing)
    summary = (
        f"torch {library.torch_version}: {counted(len(library.operators), 'operator')}, "
        f"{counted(len(library.overloads), 'overload')}, {len(library.skipped)} skipped"
    )
    return synchronize(
        render_torch(library, inputs.hand_written_bases()),
        folder,
        inputs=digest,
        summary=summary,
        notes=(*choice.notes, *_base_conflicts(schemas, library, bases)),
        dry_run=dry_run,
    )


def _narrowing(inputs: Inputs, schemas: Schemas, bases: Mapping[str, Base]) -> Narrowing | None:
    """Return what ``INFINI_OPS_TORCH_OPS`` selects; None if it does not narrow the build."""
    from codegen.selection import apply_selections, load_selection, parse_variable

    selection = parse_variable(inputs.variable)
    if selection.included is None and not selection.excluded:
        return None
    known = {*schemas.by_name, *inputs.hand_written_bases()}
    whole = make_library(
        schemas, apply_selections([load_selection(inputs.selection)], schemas), bases
    )
    return Narrowing(
        asked=inputs.variable,
        operators=tuple(sorted(selection.names(known))),
        overloads=len(whole.overloads),
    )


def _base_conflicts(schemas: Schemas, library: Library, bases: Mapping[str, Base]) -> Iterator[str]:
    """Report operators of torch whose hand-written base has other parameters."""
    for skip in library.skipped:
        if skip.reason is SkipReason.OTHER_BASE:
            base = bases[schemas.public_names[skip.aten_name]]
            atens = {
                each.schema.overload_name: each.schema for each in schemas.by_name[skip.aten_name]
            }[skip.overload_name]
            yield (
                f"{base.where}: '{base.overload.schema}' differs from the schema in torch "
                f"{schemas.torch_version}: '{atens}'. The operator is built without the PyTorch "
                "backend; give the base torch's parameters, or another name"
            )
