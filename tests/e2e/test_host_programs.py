"""Which programs a run starts on this machine, outside of its stages."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.benches import engine_or_skip
from tests.e2e.places import ROOT, Place, project_files

# As the installed program does, Python does not search the current folder.
PROGRAM = """\
import runpy, sys
sys.executable = sys.argv.pop(1)
sys.path[0] = {root!r}
runpy.run_module("ci", run_name="__main__", alter_sys=True)
"""
# Python runs this where it can: no container has the folder.
PYTHON = """\
import os, sys
if os.path.isdir({folder!r}):
    with open({ran!r}, "a") as file:
        file.write(__file__ + "\\n")
"""
SHELL = "#!/bin/sh\n[ ! -d {folder} ] || echo $0 >> {ran}\n"
MODULES = (
    "noxfile.py",
    "setup.py",
    "sitecustomize.py",
    "usercustomize.py",
    "virtualenv.py",
    "ensurepip/__init__.py",
    "pip/__init__.py",
    "docker/__init__.py",
    "yaml.py",
)
PROGRAMS = ("git", "python", "python3", "rm", "docker-credential-own", ".envrc", "hooks/pre-build")
SETTINGS = {
    "pyproject.toml": "build-system = {requires=[], build-backend='setup', backend-path=['.']}\n",
    "pip.conf": "[global]\nindex-url = https://index.invalid\n",
    ".docker/config.json": json.dumps({"credsStore": "own"}),
    "own.pth": "import setup\n",
    ".gitattributes": "* filter=own\n",
    "Dockerfile": "FROM no-such-image\n",
    "tox.ini": "[pytest]\n",
}
EXECUTED = re.compile(r'execve\("((?:[^"\\]|\\.)+)".* = 0$', re.MULTILINE)


@pytest.fixture
def traced() -> list[str]:
    """The command that records every program that another one starts."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    if subprocess.run(["strace", "-o", os.devnull, "true"], check=False).returncode:
        pytest.skip("strace may not trace processes here")
    return ["strace", "-f", "-qq", "-e", "trace=execve", "-s", "4096"]


@pytest.fixture
def place(tmp_path: Path, python: str) -> Place:
    """A project full of files that other tools execute."""
    ran = {"folder": str(tmp_path), "ran": str(tmp_path / "ran")}
    files = project_files("host-programs", "def test_a(): pass\n") | SETTINGS
    files["ci.yaml"] = files["ci.yaml"].replace("python -m pytest", "pytest")
    place = Place.make(tmp_path, "", python, files)
    place.write({name: PYTHON.format(**ran) for name in MODULES})
    place.write({name: SHELL.format(**ran) for name in PROGRAMS})
    for name in PROGRAMS:
        (place.source / name).chmod(0o755)
    for key in ("core.fsmonitor", "filter.own.clean", "filter.own.smudge"):
        place.git("config", key, "./git")
    place.git("config", "core.hooksPath", "hooks")
    return place


def run(place: Place, *before: str, options: tuple[str, ...]) -> None:
    """Run the project in its own folder, with relative folders on ``PATH``."""
    program = place.folder / "infini-ci"
    program.write_text(PROGRAM.format(root=str(ROOT)))
    path = os.pathsep.join([place.environment["PATH"], ".", ""])
    command = [sys.executable, str(program), place.python, "run", "cpu", *options]
    finished = subprocess.run(
        [*before, *command, *place.results_option, "--config", "ci.yaml"],
        cwd=place.source,
        env={**place.environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert not (place.folder / "ran").exists(), (place.folder / "ran").read_text()


def programs(log: Path) -> set[str]:
    return {name.rpartition("/")[2] for name in EXECUTED.findall(log.read_text())}


def test_a_plan_starts_git_alone(place: Place, traced: list[str]) -> None:
    log = place.folder / "log"
    run(place, *traced, "-o", str(log), options=("--engine", "host", "--dry-run"))
    names = programs(log)
    assert "git" in names
    assert {name for name in names if not name.startswith("python")} == {"git"}


@pytest.mark.docker
def test_a_run_in_a_container_starts_git_alone(place: Place, traced: list[str]) -> None:
    engine_or_skip("docker")
    log = place.folder / "log"
    run(place, *traced, "-o", str(log), options=("--engine", "docker"))
    assert {name for name in programs(log) if not name.startswith("python")} <= {"git", "rm"}


def test_an_environment_of_the_host_engine_is_made_without_the_sources(place: Place) -> None:
    """The stages are not kept apart: the note of the row reports it."""
    run(place, options=("--engine", "host"))
    [result] = (place.folder / "results").glob("2*/results.json")
    [row] = json.loads(result.read_text())["platforms"]
    assert [note for note in row["notes"] if "host engine" in note], row["notes"]
