"""The files that two runs of one commit built."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ci.facts.rebuilt import RebuiltFile
from ci.model.results import Distribution
from tests.ci.stored_history import Project, result

NAME = "tiny-1-py3-none-any.whl"
EARLY, LATE = (2000, 1, 1, 0, 0, 0), (2026, 1, 1, 0, 0, 0)


def kept(
    project: Project, members: Mapping[str, bytes] | None, date: Any = EARLY, **changes: Any
) -> Distribution:
    """A file of the next run; not kept without members."""
    path = project.results / f"run-{len(project.runs):03}" / "cpu" / "dist" / NAME
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (members or {"other": b"1"}).items():
            archive.writestr(zipfile.ZipInfo(name, date), content)
    return Distribution(
        name=NAME,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        size_bytes=path.stat().st_size,
        path=f"cpu/dist/{NAME}" if members else None,
        **changes,
    )


def compared(
    folder: Path, *sides: tuple[Mapping[str, bytes] | None, Any], **changes: Any
) -> tuple[str, list[dict[str, Any]]]:
    folder.mkdir(exist_ok=True)
    project = Project(folder=folder)
    commit = project.commit()
    for members, date in sides:
        file = kept(project, members, date, **changes)
        project.run(commit, result(distributions=(file,)))
    code, text = project.compare(*project.runs)
    assert code == 0
    _, document = project.compare(*project.runs, "--format", "json")
    [platform] = json.loads(document)["platforms"]
    return text, platform["rebuilt"]


def test_two_builds_of_one_commit_are_the_same_file(tmp_path: Path) -> None:
    text, found = compared(tmp_path, ({"a": b"1"}, EARLY), ({"a": b"1"}, EARLY))
    assert f"{NAME} is the same file in both runs" in text
    assert found == [{"name": NAME, "is_same": True, "differing": None}]


def test_what_differs_is_named(tmp_path: Path) -> None:
    text, found = compared(
        tmp_path, ({"a": b"1", "b": b"1"}, EARLY), ({"a": b"1", "b": b"2", "c": b""}, EARLY)
    )
    assert f"{NAME} differs in b, c" in text
    assert found == [{"name": NAME, "is_same": False, "differing": ["b", "c"]}]


def test_members_of_another_day(tmp_path: Path) -> None:
    text, _ = compared(tmp_path, ({"a": b"1"}, EARLY), ({"a": b"1"}, LATE))
    assert f"{NAME} differs in the dates, modes or order of its members" in text


def test_files_that_are_not_kept(tmp_path: Path) -> None:
    text, _ = compared(tmp_path, ({"a": b"1"}, EARLY), (None, EARLY))
    assert f"{NAME} is another file in each run" in text


def test_given_files_and_those_of_other_commits_are_not_compared(tmp_path: Path) -> None:
    sides = ({"a": b"1"}, EARLY), ({"a": b"2"}, EARLY)
    assert compared(tmp_path / "given", *sides, given=True)[1] == []
    (tmp_path / "commits").mkdir()
    project = Project(folder=tmp_path / "commits")
    for members, date in sides:
        file = kept(project, members, date)
        project.run(project.commit(), result(distributions=(file,)))
    assert NAME not in project.compare(*project.runs)[1]


def test_a_path_out_of_the_run_is_not_read(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    commit = project.commit()
    for members in ({"a": b"1"}, {"secret": b"2"}):
        file = kept(project, members)
        path = f"../{project.results.name}/run-{len(project.runs):03}/{file.path}"
        project.run(commit, result(distributions=(file.model_copy(update={"path": f"../{path}"}),)))
    text = project.compare(*project.runs)[1]
    assert f"{NAME} is another file in each run" in text


def test_a_damaged_file_is_no_error(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    commit = project.commit()
    for members in ({"a": b"1"}, {"a": b"2"}):
        project.run(commit, result(distributions=(kept(project, members),)))
    (project.results / project.runs[1] / "cpu" / "dist" / NAME).write_bytes(b"PK\3\4")
    text = project.compare(*project.runs)[1]
    assert str(RebuiltFile(name=NAME, is_same=False)) in text
