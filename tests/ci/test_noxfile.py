"""The environment that the sessions of ``ci`` share: made once, and completed by its list."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from ci.util.invocation import REPOSITORY

# Asks noxfile.py for the environment of some groups, and prints the programs that this ran. nox is
# not here: this has what the file uses of it, and a group is the path of a wheel.
ASK = """
import importlib.util, pathlib, subprocess, sys, types
nox = types.ModuleType("nox")
nox.options = types.SimpleNamespace()
nox.session = lambda function=None, **_: function or (lambda decorated: decorated)
nox.Session = object
nox.project = types.SimpleNamespace(load_toml=lambda _: {}, dependency_groups=lambda _, *it: it)
sys.modules["nox"] = nox
spec = importlib.util.spec_from_file_location("noxfile", "noxfile.py")
noxfile = importlib.util.module_from_spec(spec)
spec.loader.exec_module(noxfile)
def install(*words, **_):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    print(words[2])
folder, *groups = sys.argv[1:]
cache = pathlib.Path(folder, ".cache")
python = noxfile.ci_python(types.SimpleNamespace(cache_dir=cache, run_install=install), *groups)
assert python == f"{folder}/ci/bin/python"
"""


def ask(folder: Path, *groups: str) -> list[str]:
    """Return the programs that ran to make or to complete the environment."""
    command = [sys.executable, "-c", ASK, str(folder), *groups]
    return subprocess.check_output(command, cwd=REPOSITORY, text=True).split()


@pytest.fixture
def wheels(tmp_path: Path) -> list[str]:
    """Two packages without dependencies."""
    paths = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}-1.0-py3-none-any.whl"
        with ZipFile(path, "w") as wheel:
            about = f"{name}-1.0.dist-info"
            wheel.writestr(f"{name}.py", "")
            wheel.writestr(
                f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0"
            )
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any")
            wheel.writestr(f"{about}/RECORD", "")
        paths.append(str(path))
    return paths


def test_sessions_share_an_environment(tmp_path: Path, wheels: list[str]) -> None:
    one, two = wheels
    folder = tmp_path / "envs"
    folder.mkdir()
    assert ask(folder, one) == ["virtualenv", "pip"]
    assert ask(folder, one) == []
    assert ask(folder, one, two) == ["pip"]
    assert ask(folder, one) == []  # it has more than this
    python = folder / "ci" / "bin" / "python"
    subprocess.run([python, "-c", "import one, two"], check=True)
    (folder / "ci" / "installed.txt").unlink()  # as an interrupted install leaves it
    assert ask(folder, one) == ["virtualenv", "pip"]
    python.unlink()  # as when its Python is gone
    assert ask(folder, one) == ["virtualenv", "pip"]
