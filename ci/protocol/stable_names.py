"""The names of tests, independent of the folder of their run.

The host engine's folder is new in each run, so a test that is named after a path, such as
``test_read[/workspace/data/a.txt]``, would have another name each time. It gets the name that it
has in a container.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Sequence, Tuple

# The parts of the run's folder, and where a container has them.
_PLACES = {"workspace": "/workspace", "venv": "/opt/venv"}
Rules = List[Tuple[str, str]]  # regular expressions and their replacements, one after the other


def run_folders(workspace: str) -> tuple[str, ...]:
    """Return the paths of the folder that a run on the host engine has around its workspace.

    With a link in its path it has two. Empty in a container.
    """
    folder = Path(workspace).parent
    is_own = folder != folder.parent and (folder / "venv").is_dir()
    return tuple(dict.fromkeys(map(str, (folder, folder.resolve())))) if is_own else ()


def name_rules(folders: Sequence[str]) -> Rules:
    """Return how the names of tests become independent of a run's folders."""
    rules = [
        (f"{re.escape(f'{folder}/{part}')}(?![\\w.])", place)
        for folder in sorted(folders, key=len, reverse=True)
        for part, place in _PLACES.items()
    ]
    # Relative paths, other files, and paths with other characters instead of slashes.
    rules += [(re.escape(name), "infini-ci") for name in {Path(it).name: 0 for it in folders}]
    if folders:  # relative to the workspace
        rules.append((r"^((?:\.\./)+)venv(?=/)", r"\1opt/venv"))
    return rules


class TestNames:
    """Makes the names of tests independent of the folders of their run."""

    __test__ = False  # not a test class, whatever its name

    def __init__(self, folders: Sequence[str]) -> None:
        self._marks = tuple({Path(it).name for it in folders})
        self._rules = [(re.compile(rule), to) for rule, to in name_rules(folders)]

    def __call__(self, name: str) -> str:
        """Return the name without the path of the run's folder."""
        if self._rules and (name.startswith("../") or any(mark in name for mark in self._marks)):
            for rule, to in self._rules:
                name = rule.sub(to, name)
        return name
