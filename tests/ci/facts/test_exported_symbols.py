"""What the wheels of two runs export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ci.kept_wheels import kept, library
from tests.ci.stored_history import Project, result


def compared(folder: Path, *sides: list[tuple[str, bytes]]) -> tuple[str, list[dict[str, Any]]]:
    """Compare runs of two commits, with these wheels."""
    project = Project(folder=folder)
    for wheels in sides:
        files = tuple(kept(project.results / f"run-{len(project.runs):03}", *it) for it in wheels)
        project.run(project.commit(), result(distributions=files))
    code, text = project.compare(*project.runs)
    assert code == 0
    _, document = project.compare(*project.runs, "--format", "json")
    [platform] = json.loads(document)["platforms"]
    return text, platform["symbols"]


FIRST, NEXT = "tiny-1-py3-none-any.whl", "tiny-2-py3-none-any.whl"


def test_removed_and_added_symbols_of_two_versions(tmp_path: Path) -> None:
    before, after = (library(tmp_path, *names) for names in (("a", "b"), ("b", "c", "d")))
    text, found = compared(tmp_path, [(FIRST, before)], [(NEXT, after)])
    assert found == [{"name": NEXT, "removed": ["a"], "added": ["c", "d"]}]
    assert f"{NEXT}: 1 exported symbol removed, which breaks programs: a; 2 added" in text
    text, found = compared((tmp_path / "again"), [(FIRST, library(tmp_path, "b"))], [(NEXT, after)])
    assert f"{NEXT}: 2 exported symbols added, none removed" in text


@pytest.mark.parametrize("case", ["equal", "unreadable", "several", "another project"])
def test_nothing_is_claimed(tmp_path: Path, case: str) -> None:
    before, after = (library(tmp_path, *names) for names in (("a",), ("b",)))
    last: list[tuple[str, bytes]] = {
        "equal": [(NEXT, before)],
        "unreadable": [(NEXT, b"no compiled file")],
        "several": [(NEXT, after), (FIRST, after)],
        "another project": [("small-1-py3-none-any.whl", after)],
    }[case]
    assert compared(tmp_path, [(FIRST, before)], last)[1] == []
