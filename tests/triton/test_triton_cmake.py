"""WITH_TRITON: what CMake says to mistakes, and what the library is when it is built."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.triton.triton_workplace import ROOT, TARGETS, Library, run_cmake

pytestmark = pytest.mark.usefixtures("_tools")


def failure(build: Path, *options: str) -> str:
    """Configures, expects it to fail, and returns the message on one line."""
    finished = run_cmake(build, *options)
    assert finished.returncode != 0
    return re.sub(r"\s+", " ", finished.stderr)


@pytest.mark.parametrize(
    ("options", "got", "remedy"),
    [
        ([], "no accelerator", "Set WITH_NVIDIA to ON, or set WITH_TRITON to OFF"),
        (
            ["-DWITH_ASCEND=ON"],
            "WITH_ASCEND",
            "Set WITH_NVIDIA to ON and WITH_ASCEND to OFF, or set WITH_TRITON to OFF",
        ),
    ],
)
def test_another_accelerator(tmp_path: Path, options: list[str], got: str, remedy: str) -> None:
    message = failure(tmp_path, *options)
    assert "WITH_TRITON is ON, but its kernels are for NVIDIA's devices alone" in message
    assert f"got {got}. {remedy}." in message


def test_no_triton(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to("/usr/bin/false")
    python = tmp_path / "python"
    message = failure(
        tmp_path / "build", "-DWITH_NVIDIA=ON", f"-DTRITON_PYTHON_EXECUTABLE={python}"
    )
    assert "WITH_TRITON is ON, but its kernels can't be compiled." in message
    assert f"Run `{python} -m pip install triton==" in message
    assert "set TRITON_PYTHON_EXECUTABLE to a Python that has it, or set WITH_TRITON to" in message


def test_a_triton_that_is_too_old(tmp_path: Path) -> None:
    package = tmp_path / "site" / "triton"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "3.2.0"\n')
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path / "site"} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    message = failure(
        tmp_path / "build", "-DWITH_NVIDIA=ON", f"-DTRITON_PYTHON_EXECUTABLE={python}"
    )
    assert f"{package} is Triton 3.2.0; expected 3.3 or later." in message
    assert f"Run `{python} -m pip install triton==" in message


def test_a_selection_without_a_shared_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CMake also leaves out sources that are no operators, such as product.cc."""
    monkeypatch.setenv("INFINI_OPS_TORCH_OPS", "silu_and_mul")
    finished = run_cmake(tmp_path, "-DWITH_NVIDIA=ON", "-DTRITON_TARGETS=80")
    assert finished.returncode == 0, finished.stderr
    made = {path.name for path in tmp_path.rglob("triton/*.c")}
    assert made == {"silu_and_mul.c"}


def test_the_library_needs_neither_triton_nor_python(library: Library) -> None:
    finished = subprocess.run(
        ["ldd", library.path], capture_output=True, text=True, check=True, env={}
    )
    needed = {line.split()[0].split(".so")[0] for line in finished.stdout.splitlines()}
    loader = {name for name in needed if name.startswith(("/", "linux-vdso"))}
    assert needed - loader <= {"libstdc++", "libgcc_s", "libc", "libm", "libdl", "libpthread"}
    content = library.path.read_bytes()
    assert b"libcuda.so.1" in content  # opened at the first use
    for trace in (b"kernel.py", b"triton/language", str(ROOT / "src").encode()):
        assert trace not in content


def test_what_is_configured_again_is_left_alone(library: Library) -> None:
    finished = run_cmake(library.build, *library.options)
    assert finished.returncode == 0, finished.stderr
    targets = ", ".join(f"sm_{target}" for target in TARGETS)
    assert re.search(rf"Triton .* kernels for {targets}; nothing changed", finished.stdout)
    ninja = subprocess.run(
        ["ninja", "-C", library.build, "infini_ops"], capture_output=True, text=True, check=True
    )
    assert "no work to do" in ninja.stdout


def test_kernels_configure_again_where_they_change(library: Library) -> None:
    rules = (library.build / "build.ninja").read_text()
    for name in ("kernel.py", "build.py"):
        assert f" {ROOT / 'src/triton/ops/add' / name} " in rules
    assert f" {ROOT / 'codegen/triton/worker.py'} " in rules
