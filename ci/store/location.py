"""Where the store of some results is.

Only who opens it imports SQLAlchemy, which takes 0.3 s: not the workers of a run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ci.errors import UsageError
from ci.store.folder import LATEST
from ci.util.invocation import command
from ci.util.process import STORE_VARIABLE

if TYPE_CHECKING:
    from ci.store.store import Store


DATABASE = "ci.db"


def default_url(results: Path) -> str:
    """The SQLite database beside the results."""
    return f"sqlite:///{(results / DATABASE).resolve()}"


def store_url(results: Path) -> str:
    """The database that INFINI_CI_DB names, by default the one beside the results."""
    return os.environ.get(STORE_VARIABLE) or default_url(results)


def open_store(results: Path) -> Store:
    """Open the store of these results, and make it where there is none."""
    from ci.store.store import Store

    return Store(store_url(results))


def existing_store(results: Path, *, run: str | None = None) -> Store:
    """Open the store of these results, which the first run makes; ``run`` is the one to look up."""
    remedy = f"Run a platform first: {command('run', 'cpu')}"
    if store_url(results) == default_url(results) and not (results / DATABASE).is_file():
        named = f"there is no run '{run}': " if run not in (None, LATEST) else ""
        message = f"{named}no run was made yet, {results} holds no results"
        raise UsageError(message, remedy=remedy)
    from ci.store.connect import missing_file

    if file := missing_file(store_url(results)):
        raise UsageError(f"{STORE_VARIABLE}: there is no {file}", remedy=remedy)
    return open_store(results)
