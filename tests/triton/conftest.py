"""Shared by the tests of the Triton backend: all kernels of the tree, compiled once."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from codegen.triton.compiler import CACHE_VARIABLE
from codegen.triton.generation import Request, generate
from tests.built import built_once, cache_folder, cached_compiler
from tests.triton.triton_workplace import TARGETS, Generated, Library, run_cmake


@pytest.fixture(scope="session")
def _triton() -> None:
    """Skips where there is no Triton, without importing it here: that takes a second."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")


# Complete tests only: the kernels take 40 CPU-seconds for each target.
@pytest.fixture(scope="session", params=[pytest.param(None, id="all", marks=pytest.mark.complete)])
def generated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _triton: None
) -> Generated:
    """Everything in src/triton/ops; what did not change is kept from run to run."""
    cache = cache_folder(request, "triton")

    def compile_in(folder: Path) -> None:
        generate(Request(targets=TARGETS, workers=2, cache=cache), folder)

    folder = built_once(tmp_path_factory, "triton", compile_in)
    rows = json.loads((folder / "triton" / "kernels.json").read_text())
    return Generated(folder=folder, cache=cache, rows=rows)


@pytest.fixture(scope="session")
def _tools() -> None:
    for name in ("cmake", "ninja", "c++"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="session")
def library(
    request: pytest.FixtureRequest,
    generated: Generated,
    tmp_path_factory: pytest.TempPathFactory,
    _tools: None,
) -> Library:
    """Its kernels come from the cache."""
    options = ("-DWITH_NVIDIA=ON", "-DWITH_CUDA_KERNELS=OFF", "-DWITH_CPU=OFF")

    def compile_in(build: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {
                **cached_compiler(request),
                CACHE_VARIABLE: str(generated.cache),
            }.items():
                patch.setenv(name, value)
            finished = run_cmake(build, *options)
            assert finished.returncode == 0, finished.stderr
            assert ", 0 compiled; " in finished.stdout
            command = ["ninja", "-C", str(build), "infini_ops"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    build = built_once(tmp_path_factory, "triton-library", compile_in)
    return Library(build=build, options=options)
