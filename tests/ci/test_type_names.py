"""No two types of ``ci`` share a name: a reader who searches for one finds that one."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from ci.util.invocation import REPOSITORY


def shared_names(folder: Path) -> dict[str, list[str]]:
    """The classes of several modules, private ones too, and the modules of each."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(path.relative_to(folder).as_posix())
    return {name: found for name, found in modules.items() if len(found) > 1}


def test_no_types_share_a_name() -> None:
    assert not shared_names(REPOSITORY / "ci")


def test_types_that_share_a_name_are_found(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "one.py").write_text("class Kind: ...\nclass _Worker: ...\n")
    (tmp_path / "room" / "two.py").write_text("class Other: ...\nclass Kind: ...\n")
    (tmp_path / "three.py").write_text("class _Worker: ...\nclass More:\n    class Other: ...\n")
    assert shared_names(tmp_path) == {
        "Kind": ["room/one.py", "room/two.py"],
        "_Worker": ["room/one.py", "three.py"],
    }
