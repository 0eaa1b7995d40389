"""The bootstrap and the orchestrator on every Python from 3.11 that this machine has."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from ci.plan.source import write_archive
from tests.e2e.plans import PROJECT

ROOT = Path(__file__).resolve().parents[2]
MINORS = range(11, 15)
WHERE = "import os, sys; print(*sys.version_info[:2], os.path.realpath(sys.executable))"
TINY = {
    "pyproject.toml": PROJECT["pyproject.toml"],
    "src/tiny/__init__.py": PROJECT["src/tiny/__init__.py"],
    "tests/test_tiny.py": "import tiny\n\n\ndef test_answer():\n    assert tiny.ANSWER == 42\n",
    "ci.yaml": "project: tiny\nplatforms:\n  cpu: {}\n",
}


def interpreters(minor: int) -> Iterator[Path]:
    """Pythons of pyenv, of the distribution and on PATH; not those of virtual environments."""
    folders = [*Path.home().glob(".pyenv/versions/*/bin"), Path("/usr/bin"), Path("/usr/local/bin")]
    folders += [Path(folder) for folder in os.get_exec_path()]
    found = set()
    for folder in dict.fromkeys(folders):
        command = [str(folder / f"python3.{minor}"), "-c", WHERE]
        try:
            said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        except OSError:  # it does not exist, or this user may not run it
            continue
        path = Path(said.rpartition(" ")[2].strip())
        if said.startswith(f"3 {minor} ") and path not in found:
            found.add(path)
            yield path


@pytest.mark.machines
@pytest.mark.parametrize("minor", MINORS, ids=lambda minor: f"3.{minor}")
def test_a_first_run_and_its_reports(minor: int, tmp_path: Path) -> None:
    pythons = list(interpreters(minor))
    if not pythons:
        pytest.skip(f"this machine has no Python 3.{minor}")
    for name, text in TINY.items():
        path = tmp_path / "tiny" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    archive = BytesIO()
    write_archive(ROOT, archive)
    for number, python in enumerate(pythons):
        # Unpacked without `.git`, in a path with spaces.
        tree = tmp_path / f"infini ops {number}"
        archive.seek(0)
        with tarfile.open(fileobj=archive) as packed:
            packed.extractall(tree, filter="data")
        tiny = ("--source", tmp_path / "tiny", "--config", tmp_path / "tiny" / "ci.yaml")
        session = ("noxfile.py", "-s", "build-cpu", "--", "--engine", "host", *tiny)
        assert "1 passed" in run(tree, python, *session)
        installed = tree / ".nox" / "build-cpu" / "bin" / "python"
        assert f"3 {minor}" in run(tree, installed, "-c", WHERE)
        assert "1 passed" in run(tree, installed, "-m", "ci", "report")
        assert "cpu" in run(tree, installed, "-m", "ci", "history", "cpu").lower()


def run(folder: Path, python: Path, *arguments: str | Path) -> str:
    """Run a Python that has to succeed, and return both of its streams."""
    finished = subprocess.run(
        [python, *arguments],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout
    return finished.stdout
