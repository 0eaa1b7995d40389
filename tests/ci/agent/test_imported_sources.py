"""What the agent finds out about the project: its sources, what was installed, what builds it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from ci.agent.machine import tool_facts
from ci.facts.notes import requirement_notes, source_notes
from ci.facts.sentences import on_rows
from ci.protocol.job import StagePlan
from ci.protocol.stage_kind import StageKind
from tests.ci.agent_job import stage_plan

FILE = f"tiny/_fast{EXTENSION_SUFFIXES[0]}"
PYTEST = ("python", "-m", "pytest")
HERE: Mapping[str, object] = {"dir_info": {}}  # installed from the folder of the project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "a project"
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny" / "__init__.py").touch()
    return folder


def unpackaged(project: Path, installed: Iterable[str], **variables: str) -> object:
    """The modules of the sources that the agent misses among those that were installed."""
    return recorded(project, HERE, installed, **variables)["unpackaged"]


def recorded(
    project: Path,
    origin: Mapping[str, object] = HERE,
    installed: Iterable[str] = ("tiny/__init__.py", FILE, f"_alone{EXTENSION_SUFFIXES[0]}"),
    **variables: str,
) -> dict[str, object]:
    site = project.parent / "site"
    metadata = site / "tiny-1.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
    (metadata / "RECORD").write_text("".join(f"{file},,\n" for file in installed))
    (metadata / "direct_url.json").write_text(json.dumps({"url": project.as_uri(), **origin}))
    facts = tool_facts({**os.environ, "PYTHONPATH": str(site), **variables}, project)
    assert isinstance(facts["packages"], dict)
    assert facts["packages"]["tiny"] == "1"
    return facts


@pytest.mark.parametrize(
    ("origin", "found"),
    [
        pytest.param(HERE, ["tiny._fast"], id="this project"),
        pytest.param({"dir_info": {"editable": True}}, [], id="editable"),
        pytest.param(
            {"url": "https://example.org/tiny.whl", "archive_info": {}}, [], id="download"
        ),
        pytest.param({"url": "file:///", "dir_info": {}}, [], id="another folder"),
        pytest.param({"url": 3}, [], id="not pip's"),
    ],
)
def test_a_module_that_the_sources_lack(
    project: Path, origin: Mapping[str, object], found: list[str]
) -> None:
    assert recorded(project, origin)["uncompiled"] == found


def test_a_module_that_was_compiled_in_the_sources(project: Path) -> None:
    (project / FILE).touch()
    assert recorded(project)["uncompiled"] == []


def test_a_package_that_is_not_in_the_root(project: Path) -> None:
    (project / "src").mkdir()
    (project / "tiny").rename(project / "src" / "tiny")
    assert recorded(project)["uncompiled"] == []


# The sources of a project, and which of their modules a complete wheel has.
SOURCES = ("tiny/__init__.py", "tiny/main.py", "tiny/sub/__init__.py", "tiny/sub/deep/part.py")
OTHERS = (
    *("setup.py", "conftest.py", "other/__init__.py", "tests/__init__.py", "tests/test_a.py"),
    *("tiny/conftest.py", "tiny/test_main.py", "tiny/tests/__init__.py", "tiny/tests/helpers.py"),
    *("tiny/tests/unit/test_b.py", "tiny/sub/tests/test_c.py", "tiny/sub/tests/data/d.py"),
    *("tiny/sub/names.txt", "tiny/sub/not-a-module/README"),
)


@pytest.fixture
def complete(project: Path) -> Path:
    for name in (*SOURCES, *OTHERS):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("A = 1\n")
    (project / "tiny" / "empty.py").touch()
    return project


def test_a_complete_wheel(complete: Path) -> None:
    assert unpackaged(complete, SOURCES) == []


@pytest.mark.parametrize(
    ("installed", "missing"),
    [
        (SOURCES[:2], ["tiny.sub.deep.part"]),
        (SOURCES[:3], ["tiny.sub.deep.part"]),
        (SOURCES[::3], ["tiny.main"]),
        ((), ["tiny", "tiny.main", "tiny.sub.deep.part"]),
    ],
)
def test_a_wheel_that_lacks_modules(
    complete: Path, installed: tuple[str, ...], missing: list[str]
) -> None:
    assert unpackaged(complete, installed) == missing


def test_a_wheel_that_lacks_a_small_package(complete: Path) -> None:
    (complete / "tiny" / "small").mkdir()
    (complete / "tiny" / "small" / "__init__.py").write_text("A = 1\n")
    assert unpackaged(complete, SOURCES) == ["tiny.small"]
    assert unpackaged(complete, SOURCES, PYTHONSAFEPATH="1") == []


def test_a_wheel_of_a_package_that_is_not_in_the_root(complete: Path) -> None:
    (complete / "src").mkdir()
    (complete / "tiny").rename(complete / "src" / "tiny")
    assert unpackaged(complete, SOURCES[:2]) == []


def planned(*command: str, **variables: str) -> StagePlan:
    return stage_plan("tests", *command, kind=StageKind.PYTEST, environment=variables)


@pytest.mark.parametrize(
    ("command", "variables", "noted"),
    [
        pytest.param(PYTEST, {}, True, id="python -m pytest"),
        pytest.param(("python3", "-W", "error", *PYTEST[1:]), {}, True, id="with an option"),
        pytest.param((*PYTEST, "--import-mode=importlib"), {}, True, id="the folder stays first"),
        pytest.param(PYTEST, {"PYTHONSAFEPATH": "1"}, False, id="safe by its environment"),
        pytest.param(("python", "-P", *PYTEST[1:]), {}, False, id="safe"),
        pytest.param(("python", "-bI", *PYTEST[1:]), {}, False, id="isolated"),
        pytest.param(("pytest", "tests", "-m", "slow"), {}, False, id="pytest"),
        pytest.param(("sh", "-c", "cd tests; pytest"), {}, False, id="unknown"),
    ],
)
def test_when_it_is_noted(
    command: tuple[str, ...], variables: Mapping[str, str], *, noted: bool
) -> None:
    stage = planned(*command, **variables)
    assert bool(source_notes({"uncompiled": ["tiny._fast"]}, stage)) == noted
    assert bool(source_notes({"unpackaged": ["tiny"]}, stage)) == noted
    for forged in (None, 3, [], [3], ["a\nb"], ["a b"]):
        assert source_notes({"uncompiled": forged, "unpackaged": forged}, stage) == []


REQUIRES = """\
[build-system]
requires = ["Tiny>=1", "tiny>=2,<3", "no_such.backend", "other; python_version < '3'"]
"""


@pytest.mark.parametrize(
    ("text", "unmet"),
    [
        (REQUIRES, ["tiny<3,>=2", "no_such.backend"]),
        ("[build-system]\nrequires = ['not a requirement']\n", []),
        ("[build-system\n", []),
        ("[project]\n", []),
    ],
)
def test_requirements_of_the_build_that_are_missing(
    project: Path, text: str, unmet: list[str]
) -> None:
    (project / "pyproject.toml").write_text(text)
    assert recorded(project)["unmet"] == unmet


def test_when_missing_requirements_are_noted() -> None:
    facts = {"unmet": ["hatchling>=1", "hatch-vcs"]}
    plain = ("python", "-m", "pip", "install", ".")
    [note] = requirement_notes(facts, [planned(*plain, "--no-build-isolation")])
    assert note == on_rows.requirements_missing("tests", ["hatchling>=1", "hatch-vcs"])
    assert requirement_notes(facts, [planned("sh", "-c", "pip install --no-build-isolation .")])
    assert requirement_notes(facts, [planned(*plain)]) == []
    assert requirement_notes(facts, []) == []
    for forged in (None, 3, [], [3]):
        failed = planned(*plain, "--no-build-isolation")
        assert requirement_notes({"unmet": forged}, [failed]) == []
