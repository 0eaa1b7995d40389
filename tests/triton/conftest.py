"""Shared by the tests of the Triton backend: all kernels of the tree, compiled once."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess

import pytest
from triton_workplace import TARGETS, Generated, Library, run_cmake

from codegen.triton.cache import VARIABLE
from codegen.triton.generation import Request, generate


@pytest.fixture(scope="session")
def _triton() -> None:
    """Skips where there is no Triton, without importing it here: that takes a second."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")


@pytest.fixture(scope="session")
def generated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _triton: None
) -> Generated:
    """Everything in src/triton/ops, for both targets.

    It takes a minute of processor time, so what did not change is kept from run to run.
    """
    folder = tmp_path_factory.mktemp("triton")
    assert request.config.cache
    cache = request.config.cache.mkdir("triton")
    generate(Request(targets=TARGETS, workers=2, cache=cache), folder)
    rows = json.loads((folder / "triton" / "kernels.json").read_text())
    return Generated(folder=folder, cache=cache, rows=rows)


@pytest.fixture(scope="session")
def _tools() -> None:
    for name in ("cmake", "ninja", "c++"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="session")
def library(
    generated: Generated, tmp_path_factory: pytest.TempPathFactory, _tools: None
) -> Library:
    """Its kernels come from the cache."""
    build = tmp_path_factory.mktemp("library")
    options = ("-DWITH_NVIDIA=ON", "-DWITH_CUDA_KERNELS=OFF", "-DWITH_CPU=OFF")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(generated.cache))
        finished = run_cmake(build, *options)
    assert finished.returncode == 0, finished.stderr
    assert ", 0 compiled; " in finished.stdout
    subprocess.run(["ninja", "-C", build, "infini_ops"], check=True, stdout=subprocess.DEVNULL)
    return Library(build=build, options=options)
