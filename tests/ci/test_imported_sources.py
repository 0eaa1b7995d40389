"""Compiled modules that the tests cannot have imported, because the sources came first."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from ci.agent.machine import tool_facts
from ci.facts.notes import source_notes
from ci.model.job import Column, StageKind, StagePlan

FILE = f"tiny/_fast{EXTENSION_SUFFIXES[0]}"
PYTEST = ("python", "-m", "pytest")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "a project"
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny" / "__init__.py").touch()
    return folder


def uncompiled(project: Path, origin: Mapping[str, object], **variables: str) -> object:
    """What the agent records of a project whose installation has one compiled module."""
    site = project.parent / "site"
    metadata = site / "tiny-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
    (metadata / "RECORD").write_text(
        f"tiny/__init__.py,,\n{FILE},,\n_alone{EXTENSION_SUFFIXES[0]},,\n"
    )
    (metadata / "direct_url.json").write_text(json.dumps(origin))
    facts = tool_facts({**os.environ, "PYTHONPATH": str(site), **variables}, project)
    assert isinstance(facts["packages"], dict)
    assert facts["packages"]["tiny"] == "1"
    return facts["uncompiled"]


def test_a_module_that_the_sources_lack(project: Path) -> None:
    assert uncompiled(project, {"url": project.as_uri(), "dir_info": {}}) == ["tiny._fast"]


def test_a_module_that_was_compiled_in_the_sources(project: Path) -> None:
    (project / FILE).touch()
    assert uncompiled(project, {"url": project.as_uri(), "dir_info": {}}) == []


def test_a_package_that_is_not_in_the_root(project: Path) -> None:
    (project / "src").mkdir()
    (project / "tiny").rename(project / "src" / "tiny")
    assert uncompiled(project, {"url": project.as_uri(), "dir_info": {}}) == []


@pytest.mark.parametrize(
    "origin",
    [
        pytest.param({"url": "https://example.org/tiny.whl", "archive_info": {}}, id="a download"),
        pytest.param({"url": "file:///", "dir_info": {}}, id="another folder"),
        pytest.param({"url": 3}, id="not pip's"),
    ],
)
def test_what_is_not_this_project(project: Path, origin: Mapping[str, object]) -> None:
    assert uncompiled(project, origin) == []


def test_an_editable_installation(project: Path) -> None:
    assert uncompiled(project, {"url": project.as_uri(), "dir_info": {"editable": True}}) == []


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
    stage = StagePlan(
        name="tests",
        kind=StageKind.PYTEST,
        command=command,
        environment=variables,
        timeout_s=60.0,
        column=Column.PYTEST,
    )
    assert bool(source_notes({"uncompiled": ["tiny._fast"]}, stage)) == noted
    for forged in (None, 3, [], [3], ["a\nb"], ["tiny"]):
        assert source_notes({"uncompiled": forged}, stage) == []
