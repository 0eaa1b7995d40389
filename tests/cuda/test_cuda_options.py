"""How CMake handles WITH_CUDA_KERNELS, before it compiles."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.cuda.toolkit import configure, find_nvcc

pytestmark = [
    pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed"),
    pytest.mark.skipif(shutil.which("ninja") is None, reason="ninja is not installed"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler is installed"),
]

VENDORS = [
    ("iluvatar", "COREX_HOME", "bin/clang++", "ivcore", "nvidia"),
    ("metax", "MACA_PATH", "mxgpu_llvm/bin/mxcc", "maca", "metax"),
    ("moore", "MUSA_HOME", "bin/mcc", "musa", "moore"),
]


def refusal(build: Path, *options: str) -> str:
    """What a configuration fails with, on one line."""
    configured = configure(build, *options)
    assert configured.returncode != 0
    return re.sub(r"\s+", " ", configured.stderr)


def make_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize("accelerator", ["WITH_CPU=ON", "WITH_CAMBRICON=ON", "WITH_ASCEND=ON"])
def test_no_accelerator_that_takes_cuda(tmp_path: Path, accelerator: str) -> None:
    message = refusal(tmp_path, accelerator, "WITH_CUDA_KERNELS=ON")
    assert "WITH_CUDA_KERNELS is ON, but no enabled accelerator can run CUDA" in message
    assert "Set WITH_NVIDIA, WITH_ILUVATAR, WITH_METAX or WITH_MOORE to ON, or" in message


def test_a_toolkit_with_nothing_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = tmp_path / "toolkit" / "bin" / "nvcc"
    make_program(nvcc, f"echo '#$ TOP={nvcc.parent}/..' >&2")
    monkeypatch.setenv("CUDACXX", str(nvcc))
    message = refusal(tmp_path / "build", "WITH_NVIDIA=ON", "WITH_CUDA_KERNELS=ON")
    assert f"WITH_CUDA_KERNELS is ON, but the toolkit of {nvcc} lacks cuda_runtime.h, " in message
    assert "libcublas, libcublasLt. Set CMAKE_CUDA_COMPILER, or CUDACXX in the environm" in message
    assert "or set WITH_CUDA_KERNELS to OFF." in message


def test_the_default_without_a_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDACXX", str(tmp_path / "nvcc"))
    configured = configure(tmp_path / "build", "WITH_NVIDIA=ON")
    assert configured.returncode == 0, configured.stderr
    assert f"No CUDA kernels: the toolkit of {tmp_path}/nvcc lacks a working" in configured.stdout
    assert "cuda/add.cu" not in (tmp_path / "build" / "build.ninja").read_text()


def test_the_compiler_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it does not work: then another may be given in the same way."""
    nvcc = tmp_path / "bin" / "nvcc"
    make_program(nvcc, f'exec {find_nvcc()} "$@"')
    build = tmp_path / "build"
    options = ["WITH_NVIDIA=ON", "WITH_CUDA_KERNELS=ON"]
    monkeypatch.setenv("CUDACXX", str(tmp_path / "none"))
    assert "lacks a working nvcc" in refusal(build, *options)
    monkeypatch.setenv("CUDACXX", str(nvcc))
    assert f"Found {nvcc}: enabling" in configure(build, *options).stdout
    monkeypatch.delenv("CUDACXX")
    assert f"Found {nvcc}: enabling" in configure(build, *options).stdout


@pytest.mark.parametrize(
    ("option", "found"),
    [("WITH_CPU=ON", True), ("WITH_CUDA_KERNELS=OFF", False), ("AUTO_DETECT_BACKENDS=OFF", False)],
)
def test_the_default_with_a_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, found: bool
) -> None:
    """The wheels are found beside the Python that builds."""
    nvcc = find_nvcc()
    monkeypatch.setenv("CUDAToolkit_ROOT", str(nvcc.parents[1]))
    monkeypatch.delenv("CUDACXX", raising=False)
    configured = configure(tmp_path, "WITH_NVIDIA=ON", option)
    assert configured.returncode == 0, configured.stderr
    assert (f"Found {nvcc}: enabling WITH_CUDA_KERNELS" in configured.stdout) is found
    assert ("cuda/add.cu" in (tmp_path / "build.ninja").read_text()) is found


def test_an_invalid_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDAARCHS", "80;hopper")
    message = refusal(tmp_path, "WITH_NVIDIA=ON", "WITH_CUDA_KERNELS=ON")
    assert "CMAKE_CUDA_ARCHITECTURES has 'hopper'. Name each architecture by its number" in message


@pytest.mark.parametrize(("platform", "variable", "compiler", "language", "vendor"), VENDORS)
def test_a_vendor_without_its_sdk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    variable: str,
    compiler: str,
    language: str,
    vendor: str,
) -> None:
    """And with it: how its compiler would be called, which is all that can be tested without."""
    options = [f"WITH_{platform.upper()}=ON", "WITH_CUDA_KERNELS=ON"]
    monkeypatch.delenv(variable, raising=False)
    assert f"{variable} is '', which has no" in refusal(tmp_path / "build", *options)
    monkeypatch.setenv(variable, str(tmp_path / "sdk"))
    message = refusal(tmp_path / "build", *options)
    assert f"{variable} is '{tmp_path}/sdk', which has no {compiler}. Set " in message
    make_program(tmp_path / "sdk" / compiler, "exit 1")
    configured = configure(tmp_path / "build", *options)
    assert configured.returncode == 0, configured.stderr
    command = [
        "ninja",
        "-C",
        str(tmp_path / "build"),
        "-t",
        "commands",
        "src/cuda/elementwise.cu.o",
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"{tmp_path}/sdk/{compiler} -x {language} -fPIC" in said
    assert f"-DINFINI_OPS_ACCELERATOR=k{platform.title()} " in said
    assert f"/src/cuda/vendor/{vendor} " in said
