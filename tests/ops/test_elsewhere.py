"""The library in another folder than torch's: ``pip install --target`` and ``--user``.

Such a folder has the files of the wheel, so a copy of the installed package is the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import infini.ops

PACKAGE = infini.ops.include_dir().parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH that has only the library."""
    shutil.copytree(PACKAGE, tmp_path / "infini" / "ops")
    return tmp_path


def python(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.full_suite
@pytest.mark.operators("abs")
def test_python_finds_torch(folder: Path) -> None:
    finished = python(
        folder,
        """
import infini.ops, torch
out = torch.zeros(2)
infini.ops.abs(torch.tensor([-1.0, 2.0]), out)
print(infini.ops.__file__, out.tolist())
""",
    )
    assert finished.stdout == f"{folder}/infini/ops/__init__.py [1.0, 2.0]\n", finished.stderr


def test_without_torch_the_remedy_is_named(folder: Path) -> None:
    finished = python(folder, "import sys; sys.modules['torch'] = None; import infini.ops")
    assert finished.returncode == 1
    *_, message = finished.stderr.splitlines()
    assert message.startswith(
        f"ImportError: infini.ops was built with torch, which {sys.executable} can't import: "
    )
    assert message.endswith(
        "Install the torch that it was built with, or run the Python that has it"
    )
