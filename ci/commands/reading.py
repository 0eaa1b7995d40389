"""The store, for commands that read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ci.store.folder import open_existing_store
from ci.util.terminal import complain

if TYPE_CHECKING:  # it imports SQLAlchemy
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
