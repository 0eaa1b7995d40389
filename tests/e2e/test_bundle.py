"""A bundle made here and run where there is nothing but a Docker Engine: the same row."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ci.engines.docker.engine import DockerEngine
from tests.e2e.benches import Bench, engine_or_skip
from tests.e2e.plans import PROJECT

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """\
project: tiny
platforms:
  cpu:
    base_image: {base}
    recipe: Dockerfile
    environment: {{GREETING: good morning}}
stages:
- {{name: install, command: "python -m pip install .[extra]"}}
- {{name: pytest, kind: pytest, command: python -m pytest tests}}
"""
# Neither is in the image: setuptools comes into an isolated build, toolz from the extra.
EXTRA = '\n[project.optional-dependencies]\nextra = ["toolz"]\n'
IMPORT = "\n\ndef test_extra():\n    import toolz\n"
NETWORK_VARIABLES = ("PIP_", "SSL_", "REQUESTS_", "HTTP", "http", "INFINI_CI_")


class Place:
    """The tiny project under git, and an image of its own on the engine."""

    def __init__(self, folder: Path, engine: DockerEngine) -> None:
        self.folder, self.images = folder, engine.images
        self.base = f"infini-ci/bundle-test-base:{uuid.uuid4().hex[:12]}"
        self.file = folder / "tiny bundle.tar"  # a name to be quoted
        bench = Bench(engine, folder)
        tools = engine.prepare(bench.plan(), bench.observer)  # shared with the other tests
        docker("tag", tools.reference, self.base)
        for name, text in PROJECT.items():
            added = {"pyproject.toml": EXTRA, "tests/test_tiny.py": IMPORT}.get(name, "")
            (folder / "project" / name).write_text(text + added)
        (folder / "project" / "ci.yaml").write_text(CONFIG.format(base=self.base))
        recipe = f"ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\nLABEL bundle-test={self.base}\n"
        (folder / "project" / "Dockerfile").write_text(recipe)
        git = ("git", "-C", str(folder / "project"), "-c", "user.name=t", "-c", "user.email=t@t")
        for command in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "first")):
            subprocess.run([*git, *command], check=True)

    def ci(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ci", *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    def forget_images(self) -> None:
        found = docker("images", "--quiet", "--filter", f"label=bundle-test={self.base}")
        docker("rmi", "--force", *found.split(), self.base)


def docker(*arguments: str) -> str:
    command = ["docker", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    engine = engine_or_skip("docker")
    assert isinstance(engine, DockerEngine)
    place = Place(tmp_path_factory.mktemp("bundle"), engine)
    yield place
    place.forget_images()


def document(results: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((results / "latest" / "results.json").read_text())
    return loaded


def without_network() -> list[str]:
    """A network namespace with nothing in it, where this user may make one."""
    command = ["unshare", "--net"]
    made = subprocess.run([*command, "true"], capture_output=True, check=False)
    return command if made.returncode == 0 else []


@pytest.mark.docker
@pytest.mark.complete  # tests/ci/upkeep/test_bundle_file.py has its parts
def test_the_same_row_from_nothing_but_the_file(place: Place, tmp_path: Path) -> None:
    source = place.folder / "project"
    here = place.ci("run", "cpu", "--source", source, "--results", place.folder / "results")
    assert here.returncode == 1, here.stderr  # one of the tests fails
    packed = place.ci("bundle", "cpu", "--source", source, "--output", place.file)
    assert packed.returncode == 0, packed.stderr
    place.forget_images()

    there = tmp_path / "there"
    there.mkdir()
    os.link(place.file, there / place.file.name)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(NETWORK_VARIABLES)
    }
    python, *commands = packed.stdout.split("on the other machine:")[1].split("python3 ", 1)
    script = f"set -e\n{python}{shlex.quote(sys.executable)} {commands[0]}"
    finished = subprocess.run(
        [*without_network(), "sh", "-c", script],
        cwd=there,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1, finished.stderr
    assert "(from the bundle)" in finished.stderr

    one, other = document(place.folder / "results"), document(there / "results")
    assert (one["project"], one["commit"], one["dirty"]) == (
        other["project"],
        other["commit"],
        other["dirty"],
    )
    ((one,), (other,)) = (one["platforms"], other["platforms"])
    for key in ("platform", "label", "built", "verdict", "notes"):
        assert one[key] == other[key], key
    counts = ("passed", "failed", "errors", "skipped")
    assert [one["pytest"][name] for name in counts] == [3, 1, 0, 0]
    assert [other["pytest"][name] for name in counts] == [3, 1, 0, 0]
    images = [row["environment"]["engine"]["image"]["digest"] for row in (one, other)]
    assert images[0] == images[1]
    log = (there / "results" / "latest" / "cpu" / "install.log").read_text()
    assert "Looking in links: /opt/infini-ci/wheels" in log
    assert "http" not in log

    again = place.ci("run", "--bundle", place.file, "--results", tmp_path / "again")
    assert "(from the bundle, already on the engine)" in again.stderr

    results = ("--results", tmp_path / "kept")
    place.ci("run", "--bundle", place.file, "--keep", *results)
    name = document(tmp_path / "kept")["platforms"][0]["environment"]["engine"]["kept"]
    test = "tests/test_tiny.py::test_answer"
    rerun = place.ci("rerun", "latest", "cpu", test, *results)
    assert rerun.returncode == 0, rerun.stderr
    shell = place.ci("shell", "latest", "cpu", *results)
    assert shell.returncode == 0, shell.stderr
    assert "no longer exists" not in shell.stderr
    docker("rm", "--force", "--volumes", name)
