"""The installed headers and library, as a C++ program uses them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import infini.ops
import torch

PACKAGE = Path(infini.ops.__file__).parent
TORCH_LIBRARIES = Path(torch.__file__).parent / "lib"

PROGRAM = """
#include <cstdio>
#include <stdexcept>

int main() {
  using namespace infini::ops;
  float x[4] = {-1, 2, -3, 4};
  float y[4] = {};
  const Tensor input(x, {4}, DataType::kFloat32);
  const Tensor out(y, {4}, DataType::kFloat32);

  Abs::Call(input, out);
  std::printf("%g %g\\n", y[0], y[3]);
  Add::Call(input, input, 2, out, {0});  // the native slot
  std::printf("%g\\n", y[0]);
  Add::Call(input, input, 2, out, {8});  // torch's
  std::printf("%g\\n", y[0]);
  try {
    Add::Call(input, Tensor(x, {3}, DataType::kFloat32), out);
  } catch (const std::invalid_argument& error) {
    std::puts(error.what());
  }
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiles a program that includes every operator header at once."""
    folder = tmp_path_factory.mktemp("cpp")
    headers = sorted((PACKAGE / "include" / "infini" / "ops" / "base").glob("*.h"))
    includes = "".join(f"#include <infini/ops/base/{header.name}>\n" for header in headers)
    (folder / "program.cc").write_text(includes + PROGRAM)
    command = [
        *("c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "program.cc", "-o", "program"),
        f"-I{infini.ops.include_dir()}",
        str(PACKAGE / "libinfini_ops.so"),
        f"-Wl,-rpath,{PACKAGE}",
        f"-Wl,-rpath-link,{TORCH_LIBRARIES}",
    ]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


def test_a_program_calls_operators_without_python(program: Path) -> None:
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == [
        "1 4",
        "-3",
        "-3",
        "add: float32[3] does not broadcast to out, float32[4]",
    ]
