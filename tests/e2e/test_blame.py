"""Two torches and two libraries, with one planted change each way, in real runs on both engines.

The torches are tiny: wheels in a folder, or modules of base images. The library is a module of the
project.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ci.engines import Engine
from tests.built import make_wheel
from tests.ci.stored_history import Project, git
from tests.e2e.fresh import docker
from tests.e2e.plans import OFFLINE_BASE
from tests.forked import run_ci

CONFIG = """\
project: tiny
platforms:
  cpu: {requirements: requirements.txt}
stages:
- {name: install, command: python build.py}
- {name: pytest, kind: pytest, command: python -m pytest -q tests}
"""
OLD_LINE = "torch==1.0  # as long as it works\n"
REQUIREMENTS = f"pytest\npytest-reportlog\n{OLD_LINE}"
BUILD = "import torch\nassert torch.__version__ != '3.0', 'no such torch'\n"
TESTS = """\
import torch
from library import is_new

is_other = torch.__version__ == "2.0"


def test_that_passes(): pass
def test_torch(): assert not is_other
def test_library(): assert not is_new
def test_both(): assert not (is_other and is_new)
def test_either(): assert not (is_other or is_new)
def test_always(): assert False
def test_unstable(pytestconfig): assert pytestconfig.pluginmanager.hasplugin("infini_ci_rerun")
"""
OF_THE_NEW = "def test_new(): assert not is_other\n"
EXPECTED = {
    "test_torch": "upstream",
    "test_library": "library",
    "test_both": "both together",
    "test_either": "each alone",
    "test_always": "failed before",
    "test_unstable": "environment",
    "test_new": "undecided",
}


@dataclass
class Lab:
    """The repository of the library, with a commit for each of its versions."""

    folder: Path
    python: str
    requirements: str = REQUIREMENTS
    engine: str = "host"

    def __post_init__(self) -> None:
        self.project = Project(folder=self.folder)
        self.project.commit()
        for version in ("1.0", "2.0", "3.0"):
            make_wheel(self.folder / "wheels", "torch", version)
        self.write("ci.yaml", CONFIG)
        self.write("requirements.txt", self.requirements)
        self.write("build.py", BUILD)
        self.commit(is_new=False)
        self.commit(is_new=True)

    def write(self, name: str, text: str) -> None:
        path = self.project.source / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def commit(self, *, is_new: bool) -> None:
        self.write("tests/library.py", f"is_new = {is_new}\n")
        self.write("tests/test_it.py", TESTS + (OF_THE_NEW if is_new else ""))
        git(self.project.source, "add", ".")
        self.project.commit()

    @property
    def environment(self) -> Mapping[str, str]:
        temporary = self.folder / "temporary"
        temporary.mkdir(exist_ok=True)
        wheels = {"PIP_FIND_LINKS": str(self.folder / "wheels"), "PIP_NO_INDEX": "1"}
        return {
            **os.environ,
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "TMPDIR": str(temporary),
            **(wheels if self.engine == "host" else {}),
        }

    def ci(self, *words: str) -> subprocess.CompletedProcess[str]:
        places = ("--source", self.project.source, "--results", self.project.results)
        return run_ci(*words, *places, environment=self.environment, python=self.python)

    def blame(self, old: str, new: str, *words: str, code: int = 1) -> dict[str, Any]:
        ends = ("--old-env", old, "--new-env", new)
        done = self.ci("blame", "cpu", "--engine", self.engine, *ends, *words, "--format", "json")
        assert done.returncode == code, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    @property
    def runs(self) -> int:
        return len([*self.project.results.glob("2*/results.json")])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, python: str) -> Lab:
    return Lab(tmp_path_factory.mktemp("blame"), python)


@pytest.mark.complete  # four runs
def test_a_change_each_way(lab: Lab) -> None:
    found = lab.blame("torch==1.0", "torch==2.0")
    faults = {it["test"].rpartition("::")[2]: it["fault"] for it in found["tests"]}
    assert faults == EXPECTED
    assert found["counts"] == dict.fromkeys(EXPECTED.values(), 1)
    [both] = [it for it in found["tests"] if it["test"].endswith("test_both")]
    passed = dict.fromkeys(("old", "new_library", "new_environment"), "passed")
    assert both["outcomes"] == {**passed, "new": "failed"}
    assert both["message"].startswith("assert not (True and True)")
    assert found["environment_changes"] == ["torch changed: torch 1.0 -> torch 2.0"]
    assert lab.runs == 4

    # The same command needs no other runs, nor does a file with what the requirement makes.
    file = lab.folder / "requirements-new.txt"
    file.write_text(REQUIREMENTS.replace(OLD_LINE, "torch==2.0\n"), encoding="utf-8")
    again = lab.blame("torch==1.0", str(file))
    assert (again["runs"], again["tests"]) == (found["runs"], found["tests"])
    assert lab.runs == 4
    shown = lab.ci("history", "cpu")
    assert "4 runs not shown, of blame (4)" in shown.stdout


@pytest.mark.complete  # four more runs
def test_an_environment_in_which_nothing_can_be_built(lab: Lab) -> None:
    found = lab.blame("torch==1.0", "torch==3.0")
    [it] = found["tests"]
    assert (it["test"], it["fault"]) == ("the build", "upstream")
    assert it["message"] == "AssertionError: no such torch"
    other = lab.blame("torch==3.0", "torch==2.0", code=3)  # no test can be judged
    assert set(other["counts"]) == {"environment", "undecided"}


@pytest.mark.complete
def test_nothing_fails(lab: Lab) -> None:
    lab.write("tests/test_it.py", "def test_that_passes(): pass\n")
    git(lab.project.source, "commit", "--quiet", "--all", "--message", "pass")
    before = lab.runs
    found = lab.blame("torch==1.0", "torch==2.0", code=0)
    assert (found["tests"], lab.runs) == ([], before + 1)


@pytest.fixture
def images(
    tmp_path: Path, ready_engine: Callable[[str], Engine]
) -> Iterator[tuple[Lab, Sequence[str]]]:
    """Two base images, as a vendor gives them out: each with a torch of its own."""
    ready_engine("docker").close()
    lab = Lab(tmp_path, sys.executable, requirements="pytest\npytest-reportlog\n", engine="docker")
    recipe = tmp_path / "recipe"
    recipe.write_text(
        f"FROM {OFFLINE_BASE}\nARG TORCH\nCOPY torch-$TORCH-py3-none-any.whl /\n"
        "RUN python3 -m zipfile -e /torch-$TORCH-*.whl /usr/lib/python3/dist-packages\n"
    )
    bases = []
    for version in ("1.0", "2.0"):
        bases.append(f"infini-ci-bases/blame-{uuid.uuid4().hex[:8]}:{version}")
        build = ("build", "--quiet", f"--file={recipe}", f"--build-arg=TORCH={version}")
        docker(*build, f"--tag={bases[-1]}", str(tmp_path / "wheels"))
    yield lab, bases
    files = lab.project.results.glob("2*/results.json")
    rows = [json.loads(path.read_text())["platforms"][0] for path in files]
    made = {row["environment"]["engine"]["image"]["reference"] for row in rows}
    docker("image", "rm", "--force", *sorted(made), *bases)


@pytest.mark.docker
@pytest.mark.complete  # four runs, and two images
def test_a_change_each_way_with_two_images(images: tuple[Lab, Sequence[str]]) -> None:
    lab, (old, new) = images
    found = lab.blame(old, new)
    faults = {it["test"].rpartition("::")[2]: it["fault"] for it in found["tests"]}
    assert faults == EXPECTED
    assert any("torch 1.0 -> torch 2.0" in it for it in found["environment_changes"])
    assert lab.runs == 4
    assert lab.blame(old, new)["tests"] == found["tests"]
    assert lab.runs == 4


def test_wrong_environments(lab: Lab) -> None:
    for old, new, message in (
        ("torch==1.0", "torch==1.0", "got torch==1.0 twice, expected two environments"),
        ("missing.txt", "torch==1.0", "--old-env: got 'missing.txt', expected an existing"),
        ("torch==1.0", "torch=1.0", "--new-env: got 'torch=1.0', expected a requirement: "),
        ("torch==1.0", "image:1", "expected one of containers for the base image image:1"),
    ):
        done = lab.ci("blame", "cpu", "--engine", "host", "--old-env", old, "--new-env", new)
        assert done.returncode == 2, done.stderr
        assert message in done.stderr
