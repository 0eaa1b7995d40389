"""Other plugins and versions of pytest than this project's own, such as a vendor's image has."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.built import built_once

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = (
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


def install(factory: pytest.TempPathFactory, name: str, *packages: str) -> Path:
    """Return a folder with these packages, without what they need."""

    def build(folder: Path) -> None:
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile")
        subprocess.run([*pip, "--target", folder, *packages], check=True)

    return built_once(factory, name, build)


def run_suite(packages: Path) -> subprocess.CompletedProcess[str]:
    """Run the suite with packages that hide those of this environment."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", SUITE, "-n", "2", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
    )


def test_a_suite_loads_only_the_plugins_that_it_needs(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    finished = run_suite(install(tmp_path_factory, "foreign-plugins", *FOREIGN))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    [plugins] = [line for line in finished.stdout.splitlines() if line.startswith("plugins: ")]
    names = {each.rpartition("-")[0] for each in plugins.removeprefix("plugins: ").split(", ")}
    assert names == {"xdist", "reportlog"}


def oldest() -> dict[str, str]:
    """Return the oldest versions that `pip install .[dev]` accepts, of pytest and its plugins."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = (each.partition(">=") for each in project["optional-dependencies"]["dev"])
    return {name: version for name, _, version in stated if name.startswith("pytest")}


def test_the_oldest_versions_run_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    packages = [f"{name}=={version}" for name, version in oldest().items()]
    finished = run_suite(install(tmp_path_factory, "oldest-pytest", *packages))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert f"pytest-{oldest()['pytest']}" in finished.stdout


def test_an_older_pytest_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    version = oldest()["pytest"]
    finished = run_suite(install(tmp_path_factory, "older-pytest", f"pytest<{version}"))
    assert finished.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"'minversion' requires pytest-{version}, actual pytest-" in finished.stderr
