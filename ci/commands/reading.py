"""The store, for commands that read it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ci.store.folder import open_existing_store
from ci.util.terminal import complain

if TYPE_CHECKING:  # they import NumPy and SQLAlchemy
    from ci.analysis.platform_history import PlatformHistory, ProjectLine
    from ci.facts.acceptance import Acceptance
    from ci.store.store import Store


@contextmanager
def reading_store(results: Path, *, run: str | None = None) -> Iterator[Store]:
    """Open the store of these results, and name the runs that were left out.

    ``run`` is the run to look up, for the message.
    """
    with open_existing_store(results, run=run) as store:
        try:
            yield store
        finally:
            for error in store.skipped.values():
                complain(f"left out: {error}\n{error.remedy}")


def read_histories(
    store: Store,
    platforms: Iterable[str],
    along: ProjectLine,
    accepted: Sequence[Acceptance],
    options: argparse.Namespace,
) -> list[PlatformHistory]:
    """Judge the histories of platforms, with the options of ``add_line``."""
    from ci.analysis.platform_history import platform_histories
    from ci.analysis.repository import Repository

    return platform_histories(
        store,
        platforms,
        along,
        repository=Repository(options.source),
        stage=options.stage,
        last=options.last,
        accepted=accepted,
        today=datetime.now(UTC).date(),
    )
