"""Plugins of pytest that a vendor's image has, beside this project's suites."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.built import built_once

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "anyio==4.16.0",
    "coverage==7.17.5",
    "hypothesis==6.170.17",
    "py-cpuinfo==9.0.0",
    "pytest-benchmark==5.2.3",  # warns in `pytest_configure` if pytest-xdist is active
    "pytest-cov==7.1.0",
    "pytest-mock==3.17.0",
    "pytest-timeout==2.4.0",
)
# It has the settings of the operator suite, and needs no library.
SUITE = "tests/guards/test_quarantine.py"


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def install(folder: Path) -> None:
        # Without pytest itself, which would replace ours.
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile")
        subprocess.run([*pip, "--target", folder, *PACKAGES], check=True)

    return built_once(tmp_path_factory, "foreign-plugins", install)


def test_a_suite_loads_only_those_that_it_needs(foreign: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", SUITE, "-n", "2", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(foreign)},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    [plugins] = [line for line in finished.stdout.splitlines() if line.startswith("plugins: ")]
    names = {each.rpartition("-")[0] for each in plugins.removeprefix("plugins: ").split(", ")}
    assert names == {"xdist", "reportlog"}
