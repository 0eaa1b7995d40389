"""Any fault of this program: exit code 3, and never the product's 1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ci.util.invocation import REPOSITORY

# Found by Python itself, before anything of this program is imported.
SITE = """
import sys

class Fault:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise {fault}

sys.meta_path.insert(0, Fault())
"""


@pytest.mark.parametrize(
    ("module", "fault", "message"),
    [
        ("ci.commands.platforms", "KeyError('stage')", "KeyError: 'stage'"),
        ("ci.commands.platforms", "RecursionError('deep')", "RecursionError: deep"),
        ("ci.commands.platforms", "MemoryError()", "MemoryError"),
        ("ci.commands.platforms", "ModuleNotFoundError('x', name='ci.x')", "ModuleNotFoundError"),
        ("ci.cli", "SyntaxError('no Python')", "SyntaxError: no Python"),
    ],
)
def test_a_fault_is_exit_code_3(tmp_path: Path, module: str, fault: str, message: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITE.format(module=module, fault=fault))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "ci", "platforms"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    first, second, *traceback = done.stderr.splitlines()
    assert first.startswith(f"error: internal error of this program: {message}")
    assert "sitecustomize.py, line " in first
    assert second.startswith("Please report it with the traceback below.")
    assert traceback[0] == "Traceback (most recent call last):"
