"""A pytest plugin: run only the collected tests that a file names.

It is copied out of the agent's archive and imported by the pytest of the stage.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent / "tests.json"


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Select the tests, after the conftest files: plugins of the command line register first."""
    wanted = json.loads(TESTS.read_text(encoding="utf-8"))
    tests, last = set(wanted["tests"]), set(wanted["last"])
    names = {}
    for item in items:
        # The names of the log, or of results, which have no path of a run's folder.
        stable = item.nodeid
        for rule, place in wanted["rules"]:
            stable = re.sub(rule, place, stable)
        names[item] = {item.nodeid, stable}
    config.hook.pytest_deselected(items=[it for it in items if tests.isdisjoint(names[it])])
    kept = [item for item in items if not tests.isdisjoint(names[item])]
    items[:] = sorted(kept, key=lambda item: not last.isdisjoint(names[item]))
