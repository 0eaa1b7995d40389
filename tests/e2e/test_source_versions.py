"""Build plugins that ask git for the version, with the releases that the index has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ci.util.invocation import REPOSITORY

HATCHLING = "hatchling.build"
SETUPTOOLS = "setuptools.build_meta"
HATCH = '[tool.hatch.version]\nsource = "{}"\n'
SCM = "[tool.setuptools_scm]\n"
# The requirements, the backend and the settings of a plugin, and the version that it finds.
PLUGINS = {
    "setuptools-scm": (["setuptools>=80", "setuptools-scm"], SETUPTOOLS, SCM, "1.3.dev1+g{0}"),
    "hatch-vcs": (["hatchling", "hatch-vcs"], HATCHLING, HATCH.format("vcs"), "1.3.dev1+g{0}"),
    "versioningit": (
        ["hatchling", "versioningit"],
        HATCHLING,
        HATCH.format("versioningit"),
        "1.2.post1+g{0}",
    ),
}
TESTS = """
from importlib.metadata import version
from pathlib import Path

import tiny

def test_version():
    assert version("tiny").startswith({version!r})

def test_data():
    assert Path(tiny.__file__).with_name("data.txt").exists()
"""


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]
    command = ["git", *who, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def write_project(folder: Path, plugin: str, settings: str = "") -> None:
    """Write a project without tests."""
    requirements, backend, own, _ = PLUGINS[plugin]
    build = f"[build-system]\nrequires = {json.dumps(requirements)}\nbuild-backend = {backend!r}\n"
    project = '[project]\nname = "tiny"\ndynamic = ["version"]\n'
    (folder / "src/tiny").mkdir(parents=True)
    (folder / "src/tiny/__init__.py").touch()
    (folder / "src/tiny/data.txt").touch()
    (folder / "pyproject.toml").write_text(f"{build}{project}{own}{settings}")
    (folder / "ci.yaml").write_text("project: tiny\nplatforms:\n  cpu: {}\n")


def check(top: Path, project: Path, plugin: str, engine: str, results: Path) -> None:
    """Run the project, whose tests expect the version of the commit."""
    git(top, "init", "--quiet")
    git(top, "add", ".")
    git(top, "commit", "--quiet", "--message", "one")
    git(top, "tag", "v1.2")
    git(top, "commit", "--quiet", "--allow-empty", "--message", "two")
    # Plugins differ in the digits of a commit. The file is untracked, which none of them counts.
    commit = git(top, "rev-parse", "HEAD")[:7]
    (project / "tests").mkdir()
    version = PLUGINS[plugin][-1].format(commit)
    (project / "tests/test_tiny.py").write_text(TESTS.format(version=version))
    command = [sys.executable, "-m", "ci", "run", "cpu", "--engine", engine]
    done = subprocess.run(
        [*command, "--source", project, "--config", project / "ci.yaml", "--results", results],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.complete  # tests/ci/plan/test_git_history.py asks git what they ask
@pytest.mark.parametrize("plugin", PLUGINS)
def test_version_is_that_of_the_commit(tmp_path: Path, plugin: str) -> None:
    project = tmp_path / "project"
    write_project(project, plugin)
    check(project, project, plugin, "host", tmp_path / "results")


@pytest.mark.complete
@pytest.mark.docker
def test_version_above_the_sources_in_a_container(tmp_path: Path) -> None:
    top = tmp_path / "top"
    write_project(top / "python", "setuptools-scm", 'root = ".."\n')
    check(top, top / "python", "setuptools-scm", "docker", tmp_path / "results")
