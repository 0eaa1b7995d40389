"""A machine without a network: the orchestrator and a run come from a folder of wheels."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ci.plan import source
from ci.util.invocation import REPOSITORY
from tests.e2e.plans import write_project
from tests.e2e.test_bundle import NETWORK_VARIABLES, without_network

CONFIG = """\
project: tiny
platforms:
  cpu: {requirements: needs.txt}
stages:
- name: install
  command: python -m pip install . --no-build-isolation
- name: pytest
  kind: pytest
  command: python -m pytest tests -k answer
"""


def copy_checkout(folder: Path) -> Path:
    """Copy this checkout, without its environments."""
    for name in source.files(REPOSITORY):
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / name)
    return folder


@pytest.mark.complete  # minutes: test_doctor.py and test_vendor_python.py have its parts
def test_a_release_from_a_folder_of_wheels(tmp_path: Path) -> None:
    without_route = without_network()
    if not without_route:
        pytest.skip("this user may not make a network namespace")
    connected, alone = copy_checkout(tmp_path / "connected"), copy_checkout(tmp_path / "alone")
    project = tmp_path / "project"
    write_project(project)
    (project / "ci.yaml").write_text(CONFIG)
    (project / "needs.txt").write_text("pytest\npytest-reportlog\nsetuptools>=77\n")

    def nox(folder: Path, *words: str, prefix: list[str], **variables: str) -> str:
        kept = {
            n: v for n, v in os.environ.items() if not prefix or not n.startswith(NETWORK_VARIABLES)
        }
        done = subprocess.run(
            [*prefix, sys.executable, "-S", "noxfile.py", "-s", *words],
            cwd=folder,
            env={**kept, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    nox(connected, "wheels", "--", "--requirement", str(project / "needs.txt"), prefix=[])
    (connected / "wheels").rename(alone / "wheels")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(alone / "wheels")}
    offline["PIP_CONFIG_FILE"] = os.devnull
    engine = ("--engine", "host", "--source", str(project))
    shown = nox(alone, "build-cpu", "--", *engine, prefix=without_route, **offline)
    assert "1 passed" in shown
    document = json.loads((alone / "results" / "latest" / "results.json").read_text())
    [row] = document["platforms"]
    assert (row["verdict"]["product"], row["verdict"]["harness"]) == ("passed", "clean")
