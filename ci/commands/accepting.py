"""What ``accept`` and ``withdraw`` write and show."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ci.commands.options import add_format, add_repository, add_results
from ci.errors import InfrastructureError
from ci.util.terminal import complain, show

if TYPE_CHECKING:  # they import pydantic and SQLAlchemy
    from ci.facts.acceptance import Acceptance
    from ci.store.store import Store


def add_accepted_file(parser: argparse.ArgumentParser) -> None:
    """Add the options that both have: where the file and the runs are, and the output."""
    add_format(parser, "table", "json")
    add_repository(parser, "with its file ci-accepted.yaml")
    add_results(parser)


def mirror(store: Store, project: str, known: Sequence[Acceptance]) -> None:
    """Update the store's copy of the acceptances; reports do not depend on it."""
    try:
        store.mirror_accepted(project, known)
    except InfrastructureError as error:
        complain(f"warning: {error}\n{error.remedy or ''}".rstrip())


def write(
    store: Store,
    project: str,
    accepted: Sequence[Acceptance],
    what: str,
    changed: Sequence[Acceptance],
    options: argparse.Namespace,
) -> None:
    """Write the file, then the store's copy: a lost copy is restored from the file.

    ``what`` is the word for what happened to the acceptances that changed, which are shown.
    """
    from ci.plan.accepted import write_accepted
    from ci.report.changes import accepted_text

    path = write_accepted(options.source, project, accepted)
    mirror(store, project, accepted)
    if options.format == "json":
        listed = [{"measure": it.measure, **it.model_dump(mode="json")} for it in changed]
        show(json.dumps({what: listed}, indent=2))
        return
    show(f"{path}: written. Review the change, then commit the file.")
    show("\n".join(f"{what}: {accepted_text(it)}" for it in changed))
