"""This project as it ships: source distribution, its wheel, a clean installation, the suite."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ci.model.results import PlatformResult
from ci.model.verdicts import Harness, Product
from ci.store.folder import RESULTS_FILE, read_results
from ci.util.invocation import REPOSITORY
from tests.built import run

BUILD = "from scikit_build_core.build import build_sdist; build_sdist({!r})"

pytestmark = pytest.mark.complete


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    done = run(sys.executable, "-c", BUILD.format(str(folder)), folder=REPOSITORY)
    assert done.returncode == 0, done.stderr
    [path] = folder.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def result(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> PlatformResult:
    """A run of few operators, without the package of the sources; its wheel is beside the sdist."""
    results = tmp_path_factory.mktemp("results")
    words = ("run", "cpu", "--engine", "host", "--select", "add", "--sdist", sdist)
    done = run(sys.executable, "-m", "ci", *words, "--results", results, folder=REPOSITORY)
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = results.glob(f"2*/{RESULTS_FILE}")
    found = read_results(path).platform("cpu")
    for it in found.distributions:
        assert it.path
        (path.parent / it.path).replace(sdist.with_name(it.name))
    return found


def test_the_wheel_of_the_source_distribution_passes_the_suite(
    sdist: Path, result: PlatformResult
) -> None:
    assert (result.verdict.product, result.verdict.harness) == (Product.PASSED, Harness.CLEAN)
    [count] = (it for it in result.overloads if it.slot == 8)
    assert 0 < count.active == count.passed
    files = {it.name.rpartition(".")[2]: it for it in result.distributions}
    assert (files["gz"].name, files["gz"].given) == (sdist.name, True)
    assert files["whl"].installed
    assert files["whl"].glibc
    assert "libtorch_cpu.so" in files["whl"].libraries
    assert any("removed from the sources" in note for note in result.notes)


def test_an_index_takes_both_files(sdist: Path, result: PlatformResult) -> None:
    files = [sdist.with_name(it.name) for it in result.distributions]
    wheels = [it for it in files if it.suffix == ".whl"]
    for command in (("twine", "check", "--strict", *files), ("check_wheel_contents", *wheels)):
        done = run(sys.executable, "-m", *command, folder=sdist.parent)
        assert done.returncode == 0, done.stdout + done.stderr
