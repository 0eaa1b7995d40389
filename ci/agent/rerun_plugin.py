"""A pytest plugin: run only the collected tests that a file names.

It is copied out of the agent's archive and imported by the pytest of the stage.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FILE_VARIABLE = "INFINI_CI_RERUN_FILE"


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Select the tests, after the conftest files: plugins of the command line register first."""
    wanted = json.loads(Path(os.environ[FILE_VARIABLE]).read_text(encoding="utf-8"))
    tests, last = set(wanted["tests"]), set(wanted["last"])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in tests])
    kept = [item for item in items if item.nodeid in tests]
    items[:] = sorted(kept, key=lambda item: item.nodeid in last)
